# SPDX-License-Identifier: Apache-2.0
"""Truncating a queue's files before the first unit of a record that will be put again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.access import naming
from store_core.queue.units.batch_consume_queue_unit import BATCH_UNIT_DTYPE
from store_core.queue.units.consume_queue_unit import UNIT_DTYPE

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["cut_queue"]

_BLANK_SIZE: Final = 2**31 - 1


def cut_queue(directory: Path, since_offset: int, *, is_batch: bool) -> None:
    """Zero everything after the units of records before `since_offset`, and delete files without any.

    A queue's units are in log order, so the ones kept are at its beginning. A broker's own truncation
    (``truncateDirtyLogicFiles``) is not usable here: it takes whatever a file begins with for a unit.

    Parameters
    ----------
    directory : Path
        The queue's directory, not in use.
    since_offset : int
        Physical offset.
    is_batch : bool
        Whether it is a batch queue.
    """
    dtype = BATCH_UNIT_DTYPE if is_batch else UNIT_DTYPE
    is_over = False
    for path in sorted(
        (path for path in directory.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name)
    ):
        units = np.fromfile(path, dtype)
        size = units["store_size"]
        is_blank = (size == _BLANK_SIZE) & (units["physical_offset"] == 0)
        is_kept = (size > 0) & (units["physical_offset"] >= 0) & (is_blank | (units["physical_offset"] < since_offset))
        kept = 0 if is_over else len(units) if is_kept.all() else int(is_kept.argmin())
        if not kept or is_blank[:kept].all():
            path.unlink()
        elif kept < len(units):
            units[kept:] = np.zeros(1, dtype)
            with naming(path), path.open("r+b") as file:
                file.write(units.tobytes())
        is_over |= kept < len(units)

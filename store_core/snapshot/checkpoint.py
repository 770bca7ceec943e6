# SPDX-License-Identifier: Apache-2.0
"""The file ``checkpoint`` as it is read: how far log, queues and index were safely on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import CorruptRecordError
from store_core.files.access import explained_access
from store_core.files.store_parts import CHECKPOINT_FILE
from store_core.format.layout import CHECKPOINT, unit_dtype
from store_core.format.releases.release import rules_of
from store_core.snapshot.config import check_is_file

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.format.layout import Field

__all__ = ["checkpoint_fields", "read_checkpoint"]

_DTYPE: Final = unit_dtype(CHECKPOINT)
_FIELDS_BEFORE_5: Final = 3
_FIELDS_BEFORE_5_5: Final = 5


def checkpoint_fields(release: str) -> tuple[Field, ...]:
    """Return the fields at the start of the file that a release reads and writes."""
    features = rules_of(release)
    if not features.keeps_confirmed_offset:
        return CHECKPOINT.fields[:_FIELDS_BEFORE_5]
    return CHECKPOINT.fields if features.keeps_flushed_queue_offset else CHECKPOINT.fields[:_FIELDS_BEFORE_5_5]


def read_checkpoint(root: Path, release: str | None = None) -> dict[str, int] | None:
    """Return the values by field: those of a release, or as many as the file has; None without the file."""
    path = root / CHECKPOINT_FILE
    with explained_access(root):
        check_is_file(path)
        try:
            with path.open("rb") as file:
                data = file.read(_DTYPE.itemsize)
        except FileNotFoundError:
            return None
    names = [field.name for field in (CHECKPOINT.fields if release is None else checkpoint_fields(release))]
    size = _DTYPE.itemsize // len(CHECKPOINT.fields)
    if release is not None and len(data) < len(names) * size:
        raise CorruptRecordError(
            "checkpoint too short", str(path), 0, f"{len(names) * size} bytes or more", f"{len(data)} bytes", data,
            "Compare it with another copy of the store; option release says which fields there are",
        )  # fmt: skip
    numbers = np.frombuffer(data[: len(data) // size * size], ">i8").tolist()
    return dict(zip(names, numbers, strict=False))

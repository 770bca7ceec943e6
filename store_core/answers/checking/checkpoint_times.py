# SPDX-License-Identifier: Apache-2.0
"""Checks that a checkpoint can be right: recovery after a crash trusts its times."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from store_core.answers.checking.finding import Finding, FindingKind
from store_core.format.iso_time import iso_time
from store_core.store.state.store_checkpoint import CHECKPOINT_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["checkpoint_findings"]

_TIMES: Final = struct.Struct(">qqq")
_NAMES: Final = ("log", "queues", "index")
_MARGIN_MS: Final = 3000
"""How far a recovery goes back before these times anyway."""

_LOST_MS: Final = 24 * 3600 * 1000
"""How much of a log a crash may have taken: times that are later than its last record by more were never right."""


def checkpoint_findings(store: Path, latest: int | None, *, is_open: bool) -> Iterator[Finding]:
    """Yield what can't be right in a checkpoint: one finding at most.

    Parameters
    ----------
    store : Path
        The store's root.
    latest : int, optional
        Store time of the last record, ms, if the log's end is known to be there: no time can be later. A later one lets
        a recovery start after records that no queue has.
    is_open : bool
        Whether the store was not closed.
    """
    margin = _LOST_MS if is_open else _MARGIN_MS
    path = store / CHECKPOINT_FILE
    if not path.is_file():
        return
    with path.open("rb") as file:
        data = file.read(_TIMES.size)
    if len(data) < _TIMES.size:
        expected, found = f"{_TIMES.size} bytes or more", f"{len(data)} bytes"
        yield Finding(FindingKind.CHECKPOINT, str(path), expected=expected, found=found)
        return
    for name, time in zip(_NAMES, _TIMES.unpack(data), strict=True):
        if time < 0 or (latest is not None and time > latest + margin):
            bound = "0 or more" if latest is None else f"0 to {iso_time(latest)}, of the last record"
            found = f"{time} ms for the {name}"
            yield Finding(FindingKind.CHECKPOINT, str(path), expected=f"a time of {bound}", found=found)
            return

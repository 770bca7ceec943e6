# SPDX-License-Identifier: Apache-2.0
"""Checks that a checkpoint can be right: recovery after a crash trusts its times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.answers.checking.finding import Finding, FindingKind
from store_core.files.file_system import OsFileSystem
from store_core.files.store_parts import CHECKPOINT_FILE
from store_core.format.iso_time import iso_time
from store_core.snapshot.checkpoint import checkpoint_fields
from store_core.store.state.store_checkpoint import (
    LOG_OFFSETS,
    LOG_TIMES,
    RECOVERY_MARGIN_MS,
    StoreCheckpoint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.format.releases.release import Release

__all__ = ["LogReach", "WrongValue", "checkpoint_findings", "wrong_values"]

_LEAST_BYTES: Final = 8 * len(LOG_TIMES)
_LOST_MS: Final = 24 * 3600 * 1000
"""How much of a log a crash may have taken: times that are later than its last record by more were never right."""


@dataclass(frozen=True, slots=True)
class LogReach:
    """How far a log reaches.

    Attributes
    ----------
    last_timestamp : int
        Store time of its last record, ms.
    end_offset : int
        Physical offset one past that record.
    """

    last_timestamp: int
    end_offset: int


class WrongValue(NamedTuple):
    """A value that can't be right: the name of its field, and what is expected there."""

    name: str
    value: int
    expected: str


def wrong_values(
    checkpoint: StoreCheckpoint, release: Release, reach: LogReach | None, margin_ms: int = 0
) -> Iterator[WrongValue]:
    """Yield the values of a checkpoint that can't be right.

    Parameters
    ----------
    checkpoint : StoreCheckpoint
    release : str
        Which fields there are.
    reach : LogReach, optional
        Of the log, if its end is known to be there: nothing can be later.
    margin_ms : int
        By how much a time may be later all the same.
    """
    for name in LOG_TIMES:
        time = getattr(checkpoint, name)
        if time < 0 or (reach is not None and time > reach.last_timestamp + margin_ms):
            bound = "0 or more" if reach is None else f"0 to {iso_time(reach.last_timestamp)}, of the last record"
            yield WrongValue(name, time, f"a time of {bound}")
    known = {field.name for field in checkpoint_fields(release)}
    for name in LOG_OFFSETS:
        offset = getattr(checkpoint, name)
        if name in known and reach is not None and offset > reach.end_offset:
            yield WrongValue(name, offset, f"an offset up to {reach.end_offset}, the log's end")


def checkpoint_findings(store: Path, release: Release, reach: LogReach | None, *, is_open: bool) -> Iterator[Finding]:
    """Yield what can't be right in a checkpoint: one finding at most.

    Parameters
    ----------
    store : Path
        The store's root.
    release : str
        Which fields there are.
    reach : LogReach, optional
        Of the log, if its end is known to be there. A later time or offset lets a recovery start after records that no
        queue has.
    is_open : bool
        Whether the store was not closed: then a crash may have taken the log's end.
    """
    path = store / CHECKPOINT_FILE
    if not path.is_file():
        return
    size = path.stat().st_size
    if size < _LEAST_BYTES:
        expected, found = f"{_LEAST_BYTES} bytes or more", f"{size} bytes"
        yield Finding(FindingKind.CHECKPOINT, str(path), expected=expected, found=found)
        return
    checkpoint = StoreCheckpoint(store, OsFileSystem(), release).load()
    margin = _LOST_MS if is_open else RECOVERY_MARGIN_MS
    for wrong in wrong_values(checkpoint, release, reach, margin):
        if not (is_open and wrong.name in LOG_OFFSETS):
            found = f"{wrong.value} as {wrong.name}"
            yield Finding(FindingKind.CHECKPOINT, str(path), expected=wrong.expected, found=found)
            return

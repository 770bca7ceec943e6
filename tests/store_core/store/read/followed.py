# SPDX-License-Identifier: Apache-2.0
"""A store on disk, and a stream that follows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from store_core.store.read.follow.log_follower import LogFollower, ReadLimits
from store_core.store.read.follow.log_segments import LogPosition
from store_core.store.read.message_reader import read_range
from store_core.store.read.read_options import ReadOptions
from tests.builders import LogBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa


SIZE: Final = 1024
"""Bytes of a segment."""

ALL: Final = ReadLimits()


class Followed:
    """A store on disk, and a stream that follows it; positions pass through JSON, as in a checkpoint."""

    def __init__(self, root: Path, start_offset: int = 0) -> None:
        self.root = root
        self.log = LogBuilder(SIZE, start_offset)
        self.options: dict[str, Any] = {}
        self.restart()

    def restart(self, **options: Any) -> Followed:  # noqa: ANN401 -- those of reading
        """Forget what a process remembers."""
        self.options |= options
        self.parsed = ReadOptions.parse(**self.options)
        self.follower = LogFollower(self.root, self.parsed)
        return self

    def write(self, *, preallocated: int = 0) -> None:
        self.log.write(self.root, preallocated=preallocated)

    def first(self, *, at_end: bool = False) -> LogPosition:
        return through_json(self.follower.initial(at_end=at_end))

    def advance(self, start: LogPosition, limits: ReadLimits = ALL) -> LogPosition:
        return through_json(self.follower.advance(start, limits))

    def read(self, start: LogPosition, end: LogPosition) -> list[int]:
        """Return the physical offsets of a batch's rows, in order."""
        return [offset for batch in self.batches(start, end) for offset in batch["physical_offset"].to_pylist()]

    def batches(self, start: LogPosition, end: LogPosition) -> Iterator[pa.RecordBatch]:
        """Yield a batch's rows."""
        return (batch for part in self.follower.ranges(start, end) for batch in read_range(part, self.parsed))

    def drain(self, start: LogPosition, limits: ReadLimits = ALL) -> tuple[list[list[int]], LogPosition]:
        """Read batches until nothing is new."""
        batches = []
        while (end := self.advance(start, limits)) != start:
            batches.append(self.read(start, end))
            start = end
        return batches, start

    @property
    def offsets(self) -> list[int]:
        return [record.physical_offset for record in self.log.records]

    def expire(self) -> None:
        """Delete the first segment, for this store and for what is written later."""
        (self.root / "commitlog" / self.log.expire()).unlink()

    def delete_first(self) -> None:
        min((self.root / "commitlog").iterdir()).unlink()

    def truncate(self, number: int, *bodies: bytes) -> None:
        """Move the log's end back to a record, as recovery does, and write others from there on, after a restart."""
        self.log.truncate(self.offsets[number])
        for body in bodies:
            self.log.append(body)
        self.write()
        for path in (self.root / "commitlog").iterdir():
            if path.name not in self.log.segments():
                path.unlink()  # a recovery deletes the segments after the cut


def through_json(position: LogPosition) -> LogPosition:
    return LogPosition.from_json(json.loads(json.dumps(position.as_json())))

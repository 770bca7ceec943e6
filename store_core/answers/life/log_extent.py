# SPDX-License-Identifier: Apache-2.0
"""Where a log's files begin and end, and where files are missing between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.answers.report_schema import Fact
from store_core.files.remote.storage_settings import NO_SETTINGS
from store_core.files.store_path import list_segments, missing_ranges

if TYPE_CHECKING:
    from typing import Self

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths

__all__ = ["MISSING_BYTES", "LogExtent", "missing_line"]

MISSING_BYTES: Final = Fact(
    "missing_bytes", "bytes of segments that are missing from the log: their records are in no table"
)


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The segment files of a log, in order."""

    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, paths: StorePaths) -> Self:
        """List the files; errors as of `store_core.files.store_path.list_segments`."""
        return cls(tuple(list_segments(paths, reads_entries=True, storage=NO_SETTINGS).segments))

    @property
    def begin(self) -> int:
        """Physical offset of the first byte."""
        return self.segments[0].start_offset

    @property
    def end(self) -> int:
        """Physical offset one past the last byte of the last file."""
        return self.segments[-1].end_offset

    def holes(self) -> list[tuple[int, int]]:
        """Return the ranges of offsets between files."""
        return list(missing_ranges(self.segments))

    @property
    def missing_bytes(self) -> int:
        """How many bytes are between files."""
        return sum(end - begin for begin, end in self.holes())


def missing_line(missing_bytes: int) -> str:
    """Return what a report says of missing files."""
    return f"{missing_bytes:,} bytes of the log are missing: what was in them is not counted"

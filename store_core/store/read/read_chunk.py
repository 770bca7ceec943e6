# SPDX-License-Identifier: Apache-2.0
"""The records and damaged ranges that form one batch of a read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.format.columnar.records import Records

__all__ = ["NO_BYTES", "ReadChunk", "RecordBytes", "SegmentWindow"]

_BATCH_BYTES: Final = 64 << 20
"""Maximum bytes of records in a batch of more than one; memory used besides them is a few times as much."""


class RecordBytes(Protocol):
    """Bytes of a segment that hold records."""

    @property
    def raw(self) -> npt.NDArray[np.uint8]:
        """The bytes, shape (m,)."""

    def start_offsets(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | int:
        """Return what to add to positions in `raw` for physical offsets."""


@dataclass(frozen=True, slots=True, eq=False)
class SegmentWindow:
    """Bytes of a segment as they lie in it, from a physical offset on."""

    raw: npt.NDArray[np.uint8]
    start_offset: int

    def start_offsets(self, positions: npt.NDArray[np.int64]) -> int:  # noqa: ARG002 -- the protocol's parameter
        """Return the physical offset of the first byte."""
        return self.start_offset


NO_BYTES: Final = SegmentWindow(np.empty(0, np.uint8), 0)


@dataclass(slots=True)
class ReadChunk:
    """The content of one batch: records, and damaged ranges between them, as positions in the same bytes."""

    window: RecordBytes
    records: list[Records] = field(default_factory=list)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def room(self, bounds: npt.NDArray[np.int64], most_rows: int) -> int:
        """Return how many of the records between `bounds` fit; into an empty chunk at least one."""
        by_size = int(np.searchsorted(bounds, bounds[0] + _BATCH_BYTES - self.size, "right")) - 1
        return max(min(bounds.size - 1, most_rows - self.rows, max(by_size, 0 if self.rows else 1)), 0)

    def take(self, records: Records, size: int) -> None:
        """Add records of `size` bytes in all."""
        if len(records):
            self.records.append(records)
            self.rows += len(records)
            self.size += size

    def take_damage(self, begin: int, end: int, most_rows: int) -> bool:
        """Add a damaged range if it fits, and return whether it did; into an empty chunk it always fits."""
        if self.rows and (self.rows >= most_rows or self.size + end - begin > _BATCH_BYTES):
            return False
        self.damaged.append((begin, end))
        self.rows += 1
        self.size += end - begin
        return True

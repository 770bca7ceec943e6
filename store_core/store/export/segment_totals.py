# SPDX-License-Identifier: Apache-2.0
"""Totals of the messages of a segment: equal on two sides if both have the same messages."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt


_WORD: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class SegmentTotals:
    """Count and sums, in any order of the messages.

    * `messages`, `bytes`: Messages, and bytes of their records.
    """

    segment: int  # physical offset at which the segment begins
    messages: int = 0
    bytes: int = 0
    crc_total: int = 0  # sum of the checksums of the bodies
    place_total: int = 0
    """Sum of ``(checksum + 1) * physical offset``, modulo 2**64: another message in the same place changes it, as does
    one that is there twice in the place of another."""

    def __add__(self, other: SegmentTotals) -> SegmentTotals:
        return SegmentTotals(
            self.segment,
            self.messages + other.messages,
            self.bytes + other.bytes,
            (self.crc_total + other.crc_total) % _WORD,
            (self.place_total + other.place_total) % _WORD,
        )

    @classmethod
    def of(
        cls,
        segment: int,
        places: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
        crcs: npt.NDArray[np.int64],
    ) -> Self:
        """Return the totals of messages.

        * `places`, `sizes`, `crcs`: int64, shape (n,): physical offset, record size and body checksum of each message.
        """
        checks = crcs.astype(np.uint64)
        mixed = (checks + np.uint64(1)) * places.astype(np.uint64)
        return cls(segment, places.size, int(sizes.sum()), int(checks.sum()), int(mixed.sum(dtype=np.uint64)))

    def as_json(self) -> dict[str, int]:
        """Return the totals by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, int]) -> Self:
        """Return what `as_json` made.

        Raises `TypeError`: If it is something else.
        """
        if not all(isinstance(value, int) for value in found.values()):
            raise TypeError("expected integers")
        return cls(**found)


def totals_by_segment(parts: Iterable[SegmentTotals]) -> dict[int, SegmentTotals]:
    """Add up totals of each segment, in the order of the log."""
    found: dict[int, SegmentTotals] = {}
    for each in parts:
        found[each.segment] = found[each.segment] + each if each.segment in found else each
    return dict(sorted(found.items()))

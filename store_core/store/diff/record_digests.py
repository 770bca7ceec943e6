# SPDX-License-Identifier: Apache-2.0
"""Digests of records that are the same wherever in a log the records are, and which of them only one log has."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.segment_source import open_ahead
from store_core.format.columnar.chain import Run
from store_core.format.columnar.records import Records
from store_core.format.damage.salvage import Salvage
from store_core.format.properties import CRC_RESERVED, PROPERTY_CRC

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.store.diff.segment_diff import PartSide

__all__ = ["DIGESTED", "Unmatched", "digested_records", "record_digests", "unmatched_records"]

_DIGEST_SIZE: Final = 16
_ROWS: Final = 1 << 14
_CRC_NAME: Final = f"{PROPERTY_CRC}\x01".encode()

DIGESTED: Final = np.dtype([("digest", f"V{_DIGEST_SIZE}"), ("offset", "<i8")])
"""A record: its digest, and its physical offset."""

_PLACES: Final = ("physical_offset", "prepared_transaction_offset")
"""Fields that hold offsets in the log, and so differ where logs are cut into segments of different sizes."""


@dataclass(frozen=True, slots=True, eq=False)
class Unmatched:
    """Records of a group that the other log does not have.

    * `a`, `b`: int64, ascending: physical offsets of each log's records that are not in the other.
    * `first_a`, `last_a`, `first_b`, `last_b`: Physical offsets of the first and the last record of each log that is in
      the other, too; -1 if none is.
    """

    a: npt.NDArray[np.int64]
    b: npt.NDArray[np.int64]
    first_a: int
    last_a: int
    first_b: int
    last_b: int
    matched: int


def record_digests(records: Records) -> list[bytes]:
    """Return a digest of each record, without the fields that depend on where it is.

    These are its own physical offset, that of the prepared message it belongs to, and the checksum over the whole
    record that RocketMQ 5.x can put into a property.
    """
    heads: list[bytes] = [b""] * len(records)
    for rows, group in records.heads.groups():
        without = group.copy()
        for name in _PLACES:
            without[name] = 0
        packed = without.view(f"V{without.dtype.itemsize}").tolist()
        for row, head in zip(range(len(records)) if rows is None else rows.tolist(), packed, strict=True):
            heads[row] = head
    data, spans = records.raw.data, records.spans
    bounds = zip(heads, spans.body_start.tolist(), spans.stops.tolist(), strict=True)
    return [_digest(head, data[start:stop]) for head, start, stop in bounds]


def _digest(head: bytes, rest: memoryview) -> bytes:
    digest = blake2b(head, digest_size=_DIGEST_SIZE)
    has_crc = rest[-CRC_RESERVED : -CRC_RESERVED + len(_CRC_NAME)] == _CRC_NAME
    digest.update(rest[:-CRC_RESERVED] if has_crc else rest)
    return digest.digest()


def digested_records(side: PartSide) -> Iterator[npt.NDArray[np.void]]:
    """Yield the sound records of a segment as arrays of `DIGESTED`, in log order."""
    segment, first = side.segment, side.segment.start_offset
    with open_ahead(segment) as opened:
        view = segment.view(opened).up_to(side.limit - first)
        for part in Salvage(view, only_newer=side.is_last).parts():
            if not isinstance(part, Run):
                continue
            for row in range(0, part.starts.size, _ROWS):
                records = Records(view.raw, part.starts[row : row + _ROWS], segment.name, first)
                found = np.empty(len(records), DIGESTED)
                found["digest"] = np.frombuffer(b"".join(record_digests(records)), DIGESTED["digest"])
                found["offset"] = records.starts + first
                yield found
            view.pages.drop(part.place.last_sound)


def unmatched_records(a: npt.NDArray[np.void], b: npt.NDArray[np.void]) -> Unmatched:
    """Find which records of two logs are not in the other; equal ones are matched one to one, in log order.

    * `a`, `b`: Of dtype `DIGESTED`.
    """
    words = np.concatenate([a["digest"], b["digest"]]).view("<u8").reshape(-1, 2)
    _, numbers = np.unique(words, axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    of_a, of_b = numbers[: a.size], numbers[a.size :]
    most = int(numbers.max(initial=-1)) + 1
    free_a = _ranks(of_a, a["offset"]) >= np.bincount(of_b, minlength=most)[of_a]
    free_b = _ranks(of_b, b["offset"]) >= np.bincount(of_a, minlength=most)[of_b]
    matched_a, matched_b = a["offset"][~free_a], b["offset"][~free_b]
    return Unmatched(
        np.sort(a["offset"][free_a]),
        np.sort(b["offset"][free_b]),
        int(matched_a.min(initial=-1 if not matched_a.size else matched_a[0])),
        int(matched_a.max(initial=-1)),
        int(matched_b.min(initial=-1 if not matched_b.size else matched_b[0])),
        int(matched_b.max(initial=-1)),
        int(matched_a.size),
    )


def _ranks(numbers: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how many earlier records have the same number."""
    order = np.lexsort((offsets, numbers))
    placed = numbers[order]
    ranks = np.empty(numbers.size, np.int64)
    ranks[order] = np.arange(numbers.size) - np.searchsorted(placed, placed)
    return ranks

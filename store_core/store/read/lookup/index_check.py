# SPDX-License-Identifier: Apache-2.0
"""Comparing entries of the index with the records that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.format.columnar.spans import Heads
from store_core.format.layout import MIN_RECORD_SIZE
from store_core.queue.dispatch.stored_batch import StoredBatch, StoredFile
from store_core.queue.queue_rules import QueueRules
from store_core.store.read.picks import NO_QUEUE, Picks

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.files.segment_source import PagedBytes, Segment
    from store_core.format.releases.release import Release

__all__ = ["first_contradiction", "load_records", "picks_at"]

_HASH_BITS: Final = 32
_HEAD: Final = 4 << 10
"""Bytes that are loaded first: more than a record's head, and most records."""


def load_records(opened: PagedBytes, segment: Segment, starts: npt.NDArray[np.int64]) -> None:
    """Load the records at physical offsets, as long as they say themselves, unless the segment is mapped.

    Parameters
    ----------
    opened : PagedBytes
        The segment, open.
    segment : Segment
    starts : numpy.ndarray
        int64, shape (n,).
    """
    if segment.is_mapped:
        return
    at = starts - segment.start_offset
    at = at[(at >= 0) & (at < segment.size)]
    lead = segment.framing.lead
    opened.load_many([(max(begin - lead, 0), begin + _HEAD) for begin in at.tolist()])
    sizes = Heads(opened.raw, at[at <= segment.size - MIN_RECORD_SIZE]).leading("total_size")
    opened.load_many([(begin, begin + max(size, 0)) for begin, size in zip(at.tolist(), sizes.tolist(), strict=False)])


def picks_at(raw: npt.NDArray[np.uint8], start_offset: int, starts: npt.NDArray[np.int64]) -> Picks:
    """Return the records at physical offsets of a segment, as long as they say themselves.

    Parameters
    ----------
    raw : numpy.ndarray
        uint8, shape (m,): the segment, up to where its records end.
    start_offset : int
        Physical offset of its first byte.
    starts : numpy.ndarray
        int64, shape (n,), ascending. Where no record can be, the size is 0.
    """
    sizes = np.zeros(starts.size, np.int64)
    fitting = np.flatnonzero(starts <= start_offset + raw.size - MIN_RECORD_SIZE)
    sizes[fitting] = Heads(raw, starts[fitting] - start_offset).leading("total_size")
    return Picks(starts, sizes, np.full(starts.size, NO_QUEUE, np.int32), np.zeros(starts.size, np.int64))


def first_contradiction(
    raw: npt.NDArray[np.uint8],
    start_offset: int,
    entries: npt.NDArray[np.void],
    release: Release,
    *,
    are_complete: bool,
) -> int | None:
    """Return the physical offset of a record whose keys are not those of its entries; None if there is none.

    Parameters
    ----------
    raw : numpy.ndarray
        As of `picks_at`.
    start_offset : int
    entries : numpy.ndarray
        Of `INDEX_DTYPE`, shape (n,), of sound records, ordered by their offsets.
    release : Release
        How properties are read.
    are_complete : bool
        Whether these are all entries of the records, so that all their keys must be among them. If not, they are all
        entries with the same hashes: a record then has as many such keys.
    """
    offsets = entries["physical_offset"].astype(np.int64)
    starts, rows = np.unique(offsets, return_inverse=True)
    batch = StoredBatch(StoredFile(raw, start_offset, QueueRules(release=release)), starts - start_offset)
    named, stored = _pairs(rows, entries["key_hash"]), batch.index_hashes(with_tags=True)
    found = _pairs(stored.rows, stored.hashes)
    if are_complete:
        keys = batch.index_hashes(with_tags=False)
        missing = keys.rows[~np.isin(_pairs(keys.rows, keys.hashes), named)]
        wrong = np.append(rows[~np.isin(named, found)], missing)
    else:
        pairs, counts = np.unique(named, return_counts=True)
        present, times = np.unique(found[np.isin(found, pairs)], return_counts=True)
        is_same = np.array_equal(pairs, present) and np.array_equal(counts, times)
        wrong = np.empty(0, np.int64) if is_same else pairs[:1] >> _HASH_BITS
    return int(starts[wrong.min()]) if wrong.size else None


def _pairs(rows: npt.NDArray[np.int64], hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Return a number for each pair of a row and a hash, which is not negative."""
    return (rows.astype(np.int64) << _HASH_BITS) | hashes.astype(np.int64)

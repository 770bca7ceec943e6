# SPDX-License-Identifier: Apache-2.0
"""What queues and index need, from records that a writer has encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.format.columnar.arrow_slices import binary_parts, take_slices
from store_core.format.java import hash_code
from store_core.format.properties import DELAY, INNER_MULTI_DISPATCH, INNER_NUM
from store_core.queue.dispatch.dispatch_batch import IndexHashes
from store_core.queue.dispatch.stored_batch import StoredBatch, StoredFile, StoredProperties, property_finder

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.format.columnar.encode_batch import EncodedBatch
    from store_core.format.release import Release
    from store_core.queue.queue_path import QueueRules


class DerivedColumns(NamedTuple):
    """Columns derived from the properties of some records."""

    tags_code: npt.NDArray[np.int64]  # int64, shape (n,): hash of TAGS
    index_hashes: IndexHashes  # entries for the key index; empty if the store has no index

    def rows(self, rows: slice) -> DerivedColumns:
        """Return the columns of a range of records."""
        keys = self.index_hashes
        first, last = np.searchsorted(keys.rows, (rows.start, rows.stop)).tolist()
        part = IndexHashes(keys.rows[first:last] - rows.start, keys.hashes[first:last])
        return DerivedColumns(self.tags_code[rows], part)


def derive_columns(records: EncodedBatch, rules: QueueRules) -> DerivedColumns | None:
    """Derive the columns that dispatching needs, as if the records were read from the log.

    Returns: None if some of them are not known until the records are complete, or are rare: a delayed message's tags
    code is its due time, transactions may be rolled back, and light queues and property checksums need the whole
    record.
    """
    lengths = records.property_lengths
    if lengths is None or not len(records) or records.append_property_crc or not records.is_queued.all():
        return None
    if not rules.features.stores_ipv6_hosts and records.v6_bits.any():  # the release would read a different record
        return None
    properties = _properties(records, lengths, rules.release)
    if any(properties.rows_with(name).size for name in (DELAY, INNER_NUM, INNER_MULTI_DISPATCH)):
        return None
    if not rules.is_index_enabled:
        return DerivedColumns(properties.tags_hashes(), IndexHashes(np.empty(0, np.int64), np.empty(0, np.int32)))
    prefixes = np.array([hash_code(f"{topic}#") for topic, _ in records.queues], np.int32)
    before = prefixes.take(records.queue_index)
    hashes = properties.index_hashes(before, with_tags=rules.features.indexes_tags)
    return DerivedColumns(properties.tags_hashes(), hashes)


def _properties(records: EncodedBatch, lengths: npt.NDArray[np.int64], release: Release) -> StoredProperties:
    """Return the records' properties, copied into an array small enough for a processor's cache."""
    stops = records.starts[1:]
    packed = take_slices(records.data, stops - lengths, stops)
    offsets, data, _ = binary_parts(packed)
    borders = offsets.astype(np.int64)
    return StoredProperties(data, borders[:-1], borders[1:], property_finder(release))


class KnownColumns(NamedTuple):
    """The known columns of `n` records that lie end to end.

    Attributes
    ----------
    physical_offset : int
        Of the first record.
    starts : numpy.ndarray
        int32 or int64, shape (n + 1,): where each record begins, and where the last one ends, relative to that.
    queues : tuple of tuple
        Topics and queue ids.
    queue_codes : numpy.ndarray
        int32, shape (n,): number of each record's queue in `queues`.
    queue_offset : numpy.ndarray
        int64, shape (n,).
    store_timestamp : int or numpy.ndarray
        ms; one for all records, or int64, shape (n,).
    is_queued : numpy.ndarray
        bool, shape (n,).
    derived : DerivedColumns
    """

    physical_offset: int
    starts: npt.NDArray[np.int32] | npt.NDArray[np.int64]
    queues: tuple[tuple[str, int], ...]
    queue_codes: npt.NDArray[np.int32]
    queue_offset: npt.NDArray[np.int64]
    store_timestamp: int | npt.NDArray[np.int64]
    is_queued: npt.NDArray[np.bool_]
    derived: DerivedColumns

    @property
    def end_offset(self) -> int:
        """Physical offset of the last record's end."""
        return self.physical_offset + int(self.starts[-1])

    @property
    def held_bytes(self) -> int:
        """Memory that the columns take."""
        keys = self.derived.index_hashes
        columns = (self.starts, self.queue_codes, self.queue_offset, self.is_queued, self.store_timestamp)
        held = (*columns, self.derived.tags_code, keys.rows, keys.hashes)
        return sum(column.nbytes for column in held if isinstance(column, np.ndarray))


class KnownBatch(StoredBatch):
    """A batch of records of a file, whose columns for queues and index are known; the others are read."""

    def __init__(self, file: StoredFile, known: KnownColumns) -> None:
        place = known.physical_offset - file.start_offset
        super().__init__(file, known.starts[:-1].astype(np.int64) + place)
        self._known = known
        self.physical_offset = self._starts + file.start_offset
        self.message_size = np.diff(known.starts).astype(np.int64)
        self.tags_code = known.derived.tags_code
        self.queue_offset = known.queue_offset
        self.is_queued = known.is_queued
        times = known.store_timestamp
        self.store_timestamp = np.full(len(self), times, np.int64) if isinstance(times, int) else times
        self.queues = known.queues

    @property
    def queue_codes(self) -> npt.NDArray[np.int32]:  # noqa: D102 -- see DispatchBatch
        return self._known.queue_codes

    def index_hashes(self, *, with_tags: bool) -> IndexHashes:  # noqa: ARG002, D102 -- see DispatchBatch; derived by the same rules
        return self._known.derived.index_hashes

# SPDX-License-Identifier: Apache-2.0
"""What queues and index need of newly encoded records, so that nobody has to read it back from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.format.columnar.arrow_slices import binary_parts, take_slices
from store_core.format.java import hash_code
from store_core.format.property_string import DELAY, INNER_MULTI_DISPATCH, INNER_NUM
from store_core.queue.dispatch.dispatch_batch import IndexHashes
from store_core.queue.dispatch.stored_properties import StoredProperties, property_finder

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.format.columnar.encoded_batch import EncodedBatch
    from store_core.format.releases.release import Release
    from store_core.queue.queue_rules import QueueRules

__all__ = ["DerivedColumns", "derive_columns"]


class DerivedColumns(NamedTuple):
    """Columns derived from the properties of some records.

    Attributes
    ----------
    tags_code : numpy.ndarray
        int64, shape (n,): hash of TAGS.
    index_hashes : IndexHashes
        Entries for the key index; empty if the store has no index.
    """

    tags_code: npt.NDArray[np.int64]
    index_hashes: IndexHashes

    def rows(self, rows: slice) -> DerivedColumns:
        """Return the columns of a range of records."""
        keys = self.index_hashes
        first, last = np.searchsorted(keys.rows, (rows.start, rows.stop)).tolist()
        part = IndexHashes(keys.rows[first:last] - rows.start, keys.hashes[first:last])
        return DerivedColumns(self.tags_code[rows], part)


def derive_columns(records: EncodedBatch, rules: QueueRules) -> DerivedColumns | None:
    """Derive the columns that dispatching needs, as if the records were read from the log.

    Returns
    -------
    DerivedColumns or None
        None if some of them are not known until the records are complete, or are rare: a delayed message's tags code
        is its due time, transactions may be rolled back, and light queues and property checksums need the whole
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

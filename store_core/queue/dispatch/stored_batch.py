# SPDX-License-Identifier: Apache-2.0
"""What queues and index need: from records in a log, and from records that a writer has encoded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from store_core.errors import CorruptRecordError
from store_core.format.columnar.arrow_slices import binary_parts, number_queues, take_slices
from store_core.format.columnar.java_hashes import SliceHashes, hash_slices, hashed_slices, positive_hashes
from store_core.format.columnar.property_columns import PropertyFinder, PropertySpans, split_key_column
from store_core.format.columnar.spans import Heads, Spans, gather, measure
from store_core.format.java import hash_code
from store_core.format.layout import TRANSACTION_MASK, TransactionType
from store_core.format.properties import (
    DELAY,
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_NUM,
    KEY_SEPARATOR,
    KEYS,
    TAGS,
    UNIQ_KEY,
    PropertyParser,
    decode_text,
)
from store_core.format.record.delayed import SCHEDULE_TOPIC
from store_core.queue.dispatch.dispatch_batch import (
    INDEX_TAG_PREFIX,
    DispatchBatch,
    DispatchRequest,
    IndexHashes,
    QueueNumbering,
)
from store_core.queue.dispatch.rocketmq_check import check_message_and_return_size, delay_of_level

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.format.columnar.encode_batch import EncodedBatch
    from store_core.format.release import Release
    from store_core.queue.queue_path import QueueRules


_NAMES: Final = (TAGS, KEYS, UNIQ_KEY, DELAY, INNER_NUM, INNER_BASE, INNER_MULTI_DISPATCH)
_BLANK: Final = ord(KEY_SEPARATOR)
_HASH_FACTOR: Final = np.int32(31)
"""Of Java's ``String.hashCode``."""


def property_finder(release: Release) -> PropertyFinder:
    """Return a finder of the properties that dispatching needs, by a release's rules."""
    return PropertyFinder(_NAMES, PropertyParser.of_release(release))


class StoredProperties:
    """Properties of many records.

    * `raw`: uint8, shape (m,), contiguous.
    * `starts`, `stops`: int64, shape (n,): the property strings ``raw[starts[i]:stops[i]]``, ascending without overlap.
    """

    def __init__(
        self,
        raw: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        stops: npt.NDArray[np.int64],
        finder: PropertyFinder,
    ) -> None:
        self._raw = raw
        self._starts = starts
        self._stops = stops
        self._finder = finder

    @cached_property
    def _found(self) -> list[PropertySpans | None]:
        return self._finder.find(self._raw, self._starts, self._stops)

    def span(self, name: str) -> PropertySpans:
        """Return where a property lies; an empty span if it is missing."""
        return self._found[_NAMES.index(name)] or PropertySpans(self._starts, self._starts)

    def rows_with(self, *names: str) -> npt.NDArray[np.int64]:
        """Return the rows that have all of these properties, ascending."""
        spans = [self._found[_NAMES.index(name)] for name in names]
        if None in spans:
            return np.empty(0, np.int64)
        return np.flatnonzero(np.logical_and.reduce([found.present for found in spans if found is not None]))

    def tags_hashes(self) -> npt.NDArray[np.int64]:
        """Hash TAGS; int64, shape (n,), 0 if missing."""
        return self._tags_hashed.hashes.astype(np.int64)

    @cached_property
    def _tags_hashed(self) -> SliceHashes:
        tags = self.span(TAGS)
        return hashed_slices(self._raw, tags.starts, tags.stops)

    def index_hashes(
        self,
        before: npt.NDArray[np.int32],
        is_indexed: npt.NDArray[np.bool_] | np.bool_ = np.True_,
        *,
        with_tags: bool,
    ) -> IndexHashes:
        """Hash the keys: UNIQ_KEY, then KEYS split at blanks, then TAGS.

        * `before`: int32, shape (n,): hash of what comes before each record's keys.
        * `is_indexed`: bool, shape (n,): False for records whose keys are skipped.
        """
        unique, keys = self.span(UNIQ_KEY), self.span(KEYS)
        unique_rows = np.flatnonzero(unique.present & is_indexed)
        unique_hashes = hash_slices(
            self._raw, unique.starts.take(unique_rows), unique.stops.take(unique_rows), before.take(unique_rows)
        )
        key_rows, key_hashes = self._token_hashes(keys, np.flatnonzero(keys.present & is_indexed), before)
        kinds = [(unique_rows, unique_hashes), (key_rows, key_hashes)]
        if with_tags:
            kinds.append(self._tag_hashes(is_indexed, before))
        return _merged(kinds)

    def tagged_rows(self, is_indexed: npt.NDArray[np.bool_] | np.bool_ = np.True_) -> npt.NDArray[np.int64]:
        """Return the rows, ascending, that have tags to be indexed; `is_indexed` as for `index_hashes`."""
        tags = self.span(TAGS)
        return np.flatnonzero((tags.starts < tags.stops) & is_indexed)

    def _tag_hashes(
        self, is_indexed: npt.NDArray[np.bool_] | np.bool_, before: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Hash tags that are not empty; return the row and the hash of each."""
        rows = self.tagged_rows(is_indexed)
        prefixed = before.take(rows)
        for character in INDEX_TAG_PREFIX:
            prefixed = prefixed * _HASH_FACTOR + np.int32(ord(character))  # wraps, as in Java
        return rows, self._tags_hashed.take(rows).after(prefixed)

    def _token_hashes(
        self, keys: PropertySpans, rows: npt.NDArray[np.int64], before: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Split KEYS of some rows at blanks; return the row and the hash of each key."""
        packed = take_slices(self._raw, keys.starts.take(rows), keys.stops.take(rows))
        offsets, data, _ = binary_parts(packed)
        owners = rows
        if (data[: offsets[-1]] == _BLANK).any():
            lists = split_key_column(pa.Array.from_buffers(pa.string(), len(packed), packed.buffers()))
            owners = np.repeat(rows, np.diff(np.frombuffer(lists.buffers()[1], np.int32)[: rows.size + 1]))
            offsets, data, _ = binary_parts(lists.values)
        ends = offsets.astype(np.int64)
        return owners, hash_slices(data, ends[:-1], ends[1:], before.take(owners))


def _merged(kinds: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]]) -> IndexHashes:
    """Merge all kinds of keys in row order, a row's in the order of kinds; a hash that Java can't negate becomes 0."""
    first, _ = kinds[0]
    if all(np.array_equal(first, rows) for rows, _ in kinds[1:]):
        rows, hashes = np.repeat(first, len(kinds)), np.empty(len(kinds) * first.size, np.int32)
        for number, (_, part) in enumerate(kinds):
            hashes[number :: len(kinds)] = part
    else:
        rows, hashes = (np.concatenate(parts) for parts in zip(*kinds, strict=True))
        order = np.argsort(rows, kind="stable")
        rows, hashes = rows[order], hashes[order]
    return IndexHashes(rows, positive_hashes(hashes))


_NOT_DELAYED, _DELAYED, _ILLEGAL = range(3)
_SCHEDULE_TOPIC: Final = np.frombuffer(SCHEDULE_TOPIC.encode(), f"V{len(SCHEDULE_TOPIC)}")


class QueueNumbers:
    """Numbering of the queues of a log's records; windows of a log share it.

    * `queues`: Topic and queue id by number. Malformed bytes of topics are U+FFFD; as in Java, topics that differ only
      in such bytes are the same.
    """

    def __init__(self) -> None:
        self._numbers = QueueNumbering()
        self.queues = self._numbers.queues
        self._stored: dict[tuple[bytes, int], int] = {}
        self._prefixes = np.empty(0, np.int32)

    def find(
        self,
        raw: npt.NDArray[np.uint8],
        starts: npt.NDArray[np.int64],
        stops: npt.NDArray[np.int64],
        queue_ids: npt.NDArray[np.int32],
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Return the numbers of the queues of some records, ascending, and each record's place among these.

        * `raw`: uint8, shape (m,), contiguous: bytes of the log.
        * `starts`, `stops`: int64, shape (n,): where the topics lie in them, ascending without overlap.
        * `queue_ids`: int32, shape (n,).
        """
        queues, codes = number_queues(take_slices(raw, starts, stops).dictionary_encode(), queue_ids.astype(np.int64))
        numbers = np.array([self._number(queue) for queue in queues], np.int64)
        occurring, places = np.unique(numbers, return_inverse=True)
        return occurring, places.astype(np.int32).take(codes)

    def _number(self, queue: tuple[bytes, int]) -> int:
        number = self._stored.get(queue)
        if number is None:
            topic, queue_id = queue
            number = self._stored[queue] = self._numbers.number((decode_text(topic), queue_id))
        return number

    def index_prefixes(self) -> npt.NDArray[np.int32]:
        """Return the hash of the index's prefix of a key, ``topic#``, by number of the queue."""
        known = self._prefixes
        if known.size < len(self.queues):
            new = np.array([hash_code(f"{topic}#") for topic, _ in self.queues[known.size :]], np.int32)
            self._prefixes = np.concatenate([known, new])
        return self._prefixes


class StoredFile:
    """State shared by the batches of one file: its bytes, and the queues and properties found so far.

    * `raw`: uint8, shape (m,), contiguous: the file, or a window of it.
    * `numbers`: Of its queues; those of the window before it may go on here.
    """

    def __init__(self, raw: npt.NDArray[np.uint8], start_offset: int, rules: QueueRules) -> None:
        self.raw = raw
        self.start_offset = start_offset
        self.rules = rules
        self.numbers = QueueNumbers()
        self.finder = property_finder(rules.release)

    def request(self, start: int) -> DispatchRequest:
        """Return the request of a record that is known to be valid."""
        view, stop = self.raw.data, self.raw.size
        check = check_message_and_return_size(view, start, stop, self.rules)
        if check.request is None:
            problem, advice = "record changed while it was read", "Another process writes to the file; read it again."
            raise CorruptRecordError(problem, "<memory>", self.start_offset + start, "a record", "none", b"", advice)
        return check.request


@dataclass(frozen=True, slots=True)
class DelayedRecords:
    """Records of the schedule topic with a delay level."""

    rows: npt.NDArray[np.int64]  # int64, shape (k,), ascending: rows that are really delayed
    delays: npt.NDArray[np.int64]  # int64, shape (k,), ms
    illegal_rows: npt.NDArray[np.int64]
    """int64, ascending: rows whose level is not an integer, so that RocketMQ considers the record damaged."""


def _delays_of(levels: list[str], rules: QueueRules) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int64]]:
    """Return the kind of each level, and its delay in ms if it has one."""
    kinds, delays = np.full(len(levels), _NOT_DELAYED, np.int8), np.zeros(len(levels), np.int64)
    for number, level in enumerate(levels):
        try:
            delay = delay_of_level(level, rules)
        except ValueError:
            kinds[number] = _ILLEGAL
        else:
            if delay is not None:
                kinds[number], delays[number] = _DELAYED, delay
    return kinds, delays


def _leading(name: str) -> cached_property[npt.NDArray[Any]]:
    """Return a column of a field that is at the same place in all heads."""
    return cached_property(lambda batch: batch.heads.leading(name))


class StoredBatch(DispatchBatch):
    """A batch of records of a file.

    * `starts`: int64, shape (n,), ascending: where they lie. `spans`, `delayed` and `inner_candidates` serve to find
      out whether the records are sound; only then may anything else be used.

    * `inner_batches`: The requests of inner batches by row; set by the code that validates the records.
    """

    physical_offset = _leading("physical_offset")
    queue_offset = _leading("queue_offset")
    queue_id = _leading("queue_id")
    sys_flag = _leading("sys_flag")

    def __init__(self, file: StoredFile, starts: npt.NDArray[np.int64]) -> None:
        self.inner_batches: dict[int, DispatchRequest] = {}
        self._file = file
        self._starts = starts

    def first(self, count: int) -> StoredBatch:
        """Return the batch of the first records; itself if that is all of them."""
        if count == len(self):
            return self
        batch = StoredBatch(self._file, self._starts[:count])
        batch.inner_batches = {row: request for row, request in self.inner_batches.items() if row < count}
        return batch

    def __len__(self) -> int:
        """Count the records."""
        return self._starts.size

    @cached_property
    def heads(self) -> Heads:
        """The fixed parts of the records."""
        return Heads(self._file.raw, self._starts)

    @cached_property
    def spans(self) -> Spans:
        """Where the parts of the records lie, and whether they add up."""
        return measure(self.heads, None)

    @cached_property
    def properties(self) -> StoredProperties:
        """The properties of the records."""
        spans, file = self.spans, self._file
        return StoredProperties(file.raw, spans.properties_start, spans.stops, file.finder)

    @cached_property
    def delayed(self) -> DelayedRecords:
        """The records whose tags code is a time, and those whose level can't be parsed."""
        rows = self.properties.rows_with(DELAY)
        if not rows.size:
            return DelayedRecords(rows, rows, rows)
        rows = rows[self._is_of_schedule_topic(rows)]
        spans = self.properties.span(DELAY)
        levels = take_slices(self._file.raw, spans.starts[rows], spans.stops[rows]).dictionary_encode()
        kinds, delays = _delays_of([decode_text(level) for level in levels.dictionary.to_pylist()], self._file.rules)
        codes = levels.indices.to_numpy(zero_copy_only=False)
        is_delayed = kinds[codes] == _DELAYED
        return DelayedRecords(rows[is_delayed], delays[codes][is_delayed], rows[kinds[codes] == _ILLEGAL])

    def _is_of_schedule_topic(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        starts, lengths = self.spans.topic_start[rows], self.spans.topic_stop[rows] - self.spans.topic_start[rows]
        of_length = np.flatnonzero(lengths == len(SCHEDULE_TOPIC))
        found = np.zeros(rows.size, np.bool_)
        found[of_length] = gather(self._file.raw, starts[of_length], _SCHEDULE_TOPIC.dtype) == _SCHEDULE_TOPIC
        return found

    @cached_property
    def inner_candidates(self) -> npt.NDArray[np.int64]:
        """Rows that are inner batches if the numbers in their properties are valid, ascending; none before 5.0."""
        return (
            self.properties.rows_with(INNER_NUM, INNER_BASE)
            if self._file.rules.features.has_inner_batches
            else np.empty(0, np.int64)
        )

    @property
    def starts(self) -> npt.NDArray[np.int64]:  # noqa: D102 -- here and below: see DispatchBatch
        return self._starts

    @cached_property
    def message_size(self) -> npt.NDArray[np.int64]:  # noqa: D102
        return self.spans.stops - self._starts

    @cached_property
    def tags_code(self) -> npt.NDArray[np.int64]:  # noqa: D102
        delayed = self.delayed
        codes = self.properties.tags_hashes()
        codes[delayed.rows] = self.store_timestamp[delayed.rows] + delayed.delays
        return codes

    @cached_property
    def store_timestamp(self) -> npt.NDArray[np.int64]:  # noqa: D102
        return self.heads.column("store_timestamp")

    @cached_property
    def message_base_offset(self) -> npt.NDArray[np.int64]:  # noqa: D102
        if not self.inner_batches:
            return self.queue_offset
        offsets = self.queue_offset.copy()
        for row, request in self.inner_batches.items():
            offsets[row] = request.message_base_offset
        return offsets

    @cached_property
    def batch_size(self) -> npt.NDArray[np.int16]:  # noqa: D102
        sizes = np.ones(len(self), np.int16)
        for row, request in self.inner_batches.items():
            sizes[row] = request.batch_size
        return sizes

    @cached_property
    def _numbered(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Which of the file's queues occur, and each record's position among them."""
        spans = self.spans
        return self._file.numbers.find(self._file.raw, spans.topic_start, spans.topic_stop, self.queue_id)

    @cached_property
    def queues(self) -> tuple[tuple[str, int], ...]:  # noqa: D102
        return tuple(self._file.numbers.queues[number] for number in self._numbered[0].tolist())

    @property
    def queue_codes(self) -> npt.NDArray[np.int32]:  # noqa: D102
        return self._numbered[1]

    @cached_property
    def multi_dispatch_rows(self) -> npt.NDArray[np.int64]:  # noqa: D102
        return self.properties.rows_with(INNER_MULTI_DISPATCH)

    def request(self, row: int) -> DispatchRequest:  # noqa: D102
        return self._file.request(int(self._starts[row]))

    def index_hashes(self, *, with_tags: bool) -> IndexHashes:  # noqa: D102
        occurring, codes = self._numbered
        before = self._file.numbers.index_prefixes().take(occurring).take(codes)
        return self.properties.index_hashes(before, self._is_indexed, with_tags=with_tags)

    @property
    def tagged_rows(self) -> npt.NDArray[np.int64]:  # noqa: D102
        return self.properties.tagged_rows(self._is_indexed)

    @property
    def _is_indexed(self) -> npt.NDArray[np.bool_]:
        indexed: npt.NDArray[np.bool_] = self.sys_flag & TRANSACTION_MASK != TransactionType.ROLLBACK_TYPE.value
        return indexed


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

# SPDX-License-Identifier: Apache-2.0
"""Encoding of many messages as records at once.

The pieces of all records (head, body, topic, properties) are columns, and Arrow joins them into one buffer. The result
equals that of `store_core.format.record.encode.encode_message` row by row, to the byte. An `EncodedBatch` is completed
with what is known only inside the put lock, as `store_core.format.record.encode.do_append` does it for one put.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.format.columnar.arrow_slices import number_queues
from store_core.format.columnar.encode_columns import (
    DelayedRows,
    HeadValue,
    HostColumn,
    Part,
    group_properties,
    head_items,
    in_row_order,
    item_crcs,
    item_lengths,
    join_items,
    lengths_before,
)
from store_core.format.columnar.input_columns import UNKNOWN_HOST, MessageColumns
from store_core.format.columnar.spans import body_crcs
from store_core.format.layout import (
    HEAD_SIZES,
    TRANSACTION_MASK,
    V6_BITS,
    MessageSysFlag,
    TransactionType,
    field_position,
    head_dtype,
)
from store_core.format.properties import (
    CRC_DIGITS,
    CRC_NAME,
    CRC_RESERVED,
    INNER_MULTI_DISPATCH,
    INNER_NUM,
    MAX_PROPERTIES_SIZE,
)
from store_core.format.record.delayed import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    delay_level,
    is_timed,
    may_be_delayed,
    to_schedule_topic,
    without_timers,
)
from store_core.format.record.encode import (
    ENCODER_RESERVE,
    EncodeRules,
    Refusal,
    encode_message,
    message_version,
    pack_host,
    properties_bytes,
    stored_properties,
    topic_limit,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.format.message import Message


_OFFSET_PAIR: Final = np.dtype([("queue_offset", ">i8"), ("physical_offset", ">i8")])
_TIME: Final = np.dtype(">i8")


@dataclass(frozen=True, eq=False)
class EncodedBatch:
    """Records that are complete except for physical offset, queue offset and store time; can be pickled."""

    data: npt.NDArray[np.uint8]  # uint8, writable: the records, end to end
    starts: npt.NDArray[np.int64]
    """int64, shape (n + 1,): where each record begins in `data`, and where the last one ends."""
    queues: tuple[tuple[str, int], ...]  # the distinct topics and queue ids
    queue_index: npt.NDArray[np.int32]  # int32, shape (n,): the queue of each record
    is_queued: npt.NDArray[np.bool_]  # bool, shape (n,): False for prepared and rolled-back transaction messages
    v6_bits: npt.NDArray[np.uint8]  # uint8, shape (n,): host bits of each record's sys_flag
    append_property_crc: bool = False  # whether records end with space for their property CRC
    property_lengths: npt.NDArray[np.int64] | None = None
    """int64, shape (n,): bytes of each record's properties, which end the record; None if not known."""

    def __len__(self) -> int:
        return int(self.queue_index.size)

    @cached_property
    def queue_counts(self) -> npt.NDArray[np.int64]:
        """How many indexes each queue assigns to these records: int64, shape (number of queues,)."""
        return np.bincount(self.queue_index[self.is_queued], minlength=len(self.queues)).astype(np.int64)

    @cached_property
    def queue_ranks(self) -> npt.NDArray[np.int64]:
        """How many indexes a record's queue has assigned to records before it: int64, shape (n,)."""
        # numpy sorts 16-bit integers by radix sort, in a tenth of the time.
        few = len(self.queues) <= np.iinfo(np.uint16).max
        order = np.argsort(self.queue_index.astype(np.uint16) if few else self.queue_index, kind="stable")
        queues = self.queue_index[order]
        first = np.searchsorted(queues, np.arange(len(self.queues), dtype=np.int32))[queues]
        before = np.arange(len(self))
        if not self.is_queued.all():
            queued = self.is_queued[order]
            before = np.cumsum(queued) - queued
            first = before[first]
        ranks = np.empty(len(self), np.int64)
        ranks[order] = before - first
        return ranks

    def queue_offsets(self, first_offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return each record's queue offset if the queues start at `first_offsets`; 0 for records not queued."""
        return np.where(self.is_queued, first_offsets[self.queue_index] + self.queue_ranks, 0)


def complete_batch(
    batch: EncodedBatch,
    rows: slice,
    physical_offset: int,
    queue_offsets: npt.NDArray[np.int64],
    store_timestamp: int | npt.NDArray[np.int64],
) -> memoryview:
    """Complete some of the records in place, and return their bytes.

    * `rows`: Which records; they go to the log back to back.
    * `physical_offset`: Physical offset of the first of them.
    * `queue_offsets`: int64, shape (n,): those of all records of the batch.
    * `store_timestamp`: One time for all of them, or int64, shape (n,), for each record of the batch; ms.
    """
    if rows.start == rows.stop:
        return memoryview(b"")
    starts, first = batch.starts[rows], int(batch.starts[rows.start])
    pairs = np.empty(starts.size, _OFFSET_PAIR)
    pairs["queue_offset"] = queue_offsets[rows]
    pairs["physical_offset"] = starts - first + physical_offset
    _scatter(batch.data, starts + field_position(head_dtype(), "queue_offset"), pairs)
    times = np.empty(starts.size, _TIME)
    times[:] = store_timestamp if isinstance(store_timestamp, int) else store_timestamp[rows]
    _scatter(batch.data, starts + _time_positions(batch.v6_bits[rows]), times)
    if batch.append_property_crc:
        _complete_crcs(batch, rows)
    return memoryview(batch.data)[first : int(batch.starts[rows.stop])]  # type: ignore[arg-type]  # arrays have buffers


def _time_positions(v6_bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64] | int:
    if (v6_bits == v6_bits[0]).all():
        return field_position(head_dtype(int(v6_bits[0])), "store_timestamp")
    table = np.zeros(int(v6_bits.max()) + 1, np.int64)
    for bits in np.unique(v6_bits).tolist():
        table[bits] = field_position(head_dtype(bits), "store_timestamp")
    return table[v6_bits]


def _scatter(data: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], items: npt.NDArray[np.generic]) -> None:
    """Write items of fixed size at any positions: the bytes are viewed as overlapping items one byte apart."""
    if not positions.size:
        return
    size = items.dtype.itemsize
    kind = np.dtype(f"V{size}")
    overlapping = np.ndarray((data.size - size + 1,), kind, data, strides=(1,))
    overlapping[positions] = items.view(kind)


def _complete_crcs(batch: EncodedBatch, rows: slice) -> None:
    """Write each record's CRC at its end, as ``__CRC32#``: ten digits, the least significant first."""
    starts, ends = batch.starts[rows], batch.starts[rows.start + 1 : rows.stop + 1] - CRC_RESERVED
    crcs = body_crcs(batch.data, starts, ends)
    items = np.empty((starts.size, CRC_RESERVED), np.uint8)
    items[:, : len(CRC_NAME)] = np.frombuffer(CRC_NAME, np.uint8)
    for digit in range(CRC_DIGITS):
        items[:, len(CRC_NAME) + digit] = ord("0") + crcs % 10
        crcs //= 10
    items[:, -1] = 2
    _scatter(batch.data, ends, items.view(f"V{CRC_RESERVED}").ravel())


_BORN_V6: Final = int(MessageSysFlag.BORNHOST_V6_FLAG)
_STORE_V6: Final = int(MessageSysFlag.STOREHOSTADDRESS_V6_FLAG)
_PROPERTIES_LENGTH_SIZE: Final = 2
_BATCH_LIMIT: Final = 1 << 30
"""Bytes that one call encodes at most; Arrow's offsets would allow twice as much."""


def encode_batch(  # noqa: PLR0913 -- the messages, how they are written, and defaults
    messages: pa.RecordBatch | pa.Table,
    rules: EncodeRules | None = None,
    *,
    store_host: tuple[str, int] = ("127.0.0.1", 10911),
    born_host: tuple[str, int] = UNKNOWN_HOST,
    born_timestamp: int = 0,
    max_delay_level: int | None = None,
    first_row: int = 0,
    compute_crc: bool = True,
) -> EncodedBatch:
    """Encode many messages.

    * `messages`: Columns of `store_core.format.columnar.input_columns.INPUT_COLUMNS`.
    * `rules`: None: release 5.3 with RocketMQ's defaults.
    * `store_host`, `born_host`, `born_timestamp` (ms): For messages without one.
    * `max_delay_level`: Number of delay levels: delayed messages go to the schedule topic. None leaves them in their
      topics.
    * `first_row`: Number of the first row, for errors.
    * `compute_crc`: False leaves the body checksums 0; for measurements.
    """
    batch = messages if isinstance(messages, pa.RecordBatch) else _combine(messages)
    columns = MessageColumns(batch, born_timestamp, first_row, born_host)
    encoder = _BatchEncoder(columns, rules or EncodeRules(), store_host, max_delay_level, first_row)
    return encoder.encode(compute_crc=compute_crc)


def _combine(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise InvalidOptionError(f"a table of {table.nbytes} bytes is too large to be encoded at once: split it")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


class _BatchEncoder:
    """The steps of one call of `encode_batch`."""

    def __init__(
        self,
        columns: MessageColumns,
        rules: EncodeRules,
        store_host: tuple[str, int],
        max_delay_level: int | None,
        first_row: int,
    ) -> None:
        self.columns = columns
        self.rules = rules
        self.store_host = store_host
        self.max_delay_level = max_delay_level
        self.first_row = first_row
        self.topics = columns.topics
        self.queue_ids = columns.integers("queue_id")
        self.sys_flags = columns.integers("sys_flag")
        self.body_lengths = item_lengths(columns.bodies).astype(np.int64)
        kinds = self.sys_flags & TRANSACTION_MASK
        self.is_queued = (kinds == TransactionType.NOT_TYPE.value) | (kinds == TransactionType.COMMIT_TYPE.value)

    def encode(self, *, compute_crc: bool) -> EncodedBatch:
        """Encode all rows."""
        inner = np.flatnonzero(self.sys_flags & MessageSysFlag.INNER_BATCH_FLAG)
        if inner.size:
            raise UnsupportedStoreError(
                f"row {self.first_row + int(inner[0])} is an inner batch, so it must be put by itself"
            )
        properties = [*self._properties(), bytes(self.rules.crc_reserved)]
        property_lengths = self._sum_of_lengths(properties)
        topics = self.topics.dictionary_encode()
        topic_fields, magics = self._topic_fields(topics)
        born = self._host_column(self.columns.hosts("born_host", self.columns.born_host))
        store = self._host_column(self.columns.hosts("store_host", self.store_host))
        v6_bits = born.is_v6 * np.uint8(_BORN_V6) + store.is_v6 * np.uint8(_STORE_V6)
        sizes = self.body_lengths + item_lengths(topic_fields) + property_lengths
        sizes += HEAD_SIZES[v6_bits] + _PROPERTIES_LENGTH_SIZE
        self._refuse_illegal(topics, sizes, property_lengths, v6_bits)
        values: dict[str, HeadValue] = {
            "total_size": sizes,
            "magic_code": magics,
            "born_host": born,
            "store_host": store,
        }
        values |= self._given_values(v6_bits)
        if compute_crc:
            values["body_crc"] = item_crcs(self.columns.bodies)
        head = [head_items(values, v6_bits), self.columns.bodies, topic_fields]
        data, starts = _writable(join_items([*head, *lengths_before(property_lengths, properties)]))
        queues, queue_index = number_queues(topics, self.queue_ids)
        crc = self.rules.append_property_crc
        return EncodedBatch(data, starts, queues, queue_index, self.is_queued, v6_bits, crc, property_lengths)

    def _sum_of_lengths(self, parts: list[Part]) -> npt.NDArray[np.int64]:
        constant = sum(len(part) for part in parts if isinstance(part, bytes))
        lengths = np.full(len(self.columns), constant, np.int64)
        for part in parts:
            if not isinstance(part, bytes):
                lengths += item_lengths(part)
        return lengths

    # ---- properties, and the queues of delayed messages

    def _properties(self) -> list[Part]:
        """Return the properties fields in pieces; also set the new topic and queue of delayed messages."""
        delays = None if self.max_delay_level is None else self._delays(self.max_delay_level)
        groups, others = group_properties(self.columns, self.rules, delays)
        if delays is not None and delays.is_delayed.any():
            levels = np.minimum(self.columns.integers("delay_level"), self.max_delay_level or 0)
            self.topics = pc.if_else(pa.array(delays.is_delayed), SCHEDULE_TOPIC, self.topics)
            self.queue_ids = np.where(delays.is_delayed, levels - 1, self.queue_ids)
        if len(groups) == 1 and groups[0].rows is None:
            return list(groups[0].parts)
        pieces = [
            (group.rows, self._joined(group.parts, group.rows.size)) for group in groups if group.rows is not None
        ]
        if others.size:
            pieces.append((others, self._scalar_properties(others)))
        return [in_row_order(pieces)] if pieces else []

    def _joined(self, parts: tuple[Part, ...], count: int) -> pa.BinaryArray:
        return join_items(parts) if parts else pa.array([b""] * count, pa.binary())

    def _delays(self, max_level: int) -> DelayedRows:
        levels = self.columns.integers("delay_level")
        is_delayed = (levels > 0) & self.is_queued
        given = self.columns.delay_levels
        if given is None:
            texts = pa.nulls(len(self.columns), pa.string())
        else:
            clamped = pa.array(np.where(is_delayed, np.minimum(levels, max_level), levels))
            texts = pc.if_else(given.is_valid(), clamped, None).cast(pa.string())
        queue_ids = pa.array(self.queue_ids).cast(pa.string()) if is_delayed.any() else texts
        return DelayedRows(is_delayed, texts, queue_ids)

    def _scalar_properties(self, rows: npt.NDArray[np.int64]) -> pa.BinaryArray:
        """Return the properties of some rows as written by the scalar encoder."""
        messages = [self._scheduled(int(row)) for row in rows]
        self.queue_ids = self.queue_ids.copy()
        self.queue_ids[rows] = [message.queue_id for message in messages]
        topics = [message.topic for message in messages]
        mask = np.zeros(len(self.columns), bool)
        mask[rows] = True
        self.topics = pc.replace_with_mask(self.topics, pa.array(mask), pa.array(topics, pa.string()))
        return pa.array([properties_bytes(message, self.rules) for message in messages], pa.binary())

    def _scheduled(self, row: int) -> Message:
        """Return a row as a message, redirected to the schedule topic if it is delayed."""
        message = self.columns.message(row)
        properties = stored_properties(message, self.rules.release)
        if self.rules.enable_lmq and (properties.get(INNER_MULTI_DISPATCH) or "").strip():
            raise UnsupportedStoreError(f"row {self.first_row + row} goes to light queues, so it must be put by itself")
        if self.rules.features.has_inner_batches and INNER_NUM in properties:
            reason = "MESSAGE_ILLEGAL: property INNER_NUM on a message that is not an inner batch"
            raise InvalidOptionError(f"row {self.first_row + row}: {reason}")
        if self.max_delay_level is None or not may_be_delayed(message.sys_flag):
            return message
        try:
            level = delay_level(properties)
        except ValueError as error:
            raise InvalidOptionError(f"row {self.first_row + row}: MESSAGE_ILLEGAL: {error}") from error
        has_timers = self.rules.features.has_timer_messages
        if level > 0:
            kept = without_timers(properties) if has_timers and message.topic != TIMER_TOPIC else properties
            return to_schedule_topic(message, kept, self.max_delay_level, self.rules.release)
        if has_timers and is_timed(message.topic, properties):
            raise UnsupportedStoreError(f"row {self.first_row + row} goes to the timer, so it must be put by itself")
        return message

    # ---- fields

    def _topic_fields(self, topics: pa.DictionaryArray) -> tuple[pa.BinaryArray, HeadValue]:
        """Return each row's topic, preceded by its length, and its magic code."""
        fields, magics = [], []
        for text in topics.dictionary.to_pylist():
            version = message_version(text, self.rules)
            topic = text.encode()
            # A topic that is too long gets a wrong length here, but is refused before anything is written.
            length = min(len(topic), topic_limit(version))
            fields.append(length.to_bytes(version.topic_length_size) + topic)
            magics.append(int(version))
        taken = pa.array(fields, pa.binary()).take(topics.indices)
        if len(set(magics)) <= 1:
            return taken, magics[0] if magics else 0
        return taken, np.array(magics, np.int64)[topics.indices.to_numpy(zero_copy_only=False)]

    def _host_column(self, hosts: tuple[list[tuple[str, int]], pa.Array]) -> HostColumn:
        distinct, index = hosts
        packed = tuple(pack_host(*host, self.rules.release) for host in distinct)
        return HostColumn(packed, index.to_numpy(zero_copy_only=False))

    def _given_values(self, v6_bits: npt.NDArray[np.uint8]) -> dict[str, HeadValue]:
        values: dict[str, HeadValue] = {
            name: self.columns.integers(name)
            for name in ("flag", "reconsume_times", "prepared_transaction_offset")
            if self.columns.has(name)
        }
        bits = int(v6_bits[0]) if v6_bits.size else 0
        is_plain = not self.columns.has("sys_flag") and bool((v6_bits == bits).all())
        values["sys_flag"] = bits if is_plain else self.sys_flags | v6_bits
        values["queue_id"] = self.queue_ids
        values["born_timestamp"] = self.columns.born_timestamps
        values["body_length"] = self.body_lengths
        return values

    # ---- refusals

    def _refuse_illegal(
        self,
        topics: pa.DictionaryArray,
        sizes: npt.NDArray[np.int64],
        property_lengths: npt.NDArray[np.int64],
        v6_bits: npt.NDArray[np.uint8],
    ) -> None:
        """Refuse the first message that exceeds a limit, with the scalar encoder's reason."""
        limit = self.rules.max_message_size
        illegal = property_lengths > MAX_PROPERTIES_SIZE
        if self.rules.features.limits_bodies:
            illegal |= (self.body_lengths > limit) | (sizes > limit + ENCODER_RESERVE)
        else:
            illegal |= sizes > limit
        if self.rules.features.stores_ipv6_hosts:
            illegal |= (self.sys_flags & V6_BITS & ~v6_bits.astype(np.int64)) != 0
        texts = topics.dictionary.to_pylist()
        is_long = np.array(
            [len(text.encode()) > topic_limit(message_version(text, self.rules)) for text in texts], bool
        )
        index: npt.NDArray[np.int32] = topics.indices.to_numpy(zero_copy_only=False)
        illegal |= is_long[index]
        if illegal.any():
            self._refuse(int(np.argmax(illegal)))
        if int(sizes.sum()) > _BATCH_LIMIT:
            raise InvalidOptionError(f"a batch of {sizes.sum()} bytes is too large: {_BATCH_LIMIT} are encoded at most")

    def _refuse(self, row: int) -> None:
        message = self._scheduled(row)
        refusal = encode_message(message, self.rules, self.store_host)
        assert isinstance(refusal, Refusal), "the two encoders disagree"  # noqa: S101 -- a bug here, not an input error
        raise InvalidOptionError(f"row {self.first_row + row}: {refusal.status.name}: {refusal.reason}")


def _writable(records: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the bytes, writable, and the starts of freshly joined records."""
    _, offsets, buffer = records.buffers()
    if not len(records):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    starts = np.frombuffer(offsets, np.int32)[: len(records) + 1].astype(np.int64)
    data = np.frombuffer(buffer, np.uint8)[: starts[-1]]
    return data if data.flags.writeable else data.copy(), starts

# SPDX-License-Identifier: Apache-2.0
"""Rows of a DataFrame become records; that its columns are those of messages is checked before any task runs."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.broker.topic_kind import send_refusal
from store_core.errors import InvalidOptionError, StoreError
from store_core.format.columnar.arrow_slices import true_mask
from store_core.format.columnar.encode_batch import EncodedBatch, encode_batch
from store_core.format.columnar.input_columns import INPUT_COLUMNS
from store_core.format.columnar.java_hashes import hash_codes
from store_core.format.columnar.property_columns import have_name, used_names, used_values, without_names
from store_core.format.columns import COLUMNS
from store_core.format.layout import TRANSACTION_MASK
from store_core.format.properties import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_CRC,
    PROPERTY_SEPARATOR,
    REAL_TOPIC,
    delete_property,
)
from store_core.format.record.delayed import OF_WAITING
from store_core.format.record.encode import misfit, too_large
from store_core.format.release import Release, rules_of
from store_core.format.words import did_you_mean
from store_core.queue.queue_path import refusal_of
from store_core.store.put.put_service import topic_refusal
from store_core.store.sink.staged_batch import StagedBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy.typing as npt
    from pyspark.sql.types import StructType

    from pyspark_commitlog.write.options import WriteOptions
    from store_core.store.message_store_config import MessageStoreConfig


STORE_TIMESTAMP: Final = "store_timestamp"
_INTEGERS: Final = ("tinyint", "smallint", "int")
_LONGS: Final = (*_INTEGERS, "bigint")
_TIMES: Final = ("bigint", "timestamp")
_BYTES: Final = ("binary", "string")
_TEXT: Final = ("string",)
_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "topic": _TEXT,
    "body": _BYTES,
    "queue_id": _INTEGERS,
    "tags": _TEXT,
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "flag": _INTEGERS,
    "sys_flag": _INTEGERS,
    "born_timestamp": _TIMES,
    "born_host": _TEXT,
    "store_host": _TEXT,
    "reconsume_times": _INTEGERS,
    "prepared_transaction_offset": _LONGS,
    "delay_level": _INTEGERS,
    "properties_string": _BYTES,
    STORE_TIMESTAMP: _TIMES,
}
"""Types by Spark's names, however strings are collated."""

_COLLATION: Final = re.compile(r" collate \w+")
_OF_ARROW: Final = {
    pa.large_string(): "string",
    pa.large_binary(): "binary",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
}

_READ_ONLY: Final = frozenset(column.name for column in COLUMNS) - _TYPES.keys()
"""Columns of rows read from a store that no message has before it is in a log."""

_PAYLOADS: Final = frozenset({"value", "payload", "message", "data", "content"})
"""Names that other sources have for a body."""

_STRING: Final = "properties_string"
_IN_STRING: Final = ("tags", "keys", "properties", "delay_level")


def check_columns(schema: StructType | pa.Schema, options: WriteOptions) -> None:
    """Refuse a DataFrame, or columns of Arrow, that can't be messages."""
    columns = _columns_of(schema)
    names = [name.lower() for name, _ in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidOptionError(f"expected each column once, found {twice!r} twice: drop or rename one of the two")
    key = options.sharding_key
    if key is not None and key.lower() not in names:
        raise InvalidOptionError(f"option shardingKey: expected a column of the DataFrame, found {key!r}")
    known = _TYPES.keys() | ({key.lower()} if key is not None else set())
    kinds = dict(columns)
    unknown = [name for name in kinds if name.lower() not in known]
    if unknown and _READ_ONLY.issuperset(map(str.lower, unknown)):
        raise _read(kinds, unknown, options)
    needed = ["body"] + ["topic"] * (options.topic is None) + [STORE_TIMESTAMP] * options.preserve_store_timestamp
    missing = [name for name in needed if name not in names]
    if missing:
        raise _missing(missing[0], kinds)
    if unknown:
        raise _unknown(unknown)
    for name, kind in columns:
        if not _is_fit(name.lower(), kind):
            meaning = INPUT_COLUMNS.get(name.lower(), "timestamp with a time zone, or epoch ms")
            cast = f"CAST({name} AS {_TYPES[name.lower()][-1].upper()})"
            raise InvalidOptionError(f"column {name!r} of type {kind}: expected {meaning}; cast it, as by `{cast}`")
    beside = [name for name in _IN_STRING if name in names] if _STRING in names else []
    if beside:
        raise InvalidOptionError(
            f"column {_STRING!r} holds all properties: drop either it or {', '.join(map(repr, beside))}"
        )
    if STORE_TIMESTAMP in names and not options.preserve_store_timestamp:
        raise InvalidOptionError(
            "messages get the time at which they are appended: set option('preserveStoreTimestamp', 'true') to keep "
            "those in column 'store_timestamp', or drop it"
        )


def _columns_of(schema: StructType | pa.Schema) -> list[tuple[str, str]]:
    """Return names and types of columns, as Spark names types."""
    if isinstance(schema, pa.Schema):
        return [(field.name, _spark_name(field.type)) for field in schema]
    return [(field.name, field.dataType.simpleString()) for field in schema]


def _spark_name(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_list(kind):
        return f"array<{_spark_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_spark_name(kind.key_type)},{_spark_name(kind.item_type)}>"
    return _OF_ARROW.get(kind, str(kind))


def _unknown(names: list[str]) -> InvalidOptionError:
    """Return the error for columns that no message has; the first may be a mistyped name."""
    hint = did_you_mean(names[0], _TYPES) or f"the columns are {', '.join(INPUT_COLUMNS)}"
    others = f", nor {', '.join(map(repr, names[1:]))}" if names[1:] else ""
    return InvalidOptionError(f"a message can't have a column {names[0]!r}{others}; {hint}")


def _missing(name: str, kinds: Mapping[str, str]) -> InvalidOptionError:
    """Return the error for a missing column: which one, what is there, and how to make it."""
    own = [other for other in kinds if other.lower() not in _TYPES]
    fit = [other for other in own if _is_fit(name, kinds[other])]
    given = next((other for other in fit if other.lower() in _PAYLOADS), (fit or own or ["value"])[0])
    ways = {
        "body": f'create it, for example with selectExpr("CAST({given} AS BINARY) AS body", ...)',
        "topic": "create it, for example with withColumn('topic', lit('orders')), or name one topic for all "
        "rows by option 'topic' (--to-topic of commitlog append)",
        STORE_TIMESTAMP: "create it, or leave out option 'preserveStoreTimestamp'",
    }
    found = ", ".join(f"{other} {kind}" for other, kind in kinds.items())
    return InvalidOptionError(f"messages need a column {name!r}; found {found or 'none'}: {ways[name]}")


def _read(kinds: Mapping[str, str], unknown: list[str], options: WriteOptions) -> InvalidOptionError:
    """Refuse rows as they are read from a store, and say exactly which columns to drop."""
    names = {name.lower(): name for name in kinds}
    dropped = [*unknown]
    if _STRING in names:
        dropped += [names[name] for name in _IN_STRING if name in names]
    if STORE_TIMESTAMP in names and not options.preserve_store_timestamp:
        dropped.append(names[STORE_TIMESTAMP])
    shown = ", ".join(map(repr, dropped))
    return InvalidOptionError(
        f"these rows were read from a store, and a message to be written can't have the columns {shown}: "
        f"drop them with "
        f"df.drop({shown}), or copy messages with commitlog append --from-store, which keeps all that can be kept"
    )


def _is_fit(name: str, kind: str) -> bool:
    """Return whether a column of a message may have a type; that of a sharding key may be any."""
    return name not in _TYPES or _COLLATION.sub("", kind) in _TYPES[name]


_VALUES: Final = {PROPERTY_SEPARATOR: "byte 2, which ends a property"}
_NAMES: Final = {NAME_VALUE_SEPARATOR: "byte 1, which ends a name", **_VALUES}
_VALUES_WITHOUT_SEPARATOR: Final = {NAME_VALUE_SEPARATOR: "byte 1, at which RocketMQ 4.3 loses the value", **_VALUES}


def without_property_crc(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Leave out the checksum of the record that a message was read from: it does not match the new record.

    A broker that verifies it (5.2 and later, ``forceVerifyPropCRC``) would treat the new record as damaged.

    * `columns`: Columns by lower-case name.
    """
    replaced: dict[str, pa.Array] = {}
    strings, properties = columns.get("properties_string"), columns.get("properties")
    if strings is not None and _occurs(strings, PROPERTY_CRC):
        replaced["properties_string"] = _without_items(strings.cast(pa.binary()), (PROPERTY_CRC,))
    if properties is not None and pc.any(pc.equal(used_names(properties), PROPERTY_CRC)).as_py():
        replaced["properties"] = without_names(properties, (PROPERTY_CRC,))
    return columns | replaced


def without_delivery(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Leave out of delivered messages what they had waited for, a delay or a transaction: they would wait again.

    That a broker delivered them shows ``REAL_TOPIC``: a message that a producer sends has none.

    * `columns`: Columns by lower-case name.
    """
    strings, properties = columns.get("properties_string"), columns.get("properties")
    replaced: dict[str, pa.Array] = {}
    if strings is not None and _occurs(strings, REAL_TOPIC):
        given = strings.cast(pa.binary())
        delivered = true_mask(pc.not_equal(given, _without_items(given, (REAL_TOPIC,))))
        replaced["properties_string"] = pc.if_else(pa.array(delivered), _without_items(given, OF_WAITING), given)
    elif properties is not None and pc.any(pc.equal(used_names(properties), REAL_TOPIC)).as_py():
        delivered = have_name(properties, REAL_TOPIC)
        replaced["properties"] = without_names(properties, OF_WAITING, delivered)
    else:
        return columns
    for name, bits in (("sys_flag", ~TRANSACTION_MASK), ("prepared_transaction_offset", 0)):
        if name in columns:
            cleared = pc.bit_wise_and(columns[name], pa.scalar(bits, columns[name].type))
            replaced[name] = pc.if_else(pa.array(delivered), cleared, columns[name])
    return columns | replaced


def _without_items(strings: pa.BinaryArray, names: Iterable[str]) -> pa.BinaryArray:
    def cut(value: bytes | None) -> bytes | None:
        text = (value or b"").decode("latin-1")
        for name in names:
            text = delete_property(text, name)
        return value and text.encode("latin-1")

    return pa.array([cut(value) for value in strings.to_pylist()], pa.binary())


def refuse_separators(messages: pa.RecordBatch, release: Release) -> None:
    """Refuse properties that contain separator bytes: readers of the message would see other properties.

    * `messages`: With lower-case names. Column `properties_string` may contain anything: it is stored as it is.
    * `release`: 4.3 loses a value with the byte between name and value, or what follows it (``String.split`` in its
      ``MessageDecoder``); 4.9 and later cut at the first, and keep it in values.
    """
    values = _VALUES if rules_of(release).splits_properties_at_first_separator else _VALUES_WITHOUT_SEPARATOR
    for what, column, separators in _texts(messages, values):
        for separator, meaning in separators.items():
            if _occurs(column, separator):
                raise InvalidOptionError(f"{what} contain {meaning}: expected any other character")


def _texts(messages: pa.RecordBatch, values: dict[str, str]) -> Iterable[tuple[str, pa.Array, dict[str, str]]]:
    for name in ("tags", "keys"):
        if name in messages.schema.names:
            column = messages.column(name)
            yield name, column.flatten() if pa.types.is_list(column.type) else column, values
    if "properties" in messages.schema.names:
        properties = messages.column("properties")
        yield "names of properties", used_names(properties), _NAMES
        yield "values of properties", used_values(properties), values


def _occurs(column: pa.Array, text: str) -> bool:
    """Return whether any value contains a text; one search of all bytes is much faster than one per row."""
    if not len(column):
        return False
    column = column.cast(pa.binary())
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    if data is None:
        return False
    return text.encode() in memoryview(data)[ends[0] : ends[-1]].tobytes()


NULL_BODY: Final = "a message needs a body; nullBody=empty stores null as an empty one"

_MOST_KNOWN: Final = 1 << 14
"""How many queues are cached: every batch of a partition asks for nearly the same ones."""


@lru_cache(_MOST_KNOWN)
def queue_refusal(topic: str, queue_id: int, release: Release, *, is_sent: bool) -> str | None:
    """Return why no broker accepts messages of a queue, or no directory can hold it; None if all is well.

    Those that are sent are checked as messages of clients are; others a broker may have put there itself.
    """
    reason = topic_refusal(topic, release) or refusal_of(topic, queue_id)
    if reason is None and is_sent:
        reason = send_refusal(topic, release)
        reason = reason and f"{reason}; preserveStoreTimestamp makes records of another store again as they are"
    return None if reason is None else f"topic {topic[:100]!r}, queue {queue_id}: {reason}"


def obvious_refusals(messages: pa.RecordBatch, options: WriteOptions, *, are_sent: bool) -> dict[int, str]:
    """Find rows without a usable topic or body, with an impossible queue, or too large a body, and each one's reason.

    This does not find all rows that are refused: it makes thousands of bad rows cheap.
    """
    config = options.config
    topics = messages.column("topic").dictionary_encode(null_encoding="encode")
    reasons = [
        "a message needs a topic" if topic is None else queue_refusal(topic, 0, config.release, is_sent=are_sent)
        for topic in topics.dictionary.to_pylist()
    ]
    wrong = np.array([reason is not None for reason in reasons], bool)
    index = topics.indices.to_numpy(zero_copy_only=False)
    found = {int(row): reasons[index[row]] or "" for row in np.flatnonzero(wrong[index])}
    for row in np.flatnonzero(true_mask(pc.less(messages.column("queue_id"), 0))).tolist():
        if row not in found:
            topic, queue_id = (messages.column(name)[row].as_py() for name in ("topic", "queue_id"))
            found[row] = queue_refusal(topic, queue_id, config.release, is_sent=are_sent) or ""
    return _null_bodies(messages, options) | dict(_large_bodies(messages, config)) | found


def _null_bodies(messages: pa.RecordBatch, options: WriteOptions) -> dict[int, str]:
    bodies = messages.column("body")
    if options.null_body == "empty" or not bodies.null_count:
        return {}
    return dict.fromkeys(np.flatnonzero(np.asarray(bodies.is_null())).tolist(), NULL_BODY)


def _large_bodies(messages: pa.RecordBatch, config: MessageStoreConfig) -> list[tuple[int, str]]:
    sizes = pc.binary_length(messages.column("body"))
    segment, most = config.mapped_file_size_commit_log, config.max_message_size
    large = np.flatnonzero(true_mask(pc.greater_equal(sizes, min(segment, most + 1)))).tolist()
    return [(row, _size_refusal(sizes[row].as_py(), segment, most)) for row in large]


def _size_refusal(size: int, segment: int, most: int) -> str:
    if size > most:
        return f"MESSAGE_ILLEGAL: a body of {size} bytes, at most {most} are allowed"
    return f"its body {too_large(size, segment)}"


_ROW: Final = re.compile(r"^row \d+:? ")
"""The beginning of an `encode_batch` error; it counts from the first row of the call."""

_MOST_BYTES: Final = 16 << 20
"""Most bytes of rows that are encoded at a time; a single row may be larger."""

_LARGE: Final = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that can't be a message."""

    row: int  # number in its partition, from 0
    topic: str | None
    reason: str


@dataclass(frozen=True)
class _Rows:
    """Columns of messages, their row numbers in the partition, and what else their records need."""

    messages: pa.RecordBatch
    numbers: npt.NDArray[np.int64]
    store_timestamps: npt.NDArray[np.int64] | None

    @property
    def are_sent(self) -> bool:
        """Whether they are new messages of clients, in place of records of another store that are made again."""
        return self.store_timestamps is None

    def slice(self, start: int, count: int) -> _Rows:
        times, rows = self.store_timestamps, slice(start, start + count)
        return _Rows(self.messages.slice(start, count), self.numbers[rows], None if times is None else times[rows])

    def without(self, rows: list[int]) -> _Rows:
        kept = np.ones(self.messages.num_rows, bool)
        kept[rows] = False
        times = self.store_timestamps
        return _Rows(self.messages.filter(pa.array(kept)), self.numbers[kept], None if times is None else times[kept])


class RowEncoder:
    """Encodes the rows of one partition, batch by batch, in order.

    * `partition`: Number of the partition: each one starts at another queue to spread rows in turn.
    * `now_ms`: Time for messages without `born_timestamp`.

    * `refused`: Rows left out so far; with ``badRows=fail`` the first one raises.
    """

    def __init__(self, options: WriteOptions, partition: int, now_ms: int) -> None:
        self._options = options
        self._partition = partition
        self._now_ms = now_ms
        self._levels = len(options.config.delay_levels)
        self._turns: defaultdict[str | None, int] = defaultdict(int)
        self._row = 0
        self.refused: list[RefusedRow] = []

    def encode(self, batch: pa.RecordBatch) -> Iterator[StagedBatch]:
        """Encode a batch of rows: as one, unless rows are left out, or they are large in total."""
        if not batch.num_rows:
            return
        rows = self._rows(batch)
        known = len(self.refused)
        for start, stop in pairwise(sorted({0, *_cuts_by_size(rows.messages), batch.num_rows})):
            yield from self._encode(rows.slice(start, stop - start))
        self.refused[known:] = sorted(self.refused[known:], key=lambda refused: refused.row)
        self._row += batch.num_rows

    def _encode(self, rows: _Rows) -> Iterator[StagedBatch]:
        """Encode rows; if one is refused, leave out the obviously bad ones, then search in halves."""
        count = rows.messages.num_rows
        try:
            yield self._encode_all(rows)
        except StoreError as error:
            if count == 1:
                self._refuse(rows, 0, str(error))
                return
            obvious = obvious_refusals(rows.messages, self._options, are_sent=rows.are_sent)
            for row, reason in sorted(obvious.items()):
                self._refuse(rows, row, reason)
            if obvious:
                parts = [rows.without(list(obvious))] if len(obvious) < count else []
            else:
                parts = [rows.slice(0, count // 2), rows.slice(count // 2, count - count // 2)]
            for part in parts:
                yield from self._encode(part)

    def _refuse(self, rows: _Rows, index: int, reason: str) -> None:
        text, row = _ROW.sub("", reason), int(rows.numbers[index])
        if self._options.bad_rows == "fail":
            raise InvalidOptionError(
                f"row {row} of partition {self._partition} can't be a message: {text}. Nothing is appended; "
                f"badRows=skip leaves such rows out"
            )
        topic = rows.messages.column("topic")[index].as_py()
        self.refused.append(RefusedRow(row, topic, text))

    def _encode_all(self, rows: _Rows) -> StagedBatch:
        options = self._options
        times = rows.store_timestamps
        if times is not None and (times <= 0).any():
            raise InvalidOptionError("store_timestamp is missing, or not after 1970")
        messages, release = rows.messages, self._options.config.release
        if messages.column("body").null_count and self._options.null_body == "fail":
            raise InvalidOptionError(NULL_BODY)
        refuse_separators(messages, release)
        for topic in messages.column("topic").unique().to_pylist() if self._delays(messages) else ():
            reason = None if topic is None else queue_refusal(topic, 0, release, is_sent=rows.are_sent)
            if reason is not None:
                raise InvalidOptionError(reason)
        records = encode_batch(
            rows.messages,
            options.config.encode_rules,
            store_host=options.store_host,
            born_host=options.born_host,
            born_timestamp=self._now_ms,
            max_delay_level=self._levels if rows.are_sent else None,
        )
        self._check(records, are_sent=rows.are_sent and not self._delays(rows.messages))
        return StagedBatch(records, times)

    @staticmethod
    def _delays(messages: pa.RecordBatch) -> bool:
        return not {"delay_level", "properties", "properties_string"}.isdisjoint(messages.schema.names)

    def _check(self, records: EncodedBatch, *, are_sent: bool) -> None:
        """Refuse what no broker accepts, and what no segment or directory can hold."""
        for topic, queue_id in records.queues:
            reason = queue_refusal(topic, queue_id, self._options.config.release, is_sent=are_sent)
            if reason is not None:
                raise InvalidOptionError(reason)
        reason = misfit(records.starts, self._options.config.mapped_file_size_commit_log)
        if reason is not None:
            raise InvalidOptionError(f"its record {reason}")

    # ---- columns

    def _rows(self, batch: pa.RecordBatch) -> _Rows:
        options, count = self._options, batch.num_rows
        columns = {
            name.lower(): column.cast(_LARGE.get(column.type, column.type))
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
        columns = without_property_crc(columns)
        times = columns.pop(STORE_TIMESTAMP, None)
        if times is None:
            columns = without_delivery(columns)
        if options.topic is not None:
            columns["topic"] = pa.repeat(options.topic, count)
        given = columns.get("queue_id")
        if given is None or given.null_count:
            spread = pa.array(self._spread(columns), pa.int32())
            columns["queue_id"] = spread if given is None else pc.coalesce(given.cast(pa.int32()), spread)
        messages = pa.RecordBatch.from_pydict({name: each for name, each in columns.items() if name in INPUT_COLUMNS})
        numbers = np.arange(self._row, self._row + count)
        return _Rows(messages, numbers, None if times is None else _milliseconds(times))

    def _spread(self, columns: dict[str, pa.Array]) -> npt.NDArray[np.int64]:
        """Choose queues: in turn for each topic, or by the sharding key if there is one."""
        turns = self._take_turns(columns["topic"])
        if self._options.sharding_key is None:
            return turns
        given = columns[self._options.sharding_key.lower()]
        try:
            keys = given.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            found = f"found {self._options.sharding_key!r} of type {given.type}; cast it to string"
            raise InvalidOptionError(f"option shardingKey: expected a column of text, {found}: {error}") from error
        # Java's remainder has the sign of the dividend, and SelectMessageQueueByHash then drops it.
        chosen = np.abs(np.fmod(hash_codes(keys).astype(np.int64), self._options.queue_nums))
        return np.where(np.asarray(keys.is_null()), turns, chosen)

    def _take_turns(self, topics: pa.Array) -> npt.NDArray[np.int64]:
        encoded = topics.dictionary_encode(null_encoding="encode")
        index = encoded.indices.to_numpy().astype(np.int64)
        names = encoded.dictionary.to_pylist()
        order = np.argsort(index, kind="stable")
        counts = np.bincount(index, minlength=len(names))
        firsts = np.cumsum(counts) - counts
        before = np.array([self._turns[name] for name in names], np.int64)
        turns = np.empty(index.size, np.int64)
        turns[order] = np.arange(index.size) - firsts[index[order]]
        turns += before[index] + self._partition
        for name, count in zip(names, counts.tolist(), strict=True):
            self._turns[name] += count
        return turns % self._options.queue_nums


def _cuts_by_size(messages: pa.RecordBatch) -> set[int]:
    """Return where to cut rows of many bytes, so that holding several batches at a time needs little memory."""
    if messages.nbytes <= _MOST_BYTES:
        return set()
    bodies = pc.binary_length(messages.column("body")).fill_null(0).to_numpy().astype(np.int64)
    others = max(messages.nbytes - int(bodies.sum()), 0) // messages.num_rows
    pieces = np.cumsum(bodies + others) // _MOST_BYTES
    return set((np.flatnonzero(np.diff(pieces)) + 1).tolist())


def _milliseconds(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return times in ms, 0 for null."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return np.asarray(column.cast(pa.int64()).fill_null(0).to_numpy(), np.int64)

# SPDX-License-Identifier: Apache-2.0
"""Decoding many records equals decoding each of them: rows, faults and messages."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import CorruptRecordError, UnsafeSizeError
from store_core.format.columnar import records as decoding
from store_core.format.columnar.chain import chain
from store_core.format.columnar.records import DecodedBatch, Decoding, Records, decode_records
from store_core.format.columns import BODIES, COLUMNS, DEFAULT_COLUMNS, arrow_schema, table_time
from store_core.format.compression import expand_body
from store_core.format.properties import PropertyParser, decode_text, first_property
from store_core.format.record.decode import decode_message, decode_topic, property_crc_error
from store_core.format.record.scan import check_record
from tests.budgets import budget
from tests.builders import Record
from tests.segment import Segment
from tests.strategies import Log, logs, mutated

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.format.message import MessageExt

Row = dict[str, Any]

ALL = tuple(column.name for column in COLUMNS)
OF_ENTRIES = ("dledger_index", "dledger_term", "dledger_committed")
STORED_TIMES = ("store_timestamp_ms", "born_timestamp_ms")
OTHERS = {
    "segment",
    "store",
    "compression",
    "body_text",
    "_corrupt_record",
    "properties_string",
    "uniq_msg_id",
    *OF_ENTRIES,
    *STORED_TIMES,
}
SHARED = [name for name in ALL if name not in OTHERS]
FILE = "00000000000000000000"
parsers = st.sampled_from(PropertyParser)
PROPERTIES = ("TAGS", "KEYS", "a", "not there")
WITH_PROPERTIES = (*ALL, *(f"property.{name}" for name in PROPERTIES))
column_sets = (
    st.just(WITH_PROPERTIES)
    | st.just(DEFAULT_COLUMNS)
    | st.lists(st.sampled_from(WITH_PROPERTIES), min_size=1, unique=True)
)


def as_array(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def decoded(log: Log, starts: npt.NDArray[np.int64], columns: Sequence[str] = ALL, **how: Any) -> DecodedBatch:  # noqa: ANN401
    parser = how.pop("parser", PropertyParser.FIRST_SEPARATOR)
    how = {"verify_property_crc": how.get("verify_crc", True), **how}
    return decode_records(Records(as_array(log.data), starts, FILE, log.start_offset, parser), columns, Decoding(**how))


def batch_rows(batch: pa.RecordBatch) -> list[Row]:
    """Return the rows of a batch; timestamps in µs."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        columns[name] = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    return pa.RecordBatch.from_pydict(columns).to_pylist() if columns else []


# --- the definition, record by record ---


def scalar_row(message: MessageExt, *, decompress: bool) -> Row:
    row = {name: getattr(message, name) for name in SHARED}
    row["properties"] = list(message.properties.items())
    row |= {f"property.{name}": message.properties.get(name) for name in PROPERTIES}
    row["segment"], row["store"] = FILE, ""
    row["transaction_type"] = message.transaction_type.name
    row |= dict.fromkeys((*OF_ENTRIES, "_corrupt_record"))
    for name in ("store_timestamp", "born_timestamp"):
        row[f"{name}_ms"] = row[name]
        row[name] = table_time(row[name])
    try:
        row["compression"] = message.compression.name
    except ValueError:
        row["compression"] = None
    if decompress:
        row["body"] = expanded(message) if is_whole(message) else None
    row["body_text"] = text_or_none(row["body"])
    return row


def text_or_none(body: bytes | None) -> str | None:
    try:
        return None if body is None else body.decode()
    except UnicodeDecodeError:
        return None


def first_unique_key(log: Log, start: int, parser: PropertyParser) -> str | None:
    return first_property(decode_text(stored_properties(log, start)), "UNIQ_KEY", parser)


def stored_properties(log: Log, start: int) -> bytes:
    """Cut the properties out of a sound record."""
    spans = check_record(memoryview(log.data), start, log.start_offset).spans
    assert spans is not None
    return log.data[spans.properties_start : spans.properties_stop]


def expanded(message: MessageExt) -> bytes:
    """Expand a body as RocketMQ does: an empty one is not touched."""
    return expand_body(message.body, message.compression) if message.body else b""


def is_whole(message: MessageExt) -> bool:
    try:
        expanded(message)
    except ValueError:
        return False
    return True


def scalar_problems(log: Log, start: int, columns: Sequence[str], *, verify_crc: bool, decompress: bool) -> list[str]:
    """Return the problems that a record has for a reader of these columns; none if it is a row."""
    data = memoryview(log.data)
    sound = check_record(data, start, log.start_offset)
    if sound.spans is None:
        return [problem_of(log, start, verify_crc=False)]
    problems = []
    if "topic" in columns:
        problems += topic_problems(log, start)
    crc = check_record(data, start, log.start_offset, verify_crc=True)
    if not BODIES.isdisjoint(columns) and verify_crc and crc.reason is not None:
        problems.append(problem_of(log, start, verify_crc=True))
    in_record = set(columns) - {"store", "segment", "_corrupt_record", *OF_ENTRIES}
    if verify_crc and in_record and property_crc_error(data, start, log.start_offset, sound.spans, FILE):
        problems.append("bad checksum over the record")
    message = readable_message(log, start)
    if not BODIES.isdisjoint(columns) and decompress and not is_whole(message):
        problems.append(unexpanded_problem(message))
    return problems


def unexpanded_problem(message: MessageExt) -> str:
    try:
        return "compressed body" if message.compression else ""
    except ValueError:
        return "unknown compression type"


def problem_of(log: Log, start: int, *, verify_crc: bool) -> str:
    with pytest.raises(CorruptRecordError) as caught:
        decode_message(memoryview(log.data), start, log.start_offset, file=FILE, verify_crc=verify_crc)
    return str(caught.value)


def topic_problems(log: Log, start: int) -> list[str]:
    spans = check_record(memoryview(log.data), start, log.start_offset).spans
    assert spans is not None
    try:
        decode_topic(log.data[spans.topic_start : spans.topic_stop], log.start_offset + start, FILE)
    except CorruptRecordError as error:
        return [str(error)]
    return []


def readable_message(log: Log, start: int, parser: PropertyParser = PropertyParser.FIRST_SEPARATOR) -> MessageExt:
    """Decode a sound record whatever its topic: one that is not UTF-8 is read as question marks."""
    data = bytearray(log.data)
    spans = check_record(memoryview(log.data), start, log.start_offset).spans
    assert spans is not None
    if topic_problems(log, start):
        data[spans.topic_start : spans.topic_stop] = b"?" * (spans.topic_stop - spans.topic_start)
    return decode_message(memoryview(data), start, log.start_offset, parser=parser, verify_crc=False)


def assert_decodes_as_each(
    log: Log, starts: npt.NDArray[np.int64], columns: Sequence[str], parser: PropertyParser, **how: bool
) -> None:
    """Compare rows and faults with those of each single record."""
    actual = decoded(log, starts, columns, parser=parser, **how)
    problems = {start: scalar_problems(log, start, columns, **how) for start in starts.tolist()}
    sound = [start for start, found in problems.items() if not found]
    rows = [
        scalar_row(readable_message(log, start, parser), decompress=how["decompress"])
        | {"properties_string": stored_properties(log, start), "uniq_msg_id": first_unique_key(log, start, parser)}
        for start in sound
    ]

    assert actual.positions.tolist() == sound
    assert [{name: row[name] for name in columns} for row in rows] == batch_rows(actual.batch)
    assert [fault.position for fault in actual.faults] == [start for start, found in problems.items() if found]
    for fault in actual.faults:
        assert any(str(fault.error).startswith(problem) for problem in problems[fault.position])
        assert fault.error.offset == log.start_offset + fault.position


@budget(0.7)
@given(logs(), column_sets, parsers, st.booleans(), st.booleans())
def test_batch_decode_equals_the_decode_of_each(
    log: Log, columns: Sequence[str], parser: PropertyParser, verify_crc: bool, decompress: bool
) -> None:
    starts = np.array(log.starts, np.int64)

    assert_decodes_as_each(log, starts, columns, parser, verify_crc=verify_crc, decompress=decompress)


@given(mutated(logs()), column_sets, parsers, st.booleans(), st.booleans())
def test_batch_decode_equals_the_decode_of_each_on_broken_logs(
    log: Log, columns: Sequence[str], parser: PropertyParser, verify_crc: bool, decompress: bool
) -> None:
    starts = chain(as_array(log.data), start_offset=log.start_offset).starts

    assert_decodes_as_each(log, starts, columns, parser, verify_crc=verify_crc, decompress=decompress)


@budget(0.5)
@given(logs(), parsers, st.data())
def test_any_selection_of_records_decodes_as_each(log: Log, parser: PropertyParser, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.booleans(), min_size=len(log.starts), max_size=len(log.starts)))
    starts = np.array(log.starts, np.int64)[np.array(chosen, np.bool_)]

    assert_decodes_as_each(log, starts, ALL, parser, verify_crc=True, decompress=False)


@budget(0.5)
@given(logs(), column_sets, st.booleans())
def test_a_batch_is_valid_arrow_of_the_schema_asked_for(log: Log, columns: Sequence[str], nullable: bool) -> None:
    batch = decoded(log, np.array(log.starts, np.int64), columns, nullable=nullable).batch

    batch.validate(full=True)
    assert batch.schema == arrow_schema(columns, nullable=nullable)


# --- one by one ---


def bodies_of(log: Segment, columns: Sequence[str] = ("body",), **how: Any) -> list[bytes]:  # noqa: ANN401
    batch = decoded(Log(bytes(log.data), log.start_offset), np.array(log.starts, np.int64), columns, **how).batch
    bodies: list[bytes] = batch.column("body").to_pylist()
    return bodies


def faults_of(log: Segment, columns: Sequence[str], **how: Any) -> list[tuple[int, int, str]]:  # noqa: ANN401
    found = decoded(Log(bytes(log.data), log.start_offset), np.array(log.starts, np.int64), columns, **how).faults
    return [(fault.position, fault.size, fault.error.problem) for fault in found]


def test_a_compression_type_nobody_asks_for_may_be_any_number() -> None:
    log = Segment().append(b"one", sys_flag=0x401)

    assert bodies_of(log) == [b"one"]
    assert faults_of(log, ["body"], decompress=True) == [(0, len(log.data), "unknown compression type")]


def test_every_flipped_bit_of_a_record_with_a_checksum_over_all_of_it_is_found() -> None:
    """But for those in the checksum's own name: the record seems to have none then."""
    whole = Record(b"body", "topic", {"KEYS": "k", "TAGS": "A"}, record_crc=0).encode()
    name = range(len(whole) - 20, len(whole) - 11)
    for at in range(len(whole)):
        for bit in range(8):
            record = bytearray(whole)
            record[at] ^= 1 << bit
            log = Log(bytes(record), 0, [0])
            found = chain(as_array(log.data), start_offset=0).starts
            for columns in (("topic",), ("keys",), ("queue_id", "segment")):
                batch = decoded(log, found, columns).batch
                assert batch.num_rows == (at in name), (at, bit, columns)
            assert decoded(log, found, ("segment",)).batch.num_rows <= 1
            assert_decodes_as_each(
                log, found, ("topic",), PropertyParser.FIRST_SEPARATOR, verify_crc=True, decompress=False
            )


@budget(0.5)
@given(logs() | mutated(logs()), column_sets)
def test_where_values_may_be_null_a_body_that_does_not_expand_is_and_its_row_stays(
    log: Log, columns: Sequence[str]
) -> None:
    """All other values are those of a read that does not expand."""
    starts = chain(as_array(log.data), start_offset=log.start_offset).starts
    stored = decoded(log, starts, columns, nullable=True)
    found = decoded(log, starts, columns, nullable=True, decompress=True)
    whole = set(decoded(log, starts, columns, decompress=True).positions.tolist())
    rows = zip(batch_rows(stored.batch), batch_rows(found.batch), stored.positions.tolist(), strict=True)

    assert found.positions.tolist() == stored.positions.tolist()
    for stored_row, row, position in rows:
        body, why, text = row.pop("body", None), row.pop("_corrupt_record", None), row.pop("body_text", None)
        kept = {name: value for name, value in stored_row.items() if name in row}
        assert kept == row
        if "body" in columns:
            assert (body is not None) == (position in whole)
        if not BODIES.isdisjoint(columns) and position not in whole:
            assert text is None
        if "_corrupt_record" in columns:
            is_lost = not BODIES.isdisjoint(columns) and position not in whole
            assert (why is not None and f"at offset {log.start_offset + position} ".encode() in why) == is_lost


def test_an_empty_body_is_empty_even_if_it_says_that_it_is_compressed() -> None:
    """As in RocketMQ 5.3.3, ``MessageDecoder.decode``: an empty body is not touched."""
    log = Segment().append(b"", sys_flag=1).append(b"", sys_flag=0x101).append(b"", sys_flag=0x201)

    assert bodies_of(log, decompress=True) == [b"", b"", b""]


def test_a_compressed_body_that_expands_too_far_is_a_fault_that_says_so() -> None:
    log = Segment().append(pack(bytes(65 << 20)), sys_flag=1).append(b"two")
    found = decoded(Log(bytes(log.data)), np.array(log.starts), ["body"], decompress=True)

    assert isinstance(found.faults[0].error, UnsafeSizeError)
    assert "decompress=false" in str(found.faults[0].error)
    assert found.batch["body"].to_pylist() == [b"two"]


def pack(body: bytes) -> bytes:
    return zlib.compress(body, 9)


@pytest.mark.parametrize("room", [0, 1, 99, 100, 101, 250, 10_000])
def test_expanded_bodies_come_in_several_batches_when_they_need_too_much_room(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(decoding, "_EXPANDED_BATCH", room)
    log = Segment().append(b"plain")
    for number in range(7):
        log.append(pack(bytes([number]) * 100), sys_flag=1)
    log.append(b"broken", sys_flag=1).append(b"plain").append(b"damaged", crc=1)
    pending, bodies, damaged = np.array(log.starts, np.int64), [], []
    rounds = 0
    while pending.size:
        found = decoded(Log(bytes(log.data)), pending, ["body"], decompress=True)
        assert found.pending.size < pending.size
        bodies += found.batch["body"].to_pylist()
        damaged += [fault.position for fault in found.faults]
        pending, rounds = found.pending, rounds + 1

    assert bodies == [b"plain", *(bytes([number]) * 100 for number in range(7)), b"plain"]
    assert sorted(damaged) == [log.starts[8], log.starts[10]]
    assert (rounds == 1) is (room > 700)


@pytest.mark.parametrize("sys_flag", [0x10, 0x20, 0x30])
def test_records_at_the_very_end_of_a_file_may_claim_wider_heads_than_there_are_bytes(sys_flag: int) -> None:
    log = Segment().append(b"one").append(b"", topic="").put(36, ">i", sys_flag)
    found = decoded(Log(bytes(log.data)), np.array(log.starts, np.int64))

    assert [fault.error.problem for fault in found.faults] == ["record lengths do not add up"]
    assert found.batch["body"].to_pylist() == [b"one"]

# SPDX-License-Identifier: Apache-2.0
"""The batch encoder makes the same bytes as the scalar one, whatever the columns contain."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.format.columnar.encode_batch import EncodedBatch, complete_batch, encode_batch
from store_core.format.message import Message
from store_core.format.record.delayed import delay_level, may_be_delayed, to_schedule_topic
from store_core.format.record.encode import EncodedRecords, EncodeRules, do_append, encode_message, stored_properties
from store_core.format.record.scan import body_crc

BROKER = ("192.168.1.2", 10911)
BORN = 1_700_000_000_000
TIME = 1_800_000_000_000

COLUMN_TYPES = {
    "topic": pa.string(),
    "body": pa.binary(),
    "queue_id": pa.int32(),
    "tags": pa.string(),
    "keys": pa.list_(pa.string()),
    "properties": pa.map_(pa.string(), pa.string()),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
    "born_timestamp": pa.int64(),
    "born_host": pa.string(),
    "store_host": pa.string(),
    "reconsume_times": pa.int32(),
    "prepared_transaction_offset": pa.int64(),
    "delay_level": pa.int32(),
    "properties_string": pa.binary(),
}

HOSTS = {
    "10.1.2.3:5555": ("10.1.2.3", 5555),
    "127.0.0.1:0": ("127.0.0.1", 0),
    "[2001:db8::2]:77": ("2001:db8::2", 77),
    "[::ffff:10.0.0.1]:1": ("::ffff:10.0.0.1", 1),
}
NAMES = ["a", "b", "Aa", "BB", "имя", "TAGS", "KEYS", "UNIQ_KEY", "WAIT", "REAL_TOPIC", "\x02", "", "__CRC32#", "DELAY"]

texts = st.text("ab=\x01\x02é😀 ", max_size=6)
names = st.sampled_from(NAMES)
values = st.one_of(st.none(), texts, st.sampled_from(["3", "true"]))
levels = st.integers(-1, 20)


def valid_pair(pair: tuple[str, str | None]) -> tuple[str, str | None]:
    """Make sure that delays are numbers: others have a separate test."""
    return (pair[0], "4") if pair[0] == "DELAY" else pair


rows = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["orders", "t" * 127, "%RETRY%g", "тема", ""]),
        "body": st.one_of(st.none(), st.binary(max_size=40)),
        "queue_id": st.one_of(st.none(), st.integers(-2, 3), st.just(2**31 - 1)),
        "tags": st.one_of(st.none(), texts),
        "keys": st.one_of(st.none(), st.lists(texts, max_size=3)),
        "properties": st.one_of(st.none(), st.lists(st.tuples(names, values).map(valid_pair), max_size=5)),
        "flag": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
        "sys_flag": st.one_of(st.none(), st.sampled_from([0, 1, 2, 4, 8, 12, 0x301])),
        "born_timestamp": st.one_of(st.none(), st.integers(0, 2**42)),
        "born_host": st.one_of(st.none(), st.sampled_from(list(HOSTS))),
        "store_host": st.one_of(st.none(), st.sampled_from(list(HOSTS))),
        "reconsume_times": st.one_of(st.none(), st.integers(0, 16)),
        "prepared_transaction_offset": st.one_of(st.none(), st.integers(0, 2**62)),
        "delay_level": st.one_of(st.none(), levels),
        "properties_string": st.one_of(
            st.none(),
            st.sampled_from([b"", b"a\x01b", b"a\x01b\x02", b"DELAY\x015\x02", b"x__CRC32#\x011\x02", b"\xff"]),
        ),
    }
)
optional = [name for name in COLUMN_TYPES if name not in ("topic", "body")]


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[dict[str, Any]], pa.RecordBatch]:
    """Rows of a few kinds, each repeated, so that there are groups; some columns are left out."""
    kinds = draw(st.lists(rows, min_size=1, max_size=4))
    picked = draw(st.lists(st.sampled_from(kinds), min_size=0, max_size=30))
    kept = draw(st.sets(st.sampled_from(optional)))
    schema = pa.schema([(name, kind) for name, kind in COLUMN_TYPES.items() if name in kept | {"topic", "body"}])
    chosen = [{name: row[name] for name in schema.names} for row in picked]
    columns = [pa.array([row[name] for row in chosen], schema.field(name).type) for name in schema.names]
    return chosen, pa.RecordBatch.from_arrays(columns, schema=schema)


def message_of(row: dict[str, Any]) -> Message:
    """Build the message that the columns mean, independently of the code under test."""
    given: dict[str, Any] = {"body": b"", "born_timestamp": BORN}
    given |= {name: value for name, value in row.items() if value is not None}
    for name in ("born_host", "store_host"):
        if name in given:
            given[name] = HOSTS[given[name]]
    if "properties" in given:
        given["properties"] = dict(given["properties"])
    return Message(**given)


def scalar(row: dict[str, Any], rules: EncodeRules, max_level: int | None) -> tuple[Message, EncodedRecords]:
    message = message_of(row)
    properties = stored_properties(message, rules.release)
    if max_level is not None and may_be_delayed(message.sys_flag) and delay_level(properties) > 0:
        message = to_schedule_topic(message, properties, max_level, rules.release)
    encoded = encode_message(message, rules, BROKER)
    assert isinstance(encoded, EncodedRecords)
    return message, encoded


def appended_one_by_one(
    chosen: list[dict[str, Any]], rules: EncodeRules, max_level: int | None, at: int
) -> tuple[bytes, Counter[tuple[str, int]]]:
    log, table = b"", Counter[tuple[str, int]]()
    for row in chosen:
        message, encoded = scalar(row, rules, max_level)
        queue, is_queued = (message.topic, message.queue_id), may_be_delayed(message.sys_flag)
        view = bytearray(len(encoded.data) + 8)
        do_append(
            encoded,
            memoryview(view),
            at + len(log),
            queue_offset=table[queue] + 7,
            store_timestamp=TIME,
            append_property_crc=rules.append_property_crc,
            is_queued=is_queued,
        )
        table[queue] += is_queued
        log += view[:-8]
    return log, table


@given(
    batches(),
    st.sampled_from(["4.3", "4.9", "5.3"]),
    st.booleans(),
    st.sampled_from([None, 18, 2]),
)
def test_batch_encoder_equals_the_scalar_one(
    drawn: tuple[list[dict[str, Any]], pa.RecordBatch], release: str, crc: bool, max_level: int | None
) -> None:
    chosen, batch = drawn
    rules = EncodeRules(release, append_property_crc=crc and release == "5.3")
    expected, table = appended_one_by_one(chosen, rules, max_level, 4096)

    encoded = encode_batch(batch, rules, store_host=BROKER, born_timestamp=BORN, max_delay_level=max_level)
    offsets = encoded.queue_offsets(np.full(len(encoded.queues), 7, np.int64))
    data = complete_batch(encoded, slice(0, len(encoded)), 4096, offsets, TIME)

    assert expected == bytes(data)
    counted = dict(zip(encoded.queues, encoded.queue_counts.tolist(), strict=True))
    assert {queue: count for queue, count in table.items() if count} == {q: n for q, n in counted.items() if n}


def completed(encoded: EncodedBatch, count: int) -> bytes:
    """Complete the first rows at the beginning of a log."""
    offsets = encoded.queue_offsets(np.full(len(encoded.queues), 7, np.int64))
    return bytes(complete_batch(encoded, slice(0, count), 0, offsets, TIME))


def small(**columns: Any) -> pa.RecordBatch:  # noqa: ANN401 -- any column
    given = {"topic": ["a", "b"], "body": [b"1", b"22"]} | columns
    arrays = [pa.array(column, COLUMN_TYPES.get(name)) for name, column in given.items()]
    return pa.RecordBatch.from_arrays(arrays, list(given))


def test_rows_may_be_completed_in_parts() -> None:
    whole, parts = encode_batch(small()), encode_batch(small())
    offsets = whole.queue_offsets(np.zeros(2, np.int64))
    expected = bytes(complete_batch(whole, slice(0, 2), 1000, offsets, TIME))

    first = bytes(complete_batch(parts, slice(0, 1), 1000, offsets, TIME))
    second = bytes(complete_batch(parts, slice(1, 2), 1000 + len(first), offsets, TIME))
    assert expected == first + second
    assert b"" == bytes(complete_batch(parts, slice(1, 1), 0, offsets, TIME))


def test_encoded_batch_pickles() -> None:
    encoded = encode_batch(small())
    again: EncodedBatch = pickle.loads(pickle.dumps(encoded))  # noqa: S301 -- our own bytes

    assert encoded.data.tobytes() == again.data.tobytes()
    assert encoded.queues == again.queues


def test_property_of_a_map_is_not_taken_from_the_column_of_its_name() -> None:
    chosen = [{"topic": "t", "body": b"", "keys": None, "properties": [("KEYS", "k"), ("a", "b")]}]
    schema = pa.schema([(name, COLUMN_TYPES[name]) for name in chosen[0]])
    batch = pa.RecordBatch.from_arrays(
        [pa.array([chosen[0][name]], schema.field(name).type) for name in schema.names], schema=schema
    )
    expected, _ = appended_one_by_one(chosen, EncodeRules(), None, 0)

    assert expected == completed(encode_batch(batch, store_host=BROKER, born_timestamp=BORN), 1)


@pytest.mark.parametrize(("count", "size"), [(5000, 20), (3, 20_000), (4097, 1)])
def test_checksums_are_those_of_the_bodies(count: int, size: int) -> None:
    bodies = [b"%d" % number * size if number % 7 else b"" for number in range(count)]
    columns = [pa.array(["t"] * count), pa.array([b"cut off", *bodies], pa.binary()).slice(1)]
    encoded = encode_batch(pa.RecordBatch.from_arrays(columns, ["topic", "body"]))

    stored = [int.from_bytes(encoded.data[start + 8 : start + 12].tobytes()) for start in encoded.starts[:-1]]
    assert [body_crc(body) for body in bodies] == stored


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("ms"), pa.timestamp("ns", "UTC")])
def test_timestamps_are_stored_in_ms(kind: pa.DataType) -> None:
    stamp = pa.array([BORN * 1_000_000 + 999_999] * 2, pa.timestamp("ns")).cast(kind, safe=False)
    batch = small().append_column("born_timestamp", stamp)

    assert BORN.to_bytes(8) == encode_batch(batch).data[40:48].tobytes()


def test_body_may_be_text_and_names_may_be_in_any_case() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["é"])], ["TOPIC", "Body"])

    assert "é".encode() in encode_batch(batch).data.tobytes()


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (small(topic=[None, "b"]), "row 0: a message needs a topic"),
        (small().drop_columns(["body"]), "messages need a column 'body'"),
        (small().append_column("tgas", pa.array(["a", "b"])), "did you mean 'tags'"),
        (small().append_column("Topic", pa.array(["a", "b"])), "'topic' is there twice: rename or drop one"),
        (small().append_column("flag", pa.array([1, 2**40])), "column 'flag' of type int64 can't be int32"),
        (small().append_column("flag", pa.array(["x", "y"])), "column 'flag' of type string can't be int32"),
        (small(keys=[["a", None], None]), "column 'keys' holds a list with a null"),
        (small(born_host=["10.0.0.1", None]), "a host is written ip:port"),
        (small(born_host=["me:1", None]), "a host needs an IP address"),
        (small(topic=["a", "é" * 64]), "row 1: MESSAGE_ILLEGAL: a topic of 128 bytes"),
        (small(sys_flag=[0, 0x20]), "row 1: MESSAGE_ILLEGAL: sys_flag 0x20 claims"),
        (small(body=[b"", b"x" * 65]), "row 1: MESSAGE_ILLEGAL: a body of 65 bytes"),
        (small(tags=["x" * 32763, "y"]), "row 0: PROPERTIES_SIZE_EXCEEDED: properties of 32769"),
        (small(properties=[None, [("DELAY", "x")]]), "row 1: MESSAGE_ILLEGAL: property DELAY is no"),
        (
            small(properties=[None, [("INNER_NUM", "2")]]),
            "row 1: MESSAGE_ILLEGAL: property INNER_NUM on a message that is",
        ),
        (small(properties_string=[None, b"INNER_NUM\x012\x02"]), "row 1: MESSAGE_ILLEGAL: property INNER_NUM"),
    ],
)
def test_what_can_not_be_stored_is_named(batch: pa.RecordBatch, problem: str) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        encode_batch(batch, EncodeRules(max_message_size=64), max_delay_level=18)


@given(
    st.lists(st.sampled_from([b"", b"INNER_NU", b"M", b"INNER_NUM", b"a\x01b\x02INNER_NUM", b"IxxxxxxxM"]), max_size=6),
    st.integers(0, 5),
)
def test_names_with_rules_of_their_own_are_found_in_strings_however_they_are_cut(
    strings: list[bytes], first: int
) -> None:
    given_strings = [string + b"\x012\x02" for string in strings]
    columns = {"topic": ["t"] * len(strings), "body": ["b"] * len(strings), "properties_string": given_strings}
    batch = pa.RecordBatch.from_pydict(columns, pa.schema([(name, COLUMN_TYPES[name]) for name in columns]))[first:]
    refused = [row for row, string in enumerate(strings[first:]) if string.split(b"\x02")[-1] == b"INNER_NUM"]

    if refused:
        with pytest.raises(InvalidOptionError, match=f"row {refused[0]}: .*INNER_NUM"):
            encode_batch(batch)
    else:
        assert len(encode_batch(batch)) == len(strings[first:])


def test_release_4_3_limits_the_record() -> None:
    with pytest.raises(InvalidOptionError, match="MESSAGE_ILLEGAL: a record of 94 bytes, at most 93"):
        encode_batch(small(), EncodeRules("4.3", max_message_size=93))


@pytest.mark.parametrize(
    "batch",
    [
        small(sys_flag=[0, 0x80]),
        small(properties=[None, [("INNER_MULTI_DISPATCH", "%LMQ%a")]]),
        small(properties_string=[None, b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02"]),
    ],
)
def test_what_the_lock_rewrites_must_be_put_by_itself(batch: pa.RecordBatch) -> None:
    with pytest.raises(UnsupportedStoreError, match=r"row 1 .*by itself"):
        encode_batch(batch, EncodeRules(enable_lmq=True))


def test_timed_messages_must_be_put_by_themselves() -> None:
    timed = small(properties=[None, [("TIMER_DELAY_SEC", "5")]])

    with pytest.raises(UnsupportedStoreError, match=r"row 1 goes to the timer"):
        encode_batch(timed, max_delay_level=18)
    for rules, levels in ((EncodeRules("4.9"), 18), (EncodeRules(), None)):
        assert b"TIMER_DELAY_SEC" in encode_batch(timed, rules, max_delay_level=levels).data.tobytes()

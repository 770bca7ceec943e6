# SPDX-License-Identifier: Apache-2.0
"""Rows become records, whatever batches Spark passes; columns, options and owner of a write are checked."""

from __future__ import annotations

import base64
import json
import os
import pickle
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from pyspark_commitlog.reader import dataframe_schema
from pyspark_commitlog.write import row_encoder
from pyspark_commitlog.write.options import WRITE_OPTIONS, WriteOptions
from pyspark_commitlog.write.row_encoder import NULL_BODY, RowEncoder, check_columns
from pyspark_commitlog.write.writer import driver_process
from store_core.errors import InvalidOptionError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.machine import SystemClock
from store_core.format.columnar.encode_batch import encode_batch
from store_core.format.columns import COLUMNS
from store_core.store.sink.staged_batch import is_alive, owner_text
from tests.connector.stores import SMALL, append_rows, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping


GOLDEN = Path(__file__).parents[1] / "golden"


def parse(**options: str) -> WriteOptions:
    return WriteOptions.from_spark({"path": "/store", **options})


def batch(**columns: Any) -> pa.RecordBatch:  # noqa: ANN401 -- anything Arrow takes
    return pa.RecordBatch.from_pydict(columns)


def maps(*rows: Mapping[str, str | None] | None) -> pa.MapArray:
    return pa.array([None if row is None else list(row.items()) for row in rows], pa.map_(pa.string(), pa.string()))


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_all_good_rows_and_no_bad_ones_are_encoded_whatever_their_places(is_good: list[bool]) -> None:
    rows = batch(topic=["t" if good else "t" * 200 for good in is_good], body=[b"%d" % n for n in range(len(is_good))])
    encoder = RowEncoder(parse(badRows="skip"), 0, 7)
    encoded = [each for _ in range(2) for each in encoder.encode(rows)]
    good = [number for number, each in enumerate(is_good) if each]
    data = b"".join(each.records.data.tobytes() for each in encoded)
    kept = rows.take(pa.array(good, pa.int64())).append_column(
        "queue_id", pa.array([n % 4 for n in range(len(good))], pa.int32())
    )

    assert 2 * len(good) == sum(len(each.records) for each in encoded)
    assert [n for n, each in enumerate(is_good * 2) if not each] == [row.row for row in encoder.refused]
    if good and all(is_good):
        assert data[: len(data) // 2] == encode_batch(kept, born_timestamp=7).data.tobytes()


def test_large_strings_are_strings_too() -> None:
    rows = batch(topic=pa.array(["t"], pa.large_string()), body=pa.array([b"x"], pa.large_binary()))

    assert len(next(RowEncoder(parse(), 0, 0).encode(rows)).records) == 1


@pytest.mark.parametrize("values", [[["a"]], [{"a": "b"}], maps({"a": "b"}), [b"\xff\x00"]])
@pytest.mark.parametrize("name", ["keys", "user"])
def test_a_sharding_key_without_a_text_is_named(name: str, values: list[object] | pa.Array) -> None:
    rows = batch(topic=["t"], body=["x"], **{name: values})

    with pytest.raises(InvalidOptionError, match=f"shardingKey: expected a column of text, found {name!r} of type"):
        list(RowEncoder(parse(shardingKey=name), 0, 0).encode(rows))


def test_rows_in_turns_begin_at_another_queue_in_each_partition() -> None:
    rows = batch(topic=["t"] * 6, body=["x"] * 6)
    queues = [
        [queue for _, queue in np.array(each.records.queues, object)[each.records.queue_index]]
        for partition in (0, 1, 5)
        for each in RowEncoder(parse(), partition, 0).encode(rows)
    ]

    assert [[0, 1, 2, 3, 0, 1], [1, 2, 3, 0, 1, 2], [1, 2, 3, 0, 1, 2]] == queues


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_only_records_of_another_store_wait_in_topics_of_the_broker(topic: str) -> None:
    """They are made again as they were; a new message there would be taken for one that waits."""
    rows = batch(
        topic=[topic],
        body=["x"],
        queue_id=pa.array([4], pa.int32()),
        properties=maps({"DELAY": "5", "REAL_TOPIC": "t"}),
    )
    with pytest.raises(InvalidOptionError, match="clients can't send to it, since a broker keeps there"):
        list(RowEncoder(parse(), 0, 0).encode(rows))
    again = rows.append_column("store_timestamp", pa.array([1_700_000_000_000], pa.int64()))
    encoded = next(RowEncoder(parse(preserveStoreTimestamp="true"), 0, 0).encode(again))

    assert [(topic, 4)] == list(encoded.records.queues)


@pytest.mark.parametrize("topic", ["or ders", "ördérs", "orders.v1", "SELF_TEST_TOPIC"])
@pytest.mark.parametrize("more", [{}, {"delay_level": pa.array([0, 0], pa.int32())}], ids=["plain", "may-be-delayed"])
def test_a_row_of_a_topic_that_takes_no_messages_of_clients_is_refused(topic: str, more: dict[str, Any]) -> None:
    rows = batch(topic=["t", topic], body=["x", "x"], **more)
    encoder = RowEncoder(parse(badRows="skip"), 0, 0)

    assert [1] == [len(each.records) for each in encoder.encode(rows)]
    assert [(1, topic)] == [(row.row, row.topic) for row in encoder.refused]


def test_a_null_body_is_refused_unless_it_is_to_be_empty() -> None:
    rows = batch(topic=["t"] * 3, body=pa.array([b"x", None, b""]))
    encoder = RowEncoder(parse(badRows="skip"), 0, 0)

    assert [2] == [len(each.records) for each in encoder.encode(rows)]
    assert [(1, NULL_BODY)] == [(row.row, row.reason) for row in encoder.refused]
    assert [3] == [len(each.records) for each in RowEncoder(parse(nullBody="empty"), 0, 0).encode(rows)]
    with pytest.raises(InvalidOptionError, match="row 1 of partition 0 can't be a message: a message needs a body"):
        list(RowEncoder(parse(), 0, 0).encode(rows))


def test_a_store_time_that_is_missing_is_a_bad_row() -> None:
    rows = batch(topic=["t", "t"], body=["x", "x"], store_timestamp=pa.array([1_700_000_000_000, None], pa.int64()))

    with pytest.raises(InvalidOptionError, match="row 1 of partition 3 can't be a message: store_timestamp is missing"):
        list(RowEncoder(parse(preserveStoreTimestamp="true"), 3, 0).encode(rows))


DELIVERED: Final = {"REAL_TOPIC": "t", "REAL_QID": "1", "DELAY": "3", "TRAN_MSG": "true", "PGROUP": "g", "a": "1"}


@given(st.lists(st.sampled_from([{}, {"a": "1"}, {"DELAY": "2"}, DELIVERED]), min_size=1, max_size=6), st.booleans())
def test_what_a_delivered_message_waited_for_does_not_act_again(rows: list[dict[str, str]], is_string: bool) -> None:
    """What producers ask for themselves does: a delay in a message that was not delivered yet."""
    texts = pa.array(["".join(f"{name}\x01{value}\x02" for name, value in row.items()) for row in rows])
    count = len(rows)
    given = batch(
        topic=["t"] * count,
        body=["x"] * count,
        queue_id=pa.array([0] * count, pa.int32()),
        sys_flag=pa.array([8 * (row == DELIVERED) for row in rows], pa.int32()),
        **({"properties_string": texts} if is_string else {"properties": maps(*rows)}),
    )
    queues = [("SCHEDULE_TOPIC_XXXX", 1) if row == {"DELAY": "2"} else ("t", 0) for row in rows]
    (encoded,) = RowEncoder(parse(), 0, 0).encode(given)
    records = encoded.records

    assert queues == [list(records.queues)[at] for at in records.queue_index]
    assert b"TRAN_MSG" not in records.data.tobytes()
    assert all(records.is_queued)


def test_a_delay_level_that_is_asked_for_applies_to_a_delivered_message_too() -> None:
    rows = batch(topic=["t"], body=["x"], properties=maps(DELIVERED), delay_level=pa.array([7], pa.int32()))
    encoded = next(RowEncoder(parse(), 0, 0).encode(rows))

    assert [("SCHEDULE_TOPIC_XXXX", 6)] == list(encoded.records.queues)


# ---- any row

TEXTS = (
    st.none() | st.text(max_size=6) | st.sampled_from(["a/b", "..", "t" * 300, "\x01", "\x02", "SCHEDULE_TOPIC_XXXX"])
)
HOSTS = st.none() | st.sampled_from(
    ["10.1.2.3:5", "[::1]:9", ":", "10.1.2.3:99999", "10.1.2.3:" + "9" * 5000, "host:1"]
)
INTEGERS = st.none() | st.integers(-2, 3) | st.integers(-(2**31), 2**31 - 1)
LONGS = st.none() | st.integers(0, 2**42) | st.integers(-(2**63), 2**63 - 1)
NAMES = ("a", "DELAY", "KEYS", "INNER_NUM", "TIMER_DELAY_SEC", "__CRC32#", "REAL_TOPIC", "", "\x02", "WAIT")
VALUES = st.none() | st.text(max_size=5) | st.sampled_from(["3", "999999999999", "-1", "x" * 40000])
DRAWN = {
    "topic": (pa.string(), TEXTS),
    "body": (pa.binary(), st.none() | st.binary(max_size=5) | st.just(b"x" * 20000)),
    "queue_id": (pa.int32(), INTEGERS),
    "tags": (pa.string(), TEXTS),
    "keys": (pa.list_(pa.string()), st.none() | st.lists(TEXTS, max_size=2)),
    "properties": (
        pa.map_(pa.string(), pa.string()),
        st.none() | st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3).map(lambda pairs: list(pairs.items())),
    ),
    "sys_flag": (pa.int32(), INTEGERS),
    "born_timestamp": (pa.int64(), LONGS),
    "born_host": (pa.string(), HOSTS),
    "delay_level": (pa.int32(), INTEGERS),
    "properties_string": (
        pa.binary(),
        st.none() | st.binary(max_size=6) | st.sampled_from([b"DELAY\x01x\x02", b"TIMER_DELAY_SEC\x015\x02"]),
    ),
    "store_timestamp": (pa.int64(), LONGS),
}


@st.composite
def any_rows(draw: st.DrawFn) -> pa.RecordBatch:
    chosen = [name for name in DRAWN if name in {"topic", "body"} | draw(st.sets(st.sampled_from(sorted(DRAWN))))]
    count = draw(st.integers(0, 6))
    arrays = [
        pa.array(draw(st.lists(DRAWN[name][1], min_size=count, max_size=count)), DRAWN[name][0]) for name in chosen
    ]
    return pa.RecordBatch.from_arrays(arrays, names=chosen)


@given(any_rows(), st.sampled_from(["4.3", "4.9", "5.3"]))
def test_every_row_is_a_message_or_refused_whatever_it_holds(rows: pa.RecordBatch, release: str) -> None:
    keeps = str("store_timestamp" in rows.schema.names).lower()
    options = {"release": release, "mappedFileSizeCommitLog": "16k", "preserveStoreTimestamp": keeps}
    encoder = RowEncoder(parse(badRows="skip", **options), 0, 5)
    encoded = sum(len(each.records) for each in encoder.encode(rows))
    refused = [row.row for row in encoder.refused]

    assert rows.num_rows == encoded + len(refused)
    assert refused == sorted(set(refused))
    assert all(row.reason and not row.reason.startswith("row ") for row in encoder.refused)
    if refused:
        with pytest.raises(
            InvalidOptionError, match=r"^row \d of partition 0 can't be a message: .*Nothing is appended"
        ):
            list(RowEncoder(parse(**options), 0, 5).encode(rows))


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.integers(1, 2000))
def test_rows_of_many_bytes_are_encoded_in_parts(sizes: list[int], most_bytes: int) -> None:
    rows = batch(topic=["t"] * len(sizes), body=["x" * size for size in sizes], queue_id=[0] * len(sizes))
    whole = [each.records.data.tobytes() for each in RowEncoder(parse(), 0, 5).encode(rows)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_encoder, "_MOST_BYTES", most_bytes)
        parts = list(RowEncoder(parse(), 0, 5).encode(rows))

    assert len(whole) == 1
    assert whole[0] == b"".join(part.records.data.tobytes() for part in parts)
    if rows.nbytes > most_bytes:
        bodies = np.split(np.array(sizes), np.cumsum([len(part.records) for part in parts])[:-1])
        assert all(part.sum() < most_bytes + part.max() for part in bodies)


# ---- properties


def properties_of(path: Path, columns: dict[str, Any], **options: str) -> list[dict[str, str]]:
    """Append rows, and return the properties that are read back."""
    count = len(next(iter(columns.values())))
    append_rows(path, [batch(topic=["t"] * count, body=["x"] * count, **columns)], **(SMALL | options))
    return [dict(row["properties"]) for row in rows_of(path, "properties")]


def test_keys_may_be_one_string_or_a_list(tmp_path: Path) -> None:
    assert [{"KEYS": "a b"}, {}] == properties_of(tmp_path / "text", {"keys": ["a b", None]})
    assert [{"KEYS": "a b"}, {}] == properties_of(tmp_path / "list", {"keys": [["a", "b"], []]})


def test_of_a_property_that_is_a_column_and_in_the_map_the_column_counts(tmp_path: Path) -> None:
    given = {"TAGS": "m", "KEYS": "m", "UNIQ_KEY": "u"}
    found = properties_of(tmp_path, {"tags": ["c", None], "keys": ["c", None], "properties": maps(given, given)})

    assert [{"TAGS": "c", "KEYS": "c", "UNIQ_KEY": "u"}, given] == found


def test_a_property_without_a_value_is_none(tmp_path: Path) -> None:
    assert [{"a": "1"}, {}] == properties_of(tmp_path, {"properties": maps({"a": "1", "b": None}, None)})


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"tags": ["\x02"]}, "tags contain byte 2, which ends a property"),
        ({"keys": [["a", "\x02"]]}, "keys contain byte 2"),
        ({"properties": maps({"\x01": "x"})}, "names of properties contain byte 1, which ends a name"),
        ({"properties": maps({"a\x02": "x"})}, "names of properties contain byte 2"),
        ({"properties": maps({"x": "a\x02b"})}, "values of properties contain byte 2"),
        ({"properties": maps({"INNER_NUM": "2"})}, "property INNER_NUM on a message that is not an inner batch"),
        ({"properties": maps({"TIMER_DELAY_SEC": "2"})}, "goes to the timer"),
        ({"properties": maps({"DELAY": "soon"})}, "property DELAY is not a 32-bit integer: 'soon'"),
        ({"properties": maps({"a": "x" * 32768})}, "PROPERTIES_SIZE_EXCEEDED: properties of 32771 bytes"),
        ({"topic": ["a/b"], "delay_level": pa.array([3], pa.int32())}, "topic 'a/b', queue 0: the name holds '/'"),
        ({"queue_id": pa.array([-1], pa.int32())}, "topic 't', queue -1: a queue id is 0 to"),
        ({"body": [b"x" * (4 << 20) + b"x"]}, "MESSAGE_ILLEGAL: a body of 4194305 bytes, at most 4194304 are allowed"),
    ],
)
def test_what_no_broker_takes_or_no_reader_would_find_again_is_refused(columns: dict[str, Any], says: str) -> None:
    rows = batch(**({"topic": ["t"], "body": ["x"]} | columns))

    with pytest.raises(InvalidOptionError, match=f"row 0 of partition 0 can't be a message: .*{says}"):
        list(RowEncoder(parse(), 0, 0).encode(rows))


@pytest.mark.parametrize("number", [4, 10])
@pytest.mark.parametrize("version", ["4.3.0", "4.9.7", "5.3.3"])
def test_a_value_with_byte_1_is_written_if_rocketmq_reads_it_back(version: str, number: int, tmp_path: Path) -> None:
    lines = GOLDEN.joinpath(f"rocketmq-{version}", "odd_properties.jsonl").read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[number])
    items = base64.b64decode(record["propertiesRaw"]).decode().split("\x02")
    meant = dict(item.split("\x01", 1) for item in items if item)
    kept = {name: value for name, value in record["properties"].items() if name in meant}

    assert any("\x01" in value for value in meant.values())
    if kept == meant:
        assert [meant] == properties_of(tmp_path, {"properties": maps(meant)}, release=version[:3])
    else:
        with pytest.raises(InvalidOptionError, match="values of properties contain byte 1"):
            properties_of(tmp_path, {"properties": maps(meant)}, release=version[:3])


@pytest.mark.parametrize("columns", [{"tags": ["a\x01b"]}, {"keys": [["a\x01b"]]}, {"keys": ["a\x01b"]}])
def test_tags_and_keys_with_byte_1_are_as_values(columns: dict[str, Any], tmp_path: Path) -> None:
    name = next(iter(columns))

    assert [{name.upper(): "a\x01b"}] == properties_of(tmp_path, columns)
    with pytest.raises(InvalidOptionError, match=f"{name} contain byte 1"):
        properties_of(tmp_path, columns, release="4.3")


@pytest.mark.parametrize("crc", ["false", "true"])
def test_the_checksum_of_the_record_that_a_message_was_read_from_is_left_out(crc: str, tmp_path: Path) -> None:
    found = [
        *properties_of(tmp_path / "map", {"properties": maps({"__CRC32#": "1", "a": "b"})}, enabledAppendPropCRC=crc),
        *properties_of(
            tmp_path / "text", {"properties_string": [b"a\x01b\x02__CRC32#\x011"]}, enabledAppendPropCRC=crc
        ),
    ]

    assert [["a"] + ["__CRC32#"] * (crc == "true")] * 2 == [sorted(each, reverse=True) for each in found]
    assert not any(each.get("__CRC32#") == "1" for each in found)


# ---- options


def test_every_option_of_the_table_is_parsed_and_the_defaults_are_those_shown() -> None:
    shown = {option.name: option.default for option in WRITE_OPTIONS if not option.default.startswith("(")}

    assert parse() == parse(**shown)
    assert parse(**shown) == pickle.loads(pickle.dumps(parse(**shown)))  # noqa: S301 -- our own bytes


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queueNum": "3"}, "did you mean 'queueNums'?"),
        ({"queueNums": "0"}, "option queueNums: expected a number from 1 to 2147483647, found '0'"),
        ({"storeHost": "here"}, "option storeHost: a host is written ip:port"),
        ({"bornHost": "host:1"}, "option bornHost: a host needs an IP address"),
        ({"mappedFileSizeCommitLog": "3t"}, "option mappedFileSizeCommitLog: expected a number of 1 to 2147483647"),
        ({"rebuild": "some"}, "option rebuild: expected one of all, queues, none, found 'some'"),
        ({"badRows": "drop"}, "option badRows: expected one of fail, skip"),
        ({"release": "6"}, "option release: expected one of 4.3, 4.9, 5.3"),
        ({"release": "4.9.7"}, "found '4.9.7'; RocketMQ 4.9.7 is served by the rules of 4.9, so give 4.9"),
        ({"dryRun": "maybe"}, "option dryRun: expected one of true, false"),
        ({"topic": " "}, "option topic: expected some text"),
        ({"path": ""}, "no path is given.* CREATE TABLE have lost theirs"),
        ({"messageDelayLevel": "1x"}, "1x"),
        ({"enabledAppendPropCRC": "true", "release": "4.9"}, "false with release=4.9"),
        *(
            ({"path": path}, "where stores live")
            for path in ("s3://bucket/store", "hdfs://host/store", "hdfs:/store", "S3A:/bucket")
        ),
        ({"path": "file://host/store"}, "another host"),
    ],
)
def test_an_option_that_can_t_be_used_is_refused(options: dict[str, str], says: str) -> None:
    kinds = {"where stores live": UnsupportedStoreError, "another host": StoreNotFoundError}
    with pytest.raises(kinds.get(says, InvalidOptionError), match=says.replace("?", r"\?")):
        WriteOptions.from_spark({"path": "/store"} | options)


@pytest.mark.parametrize("path", ["file:///a/b", "file:/a/b", "/a/b", "FILE:///a/b", "file://localhost/a/b"])
def test_a_local_path_is_one_in_any_spelling(path: str) -> None:
    assert Path("/a/b") == WriteOptions.from_spark({"path": path}).root


# ---- owners

CLOCK = SystemClock()


def test_this_process_is_alive_and_one_with_its_number_and_another_start_is_not() -> None:
    owner = json.loads(owner_text(CLOCK, driver_process()))

    assert is_alive(CLOCK, json.dumps(owner))
    assert not is_alive(CLOCK, json.dumps(owner | {"started": "1"}))
    assert not is_alive(CLOCK, json.dumps(owner | {"boot": "another"}))
    assert (socket.gethostname(), True) == (owner["host"], owner["process"] != os.getpid())


def test_a_process_that_has_ended_is_gone_before_its_parent_notices() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = owner_text(CLOCK, process.pid)
        assert is_alive(CLOCK, owner)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert Path(f"/proc/{process.pid}/stat").exists()
        assert not is_alive(CLOCK, owner)


def test_a_job_on_another_machine_is_believed_for_a_week() -> None:
    owner = json.loads(owner_text(CLOCK)) | {"host": "elsewhere"}

    assert is_alive(CLOCK, json.dumps(owner))
    assert not is_alive(CLOCK, json.dumps(owner | {"created": time.time() - 8 * 24 * 3600}))


@pytest.mark.parametrize("text", ["", "{}", "[]", "\0", '{"host": 1}'])
def test_an_owner_that_can_t_be_read_is_gone(text: str) -> None:
    assert not is_alive(CLOCK, text)


# ---- columns


TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "binary": BinaryType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "ints": ArrayType(IntegerType()),
    "numbers": MapType(StringType(), IntegerType()),
    "timestamp_ntz": TimestampNTZType(),
}


def schema_of(text: str) -> StructType:
    """Make a schema of names and types; Spark's own parser runs in Java."""
    fields = [field.split(" ") for field in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def refusal(schema: StructType | str, **options: str) -> str:
    """Return the error for a DataFrame with this schema."""
    given = schema_of(schema) if isinstance(schema, str) else schema
    with pytest.raises(InvalidOptionError) as caught:
        check_columns(given, WriteOptions.from_spark({"path": "/store", **options}))
    return str(caught.value)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (
            "topic string, id bigint, value string",
            'found topic string, id bigint, value string: create it, for example with selectExpr("CAST(',
        ),
        ("key binary, value binary, topic string", 'selectExpr("CAST(value AS BINARY) AS body", ...)'),
        ("topic string, note string", "CAST(note AS BINARY)"),
        (
            "topic string",
            "messages need a column 'body'; found topic string: create it, for example with selectExpr(\"",
        ),
        ("topic string", 'selectExpr("CAST(value AS BINARY) AS body", ...)'),
        ("body string", "need a column 'topic'; found body string: create it, for example with withColumn('topic',"),
        ("topic string, body string, bodi string", "did you mean 'body'?"),
        ("topic string, body string, queue_offset bigint", "drop them with df.drop('queue_offset')"),
        ("topic string, body int", "cast it, as by `CAST(body AS STRING)`"),
        ("topic string, body string, keys ints", "column 'keys' of type array<int>: expected list of strings"),
        ("topic string, body string, properties numbers", "expected map of strings"),
        ("topic string, body string, topic string", "expected each column once, found 'topic' twice"),
        (
            "topic string, body string, tags string, keys string, properties_string binary",
            "column 'properties_string' holds all properties: drop either it or 'tags', 'keys'",
        ),
        (
            "topic string, body string, queue_id bigint",
            "are taken in turn; cast it, as by `CAST(queue_id AS INT)`",
        ),
    ],
)
def test_columns_that_are_none_of_a_message_are_named_with_what_to_do(schema: str, says: str) -> None:
    assert says in refusal(schema)


def test_unknown_columns_are_all_named() -> None:
    assert refusal("topic string, body string, propertes numbers, region string").startswith(
        "a message can't have a column 'propertes', nor 'region'; did you mean 'properties'?"
    )


@pytest.mark.parametrize("name", ["born_timestamp", "store_timestamp"])
def test_a_time_without_a_zone_is_refused(name: str) -> None:
    keeps = str(name == "store_timestamp").lower()
    text = refusal(f"topic string, body string, {name} timestamp_ntz", preserveStoreTimestamp=keeps)

    assert f"column '{name}' of type timestamp_ntz: expected timestamp with a time zone, or epoch ms" in text


@pytest.mark.parametrize("keeps_times", ["false", "true"])
@pytest.mark.parametrize("columns", [None, [column.name for column in COLUMNS]], ids=["default", "all"])
def test_rows_just_read_are_recognised_and_exactly_the_columns_to_drop_are_named(
    keeps_times: str, columns: list[str] | None
) -> None:
    names = columns or [column.name for column in COLUMNS if column.default]
    schema = dataframe_schema(names, nullable=False)
    text = refusal(schema, preserveStoreTimestamp=keeps_times)
    told = text[text.index("df.drop(") + len("df.drop(") :].split(")")[0]
    dropped = [name.strip("'") for name in told.split(", ")]

    assert "these rows were read from a store" in text
    assert "--from-store" in text
    assert ("store_timestamp" in dropped) == (keeps_times == "false")
    kept = StructType([field for field in schema if field.name not in dropped])
    check_columns(kept, WriteOptions.from_spark({"path": "/store", "preserveStoreTimestamp": keeps_times}))
    for name in dropped:
        assert refusal(StructType([*kept, schema[name]]), preserveStoreTimestamp=keeps_times)

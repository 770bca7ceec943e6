# SPDX-License-Identifier: Apache-2.0
"""Rows become records whatever Spark hands over, and the options and owner of a write are told apart without Spark."""

from __future__ import annotations

import json
import os
import pickle
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_commitlog.job_owner import is_alive, owner_text
from pyspark_commitlog.row_encoder import RowEncoder
from pyspark_commitlog.write_options import WRITE_OPTIONS, WriteOptions
from store_core.errors import InvalidOptionError, StoreError, UnsupportedStoreError
from store_core.format.encode_batch import encode_batch


def parse(**options: str) -> WriteOptions:
    return WriteOptions.from_spark({"path": "/store", **options})


def batch(**columns: Any) -> pa.RecordBatch:  # noqa: ANN401 -- anything Arrow takes
    return pa.RecordBatch.from_pydict(columns)


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


def test_rows_in_turns_begin_at_another_queue_in_each_partition() -> None:
    rows = batch(topic=["t"] * 6, body=["x"] * 6)
    queues = [
        [queue for _, queue in np.array(each.records.queues, object)[each.records.queue_index]]
        for partition in (0, 1, 5)
        for each in RowEncoder(parse(), partition, 0).encode(rows)
    ]

    assert [[0, 1, 2, 3, 0, 1], [1, 2, 3, 0, 1, 2], [1, 2, 3, 0, 1, 2]] == queues


def test_messages_that_were_delayed_before_stay_where_they_are() -> None:
    rows = batch(topic=["SCHEDULE_TOPIC_XXXX", "t", "t"], body=["x"] * 3, queue_id=pa.array([4, 0, 0], pa.int32()))
    delays = pa.array([[("DELAY", "5"), ("REAL_TOPIC", "t")], [("DELAY", "2")], []], pa.map_(pa.string(), pa.string()))
    encoded = list(RowEncoder(parse(), 0, 0).encode(rows.append_column("properties", delays)))

    assert [("SCHEDULE_TOPIC_XXXX", 4)] == list(encoded[0].records.queues)
    assert {("SCHEDULE_TOPIC_XXXX", 1), ("t", 0)} == set(encoded[1].records.queues)


def test_a_store_time_that_is_missing_is_a_bad_row() -> None:
    rows = batch(topic=["t", "t"], body=["x", "x"], store_timestamp=pa.array([1_700_000_000_000, None], pa.int64()))

    with pytest.raises(InvalidOptionError, match="row 1 of partition 3 can't be a message: store_timestamp is missing"):
        list(RowEncoder(parse(preserveStoreTimestamp="true"), 3, 0).encode(rows))


# ---- options


def test_every_option_of_the_table_is_parsed_and_the_defaults_are_those_shown() -> None:
    shown = {option.name: option.default for option in WRITE_OPTIONS if not option.default.startswith("(")}

    assert parse() == replace(parse(**shown), given_sizes=frozenset())
    assert parse(**shown) == pickle.loads(pickle.dumps(parse(**shown)))  # noqa: S301 -- our own bytes


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queueNum": "3"}, "did you mean 'queueNums'?"),
        ({"queueNums": "0"}, "option queueNums: expected a number of 1 or more, found '0'"),
        ({"storeHost": "here"}, "option storeHost: a host is written ip:port"),
        ({"bornHost": "host:1"}, "option bornHost: a host needs an IP address"),
        ({"mappedFileSizeCommitLog": "3t"}, "option mappedFileSizeCommitLog: expected a number of 1 to 2147483647"),
        ({"rebuild": "some"}, "option rebuild: expected one of all, queues, none, found 'some'"),
        ({"badRows": "drop"}, "option badRows: expected one of fail, skip"),
        ({"release": "6"}, "option release: expected one of 4.3, 4.9, 5.3"),
        ({"dryRun": "maybe"}, "option dryRun: expected one of true, false"),
        ({"topic": " "}, "option topic: expected some text"),
        ({"path": ""}, "no path is given"),
        ({"messageDelayLevel": "1x"}, "1x"),
    ],
)
def test_an_option_that_can_t_be_used_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(StoreError, match=says.replace("?", r"\?")):
        WriteOptions.from_spark({"path": "/store"} | options)


@pytest.mark.parametrize("path", ["s3://bucket/store", "hdfs://host/store"])
def test_a_store_on_an_object_store_is_not_supported(path: str) -> None:
    with pytest.raises(UnsupportedStoreError, match="where stores live"):
        WriteOptions.from_spark({"path": path})


@pytest.mark.parametrize("path", ["file:///a/b", "file:/a/b", "/a/b"])
def test_a_local_path_is_one_in_any_spelling(path: str) -> None:
    assert Path("/a/b") == WriteOptions.from_spark({"path": path}).root


# ---- owners


def test_this_process_is_alive_and_one_with_its_number_and_another_start_is_not() -> None:
    owner = json.loads(owner_text())

    assert is_alive(json.dumps(owner))
    assert not is_alive(json.dumps(owner | {"started": "1"}))
    assert not is_alive(json.dumps(owner | {"boot": "another"}))
    assert (socket.gethostname(), True) == (owner["host"], owner["process"] != os.getpid())


def test_a_job_on_another_machine_is_believed_for_a_week() -> None:
    owner = json.loads(owner_text()) | {"host": "elsewhere"}

    assert is_alive(json.dumps(owner))
    assert not is_alive(json.dumps(owner | {"created": time.time() - 8 * 24 * 3600}))


@pytest.mark.parametrize("text", ["", "{}", "[]", "\0", '{"host": 1}'])
def test_an_owner_that_can_t_be_read_is_gone(text: str) -> None:
    assert not is_alive(text)

# SPDX-License-Identifier: Apache-2.0
"""Which rows a read has: filters, and topics that a store does not have."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from store_core import read_messages
from store_core.format.columns import arrow_schema
from store_core.store.read.chunk_rows import RowFilter
from store_core.store.read.read_messages import stored_topics
from store_core.store.read.read_options import ReadOptions
from tests.builders import LogBuilder
from tests.store_core.files.store_kinds import add_rocksdb

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


Columns = dict[str, list[object]]
OFFSETS = np.arange(100, 200)


def selected(values: Mapping[str, Sequence[object]], **options: object) -> list[int]:
    """Filter a batch of these columns; return the numbers of the rows that are left."""
    row_filter = RowFilter(ReadOptions.parse(**options))
    assert set(row_filter.columns) == set(values)
    batch = pa.RecordBatch.from_pydict(
        {name: values[name] for name in row_filter.columns}, schema=arrow_schema(row_filter.columns, nullable=True)
    )
    return [row for row, kept in enumerate(row_filter.select(batch, OFFSETS[: batch.num_rows]).tolist()) if kept]


NOT_TYPE, PREPARED, COMMIT, ROLLBACK = 0x00, 0x04, 0x08, 0x0C
TOPICS: Columns = {"topic": ["orders", "my orders", "orders2"]}
TAGS: Columns = {"tags": ["TagA", None, "TagB", "TagA || TagB", "taga", ""]}
FLAGS: Columns = {"sys_flag": [NOT_TYPE, NOT_TYPE, NOT_TYPE, PREPARED, COMMIT | 0x01, ROLLBACK, NOT_TYPE]}
CONSUMED: Columns = {"tags": ["A", "B", None, "A", "A", "C", "A || C"], **FLAGS}
MAPS: Columns = {
    "properties": [list(row.items()) for row in ({"a": "6"}, {"a": "5"}, {}, {"a": "x"}, {"a": "7"}, {"a": "8"})],
    "sys_flag": [*[NOT_TYPE] * 5, PREPARED],
}
KEYS: Columns = {
    "keys": [["k1", "k2"], None, ["k1 k2"], [], ["k2"], None],
    "unique_key": [None, "k2", None, None, "k2", "k3"],
    "uniq_msg_id": [None, "k2", None, None, "k2", "k3"],
}
UNIQUE_KEYS: Columns = {"unique_key": ["B", "B", "A", None], "uniq_msg_id": ["A", "C", "A", None]}
LAST = {"t": {0: 2**63 - 1}}
PLACES: Columns = {"topic": ["t"] * 2, "queue_id": [0] * 2, "queue_offset": [2**63 - 1, 0]}


@pytest.mark.parametrize(
    ("values", "options", "rows"),
    [
        pytest.param(TOPICS, {"topics_pattern": "or.*"}, [0, 2], id="a pattern"),
        pytest.param(TOPICS, {"topics_pattern": "or"}, [], id="a pattern matches the whole topic"),
        pytest.param(TOPICS, {"topics_pattern": "(?i)ORDERS"}, [0], id="a pattern in any case"),
        pytest.param(TOPICS, {"topics_pattern": ".*"}, [0, 1, 2], id="a pattern of all"),
        pytest.param(TAGS, {"tag": "TagA || TagB"}, [0, 2], id="tags match exactly, and no tag matches none"),
        pytest.param(KEYS, {"key": "k2"}, [0, 1, 4], id="a key is one of the keys or the unique key"),
        pytest.param(UNIQUE_KEYS, {"unique_key": "A"}, [0, 2], id="a unique key is the first one of a batch"),
        pytest.param(UNIQUE_KEYS, {"unique_key": "B"}, [0, 1], id="or the last one"),
        pytest.param(CONSUMED, {"filter": "A || C"}, [0, 4], id="a consumer of tags gets those that are in a queue"),
        pytest.param(CONSUMED, {"filter": " || "}, [], id="a consumer of no tags"),
        pytest.param(FLAGS, {"filter": "*"}, [0, 1, 2, 4, 6], id="a consumer of all tags"),
        pytest.param(MAPS, {"filter": "a > 5", "filter_type": "SQL92"}, [0, 4], id="what an expression is true for"),
        pytest.param(MAPS, {"filter": "a > 5 OR TRUE", "filter_type": "sql92"}, [0, 1, 2, 4], id="or true"),
        pytest.param(PLACES, {"ending_offsets": LAST}, [1], id="an end can be the last offset there is"),
        pytest.param(PLACES, {"starting_offsets": LAST}, [0], id="a start can be the last offset there is"),
    ],
)
def test_what_is_asked_for_is_selected(values: Columns, options: dict[str, Any], rows: list[int]) -> None:
    assert selected(values, **options) == rows


def test_an_expression_is_evaluated_on_the_rows_that_all_else_leaves() -> None:
    options = ReadOptions.parse(filter="a = 5", filter_type="SQL92", topic="t")
    row_filter = RowFilter(options)
    maps = [[("a", value)] for value in ("5", "x", "x", "5")]
    columns: Columns = {"topic": ["t", "t", "u", "u"], "sys_flag": [NOT_TYPE] * 4, "properties": [*maps]}
    batch = pa.RecordBatch.from_pydict(columns, schema=arrow_schema([*columns]))

    assert [True, False, False, False] == row_filter.select(batch, OFFSETS[:4]).tolist()
    assert row_filter.error_count == 1
    row_filter.select(batch, OFFSETS[10:14])
    assert row_filter.error_count == 2
    assert row_filter.first_error == "at offset 101, property a: expected a whole number of 32 bits, found 'x'"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store of three segments, whose topics are only in the log, the queues or the configuration."""
    log = LogBuilder(segment_size=1024)
    while len(log.segments()) < 3:
        log.append(b"x" * 50, topic="logged")
    root = log.write(tmp_path / "store")
    (root / "consumequeue" / "queued" / "0").mkdir(parents=True)
    (root / "batchconsumequeue" / "batched" / "0").mkdir(parents=True)
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"planned": {}}}))
    return root


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("place", ["", "commitlog", "commitlog/00000000000000000000"])
def test_a_topic_that_is_nowhere_is_warned_of_once_with_the_nearest_name(
    store: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert 0 == read_messages(store / place, topic="qeued", columns="body").read_all().num_rows

    (text,) = warnings(caplog)
    assert text.startswith("topic 'qeued': no record of it was read, and neither the queues nor config/topics.json of")
    assert text.endswith(f"{store} know it; did you mean 'queued'?")


def test_each_unknown_topic_of_several_is_warned_of(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_messages(store, topic="logged,loged,planed,queued").read_all().num_rows

    assert ["'loged'", "'planed'"] == [text.split()[1].rstrip(":") for text in warnings(caplog)]


def test_unknown_topics_of_queue_offsets_are_warned_of(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    start, end = '{"loged": {"2": 5}}', '{"logged": {"2": 5}}'

    assert read_messages(store, starting_offsets=start, ending_offsets=end).read_all().num_rows
    assert ["'loged'"] == [text.split()[1].rstrip(":") for text in warnings(caplog)]


@pytest.mark.parametrize("topic", ["logged", "queued", "batched", "planned", "queued,planned"])
def test_a_topic_that_is_anywhere_is_not_warned_of(store: Path, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    assert bool(read_messages(store, topic=topic).read_all().num_rows) == (topic == "logged")
    assert not warnings(caplog)


def test_a_file_beside_the_queues_is_no_topic(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    (store / "consumequeue" / "CURRENT").touch()
    assert 0 == read_messages(store, topic="CURRENT").read_all().num_rows
    assert 0 == read_messages(store, topic="zzz").read_all().num_rows
    first, second = warnings(caplog)
    assert "'CURRENT': no record of it was read" in first
    assert "CURRENT" not in second.rpartition("; ")[2]


def test_a_log_alone_has_no_name_to_offer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = LogBuilder(segment_size=1024)
    log.append(b"x", topic="logged")
    root = log.write(tmp_path / "store")

    assert 0 == read_messages(root, topic="loged").read_all().num_rows
    assert [True] == [text.endswith("no topic is known") for text in warnings(caplog)]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"topicConfigTable": 7}', b"[" * 100_000, b"\xff\xfe", b'{"topicConfigTable":']
)
def test_a_broken_configuration_names_no_topic(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(content)

    assert frozenset() == stored_topics([tmp_path, tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"queue_id": 99}, "queue 99: "),
        ({"queue_id": "99", "topic": "logged,queued"}, "queue 99 of topic 'logged', 'queued': "),
        ({"starting_offsets": {"queued": {"5": 1}}}, "queue 5 of topic 'queued': "),
        ({"ending_offsets": '{"planned": {"3": 1}}'}, "queue 3 of topic 'planned': "),
    ],
)
def test_a_queue_that_its_topic_does_not_have_is_warned_of_with_those_that_it_has(
    store: Path, options: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = {"topicConfigTable": {"planned": {"readQueueNums": 2, "writeQueueNums": 3}}}
    (store / "config" / "topics.json").write_text(json.dumps(table))
    read_messages(store, **options).read_all()
    ids = "0" if "queued" in told else "0, 1, 2"

    assert [f"{told}neither the queues nor config/topics.json of {store} know it; the ids are {ids}"] == warnings(
        caplog
    )


@pytest.mark.parametrize("place", [add_rocksdb, Path.touch])
@pytest.mark.parametrize(
    ("options", "told"),
    [({"topic": "nosuch"}, "topic 'nosuch': no record of it was read, and "), ({"queue_id": 99}, "queue 99: ")],
)
def test_queues_that_can_not_be_read_are_not_said_not_to_know(
    store: Path, options: dict[str, Any], told: str, place: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"planned": {"readQueueNums": 2}}}))
    shutil.rmtree(store / "consumequeue")
    place(store / "consumequeue")
    read_messages(store, **options).read_all()

    (text,) = warnings(caplog)
    assert text.startswith(f"{told}the queues of {store} can't be read: ")
    caplog.clear()
    shutil.rmtree(store / "config")
    read_messages(store, **options).read_all()
    assert not any("know it" in text or "no topic is known" in text for text in warnings(caplog))


@pytest.mark.parametrize(
    "options", [{"queue_id": 0}, {"starting_offsets": {"queued": {"0": 1}}}, {"queue_id": 7, "topic": "planned"}]
)
def test_a_queue_that_exists_or_of_which_nothing_says_so_is_not_warned_of(
    store: Path, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    read_messages(store, **options).read_all()

    assert not warnings(caplog)

# SPDX-License-Identifier: Apache-2.0
"""The table of options, and how the text that Spark passes is parsed; times in the session's zone wait for it."""

from __future__ import annotations

import pickle
import re
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import TaskContext

from pyspark_commitlog.options import CommitLogOptions, SessionTimes
from pyspark_commitlog.replay import spark_options
from pyspark_commitlog.stream import STREAM_OPTIONS, StreamOptions
from pyspark_commitlog.write.options import WRITE_OPTIONS
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files.storage import StorageSettings
from store_core.format.columnar.input_columns import INPUT_COLUMNS
from store_core.format.columns import COLUMNS, DEFAULT_COLUMNS
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.read.option_table import READ_OPTIONS
from store_core.store.read.read_options import ReadOptions
from tests.builders import LogBuilder
from tools.options_document import markdown_document

if TYPE_CHECKING:
    from pathlib import Path

HANDLED_HERE = {"path", "paths", "view"}
PARSED = [option for option in READ_OPTIONS if option.name not in HANDLED_HERE]


def parse(**options: str) -> CommitLogOptions:
    return CommitLogOptions.from_spark({"path": "/store", **options})


def test_the_table_and_the_reader_know_the_same_options() -> None:
    options = {field.name for field in fields(ReadOptions) if field.metadata.get("is_option", True)}

    assert options == {option.field for option in PARSED}


@pytest.mark.parametrize("option", [option for option in PARSED if not option.default.startswith("(")])
def test_the_default_shown_is_the_default(option: object) -> None:
    assert isinstance(option, type(READ_OPTIONS[0]))

    assert ReadOptions.parse() == ReadOptions.parse(**{option.field: option.default})


def test_names_match_in_any_case() -> None:
    assert parse(maxRecordsPerBatch="7") == parse(MAXRECORDSPERBATCH="7") == parse(maxrecordsperbatch="7")


def test_options_are_parsed_on_the_driver_and_pickle() -> None:
    options = parse(columns="body,topic", mode="permissive", minPartitions="3")

    assert options == pickle.loads(pickle.dumps(options))  # noqa: S301 -- our own bytes
    assert options.columns == ("body", "topic")
    assert options.read.is_permissive


def test_without_option_columns_the_schema_is_free() -> None:
    assert parse().columns is None
    assert tuple(DEFAULT_COLUMNS) == tuple(parse().read.columns)


UNKNOWN = {
    "topik": "topic",
    "topics": "topic",
    "maxrecordsperbach": "maxRecordsPerBatch",
    "startingoffset": "startingOffsets",
    "max_partition_bytes": "maxPartitionBytes",
    "colums": "columns",
    "maxoffsetpertrigger": "maxOffsetsPerTrigger",
    "maxtriggerdelays": "maxTriggerDelay",
}
"""Wrong name -> the one that is nearest to it."""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        *(
            ({wrong: "1"}, f"unknown option {wrong!r} of format 'commitlog'; did you mean {nearest!r}?")
            for wrong, nearest in UNKNOWN.items()
        ),
        ({"topic": "orders", "topik": "orders", "mode": "PERMISSIVE"}, "unknown option 'topik'"),
        (
            {"storage.region": "r", "storage": "scheme=http"},
            "expected option storage, or options storage.NAME, found both",
        ),
        *(
            ({option.name: "5"}, f"option {option.name} belongs to spark.readStream: a batch reads all that is there")
            for option in STREAM_OPTIONS
            if option.name not in {"startingOffsets", "failOnDataLoss"}
        ),
        ({"view": "mesages"}, "unknown view 'mesages'; did you mean 'messages'?"),
        ({"view": "zzz"}, "unknown view 'zzz'; the views are messages, consumequeue, index, segments"),
        (
            {"view": "Index"},
            "view 'index' is read by spark.read: expected 'messages', the only view that is written, or read as a",
        ),
        *(
            ({"paths": text}, "option paths: expected a JSON list of strings, found")
            for text in ("/a,/b", "[1]", '{"a": 1}', '"/a"', "[", "null")
        ),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp: "),
        ({"startingTimestamp": "2024-05-01", "endingTimestamp": "1714564800"}, "option endingTimestamp: "),
    ],
)
def test_an_option_that_can_t_be_used_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"^(?:option storage: )?{re.escape(says)}"):
        parse(**options)


def test_an_option_near_to_none_is_refused_with_all_names() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse(zzz="1")

    assert "did you mean" not in str(caught.value)
    assert all(option.name in str(caught.value) for option in READ_OPTIONS)


def test_settings_of_a_storage_are_joined() -> None:
    found = CommitLogOptions.from_spark({"path": "s3://bucket/store", "storage.region": "r", "storage.scheme": "http"})
    assert found.read.storage == StorageSettings.of({"region": "r", "scheme": "http"})


def test_a_table_of_the_catalog_is_said_to_be_missing() -> None:
    with pytest.raises(UnsupportedStoreError, match="CREATE TEMPORARY VIEW"):
        parse(provider="commitlog", owner="me")


def test_the_view_of_messages_can_be_named() -> None:
    assert parse() == parse(view=" Messages ")


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        ({"path": "/a"}, ("/a",)),
        ({"paths": '["/a", "b c,d", "/ü"]'}, ("/a", "b c,d", "/ü")),
        ({"path": "/z", "paths": '["/a"]'}, ("/z", "/a")),
        ({"path": '["/a"]'}, ('["/a"]',)),
    ],
)
def test_paths_are_kept_as_given(options: dict[str, str], paths: tuple[str, ...]) -> None:
    assert paths == CommitLogOptions.from_spark(options).paths


def test_without_a_path_the_root_is_that_of_the_configuration(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("storePathRootDir=/data/rocketmq/store\n")

    assert ("/data/rocketmq/store",) == CommitLogOptions.from_spark({"config": str(conf)}).paths
    assert ("/copy",) == CommitLogOptions.from_spark({"config": str(conf), "path": "/copy"}).paths


@pytest.mark.parametrize("options", [{}, {"paths": "[]"}])
def test_without_a_path_the_error_shows_how_to_give_one(options: dict[str, str]) -> None:
    with pytest.raises(
        InvalidOptionError, match=r"no path is given: load\('/path/to/store'\) or, in SQL, CREATE TEMPORARY"
    ):
        CommitLogOptions.from_spark(options)


def test_the_document_shows_every_option_and_every_column_once() -> None:
    rows = [line.split(" | ")[0] for line in markdown_document().splitlines() if line.startswith("| `")]

    reading = [*(option.name for option in (*READ_OPTIONS, *STREAM_OPTIONS)), *(column.name for column in COLUMNS)]
    writing = [*(option.name for option in WRITE_OPTIONS), *INPUT_COLUMNS, "store_timestamp"]
    assert [f"| `{name}`" for name in reading + writing] == [row for row in rows if not row.startswith("| `--")]


def test_the_rows_of_the_document_have_as_many_cells_as_their_table() -> None:
    blocks = markdown_document().split("\n\n")
    tables = [block.splitlines() for block in blocks if block.startswith("|")]

    cells = [{line.replace(r"\|", "").count("|") for line in table} for table in tables]
    assert [{5}, {5}, {6}, {5}, {3}] == cells[:5]
    assert {5} == set().union(*cells[5:])  # those of the answers


@pytest.mark.parametrize(
    "read",
    [
        {"storage": {"region": "r", "scheme": "http"}},
        {"starting_offsets": {"orders": {0: 5, 1: 7}}},
        {"starting_offsets": 5, "ending_offsets": "9"},
        {"topic": ["a", "b"], "queue_id": (1, 2), "verify_crc": False},
        {"starting_timestamp": datetime(2026, 1, 1, tzinfo=UTC)},
    ],
)
def test_read_options_of_a_replay_are_the_same_on_spark(read: dict[str, Any]) -> None:
    assert ReadOptions.parse(**read) == CommitLogOptions.from_spark({**spark_options(read), "path": "/s"}).read


def test_a_configuration_that_is_no_file_is_refused_by_a_replay_on_spark() -> None:
    with pytest.raises(InvalidOptionError, match="expected a broker's file"):
        spark_options({"config": MessageStoreConfig()})


DAY = 1714521600000
"""2024-05-01 in UTC."""

HOURS = 3_600_000
START = {"starting_timestamp": "2024-05-01", "ending_timestamp": "2024-05-01T00:00:00Z", "topic": "orders"}


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the local properties of the task that the tests are in."""
    properties: dict[str, str] = {}
    # First, because the first context becomes the process's own, and a driver has none.
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    TaskContext()._localProperties = properties
    return properties


def session_times(**texts: str) -> SessionTimes:
    times = SessionTimes.of(texts)
    assert times is not None
    return times


def test_only_times_without_a_zone_wait_for_the_session() -> None:
    assert SessionTimes.of({"topic": "orders"}) is None
    assert SessionTimes.of({"starting_timestamp": str(DAY), "ending_timestamp": "2024-05-01T00:00+08:00"}) is None
    assert SessionTimes.of({"starting_timestamp": "2024-05-01", "time_zone": "UTC"}) is None
    assert list(session_times(**START).local) == ["starting_timestamp"]


@pytest.mark.parametrize("options", [CommitLogOptions, StreamOptions])
def test_a_relative_time_counts_from_the_last_message_and_waits_for_no_session(
    options: type[CommitLogOptions | StreamOptions], tmp_path: Path
) -> None:
    log = LogBuilder()
    last = log.append(b"x").store_timestamp
    found = options.from_spark({"path": str(log.write(tmp_path)), "startingTimestamp": "-90s"})
    parsed = found.common if isinstance(found, StreamOptions) else found

    assert (last - 90_000, None) == (parsed.read.starting_timestamp, parsed.times)


def test_planning_leaves_room_for_every_zone() -> None:
    planned = session_times(**START).for_planning()

    assert (DAY - 18 * HOURS, DAY) == (planned.starting_timestamp, planned.ending_timestamp)
    assert session_times(ending_timestamp="2024-05-01").for_planning().ending_timestamp == DAY + 18 * HOURS
    assert planned.topic == ("orders",)


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31"])
def test_there_is_no_room_beyond_the_calendar(text: str) -> None:
    session_times(starting_timestamp=text).for_planning()
    session_times(ending_timestamp=text).for_planning()


@pytest.mark.parametrize("time", ["2024-05-01", "20240501000000"])
@pytest.mark.parametrize(("name", "offset"), [("UTC", 0), ("Asia/Shanghai", 8), ("-18:00", -18)])
def test_tasks_read_what_the_session_means(zone: dict[str, str], name: str, offset: int, time: str) -> None:
    zone["spark.sql.session.timeZone"] = name
    times = session_times(starting_timestamp=time, topic="orders")
    options = pickle.loads(pickle.dumps(times)).for_task()  # noqa: S301 -- our own

    assert options.starting_timestamp == DAY - offset * HOURS
    assert ReadOptions.parse(starting_timestamp=time, topic="orders", time_zone=name) == options


@pytest.mark.usefixtures("zone")
def test_without_a_zone_of_the_session_the_error_says_what_to_write() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        session_times(**START).for_task()

    assert str(caught.value) == (
        "option startingTimestamp: '2024-05-01' has no time zone, and "
        "spark.sql.session.timeZone is not set, or is not passed on, as with .rdd. Write '2024-05-01T00:00:00Z' for "
        "UTC or '2024-05-01T00:00:00+08:00' for that offset, or name the zone by option timeZone, such as Asia/Shanghai"
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("CST", r"found 'CST' \(spark\.sql\.session\.timeZone is 'CST'\)"),
        ("-08:00", "expected at most option endingTimestamp"),  # there the end comes before the start
    ],
)
def test_a_zone_of_the_session_that_does_not_fit_is_refused(zone: dict[str, str], name: str, says: str) -> None:
    zone["spark.sql.session.timeZone"] = name

    with pytest.raises(InvalidOptionError, match=says):
        session_times(**START).for_task()

# SPDX-License-Identifier: Apache-2.0
"""DataFrames become messages, all or nothing: through Spark, read back by Spark and by the store itself."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException

from pyspark_commitlog.write.writer import staged_partitions
from store_core import DefaultMessageStore
from store_core.errors import StoreError
from tests.connector.stores import SMALL_CONFIG, Writer, consumed, error_of, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


pytestmark = pytest.mark.spark


@pytest.fixture
def write(spark: SparkSession, tmp_path: Path) -> Writer:
    return Writer(spark, tmp_path / "store")


def test_partitions_go_in_the_order_of_their_numbers_and_the_store_is_closed_behind_them(write: Writer) -> None:
    write(write.messages(500, partitions=5))

    assert not (write.root / "abort").exists()
    assert [] == [path for path in (write.root / "commitlog-sink").rglob("*") if path.is_file()]
    assert [f"body {number}".encode() for number in range(500)] == [row.body for row in write.read("body")]
    assert consumed(write.root) == 500


def test_no_rows_make_a_store_without_messages(write: Writer) -> None:
    write(write.messages(0))

    with DefaultMessageStore.open(write.root) as store:
        assert store.max_physical_offset == 0


# ---- options


def test_option_topic_overrides_the_column(write: Writer) -> None:
    write(write.messages(10), topic="backfill")
    write(write.messages(10).select("body"), topic="backfill")

    assert ["backfill"] * 20 == [row["topic"] for row in rows_of(write.root, "topic")]


def test_rows_without_a_queue_take_turns_in_each_topic(write: Writer) -> None:
    rows = [("a", None), ("a", None), ("b", None), ("a", 9), ("a", None), ("b", None)]
    write(write.frame("topic string, queue_id int", *rows).selectExpr("*", "'x' AS body"), queueNums="2")
    found = [(row["topic"], row["queue_id"]) for row in rows_of(write.root, "topic", "queue_id")]

    assert [("a", 0), ("a", 1), ("b", 0), ("a", 9), ("a", 1), ("b", 1)] == found


def test_a_sharding_key_chooses_the_queue_as_the_producer_s_hash_selector_does(write: Writer) -> None:
    # Java: "TagA".hashCode() is 2598919, that of "TopicA#k1" -1903240649, that of "中文" 646394; by 7, without signs
    rows = [("t", "TagA"), ("t", "TopicA#k1"), ("t", "中文"), ("t", "TagA"), ("t", None)]
    frame = write.frame("topic string, user string", *rows).selectExpr("*", "'x' AS body")
    write(frame, queueNums="7", shardingKey="User")

    assert [1, 2, 0, 1, 4] == [row["queue_id"] for row in rows_of(write.root, "queue_id")]


def test_hosts_come_from_options_where_no_column_has_them(write: Writer) -> None:
    rows = write.frame("topic string, body string, born_host string", ("t", "x", None), ("t", "x", "10.0.0.9:9"))
    write(rows, storeHost="192.168.1.2:10911", bornHost="[2001:db8::7]:70")
    found = rows_of(write.root, "born_host", "store_host")

    assert ["[2001:db8::7]:70", "10.0.0.9:9"] == [row["born_host"] for row in found]
    assert {"192.168.1.2:10911"} == {row["store_host"] for row in found}


def test_delayed_messages_go_to_the_schedule_topic_with_their_own_in_properties(write: Writer) -> None:
    rows = write.frame("topic string, body string, delay_level int", ("t", "now", None), ("t", "later", 2))
    write(rows, messageDelayLevel="1s 1h")
    found = rows_of(write.root, "topic", "queue_id", "properties")

    assert ["t", "SCHEDULE_TOPIC_XXXX"] == [row["topic"] for row in found]
    assert {"REAL_TOPIC": "t", "DELAY": "2"}.items() <= dict(found[1]["properties"]).items()
    assert found[1]["queue_id"] == 1


def test_store_times_are_kept_on_request_only(write: Writer) -> None:
    times = [datetime(2020, 1, day, tzinfo=UTC) for day in (3, 1, 2)]
    rows = write.frame("topic string, body string, store_timestamp timestamp", *(("t", "x", time) for time in times))
    text = error_of(lambda: write(rows))
    write(rows, preserveStoreTimestamp="true")

    assert "set option('preserveStoreTimestamp', 'true') to keep those in column 'store_timestamp'" in text
    assert times == [row["store_timestamp"] for row in rows_of(write.root, "store_timestamp")]
    assert consumed(write.root) == 3


@pytest.mark.parametrize(("rebuild", "has_abort"), [("queues", False), ("none", True)])
def test_rebuild_says_what_is_dispatched_now(rebuild: str, has_abort: bool, write: Writer) -> None:
    write(write.messages(30), rebuild=rebuild)

    assert not any((write.root / "index").glob("*"))
    assert has_abort == (write.root / "abort").exists()
    assert [f"body {number}".encode() for number in range(30)] == [row.body for row in write.read("body")]
    assert consumed(write.root) == 30


def test_an_existing_store_s_sizes_win_and_a_contradiction_is_refused(write: Writer) -> None:
    write(write.messages(10).selectExpr("*", "concat('k', body) AS keys"))
    for option, found in (
        ({"mappedFileSizeCommitLog": "1m"}, "mappedFileSizeCommitLog says 1048576, but the store"),
        ({"mappedFileSizeConsumeQueue": "4000"}, "mappedFileSizeConsumeQueue says 4000, but the store"),
        ({"maxIndexNum": "1001"}, "maxIndexNum says 1001, but the store"),
    ):
        assert f"option {found}" in error_of(lambda: write(write.messages(10), **option))  # noqa: B023 -- called at once
    frame = write.messages(200, first=10).selectExpr("*", "concat('k', body) AS keys")
    frame.write.format("commitlog").mode("append").save(str(write.root))

    assert {16384} == {path.stat().st_size for path in (write.root / "commitlog").iterdir()}
    assert {40 + 4 * 100 + 20 * 1000} == {path.stat().st_size for path in (write.root / "index").iterdir()}
    assert consumed(write.root) == 210


# ---- modes


def test_overwrite_is_refused_unless_it_is_meant(write: Writer) -> None:
    write(write.messages(10))

    assert 'option("overwriteStore", "true")' in error_of(lambda: write(write.messages(1), "overwrite"))
    assert len(write.read("body")) == 10


def test_overwrite_puts_a_new_store_in_the_place_of_the_old_one(write: Writer) -> None:
    write(write.messages(100))
    write(write.messages(7, first=1000), "overwrite", overwriteStore="true", mappedFileSizeCommitLog="32k")

    assert [f"body {number}".encode() for number in range(1000, 1007)] == [row.body for row in write.read("body")]
    assert [write.root.name] == [path.name for path in write.root.parent.iterdir()]
    assert {32768} == {path.stat().st_size for path in (write.root / "commitlog").iterdir()}


def test_a_store_can_be_overwritten_by_what_is_read_from_it(write: Writer) -> None:
    write(write.messages(60))
    frame = write.session.read.format("commitlog").option("columns", "topic,queue_id,body").load(str(write.root))
    write(frame.where("topic = 'topic1'"), "overwrite", overwriteStore="true")

    assert [f"body {number}".encode() for number in range(1, 60, 3)] == [row.body for row in write.read("body")]


def test_tasks_without_a_report_of_what_they_staged_are_counted() -> None:
    with pytest.raises(StoreError, match=r"expected a report .* of 2 tasks, found 0: .*run the write again"):
        staged_partitions([None, None])


# ---- bad rows

BAD = (
    ("t" * 128, b"x", "MESSAGE_ILLEGAL: it has 128 bytes; the maximum is 127"),
    (None, b"x", "a message needs a topic"),
    ("a/b", b"x", "the name holds '/'"),
    ("t", b"x" * 17000, "its body has 17000 bytes: expected at most 16376, for which"),
)


def test_a_bad_row_fails_the_job_by_number_and_reason_and_nothing_is_visible(write: Writer) -> None:
    topic, body, reason = BAD[-1]
    write(write.messages(5))
    rows: list[tuple[str | None, bytes]] = [("good", b"good")] * 70
    rows[61] = (topic, body)
    text = error_of(lambda: write(write.frame("topic string, body binary", *rows, partitions=2)))

    assert "row 26 of partition 1 can't be a message: " in text
    assert reason in text
    assert len(write.read("body")) == 5
    assert [] == list((write.root / "commitlog-sink" / "staged").iterdir())


def test_bad_rows_are_left_out_on_request_and_listed(write: Writer) -> None:
    rows: list[tuple[str | None, bytes]] = [(f"good-{number}", b"x") for number in range(100)]
    for number, (topic, body, _) in enumerate(BAD):
        rows[number * 17 + 3] = (topic, body)
    write(write.frame("topic string, body binary", *rows), badRows="skip")
    lists = (write.root / "commitlog-sink" / "refused").iterdir()
    listed = [json.loads(line) for path in lists for line in path.read_text().splitlines()]

    assert [(0, number * 17 + 3, topic) for number, (topic, _, _) in enumerate(BAD)] == [
        (row["partition"], row["row"], row["topic"]) for row in listed
    ]
    assert all(reason in row["reason"] for (_, _, reason), row in zip(BAD, listed, strict=True))
    assert [row[0] for row in rows if row[0] and row[0].startswith("good")] == [
        row["topic"] for row in rows_of(write.root, "topic")
    ]


def test_columns_that_are_none_of_a_message_are_refused_before_a_task_runs(write: Writer) -> None:
    assert "did you mean 'body'?" in error_of(lambda: write(write.frame("topic string, body string, bodi string")))
    assert not write.root.exists()


# ---- others


def test_a_store_that_is_open_is_refused_and_stays_as_it_is(write: Writer) -> None:
    write(write.messages(10))
    with DefaultMessageStore.open(write.root, SMALL_CONFIG):
        text = error_of(lambda: write(write.messages(10)))

    assert "StoreLockedError" in text
    assert consumed(write.root) == 10


def test_leftovers_of_a_job_that_is_gone_are_cleaned_and_those_of_one_that_runs_are_not(write: Writer) -> None:
    staged = write.root / "commitlog-sink" / "staged"
    dead, running = staged / f"job-{uuid.uuid4().hex}", staged / f"job-{uuid.uuid4().hex}"
    for directory in (dead, running):
        directory.mkdir(parents=True)
        (directory / "part-00000-1.arrow").write_bytes(b"half a file")
    made = write.root / "commitlog-sink" / "segments" / f"job-{uuid.uuid4().hex}"
    made.mkdir(parents=True)
    (made / f"{0:020d}").write_bytes(bytes(99))
    owner = {"host": "elsewhere", "boot": "x", "namespace": "x", "process": 1, "started": "1"}
    (running / "owner.json").write_text(json.dumps(owner | {"created": datetime.now(UTC).timestamp()}))
    write(write.messages(10))

    assert (False, True, False) == (dead.exists(), running.exists(), made.exists())
    assert len(write.read("body")) == 10


def test_records_are_staged_elsewhere_on_request(write: Writer, tmp_path: Path) -> None:
    write(write.messages(10), stagingDir=str(tmp_path / "staging"))

    assert [] == list((tmp_path / "staging").iterdir())
    assert not (write.root / "commitlog-sink" / "staged").exists()
    assert len(write.read("body")) == 10


# ---- whole frames


MESSAGES = {
    "topic": "element_at(array('orders', 'payments', 'Zahlungen-ü'), int(id % 3) + 1)",
    "queue_id": "int(id % 4)",
    "body": "if(id % 5 = 0, cast('' AS binary), unhex(concat('00FF', hex(id))))",
    "tags": "if(id % 2 = 0, 'TagA', '标签')",
    "keys": "array(concat('k', id), 'all')",
    "properties": "cast(map('TAGS', tags, 'KEYS', array_join(keys, ' '), 'UNIQ_KEY', concat('u', id), 'x', '中文 😀')"
    " AS map<string, string>)",
    "flag": "int(id) - 9",
    "sys_flag": "if(id % 7 = 0, 48, 0) + int(id % 3) * 4",
    "born_timestamp": "timestamp_millis(1700000000000 + 7 * id)",
    "born_host": "if(id % 7 = 0, '[2001:db8::1]:1000', concat('10.1.2.3:', 5000 + id))",
    "store_host": "if(id % 7 = 0, '[2001:db8::2]:10911', '10.9.8.7:10911')",
    "store_timestamp": "timestamp_millis(1700000100000 + 13 * id)",
    "reconsume_times": "int(id % 17)",
    "prepared_transaction_offset": "if(id % 3 = 0, 0, 100 * id)",
}
"""Columns that a writer accepts, and a reader returns, as expressions on the number of a message."""

COUNT = 120


def messages(session: SparkSession) -> DataFrame:
    """Make messages with all columns, in two partitions."""
    frame = session.range(0, COUNT, 1, 2)
    for name, expression in MESSAGES.items():
        frame = frame.selectExpr("*", f"{expression} AS {name}")
    return frame.drop("id")


def test_what_is_read_is_the_frame_that_was_written(write: Writer) -> None:
    expected = messages(write.session)
    write(expected, preserveStoreTimestamp="true")
    found = write.session.read.format("commitlog").option("columns", ",".join(expected.columns)).load(str(write.root))

    assert_df_equality(expected, found, ignore_nullable=True)
    with DefaultMessageStore.open(write.root, SMALL_CONFIG, read_only=True) as store:
        report = store.recovery_report
        assert (0, 0, ()) == (report.dispatched, report.caught_up, report.changes)
        queues = store.commit_log.queue_offsets.as_mapping()
        assert COUNT * 2 // 3 == sum(store.get_max_offset_in_queue(*queue) for queue in queues)  # no prepared ones
        assert 1 == len(store.query_message("orders", "k3", 64, 0, 2**63 - 1).messages)


# ---- several at once


def test_of_concurrent_jobs_each_is_in_the_store_wholly_or_told_that_another_writes(
    spark: SparkSession, tmp_path: Path
) -> None:
    write = Writer(spark, tmp_path / "store")
    count = 50

    def told(job: int) -> str | None:
        # Spark looks a source up in the thread's active session; of what PySpark can do, this makes one active.
        spark.createDataFrame([(1,)], "unused int")
        try:
            write(write.messages(count, first=job * count))
        except PySparkException as error:
            return str(error)
        return None

    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(told, range(3)))

    assert None in outcomes
    assert all("StoreLockedError" in text and str(write.root) in text for text in outcomes if text)
    winners = [job for job, text in enumerate(outcomes) if text is None]
    bodies = [row.body for row in write.read("body")]
    whole = [[f"body {number}".encode() for number in range(job * count, (job + 1) * count)] for job in winners]
    assert sorted(whole) == sorted(bodies[at : at + count] for at in range(0, len(bodies), count))
    assert consumed(write.root) == len(bodies)


def test_a_thread_without_active_session_finds_no_source_to_write_to(spark: SparkSession, tmp_path: Path) -> None:
    write = Writer(spark, tmp_path / "store")

    with ThreadPoolExecutor(1) as pool:
        text = pool.submit(error_of, lambda: write(write.messages(1))).result()

    assert "DATA_SOURCE_NOT_FOUND" in text  # once Spark finds it, the guide on appending need not speak of threads

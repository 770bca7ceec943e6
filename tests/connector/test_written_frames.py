# SPDX-License-Identifier: Apache-2.0
"""DataFrames compared as a whole: written with read back, and the rows of a rebuilt store with those of the old one."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from chispa import assert_df_equality

from store_core import DefaultMessageStore
from tests.connector.called import rebuild_consume_queue
from tests.connector.written import SMALL, SMALL_CONFIG, Writer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

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

SERVED = "topic string, queue_id int, queue_offset bigint, physical_offset bigint, body binary"
COUNT = 120


def messages(session: SparkSession) -> DataFrame:
    """Make messages with all columns, in two partitions."""
    frame = session.range(0, COUNT, 1, 2)
    for name, expression in MESSAGES.items():
        frame = frame.selectExpr("*", f"{expression} AS {name}")
    return frame.drop("id")


@pytest.fixture
def write(spark: SparkSession, tmp_path: Path) -> Writer:
    """Write the messages to a store."""
    writer = Writer(spark, tmp_path / "store")
    writer(messages(spark), preserveStoreTimestamp="true")
    return writer


def read(session: SparkSession, root: Path, *columns: str) -> DataFrame:
    return session.read.format("commitlog").option("columns", ",".join(columns)).load(str(root))


def served(session: SparkSession, root: Path) -> tuple[DataFrame, DataFrame]:
    """Query a store as consumers do, by each queue and each message's keys; opening it must repair nothing."""
    by_queue, by_key = [], []
    with DefaultMessageStore.open(root, SMALL_CONFIG, read_only=True) as store:
        report = store.recovery_report
        assert (0, 0, ()) == (report.dispatched, report.caught_up, report.changes)
        queues = sorted(store.commit_log.queue_offsets.as_mapping())
        for topic, queue_id in queues:
            for queue_offset in range(store.get_max_offset_in_queue(topic, queue_id)):
                found = store.get_message("group", topic, queue_id, queue_offset, 1)
                assert found is not None
                by_queue += [
                    (topic, queue_id, each.queue_offset, each.physical_offset, each.body) for each in found.messages
                ]
        for topic in sorted({topic for topic, _ in queues}):
            for key in (f"k{number}" for number in range(COUNT)):
                found_by_key = store.query_message(topic, key, 64, 0, 2**63 - 1)
                by_key += [(key, topic, each.physical_offset) for each in found_by_key.messages]
    return (
        session.createDataFrame(by_queue, SERVED),
        session.createDataFrame(by_key, "key string, topic string, physical_offset bigint"),
    )


def test_what_is_read_is_the_frame_that_was_written(spark: SparkSession, write: Writer) -> None:
    expected = messages(spark)

    assert_df_equality(expected, read(spark, write.root, *expected.columns), ignore_nullable=True)


def test_a_rebuilt_store_is_read_and_serves_as_the_one_that_was_written(spark: SparkSession, write: Writer) -> None:
    rebuilt = shutil.copytree(write.root, write.root.with_name("rebuilt"))
    for kind in ("consumequeue", "index"):
        shutil.rmtree(rebuilt / kind)
    sizes = ["--consume-queue-file-size", SMALL["mappedFileSizeConsumeQueue"]]
    sizes += ["--hash-slot-num", SMALL["maxHashSlotNum"], "--index-num", SMALL["maxIndexNum"]]

    assert 0 == rebuild_consume_queue([str(rebuilt), *sizes, "--with-index", "--replace"])
    columns = [column.split()[0] for column in SERVED.split(", ")]
    queued = (
        read(spark, rebuilt, *columns, "sys_flag").where("(sys_flag & 4) = 0").select(*columns)
    )  # not prepared ones
    by_queue, by_key = served(spark, rebuilt)
    queues_before, keys_before = served(spark, write.root)
    assert_df_equality(read(spark, write.root, *MESSAGES), read(spark, rebuilt, *MESSAGES))
    assert_df_equality(queues_before, by_queue)
    assert_df_equality(queued, by_queue, ignore_row_order=True, ignore_nullable=True)
    assert_df_equality(keys_before, by_key)
    assert COUNT * 2 // 3 == by_queue.count() == by_key.count()

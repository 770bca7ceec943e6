# SPDX-License-Identifier: Apache-2.0
"""RocketMQ serves appended DataFrames, finds their keys, and of an interrupted append has all messages, or none."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from store_core import DefaultMessageStore, read_messages
from store_core.files.file_system import OsFileSystem
from store_core.format.message import Message
from store_core.store.sink.staged_append import Appended, append_staged
from tests.golden_stores import find_golden_store, unpack
from tests.interop.answers import answer_queues, answer_rows, queues_of, read_rows
from tests.interop.judge import Judge, our_small_config, store_settings
from tests.interop.scenarios import SEGMENT_SIZE
from tests.store_core.store.sink.staging import stage, table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.interop.rocketmq import Answer


_SIZES: Final = ("mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum", "messageDelayLevel")
_EVER: Final = (1 << 63) - 1


def check(answer: Answer, store: Path, release: str) -> int:
    """Compare RocketMQ's contents of a store with what is read from it; return the number of messages."""
    rows = read_rows(store, release)
    assert answer["loaded"] is True
    assert answer["dispatchBehindBytes"] == 0
    assert answer["chainEnd"] == answer["bounds"]["max"]
    assert answer_rows(answer, SEGMENT_SIZE) == rows
    assert answer_queues(answer) == queues_of(rows, release)
    return len(rows)


@pytest.mark.interop
@pytest.mark.parametrize("rebuild", ["all", "none"])
def test_rocketmq_serves_every_message_of_a_dataframe(
    rebuild: str, judge: Judge, spark: SparkSession, tmp_path: Path
) -> None:
    store, settings = tmp_path / "store", store_settings(judge.release)
    options = {name: str(settings[name]) for name in _SIZES} | {"mappedFileSizeCommitLog": str(SEGMENT_SIZE)}
    frame = spark.range(0, 400, 1, 3).selectExpr(
        "concat('topic', id % 3) AS topic",
        "concat('body ', repeat(id, id % 40)) AS body",
        "array(concat('key', id), 'all') AS keys",
        "if(id % 4 = 0, 'TagA', null) AS tags",
        "map('a', string(id), 'ü', '中文') AS properties",
        "int(if(id % 50 = 7, 3, null)) AS delay_level",
        "if(id % 9 = 0, '[2001:db8::1]:1000', '10.1.2.3:5555') AS born_host",
    )
    if judge.release == "4.3":
        frame = frame.drop("born_host")
    for _ in range(2):
        write = frame.write.format("commitlog").mode("append").options(**options)
        write.options(release=judge.release, rebuild=rebuild).save(str(store))
    question = {"kind": "key", "topic": "topic1", "key": "key1", "most": 32, "begin": 0, "end": _EVER}
    copies = [tmp_path / "opened", tmp_path / "asked"]
    for copy in copies:
        shutil.copytree(store, copy)
    opened, asked = judge.open(copies[0]), judge.ask(copies[1], [question])

    assert check(opened.result(), store, judge.release) == 800
    assert len(asked.result()["answers"][0]["physicalOffsets"]) == 2


CASES: Final = {
    "tail": ([b"old"] * 5, [b"new %d" % number for number in range(40)]),
    "one segment": ([b"o" * 900] * 14, [b"new %d" % number for number in range(40)]),
    "several segments": ([b"old"] * 5, [b"new %d" % number + b"n" * 900 for number in range(60)]),
    "a new store": ([], [b"new %d" % number + b"n" * 900 for number in range(60)]),
}


@pytest.mark.interop
@pytest.mark.parametrize("name", CASES)
def test_rocketmq_has_all_or_nothing_of_an_append_that_was_interrupted(name: str, judge: Judge, tmp_path: Path) -> None:
    before, added = CASES[name]
    store, hidden, found = tmp_path / "store", tmp_path / "hidden", tmp_path / "found"
    config, disk = our_small_config(judge.release), OsFileSystem()
    with DefaultMessageStore.open(store, config) as opened:
        if before:
            opened.append_batch(table(before))
    staged = stage(tmp_path / "staged", added[:30], added[30:])

    def keep(_: Appended) -> None:
        shutil.copytree(store, hidden)

    with DefaultMessageStore.open(store, config) as opened:
        append_staged(opened, [staged], store / "work", disk, keep, dispatches=False)
        shutil.copytree(store, found)
    answers = judge.open(hidden), judge.open(found)

    assert len(before) == len(answers[0].result()["records"])
    assert answers[0].result()["abortLeft"] is False
    assert check(answers[1].result(), store, judge.release) == len(before) + len(added)


_TOPIC: Final = "LiveTopic"
_BROKER_SIZES: Final = {
    "mappedFileSizeCommitLog": 16 << 20,
    "mappedFileSizeConsumeQueue": 600_000,
    "maxHashSlotNum": 5_000,
    "maxIndexNum": 20_000,
}
"""How the broker was configured."""

_COUNT: Final = 40


def _question(key: str) -> Answer:
    return {"kind": "key", "topic": _TOPIC, "key": key, "most": 32, "begin": 0, "end": _EVER}


def put(store: DefaultMessageStore) -> None:
    for number in range(_COUNT):
        assert store.put_message(Message(_TOPIC, b"body", queue_id=number % 4, keys=f"appended-{number}")).is_ok


def append(store: DefaultMessageStore) -> None:
    columns = {
        "topic": [_TOPIC] * _COUNT,
        "queue_id": pa.array([number % 4 for number in range(_COUNT)], pa.int32()),
        "body": pa.array([b"body"] * _COUNT, pa.binary()),
        "keys": [[f"appended-{number}"] for number in range(_COUNT)],
    }
    assert store.append_batch(pa.table(columns)).is_ok


@pytest.mark.parametrize("add", [put, append])
def test_keys_appended_to_the_store_of_a_broker_are_found(
    add: Callable[[DefaultMessageStore], None], judge_of: Callable[[str], Judge], tmp_path: Path
) -> None:
    store, judge = unpack(find_golden_store("5.3.3/live"), tmp_path).root, judge_of("5.3")
    old = [row["keys"][0] for row in read_messages(store, topic=_TOPIC, columns=["keys"]).read_all().to_pylist()[-20:]]
    with DefaultMessageStore.open(store) as opened:
        add(opened)
    questions = [_question(key) for key in (*old, *(f"appended-{number}" for number in range(_COUNT)))]
    asked = judge.ask(shutil.copytree(store, tmp_path / "asked"), questions, **_BROKER_SIZES)
    others = _BROKER_SIZES | {"maxHashSlotNum": 5_000_000, "maxIndexNum": 20_000_000}  # what brokers have by default
    missed = judge.ask(shutil.copytree(store, tmp_path / "missed"), questions, **others)

    found = [len(answer["physicalOffsets"]) for answer in asked.result()["answers"]]
    assert [1] * _COUNT == found[len(old) :]
    assert min(found[: len(old)]) >= 1
    assert 0 == sum(len(answer["physicalOffsets"]) for answer in missed.result()["answers"])

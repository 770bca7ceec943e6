# SPDX-License-Identifier: Apache-2.0
"""A replay appends what was chosen as new messages that say where they come from: all of them, and only once."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from store_core import DefaultMessageStore, MessageStoreConfig, read_messages
from store_core.answers import ReplayReport, replay, trace
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from tests.life_logs import LifeLog, message_id

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=2000, max_hash_slot_num=100, max_index_num=1000
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Make a store with a failed message and a dead letter of it, and a delayed one."""
    log = LifeLog(1 << 16)
    sent = log.send("a", body=b"first", properties={"TAGS": "paid", "region": "eu"})
    log.dead(sent, "a", "billing", 17, TAGS="paid", DELAY="3", REAL_TOPIC="%RETRY%billing", REAL_QID="0")
    log.dead(log.send("b", body=b"second"), "b", "billing")
    root = log.write(tmp_path / "store")
    with DefaultMessageStore.open(root, CONFIG):
        pass
    return root


def replayed(source: Path, into: Path, name: str = "T-1", **given: Any) -> ReplayReport:  # noqa: ANN401 -- options
    read = {key: given.pop(key) for key in ("topic", "key", "filter", "filter_type") if key in given}
    return replay(source, name, into, into_config=CONFIG, **given, **read)


def rows_of(root: Path, **read: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- as above
    rows: list[dict[str, Any]] = read_messages(root, **read).read_all().to_pylist()
    return rows


def test_a_dead_letter_goes_to_its_first_topic_as_a_new_message(store: Path) -> None:
    (letter, _) = rows_of(store, topic="%DLQ%billing", columns=["body", "msg_id", "physical_offset"])
    report = replayed(store, store, topic="%DLQ%billing", key="a")
    (row,) = rows_of(store, filter="REPLAY_ID = 'T-1'", filter_type="SQL92")
    properties = dict(row["properties"])

    assert (1, False) == (report.found.messages, report.found.is_repeat)
    assert report.found.begin_offset == row["physical_offset"]
    assert ("orders", letter["body"], 0, "paid", ["a"]) == (
        row["topic"], row["body"], row["reconsume_times"], row["tags"], row["keys"]
    )  # fmt: skip
    assert {
        "REPLAY_ID": "T-1",
        "REPLAY_ORIGIN_MESSAGE_ID": letter["msg_id"],
        "REPLAY_ORIGIN_TOPIC": "%DLQ%billing",
        "UNIQ_KEY": "U-a",
    }.items() <= properties.items()
    assert not {"DELAY", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC"} & properties.keys()
    assert [{"origin_topic": "%DLQ%billing", "topic": "orders", "messages": 1}] == report.tables["topics"].to_pylist()


def test_a_replay_of_the_same_name_appends_nothing_more(store: Path) -> None:
    first = replayed(store, store, topic="%DLQ%billing")
    again = replayed(store, store, topic="%DLQ%billing")
    other = replayed(store, store, "T-2", topic="%DLQ%billing")

    assert (2, 2, 2) == tuple(report.found.messages for report in (first, again, other))
    assert [False, True, False] == [report.found.is_repeat for report in (first, again, other)]
    assert first.found.begin_offset == again.found.begin_offset
    assert 4 == len(rows_of(store, filter="REPLAY_ID IS NOT NULL", filter_type="SQL92"))
    assert "is in the store already" in again.to_text()


def test_consumers_get_what_was_replayed_into_a_new_store(store: Path, tmp_path: Path) -> None:
    replayed(store, tmp_path / "new", topic="%DLQ%billing", to_topic="invoices", queues=2)

    with DefaultMessageStore.open(tmp_path / "new", CONFIG, read_only=True) as opened:
        found = [opened.get_message("g", "invoices", queue, 0, 32) for queue in (0, 1)]
        assert [1, 1] == [len(result.messages) for result in found if result is not None]
    assert 4 == len(rows_of(store))


def test_a_trace_has_the_replay(store: Path) -> None:
    replayed(store, store, topic="%DLQ%billing", key="a")
    report = trace(store, "a")

    assert ["send", "dead_letter", "replay"] == [row["step"] for row in report.tables["steps"].to_pylist()]
    assert "replay T-1 of" in report.tables["steps"]["note"].to_pylist()[-1]
    assert ["replayed"] == report.tables["messages"]["outcome"].to_pylist()


def test_a_dry_run_counts_and_writes_nothing(store: Path) -> None:
    before = sorted(store.rglob("*"))
    report = replayed(store, store, topic="%DLQ%billing", dry_run=True)

    assert (2, True, None) == (report.found.messages, report.found.is_dry_run, report.found.begin_offset)
    assert before == sorted(store.rglob("*"))
    assert report.found.bytes == replayed(store, store, topic="%DLQ%billing").found.bytes


def test_a_dry_run_says_that_the_name_is_used_up(store: Path, tmp_path: Path) -> None:
    into = tmp_path / "new"
    first = replayed(store, into, topic="%DLQ%billing", dry_run=True)
    replayed(store, into, topic="%DLQ%billing")
    again = replayed(store, into, topic="%DLQ%billing", dry_run=True)

    assert [(False, 2), (True, 2)] == [(each.found.is_repeat, each.found.messages) for each in (first, again)]
    assert "is in the store already: nothing would be appended" in again.lines[0]


def test_a_message_larger_than_a_segment_is_refused_with_both_sizes(store: Path, tmp_path: Path) -> None:
    config = replace(CONFIG, mapped_file_size_commit_log=200)
    with pytest.raises(
        InvalidOptionError, match=f"message of .*{store}.* record of .*new.*at most 192.*larger segments"
    ):
        replay(store, "T-1", tmp_path / "new", into_config=config, topic="%DLQ%billing")


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_store_with_a_compressed_segment_gets_nothing(store: Path, tmp_path: Path, *, dry_run: bool) -> None:
    into = tmp_path / "into"
    shutil.copytree(store, into)
    segment = min((into / "commitlog").iterdir())
    segment.with_name(f"{segment.name}.gz").write_bytes(gzip.compress(segment.read_bytes()))
    segment.unlink()
    before = sorted(into.rglob("*"))

    with pytest.raises(UnsupportedStoreError, match=f"{segment.name}.gz is compressed.*put what it expands to"):
        replayed(store, into, topic="%DLQ%billing", dry_run=dry_run)
    assert before == sorted(into.rglob("*"))


def test_a_delayed_message_goes_to_its_own_topic_and_what_a_broker_acts_on_nowhere(tmp_path: Path) -> None:
    log = LifeLog(1 << 16)
    log.append(b"later", topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "3", "REAL_TOPIC": "mail", "REAL_QID": "0"})
    log.append(b"half", topic="RMQ_SYS_TRANS_HALF_TOPIC", properties={"REAL_TOPIC": "mail", "TRAN_MSG": "true"})
    root, into = log.write(tmp_path / "store"), tmp_path / "new"

    assert 1 == replayed(root, into, topic="SCHEDULE_TOPIC_XXXX").found.messages
    (row,) = rows_of(into)
    assert ("mail", b"later") == (row["topic"], row["body"])
    assert {"REAL_TOPIC", "DELAY"}.isdisjoint(dict(row["properties"]))
    for given in ({}, {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}):
        with pytest.raises(InvalidOptionError, match=r"RMQ_SYS_TRANS_HALF_TOPIC.*a broker keeps there transactional"):
            replayed(root, into, "T-2", **given)
    with pytest.raises(InvalidOptionError, match="to_topic: expected a topic of an application"):
        replayed(root, into, "T-2", topic="SCHEDULE_TOPIC_XXXX", to_topic="rmq_sys_wheel_timer")
    assert 1 == len(rows_of(into))


def test_messages_are_spread_over_the_queues_that_producers_use(store: Path, tmp_path: Path) -> None:
    log = LifeLog(1 << 16)
    for topic in ("a", "b", "a", "b", "a", "b", "a", "b", "a", "b"):
        log.append(b"x", topic=topic)
    root = log.write(tmp_path / "many")
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(
        json.dumps({"topicConfigTable": {"a": {"topicName": "a", "readQueueNums": 2, "writeQueueNums": 2}}})
    )

    def queues_of(into: Path, replay_id: str) -> dict[str, list[int]]:
        rows = [row for row in rows_of(into) if dict(row["properties"]).get("REPLAY_ID") == replay_id]
        return {topic: [row["queue_id"] for row in rows if row["topic"] == topic] for topic in ("a", "b")}

    replayed(root, store, "T-1")
    assert {"a": [0, 1, 0, 1, 0], "b": [0, 1, 2, 3, 0]} == queues_of(store, "T-1")
    replayed(root, store, "T-2", queues=3)
    assert {"a": [0, 1, 2, 0, 1], "b": [0, 1, 2, 0, 1]} == queues_of(store, "T-2")


@pytest.mark.parametrize(
    ("option", "says"),
    [({"decompress": True}, "option decompress is not one of a replay"), ({"columns": "body"}, "option columns"),
     ({"mode": "PERMISSIVE"}, "mode: expected FAILFAST or DROPMALFORMED")],
)  # fmt: skip
def test_options_that_change_messages_are_refused(store: Path, option: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOptionError, match=says):
        replay(store, "T-9", store, into_config=CONFIG, topic="a", **option)


def test_what_no_broker_accepts_is_refused_and_nothing_stays(store: Path) -> None:
    before = rows_of(store)
    for given in ({"to_topic": "x" * 200}, {"to_topic": "../x"}, {"queues": 0}, {"name": ""}, {"name": "a\nb"}):
        with pytest.raises(InvalidOptionError):
            replayed(store, store, **{"name": "T-9"} | given, topic="%DLQ%billing")

    assert before == rows_of(store)
    assert not list((store / "commitlog-sink" / "staged").glob("*"))


def test_a_message_without_a_unique_key_is_traced_to_its_replay(tmp_path: Path) -> None:
    log = LifeLog(1 << 16)
    sent = log.append(b"-", topic="orders")
    root = log.write(tmp_path)
    with DefaultMessageStore.open(root, CONFIG):
        pass
    replayed(root, root, topic="orders")

    assert ["send", "replay"] == [row["step"] for row in trace(root, message_id(sent)).tables["steps"].to_pylist()]


@pytest.mark.parametrize(
    "fields",
    [
        {"born_timestamp": 1 << 49},
        {"born_timestamp": -(1 << 49)},
        {"born_timestamp": (1 << 63) - 1},
        {"store_host": ("2001:db8::1", 10911)},
        {"born_host": ("2001:db8::1", 5), "store_host": ("2001:db8::2", 10911)},
    ],
)
def test_messages_of_any_time_and_host_are_replayed(tmp_path: Path, fields: dict[str, Any]) -> None:
    log = LifeLog(1 << 16)
    log.send("a", **fields)
    source = log.write(tmp_path / "store")
    replayed(source, tmp_path / "new")

    sent, again = (
        read_messages(root, columns=["born_timestamp_ms", "born_host"]).read_all()
        for root in (source, tmp_path / "new")
    )
    assert sent.equals(again)


def test_a_replay_of_nothing_leaves_its_name_free_and_one_that_is_refused_nothing(store: Path, tmp_path: Path) -> None:
    mistyped = replayed(store, tmp_path / "new", topic="%DLQ%biling")
    with pytest.raises(InvalidOptionError):
        replayed(store, tmp_path / "new", topic="%DLQ%billing", to_topic="TBW102")
    is_there = (tmp_path / "new").exists()
    meant = replayed(store, tmp_path / "new", topic="%DLQ%billing")

    assert not is_there
    assert (0, False) == (mistyped.found.messages, mistyped.found.is_repeat)
    assert (2, False) == (meant.found.messages, meant.found.is_repeat)


@pytest.mark.parametrize("topic", ["", " orders", "or/ders", "x" * 128])
def test_a_target_that_no_producer_can_name_is_refused(topic: str, store: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="to_topic: expected a topic of 1 to 127 letters"):
        replayed(store, tmp_path / "new", topic="%DLQ%billing", to_topic=topic)

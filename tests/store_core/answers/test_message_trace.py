# SPDX-License-Identifier: Apache-2.0
"""A trace has every record of a message, in order, and nothing of another one."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from store_core import DefaultMessageStore, MessageStoreConfig
from store_core.answers import Trace, TraceReport, message_trace, trace
from store_core.answers.message_reads import MessageRead, ReadJob
from store_core.answers.report import Verdict
from store_core.errors import StoreNotFoundError
from store_core.snapshot.store import Store
from store_core.store.read.option_table import NamedBy
from store_core.store.read.option_values import ReadMode
from tests.builders import MAGIC_AT, in_batch
from tests.golden_stores import golden_stores
from tests.life_logs import BEGIN, LifeLog, message_id, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.store.process_pool import ProcessPool
    from tests.golden_stores import Golden


def steps(report: TraceReport) -> list[str]:
    return [row["step"] for row in report.tables["steps"].to_pylist()]


def outcomes(report: TraceReport) -> list[str]:
    return [row["outcome"] for row in report.tables["messages"].to_pylist()]


def failed(log: LifeLog, key: str) -> None:
    """Let a message fail two times, and a third time for good, among others."""
    sent = log.send(key)
    for attempt in (1, 2):
        log.send(f"other-{attempt}-{key}")
        log.failed(sent, key, "billing", attempt)
    log.dead(sent, key, "billing", 3)


FAILED = ["send", "retry_wait", "retry", "retry_wait", "retry", "dead_letter"]


# ---- stores that RocketMQ wrote


@pytest.mark.golden
@pytest.mark.parametrize("name", [store.name for store in golden_stores() if store.scenario == "live"])
def test_transactions_of_a_real_broker_have_all_their_records(name: str, golden: Golden) -> None:
    unpacked = golden(name)
    lines = [json.loads(line) for path in unpacked.path.glob("sent*.jsonl") for line in path.read_text().splitlines()]
    sent = [line for line in lines if line["kind"].startswith("tx-")][::17]
    decided = Counter(line["kind"].removeprefix("tx-") for line in sent)
    found = [trace(unpacked.root, line["msgId"]) for line in sent]

    assert {1} == {report.found.messages for report in found}
    assert decided["COMMIT_MESSAGE"] == sum("commit" in steps(report) for report in found)
    assert {"half"} == {steps(report)[0] for report in found}
    assert {0} == {report.found.duplicates for report in found}


@pytest.mark.golden
@pytest.mark.parametrize("name", [store.name for store in golden_stores() if store.scenario == "live"])
def test_delayed_messages_of_a_real_broker_are_delivered_after_they_were_due(name: str, golden: Golden) -> None:
    unpacked = golden(name)
    lines = [json.loads(line) for path in unpacked.path.glob("sent*.jsonl") for line in path.read_text().splitlines()]
    delayed = [line for line in lines if "delay" in line["kind"]][::10]
    assert delayed
    for line in delayed:
        first, second = trace(unpacked.root, line["msgId"]).tables["steps"].to_pylist()
        assert ("delay", "delivery") == (first["step"], second["step"])
        assert first["due"] <= second["store_timestamp"]
        assert first["note"].endswith(", delivered")


# ---- one message


@pytest.mark.parametrize("what", ["k", "U-k", "orders/0/0", "id"])
def test_each_name_of_a_message_leads_to_all_its_records(what: str, tmp_path: Path) -> None:
    log = LifeLog()
    failed(log, "k")
    root = log.write(tmp_path)
    report = trace(root, message_id(log.records[0]) if what == "id" else what)

    assert FAILED == steps(report)
    assert (Verdict.FINDINGS, 1, ["dead"]) == (report.verdict, report.found.dead, outcomes(report))
    assert (
        sorted(report.tables["steps"]["physical_offset"].to_pylist())
        == report.tables["steps"]["physical_offset"].to_pylist()
    )
    assert "attempt 3 of group billing" in report.tables["steps"]["note"].to_pylist()


def test_a_message_without_a_unique_key_is_followed_by_its_id(tmp_path: Path) -> None:
    log = LifeLog()
    sent = log.append(b"-", topic="orders")
    origin = {"ORIGIN_MESSAGE_ID": message_id(sent), "RETRY_TOPIC": "orders"}
    log.append(b"-", topic="orders")
    log.append(b"-", topic="%RETRY%billing", properties=origin, reconsume_times=1)
    dead = log.append(b"-", topic="%DLQ%billing", properties=origin, reconsume_times=2)
    root = log.write(tmp_path)

    for known in (sent, dead):
        assert ["send", "retry", "dead_letter"] == steps(trace(root, message_id(known)))


def test_a_transaction_is_traced_with_its_operation(tmp_path: Path) -> None:
    log = LifeLog()
    halves = [log.half(key) for key in ("a", "b", "c", "d")]
    log.half("d", TRANSACTION_CHECK_TIMES="1")
    log.commit(halves[0], "a")
    log.op(*halves[:2])
    root = log.write(tmp_path)

    assert ["half", "commit", "operation"] == steps(trace(root, "a"))
    assert ["half", "operation"] == steps(trace(root, "b"))
    assert [["stored"], ["rolled back"], ["pending"]] == [outcomes(trace(root, key)) for key in ("a", "b", "c")]
    copies = trace(root, "d")
    assert (["half", "half"], 0) == (steps(copies), copies.found.duplicates)


def test_a_send_with_the_same_unique_key_is_a_duplicate(tmp_path: Path) -> None:
    log = LifeLog()
    log.send("a")
    log.send("a")
    log.send("b", properties={"KEYS": "a"})
    report = trace(log.write(tmp_path), "a")

    assert (2, 1, Verdict.FINDINGS) == (report.found.messages, report.found.duplicates, report.verdict)
    assert [2, 1] == [row["sends"] for row in report.tables["messages"].to_pylist()]


@pytest.mark.parametrize("what", ["own-1", "k1", "orders/0/1", "id"])
def test_each_name_of_a_message_in_a_batch_leads_to_it_and_its_copies(what: str, tmp_path: Path) -> None:
    """A retry keeps only the batch's unique key; it names the message by its offset id."""
    log = LifeLog(1 << 16)
    sent = [log.append(b"-", topic="orders", properties=in_batch(f"own-{n}", "batch", f"k{n}")) for n in range(3)]
    origin = message_id(sent[1])
    names = {"UNIQ_KEY": "batch", "KEYS": "k1", "ORIGIN_MESSAGE_ID": origin, "RETRY_TOPIC": "orders"}
    log.append(b"-", topic="%RETRY%g", properties=names, reconsume_times=1)
    report = trace(log.write(tmp_path), origin if what == "id" else what)
    whole = trace(tmp_path, "batch")

    assert (1, 0) == (report.found.messages, report.found.duplicates)
    assert ["own-1"] == report.tables["messages"]["unique_key"].to_pylist()
    assert ["send", "retry"] == report.tables["steps"]["step"].to_pylist()
    assert (3, 4, 0) == (whole.found.messages, whole.found.records, whole.found.duplicates)


def test_what_waits_says_until_when_and_whether_it_was_delivered(tmp_path: Path) -> None:
    log = LifeLog()
    log.delayed("a", 3)
    log.delayed("b", 3)
    log.timer("c", BEGIN + 5000)
    root = log.write(tmp_path)
    write_config(root, delayOffset={"offsetTable": {"3": 1}})
    notes = [trace(root, key).tables["steps"]["note"].to_pylist()[0] for key in "abc"]

    assert ["delivered", "not delivered yet"] == [note.rsplit(", ", 1)[1] for note in notes[:2]]
    assert "for orders, due 2023-11-14T22:13:25.000Z" == notes[2]
    assert ["waiting"] == outcomes(trace(root, "b"))


def test_groups_that_are_past_a_record_are_named(tmp_path: Path) -> None:
    log = LifeLog()
    log.send("a")
    log.send("b")
    root = log.write(tmp_path)
    write_config(
        root, consumerOffset={"offsetTable": {"orders@one": {"0": 1}, "orders@two": {"0": 2}, "x@one": {"0": 9}}}
    )
    rows = trace(root, "b").tables["consumers"].to_pylist()

    assert {"one": False, "two": True} == {row["group"]: row["is_past"] for row in rows}


def test_nothing_found_is_an_error_that_names_what_was_asked_for(tmp_path: Path) -> None:
    log = LifeLog()
    log.send("a")
    root = log.write(tmp_path)

    with pytest.raises(StoreNotFoundError, match="'b'"):
        trace(root, "b")
    with pytest.raises(StoreNotFoundError):
        trace(root, "a", kind=NamedBy.ID)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_only_a_damaged_log_is_scanned_for_what_is_left_after_damage(
    is_damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LifeLog()
    broken = log.send("broken")
    failed(log, "a")
    if is_damaged:
        log.flip(broken.physical_offset + MAGIC_AT, 2)
    root = log.write(tmp_path)
    modes: list[ReadMode] = []

    class Noted(ReadJob):
        def __init__(self, store: Store, read: MessageRead) -> None:
            modes.append(read.options.mode)
            super().__init__(store, read)

    monkeypatch.setattr(message_trace, "ReadJob", Noted)

    assert FAILED == steps(trace(root, "a"))
    assert is_damaged == (ReadMode.DROPMALFORMED in modes)


def test_the_index_and_a_pool_change_nothing(tmp_path: Path, pool: ProcessPool) -> None:
    log = LifeLog()
    for number in range(20):
        failed(log, f"k{number}")
    root = log.write(tmp_path)
    scanned = trace(root, "k7").to_json()
    config: dict[str, Any] = {"mapped_file_size_commit_log": 4096, "mapped_file_size_consume_queue": 200}
    with DefaultMessageStore.open(root, MessageStoreConfig(max_hash_slot_num=100, max_index_num=1000, **config)):
        pass
    pooled = Trace("k7").on(pool, Store(root)).to_json()

    assert scanned == pooled == trace(root, "k7").to_json()
    assert len(FAILED) == scanned["records"]

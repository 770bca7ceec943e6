# SPDX-License-Identifier: Apache-2.0
"""What became of messages: a trace, dead letters and transactions show each record, and where it ended."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import DefaultMessageStore, MessageStoreConfig
from store_core.answers import (
    DeadLettersReport,
    TraceReport,
    Transactions,
    TransactionsReport,
    dead_letters,
    message_trace,
    trace,
    transactions,
)
from store_core.answers.message_reads import MessageRead, ReadJob
from store_core.answers.report import Verdict
from store_core.errors import InvalidOptionError, StoreNotFoundError
from store_core.snapshot.store import Store
from store_core.store.parts import InProcess, Job
from store_core.store.read.option_table import NamedBy
from store_core.store.read.option_values import ReadMode
from tests.builders import MAGIC_AT, SIZE_AT, Record, in_batch
from tests.golden_stores import golden_stores, newer_store, unpack_newer
from tests.life_logs import BEGIN, LifeLog, message_id, write_config

if TYPE_CHECKING:
    from pathlib import Path

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
def test_each_name_of_a_message_leads_to_all_its_records(log: LifeLog, what: str, tmp_path: Path) -> None:
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


def test_a_message_without_a_unique_key_is_followed_by_its_id(log: LifeLog, tmp_path: Path) -> None:
    sent = log.append(b"-", topic="orders")
    origin = {"ORIGIN_MESSAGE_ID": message_id(sent), "RETRY_TOPIC": "orders"}
    log.append(b"-", topic="orders")
    log.append(b"-", topic="%RETRY%billing", properties=origin, reconsume_times=1)
    dead = log.append(b"-", topic="%DLQ%billing", properties=origin, reconsume_times=2)
    root = log.write(tmp_path)

    for known in (sent, dead):
        assert ["send", "retry", "dead_letter"] == steps(trace(root, message_id(known)))


def test_a_transaction_is_traced_with_its_operation(log: LifeLog, tmp_path: Path) -> None:
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


def test_a_send_with_the_same_unique_key_is_a_duplicate(log: LifeLog, tmp_path: Path) -> None:
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


def test_what_waits_says_until_when_and_whether_it_was_delivered(log: LifeLog, tmp_path: Path) -> None:
    log.delayed("a", 3)
    log.delayed("b", 3)
    log.timer("c", BEGIN + 5000)
    root = log.write(tmp_path)
    write_config(root, delayOffset={"offsetTable": {"3": 1}})
    notes = [trace(root, key).tables["steps"]["note"].to_pylist()[0] for key in "abc"]

    assert ["delivered", "not delivered yet"] == [note.rsplit(", ", 1)[1] for note in notes[:2]]
    assert "for orders, due 2023-11-14T22:13:25.000Z" == notes[2]
    assert ["waiting"] == outcomes(trace(root, "b"))


def test_groups_that_are_past_a_record_are_named(log: LifeLog, tmp_path: Path) -> None:
    log.send("a")
    log.send("b")
    root = log.write(tmp_path)
    write_config(
        root, consumerOffset={"offsetTable": {"orders@one": {"0": 1}, "orders@two": {"0": 2}, "x@one": {"0": 9}}}
    )
    rows = trace(root, "b").tables["consumers"].to_pylist()

    assert {"one": False, "two": True} == {row["group"]: row["is_past"] for row in rows}


def test_nothing_found_is_an_error_that_names_what_was_asked_for(log: LifeLog, tmp_path: Path) -> None:
    log.send("a")
    root = log.write(tmp_path)

    with pytest.raises(StoreNotFoundError, match="'b'"):
        trace(root, "b")
    with pytest.raises(StoreNotFoundError):
        trace(root, "a", kind=NamedBy.ID)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_only_a_damaged_log_is_scanned_for_what_is_left_after_damage(
    log: LifeLog, is_damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def column(report: DeadLettersReport, name: str) -> list[Any]:
    values: list[Any] = report.tables["letters"][name].to_pylist()
    return values


def test_a_first_message_that_is_not_there_says_why(tmp_path: Path) -> None:
    log = LifeLog(start_offset=8192)
    other = log.send("other")
    log.dead(other, "other key", "billing")
    log.dead(Record(topic="orders", physical_offset=10), "deleted", "billing")
    log.dead(Record(topic="orders", physical_offset=8193), "inside", "billing")
    elsewhere = {"ORIGIN_MESSAGE_ID": message_id(other).replace("C0A80102", "0A000001")}
    log.dead(other, "elsewhere", "billing", 16, **elsewhere)
    log.dead(other, "odd", "billing", ORIGIN_MESSAGE_ID="none")
    log.append(b"-", topic="%DLQ%billing")

    assert ["missing", "deleted", "missing", "elsewhere", "unknown", "unknown"] == column(
        dead_letters(log.write(tmp_path)), "origin"
    )


def test_the_properties_of_release_5_name_the_first_message_as_well(log: LifeLog, tmp_path: Path) -> None:
    sent = log.send("a")
    origin = {"DLQ_ORIGIN_TOPIC": "orders", "DLQ_ORIGIN_MESSAGE_ID": message_id(sent), "UNIQ_KEY": "U-a"}
    log.append(b"-", topic="%DLQ%billing", properties=origin)
    report = dead_letters(log.write(tmp_path))

    assert (["here"], ["orders"]) == (column(report, "origin"), column(report, "origin_topic"))


def test_attempts_are_compared_with_what_the_group_allows(log: LifeLog, tmp_path: Path) -> None:
    sent = log.send("a")
    for key, group, attempts in (("a", "billing", 17), ("b", "billing", 3), ("c", "other", 17)):
        log.dead(sent, key, group, attempts)
    root = log.write(tmp_path)
    assert {"unknown"} == set(column(dead_letters(root), "why"))
    limits = {"billing": {"groupName": "billing", "retryMaxTimes": 16}}
    write_config(root, subscriptionGroup={"subscriptionGroupTable": limits})
    report = dead_letters(root)

    assert ["exhausted", "early", "unknown"] == column(report, "why")
    assert (1, 1, 2) == (report.found.exhausted, report.found.early, report.found.groups)
    groups = {row["group"]: row for row in report.tables["groups"].to_pylist()}
    assert (2, 16, 3, 17) == tuple(
        groups["billing"][name] for name in ("letters", "retry_max_times", "least_failures", "most_failures")
    )


def test_a_letter_whose_store_time_no_table_holds_is_counted(log: LifeLog, tmp_path: Path) -> None:
    log.dead(log.send("a"), "a", "billing")
    log.send("b", "%DLQ%billing", store_timestamp=2**60, properties={"RETRY_TOPIC": "orders"})
    report = dead_letters(log.write(tmp_path))

    [group] = report.tables["groups"].to_pylist()
    [first, none] = column(report, "store_timestamp")
    assert (2, None) == (group["letters"], none)
    assert first == group["first_timestamp"] == group["last_timestamp"]


def test_groups_can_be_chosen_and_rows_cut(log: LifeLog, tmp_path: Path) -> None:
    sent = log.send("a")
    for group in ("one", "two", "two"):
        log.dead(sent, "a", group)
    root = log.write(tmp_path)

    assert (2, 1) == (
        dead_letters(root, group=("two",)).found.letters,
        dead_letters(root, group=("two",), rows=1).tables["letters"].num_rows,
    )
    assert "two" in dead_letters(root).to_html()
    assert "%DLQ%two/0/0" in dead_letters(root).to_text(200)
    assert Verdict.CLEAN is dead_letters(root, group=("none",)).verdict


TX_STORES: Final = [store.name for store in golden_stores() if store.scenario in ("tx", "live")]
BROKER: Final = "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS"


def told(root: Path, **options: Any) -> TransactionsReport:  # noqa: ANN401 -- options
    return transactions(root, **{"now": BEGIN + 1000} | options)


def states(report: TransactionsReport) -> dict[str, str]:
    return {row["unique_key"]: row["state"] for row in report.tables["transactions"].to_pylist()}


# ---- stores that RocketMQ wrote


@pytest.mark.golden
@pytest.mark.parametrize("name", TX_STORES)
def test_golden_transactions_end_as_the_broker_was_told(name: str, golden: Golden) -> None:
    unpacked = golden(name)
    report = told(unpacked.root, release=unpacked.golden.release, lists_all=True)
    found = report.found
    if unpacked.golden.scenario == "live":
        assert (19, 18, 13, 50) == (found.pending, found.committed, found.rolled_back, found.transactions)
    else:
        expected = _decided(unpacked.path / "manifest.jsonl")
        rows = report.tables["transactions"].to_pylist()
        assert expected == {row["half_offset"]: row["state"] for row in rows}
        assert 215 == found.transactions
    assert (0, 0, 0, 0, 0) == (
        found.committed_absent, found.given_up, found.half_missing, found.settled, found.lost_bytes
    )  # fmt: skip
    assert found.are_queues_checked


def _decided(manifest: Path) -> dict[int, str]:
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    expected = {line["wroteOffset"]: "pending" for line in lines if line.get("type") == "half"}
    for line in lines:
        if line.get("type") == "endTransaction" and line["responseCode"] == 0:
            is_commit = line["commitOrRollback"] == 8
            expected[line["commitLogOffset"]] = "committed" if is_commit else "rolled_back"
        if line.get("topic") == "old_tx_topic" and line.get("sysFlag", 0) & 12 == 4:
            expected[line["wroteOffset"]] = "committed"  # each is named by a commit and by a rollback
    return expected


@pytest.mark.golden
@pytest.mark.parametrize("name", [*filter(newer_store, ["5.5.0/rockskv"])])
def test_half_messages_beside_a_rocksdb_are_settled_by_their_offsets(name: str, tmp_path: Path) -> None:
    found = told(unpack_newer(name, tmp_path).root, release="5.5").found

    assert (60, 20, 20, 20) == (found.transactions, found.pending, found.committed, found.rolled_back)


# ---- one transaction


def test_old_pending_ones_are_findings(log: LifeLog, tmp_path: Path) -> None:
    log.half("a")
    root = log.write(tmp_path)

    assert Verdict.CLEAN is told(root).verdict
    assert {"U-a": "pending"} == states(told(root))
    report = told(root, now=BEGIN + 100_000)
    assert (Verdict.FINDINGS, 1, "2023-11-14T22:13:20.001Z") == (
        report.verdict, report.found.old_pending, report.found.oldest_pending
    )  # fmt: skip


def test_one_that_the_broker_asked_about_too_often_is_a_finding(log: LifeLog, tmp_path: Path) -> None:
    log.half("a", TRANSACTION_CHECK_TIMES="15")
    root = log.write(tmp_path)

    assert (Verdict.FINDINGS, 1) == (told(root).verdict, told(root).found.checked_too_often)
    assert Verdict.CLEAN is told(root, most_checks=16).verdict


def test_a_half_message_that_the_broker_is_past_is_given_up(log: LifeLog, tmp_path: Path) -> None:
    log.half("a")
    log.half("b")
    root = log.write(tmp_path)
    write_config(root, consumerOffset={"offsetTable": {BROKER: {"0": 1}}})

    assert {"U-a": "given_up", "U-b": "pending"} == states(told(root))
    assert Verdict.FINDINGS is told(root).verdict


class BrokerMeanwhile(InProcess):
    """Reads, and then lets the broker go on, before anything else is asked."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def run(self, job: Job[Any, Any, Any]) -> Any:  # noqa: ANN401 -- what the job makes
        found = super().run(job)
        write_config(self._root, consumerOffset={"offsetTable": {BROKER: {"0": 2}}})
        return found


def test_a_half_message_whose_copy_the_broker_puts_meanwhile_is_not_given_up(log: LifeLog, tmp_path: Path) -> None:
    log.half("a")
    log.half("b")
    root = log.write(tmp_path)

    report = Transactions(now=BEGIN + 1000).on(BrokerMeanwhile(root), Store(root))
    assert {"U-a": "pending", "U-b": "pending"} == states(report)


def test_what_is_settled_across_lost_bytes_may_have_been_committed(log: LifeLog, tmp_path: Path) -> None:
    first, second = log.half("a"), log.half("b")
    lost = log.send("lost")
    log.op(first)
    log.patch(lost.physical_offset + SIZE_AT, b"\x7f\xff\xff\xff")
    third = log.half("c")
    log.op(second, third)
    report = told(log.write(tmp_path), lists_all=True)

    assert {"U-a": "settled", "U-b": "settled", "U-c": "rolled_back"} == states(report)
    assert lost.size == report.found.lost_bytes


def test_an_end_without_a_half_message_is_missing_unless_the_log_begins_after_it(tmp_path: Path) -> None:
    log = LifeLog(start_offset=8192)
    half = log.half("kept", TRANSACTION_CHECK_TIMES="1")
    log.append(b"-", topic="orders", sys_flag=8, prepared_transaction_offset=100, properties={"UNIQ_KEY": "deleted"})
    log.append(b"-", topic="orders", sys_flag=8, prepared_transaction_offset=8193, properties={"UNIQ_KEY": "missing"})
    log.op(half)
    report = told(log.write(tmp_path), lists_all=True)

    assert {"deleted": "half_deleted", "missing": "half_missing", "U-kept": "rolled_back"} == states(report)


def test_a_commit_to_which_no_queue_leads_is_absent(tmp_path: Path) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=200)
    log = LifeLog()
    halves = [log.half(key) for key in "abc"]
    for half, key in zip(halves, "abc", strict=True):
        log.commit(half, key)
    root = log.write(tmp_path)
    with DefaultMessageStore.open(root, config):
        pass
    assert Counter(committed=3) == Counter(states(told(root, lists_all=True)).values())
    queue = root / "consumequeue" / "orders" / "3" / f"{0:020d}"
    queue.write_bytes(queue.read_bytes()[:40].ljust(200, b"\0"))
    report = told(root, lists_all=True)

    assert {"U-a": "committed", "U-b": "committed", "U-c": "committed_absent"} == states(report)
    assert Verdict.FINDINGS is report.verdict
    root.joinpath("abort").touch()
    assert 3 == told(root).found.committed  # a crash: the queue is behind


# ---- reports


def test_groups_count_all_and_rows_are_cut(log: LifeLog, tmp_path: Path) -> None:
    log.op(*[log.half(f"k{number}") for number in range(3)])
    for number in range(5):
        log.half(f"p{number}")
    report = told(log.write(tmp_path), rows=2)

    groups = {row["state"]: row["transactions"] for row in report.tables["groups"].to_pylist()}
    assert {"pending": 5, "rolled_back": 3} == groups
    assert 2 == report.tables["transactions"].num_rows
    assert "5 pending: neither committed nor rolled back" in report.to_text()
    assert "How transactions ended" in report.to_html()


def test_a_negative_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="older_than"):
        told(LifeLog().write(tmp_path), older_than=-1)

# SPDX-License-Identifier: Apache-2.0
"""What transactions are said to have become is what producers decided, and what the log, queues and offsets show."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import DefaultMessageStore, MessageStoreConfig
from store_core.answers import Transactions, TransactionsReport, transactions
from store_core.answers.report import Verdict
from store_core.errors import InvalidOptionError
from store_core.snapshot.store import Store
from store_core.store.parts import InProcess, Job
from tests.builders import SIZE_AT
from tests.golden_stores import golden_stores, newer_store, unpack_newer
from tests.life_logs import BEGIN, LifeLog, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import Golden


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


def test_old_pending_ones_are_findings(tmp_path: Path) -> None:
    log = LifeLog()
    log.half("a")
    root = log.write(tmp_path)

    assert Verdict.CLEAN is told(root).verdict
    assert {"U-a": "pending"} == states(told(root))
    report = told(root, now=BEGIN + 100_000)
    assert (Verdict.FINDINGS, 1, "2023-11-14T22:13:20.001Z") == (
        report.verdict, report.found.old_pending, report.found.oldest_pending
    )  # fmt: skip


def test_one_that_the_broker_asked_about_too_often_is_a_finding(tmp_path: Path) -> None:
    log = LifeLog()
    log.half("a", TRANSACTION_CHECK_TIMES="15")
    root = log.write(tmp_path)

    assert (Verdict.FINDINGS, 1) == (told(root).verdict, told(root).found.checked_too_often)
    assert Verdict.CLEAN is told(root, most_checks=16).verdict


def test_a_half_message_that_the_broker_is_past_is_given_up(tmp_path: Path) -> None:
    log = LifeLog()
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


def test_a_half_message_whose_copy_the_broker_puts_meanwhile_is_not_given_up(tmp_path: Path) -> None:
    log = LifeLog()
    log.half("a")
    log.half("b")
    root = log.write(tmp_path)

    report = Transactions(now=BEGIN + 1000).on(BrokerMeanwhile(root), Store(root))
    assert {"U-a": "pending", "U-b": "pending"} == states(report)


def test_what_is_settled_across_lost_bytes_may_have_been_committed(tmp_path: Path) -> None:
    log = LifeLog()
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


def test_groups_count_all_and_rows_are_cut(tmp_path: Path) -> None:
    log = LifeLog()
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

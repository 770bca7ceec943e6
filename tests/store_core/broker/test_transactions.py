# SPDX-License-Identifier: Apache-2.0
"""Half messages, and the operations that commit them or roll them back."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core.broker.topic_kind import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_TOPIC
from store_core.broker.transactions import Transaction, TransactionState, TransactionStatus, transaction_state
from store_core.store.message_store import DefaultMessageStore
from store_core.store.message_store_config import MessageStoreConfig
from tests.golden_stores import UnpackedStore, golden_stores
from tests.store_core.store.logs import Log, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


PENDING, COMMITTED, ROLLED_BACK, ORPHANED = TransactionStatus
COMMIT, ROLLBACK, PREPARED = 8, 12, 4
LIVE_STORES: Final = [store.name for store in golden_stores() if store.scenario == "live"]
TX_STORES: Final = [store.name for store in golden_stores() if store.scenario == "tx"]
_END: Final = {8: COMMITTED, 12: ROLLED_BACK}


class Writer:
    """A log into which a test writes what a broker writes."""

    def __init__(self, root: Path) -> None:
        self._log = Log(root / "commitlog", {"mapped_file_size_commit_log": 1 << 16})
        self._root = root

    def put(self, topic: str, body: bytes = b"body", **more: Any) -> int:  # noqa: ANN401 -- fields of Message
        """Put a record, and return its physical offset."""
        result = self._log.put_message(message(body, topic=topic, **more)).append_message_result
        assert result is not None
        return result.wrote_offset

    def half(self, key: str | None, **properties: str) -> int:
        keys = {} if key is None else {"UNIQ_KEY": key}
        real = {"REAL_TOPIC": "orders", "REAL_QID": "3", "PGROUP": "shop"}
        return self.put(HALF_TOPIC, properties=real | keys | properties)

    def commit(self, half: int, key: str = "K", **more: Any) -> int:  # noqa: ANN401 -- fields of Message
        settings: dict[str, Any] = {
            "sys_flag": COMMIT,
            "prepared_transaction_offset": half,
            "properties": {"UNIQ_KEY": key},
        } | more
        return self.put("orders", **settings)

    def op(self, body: bytes, tags: str = "d") -> int:
        return self.put(OP_TOPIC, body, properties={"TAGS": tags})

    def state(self, **options: Any) -> TransactionState:  # noqa: ANN401 -- options
        return transaction_state(self._root, **options)

    def only(self) -> Transaction:
        (found,) = self.state().transactions
        return found


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


# ---- stores that RocketMQ wrote


@pytest.mark.golden
@pytest.mark.parametrize("name", TX_STORES)
def test_golden_transactions_end_as_the_broker_was_told(name: str, golden: Callable[[str], UnpackedStore]) -> None:
    unpacked = golden(name)
    lines = [json.loads(line) for line in unpacked.path.joinpath("manifest.jsonl").read_text().splitlines()]
    expected = {line["wroteOffset"]: PENDING for line in lines if line.get("type") == "half"}
    for line in lines:
        if line.get("type") == "endTransaction" and line["responseCode"] == 0:
            expected[line["commitLogOffset"]] = _END[line["commitOrRollback"]]
        if line.get("topic") == "old_tx_topic" and line.get("sysFlag", 0) & ROLLBACK == PREPARED:
            expected[line["wroteOffset"]] = COMMITTED  # each is named by a commit and by a rollback
    found = transaction_state(unpacked.root, release=unpacked.golden.release)

    assert expected == {known.half_offset: known.status for known in found.transactions}
    assert (215, ()) == (len(expected), found.notes)


@pytest.mark.golden
@pytest.mark.parametrize("name", LIVE_STORES)
def test_transactions_of_a_real_broker_end_as_producers_decided(
    name: str, golden: Callable[[str], UnpackedStore]
) -> None:
    unpacked = golden(name)
    decided = {}
    for path in sorted(unpacked.path.glob("sent*.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            if line["kind"].startswith("tx-"):
                decided[line["msgId"]] = line["kind"].removeprefix("tx-")
    found = {known.unique_key: known for known in transaction_state(unpacked.root).transactions}

    assert decided.keys() == found.keys()
    ends = Counter((decided[key], known.status, known.op_offset is None) for key, known in found.items())
    # 5.3.3 writes operations seconds later, and this broker was killed: so the last ends are half told, or not at all.
    assert {
        ("COMMIT_MESSAGE", COMMITTED, False): 14,
        ("COMMIT_MESSAGE", COMMITTED, True): 4,
        ("ROLLBACK_MESSAGE", ROLLED_BACK, False): 13,
        ("ROLLBACK_MESSAGE", PENDING, True): 3,
        ("UNKNOW", PENDING, True): 16,
    } == ends
    assert {0} == {known.checks for known in found.values() if known.op_offset is not None}


# ---- one transaction


def test_a_half_message_alone_is_pending(writer: Writer) -> None:
    half = writer.half("K")

    assert Transaction(PENDING, "orders", 3, "shop", "K", half, 0, 1_700_000_000_000) == writer.only()


def test_half_messages_without_a_unique_key_are_each_their_own(writer: Writer) -> None:
    writer.half(None)
    writer.half(None)

    assert 2 == writer.state().counts()[PENDING]


def test_what_the_broker_gave_up_is_orphaned(writer: Writer) -> None:
    writer.half("K")
    writer.half("L")
    writer.put(CHECK_MAX_TIME_TOPIC, properties={"UNIQ_KEY": "K"})

    assert [ORPHANED, PENDING] == [known.status for known in writer.state().transactions]


def test_settlements_whose_half_message_is_gone_are_orphaned(writer: Writer) -> None:
    writer.put("other")
    commit = writer.commit(77_777)
    op = writer.op(b"41,42,")
    found = writer.state()

    assert [(77_777, None, commit, None), (None, 41, None, op), (None, 42, None, op)] == [
        (known.half_offset, known.half_queue_offset, known.commit_offset, known.op_offset)
        for known in found.transactions
    ]
    assert 3 == found.counts()[ORPHANED] == len(found.of(ORPHANED))


def test_a_commit_that_names_offset_0_needs_the_unique_key_of_what_is_there(writer: Writer) -> None:
    writer.half("K")
    writer.commit(0, "delivered later")
    before = writer.only().status
    writer.commit(0)

    assert (PENDING, COMMITTED) == (before, writer.only().status)


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        ((), PENDING),
        ((COMMIT,), COMMITTED),
        ((ROLLBACK,), ROLLED_BACK),
        ((COMMIT, ROLLBACK), COMMITTED),
        ((ROLLBACK, COMMIT), COMMITTED),
    ],
)
def test_prepared_messages_of_old_releases_are_settled_by_their_offset(
    writer: Writer, kinds: tuple[int, ...], status: TransactionStatus
) -> None:
    writer.put("other")
    prepared = writer.put("orders", sys_flag=PREPARED, properties={"UNIQ_KEY": "K"})
    for kind in kinds:
        writer.put("orders", sys_flag=kind, prepared_transaction_offset=prepared)
    known = writer.only()

    assert (status, "orders", prepared, None) == (
        known.status,
        known.topic,
        known.half_offset,
        known.half_queue_offset,
    )


def test_an_operation_with_another_tag_is_noted(writer: Writer) -> None:
    writer.half("K")
    writer.op(b"0", tags="x")

    assert 1 == len(writer.state().notes)


def test_hostile_half_messages_are_counted_like_others(writer: Writer) -> None:
    writer.put(HALF_TOPIC, properties={"REAL_QID": "9" * 30, "PGROUP": "shop"})
    known = writer.only()

    assert (PENDING, None, None, "shop") == (known.status, known.topic, known.queue_id, known.group)


def test_an_open_store_is_asked_like_its_files(tmp_path: Path) -> None:
    config = MessageStoreConfig(mapped_file_size_commit_log=1 << 16, release="4.9")
    with DefaultMessageStore.open(tmp_path, config, broker_hooks=False) as store:
        store.put_message(message(topic=HALF_TOPIC, properties={"UNIQ_KEY": "K"}))

        assert [PENDING] == [known.status for known in transaction_state(store).transactions]

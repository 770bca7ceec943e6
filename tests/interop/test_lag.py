# SPDX-License-Identifier: Apache-2.0
"""Lag by the files of a broker that runs is what the broker itself says of each queue, also where consumers pop."""

from __future__ import annotations

from itertools import takewhile
from typing import IO, TYPE_CHECKING, Any, Final, cast

import pytest

from store_core import read_messages
from store_core.answers import lag
from tests.interop.live_broker import Events, LiveBroker
from tests.interop.test_followed import acknowledged

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.interop

MESSAGES: Final = 3000
GROUPS: Final = {"steady": "Topic0,Topic1,Batched:900", "slow": "Topic2:30", "whole": "Topic1,Batched:1400"}


def said_by_the_broker(consumer: subprocess.Popen[bytes], group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Return what the broker takes to be the end of each queue, and the group's offset in it."""
    asked, answers = cast("IO[bytes]", consumer.stdin), cast("IO[bytes]", consumer.stdout)
    asked.write(f"{group}\n".encode())
    asked.flush()
    lines: Iterator[str] = (line.decode().strip() for line in answers)
    rows = (line.split() for line in takewhile(lambda line: line != "end", lines))
    return {(topic, int(queue)): (int(end), int(offset)) for topic, queue, end, offset in rows}


def said_by_files(store: Path, group: str) -> dict[tuple[str, int], dict[str, Any]]:
    table = lag(store, group=(group,)).tables["queues"]
    return {(row["topic"], row["queue_id"]): row for row in table.to_pylist()}


def is_the_same(row: dict[str, Any] | None, broker: tuple[int, int]) -> bool:
    """Return whether a row says what the broker says; a queue without messages has no row, and no offset is 0."""
    if row is None or row["state"] == "empty":
        return broker == (0, 0)
    return (row["max_offset"], row["committed_offset"] or 0) == broker and row["messages"] == broker[0] - broker[1]


@pytest.mark.timeout(900)
def test_lag_is_what_the_broker_says_of_every_queue(tmp_path: Path) -> None:
    with LiveBroker(tmp_path / "broker", 4 << 20) as broker:
        assert list(acknowledged(broker.produce(MESSAGES, 3000.0)))[-1] == MESSAGES
        consumer = broker.consume([f"{group}:{asked}" for group, asked in GROUPS.items()])
        for group in GROUPS:
            found: dict[tuple[str, int], dict[str, Any]] = {}
            told: dict[tuple[str, int], tuple[int, int]] = {}
            for _ in range(400):  # the broker writes its offsets every half second
                told = said_by_the_broker(consumer, group)
                try:
                    found = said_by_files(broker.store, group)
                except (FileNotFoundError, ValueError):  # not written yet, or the group is not in it yet
                    continue
                if all(is_the_same(found.get(queue), each) for queue, each in told.items()):
                    break

            assert {queue: each for queue, each in told.items() if not is_the_same(found.get(queue), each)} == {}
            others = {queue: row["state"] for queue, row in found.items() if row["messages"] and queue not in told}
            # The broker leaves a retry topic out until the group has an offset in it.
            assert set(others.items()) <= {((f"%RETRY%{group}", 0), "no_offset")}
        consumed = lag(broker.store, group=("slow",), messages=True, rows=MESSAGES)
        rows = consumed.tables["messages"].to_pylist()
        left = {row["unique_key"] for row in rows if row["topic"] == "Topic2"}
        sent = read_messages(broker.store, columns=["unique_key"], topic="Topic2").read_all()["unique_key"].to_pylist()

    assert consumed.found.messages > 0
    assert left <= set(sent)
    assert len(set(sent) - left) == 30


POPPED: Final = 200
UNANSWERED: Final = POPPED // 10
Queues = dict[tuple[str, int], tuple[int, int]]
"""Topic and queue -> its end, and the group's offset in it."""


def told_of_pops(events: Events) -> Queues:
    asked = len(events.so_far("asked"))
    before = len(events.so_far("queue"))
    events.ask()
    events.wait_until(lambda: len(events.so_far("asked")) > asked, 30)
    rows = events.so_far("queue")[before:]
    return {(row["topic"], row["queueId"]): (row["end"], row["offset"]) for row in rows}


def files_of_pops(store: Path) -> tuple[Queues, dict[str, str]]:
    """Return the same by the store's files, and the kind of each topic."""
    rows = lag(store, group=("popping",)).tables["queues"].to_pylist()
    assert [row for row in rows if row["messages"] != (row["max_offset"] or 0) - (row["committed_offset"] or 0)] == []
    places = ((row["topic"], row["queue_id"]) for row in rows)
    found = {
        place: (row["max_offset"] or 0, row["committed_offset"] or 0) for place, row in zip(places, rows, strict=True)
    }
    return found, {row["topic"]: row["kind"] for row in rows}


@pytest.mark.timeout(900)
def test_lag_of_a_group_that_pops_is_what_the_broker_says(tmp_path: Path) -> None:
    with LiveBroker(tmp_path / "broker", 4 << 20, timerWheelEnable="true") as broker:
        store = broker.store
        events = broker.run("Popping", broker.address, str(POPPED))
        events.wait_for("all", 120)
        events.wait_until(lambda: len({each["key"] for each in events.so_far("popped")}) == POPPED, 120)
        found: Queues = {}
        kinds: dict[str, str] = {}

        def agrees() -> bool:
            nonlocal found, kinds
            told = told_of_pops(events)
            try:
                found, kinds = files_of_pops(store)
            except (FileNotFoundError, ValueError):  # not written yet, or the group is not in it yet
                return False
            return "pop_retry" in kinds.values() and found == told

        events.wait_until(agrees, 120)  # the broker writes its offsets every half second

    assert ("pop", "pop_retry") == (kinds["Popped"], kinds["%RETRY%popping_Popped"])
    assert [(POPPED // 4, POPPED // 4)] * 4 == [found["Popped", queue] for queue in range(4)]
    # Those that are never answered are handed out: neither the broker nor we count them, until their time is over.
    first = [each for each in events.so_far("popped") if not each["reconsumeTimes"]]
    assert UNANSWERED == sum(int(each["key"][1:]) % 10 == 9 for each in first)

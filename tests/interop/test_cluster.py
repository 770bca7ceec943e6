# SPDX-License-Identifier: Apache-2.0
"""What the stores of two brokers of one cluster say together is what RocketMQ's admin says of the cluster."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from store_core import read_messages
from store_core.answers import dead_letters, lag, trace
from tests.interop.live_broker import Events, LiveBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

MESSAGES: Final = 210
BROKERS: Final = ("broker-a", "broker-b")
GROUPS: Final = ("billing", "slow")
SETTINGS: Final = {"flushDelayOffsetInterval": "500", "messageDelayLevel": " ".join(["1s"] * 18)}
Queues = dict[tuple[str, str, int], tuple[int, int]]
"""Broker, topic and queue -> a group's offset and the end of the queue, or the queue's bounds."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Path], Events]]:
    """Provide the stores of two brokers that run, by broker, and what clients saw, once disks have all of it."""
    with ExitStack() as stack:
        stores, broker = two_brokers(tmp_path_factory.mktemp("cluster"), stack)
        events = broker.run("Cluster", str(len(BROKERS)), str(MESSAGES))
        events.wait_for("ready", 300)
        events.wait_until(lambda: all(offsets_agree(stores, events, group) for group in GROUPS), 120)
        yield stores, events


def two_brokers(directory: Path, stack: ExitStack) -> tuple[dict[str, Path], LiveBroker]:
    """Start two brokers of one cluster; return their stores, by their names, and one of them."""
    first = stack.enter_context(LiveBroker(directory / "a", 1 << 20, brokerName=BROKERS[0], **SETTINGS))
    other = LiveBroker(directory / "b", 1 << 20, first, brokerName=BROKERS[1], **SETTINGS)
    return dict(zip(BROKERS, (first.store, stack.enter_context(other).store), strict=True)), first


def by_the_admin(events: Events, kind: str, group: str = "") -> Queues:
    """Ask RocketMQ's admin for the consume stats of a group, or the topic stats."""
    asked, before = len(events.so_far("asked")), len(events.so_far(kind))
    events.ask()
    events.wait_until(lambda: len(events.so_far("asked")) > asked, 30)
    rows = (row for row in events.so_far(kind)[before:] if row["group"] == group)
    return {(row["broker"], row["topic"], row["queueId"]): (row["first"], row["end"]) for row in rows}


def offsets_agree(stores: dict[str, Path], events: Events, group: str) -> bool:
    """Return whether brokers have written what they know of a group, which they do every half second."""
    found: Queues = {}
    for broker, store in stores.items():
        try:
            rows = lag(store, group=(group,)).tables["queues"].to_pylist()
        except (FileNotFoundError, ValueError):  # not written yet, or the group is not in it yet
            return False
        found |= {
            (broker, row["topic"], row["queue_id"]): (row["committed_offset"] or 0, row["max_offset"] or 0)
            for row in rows
        }
    # The admin leaves a retry topic out until the group has an offset in it, and we leave out a queue without any.
    admin = by_the_admin(events, "group", group)
    return {place: each for place, each in admin.items() if each != (0, 0)}.items() <= found.items()


def sums(rows: Queues) -> dict[str, int]:
    """Return by topic how many messages lie between both offsets, over all brokers and queues."""
    found: Counter[str] = Counter()
    for (_, topic, _), (first, end) in rows.items():
        found[topic] += end - first
    return dict(found)


@pytest.mark.parametrize("group", GROUPS)
def test_lag_over_both_brokers_is_that_of_the_admin(told: tuple[dict[str, Path], Events], group: str) -> None:
    stores, events = told
    report = lag(list(stores.values()), group=(group,))
    found: Counter[str] = Counter()
    for row in report.tables["topics"].to_pylist():
        found[row["topic"]] += row["messages"]
    admin = sums(by_the_admin(events, "group", group))
    total = [row["lag"] for row in events.so_far("total") if row["group"] == group][-1]

    assert admin == {topic: found[topic] for topic in admin}
    assert {topic for topic, count in found.items() if count} <= admin.keys()
    assert total == report.found.messages
    assert {"broker-a", "broker-b"} == set(report.tables["queues"]["store"].to_pylist())
    assert total > 0


def test_messages_of_both_brokers_are_those_of_the_admin(told: tuple[dict[str, Path], Events]) -> None:
    stores, events = told
    admin = sums(by_the_admin(events, "topic"))
    rows = read_messages(list(stores.values()), columns=["topic"]).read_all()
    found = Counter(rows["topic"].to_pylist())

    assert MESSAGES == admin["Orders"]
    assert admin == {topic: found[topic] for topic in admin}
    assert all(admin[topic] for topic in ("%RETRY%billing", "%DLQ%billing"))


def test_dead_letters_of_both_brokers_are_those_that_consumers_gave_up(
    told: tuple[dict[str, Path], Events],
) -> None:
    stores, events = told
    letters = dead_letters(list(stores.values()), release="5.3").tables["letters"].to_pylist()
    sent = {row["uniqueKey"]: int(row["key"][1:]) for row in events.so_far("sent")}

    assert sorted(sent[row["unique_key"]] for row in letters) == list(range(5, MESSAGES // 2, 7))


def test_a_message_whose_retry_is_on_another_broker_has_one_path(told: tuple[dict[str, Path], Events]) -> None:
    stores, events = told
    brokers: dict[str, list[str]] = {}
    for row in events.so_far("attempt"):
        brokers.setdefault(row["key"], []).append(row["broker"])
    wandered = {key: each for key, each in brokers.items() if len(set(each)) > 1}

    assert wandered
    for key, (first, second) in wandered.items():
        steps = trace(list(stores.values()), key, release="5.3").tables["steps"].to_pylist()
        expected = [(first, "send"), (second, "retry_wait"), (second, "retry")]
        assert expected == [(step["store"], step["step"]) for step in steps]

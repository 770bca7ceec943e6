# SPDX-License-Identifier: Apache-2.0
"""What waits, by the disk of a broker, is what the broker then delivers: while it runs, and after it was killed."""

from __future__ import annotations

import re
import struct
import time
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import read_messages, read_view
from store_core.answers import delays
from tests.interop.live_broker import Events, LiveBroker

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.answers import DelaysReport

pytestmark = pytest.mark.interop

MESSAGES: Final = 140
LEVELS: Final = "5s 10s 20s 40s"
FIRST, LAST = 8000, 45_000
SETTINGS: Final = {
    "flushDelayOffsetInterval": "1000",
    "messageDelayLevel": LEVELS,
    "timerFlushIntervalMs": "500",
    "timerWheelEnable": "true",
}
PASSED_OVER: Final = 3
"""Messages of a level, and seconds of timers, that files are put past, as if they came from elsewhere."""


def told(broker: LiveBroker) -> DelaysReport:
    config = broker.directory / "broker.conf"
    return delays(broker.store, lists_all=True, rows=10**6, config=config, release="5.3")


def keys_in(report: DelaysReport, keys: dict[str, str], *states: str) -> list[str]:
    rows = report.tables["messages"].to_pylist()
    return sorted(keys[row["unique_key"]] for row in rows if row["state"] in states)


def came(events: Events, begin: int = 0) -> list[dict[str, Any]]:
    """Return the deliveries, once each, of which records are at a place of the log or later."""
    found = {each["logOffset"]: each for each in events.so_far("came") if each["logOffset"] >= begin}
    return list(found.values())


def keys_of(store: Path) -> dict[str, str]:
    """Return unique key -> key of all messages."""
    log = read_messages(store, columns=["unique_key", "keys"]).read_all().to_pylist()
    return {row["unique_key"]: row["keys"][0] for row in log if row["unique_key"] and row["keys"]}


def topics_of(store: Path, key: str) -> list[str]:
    """Return the topics of the records with a key, in log order."""
    topics: list[str] = read_messages(store, key=key, columns=["topic"]).read_all()["topic"].to_pylist()
    return topics


def log_end(store: Path) -> int:
    row = read_messages(store, columns=["physical_offset", "store_size"]).read_all().to_pylist()[-1]
    return int(row["physical_offset"] + row["store_size"])


def pass_over(store: Path, timers: list[int]) -> int:
    """Put both files past some messages that wait; return the new time of that of timers."""
    config = store / "config"
    for path in (config / "delayOffset.json", config / "delayOffset.json.bak"):
        text = re.sub(r"4\"?:(\d+)", lambda found: f"4:{int(found[1]) + PASSED_OVER}", path.read_text())
        path.write_text(text)
    until = sorted({due for due in timers if due > time.time() * 1000 + 2000})[PASSED_OVER]
    check = config / "timercheck"
    check.write_bytes(struct.pack(">q", until) + check.read_bytes()[8:])
    return until


def minute_of(sent: int) -> int:
    """Return the minute in which a timer is due, as seconds since 1970: brokers put it into the second before."""
    return (sent - 1) // 60_000 * 60


@pytest.mark.timeout(900)
def test_what_waits_is_what_the_broker_delivers(tmp_path: Path) -> None:
    with LiveBroker(tmp_path / "broker", 4 << 20, **SETTINGS) as broker:
        store = broker.store
        events = broker.run("Delays", str(MESSAGES), str(len(LEVELS.split())), str(FIRST), str(LAST))
        events.wait_for("all", 120)
        cancelled = {each["key"] for each in events.so_far("cancelled")}
        sent: dict[str, int] = {each["key"]: each.get("due", 0) for each in events.so_far("sent")}
        all_that_come = set(sent) - cancelled
        keys = keys_of(store)

        events.wait_until(lambda: len(came(events)) > MESSAGES // 3, 300)
        before = round(time.time() * 1000)
        live = told(broker)
        after = round(time.time() * 1000)

        events.wait_until(lambda: len(came(events)) > 3 * MESSAGES // 4, 300)
        broker.kill()
        timers = read_view(store, "timerlog", columns=["due_timestamp"]).read_all()["due_timestamp"].cast("int64")
        until = pass_over(store, [due // 1000 for due in timers.to_pylist()])
        end, dead = log_end(store), told(broker)
        expected = keys_in(dead, keys, "waiting", "overdue")
        lost = keys_in(dead, keys, "orphaned")
        due_then = {keys[row["unique_key"]]: row["due"] for row in dead.tables["messages"].to_pylist()}
        broker.start()
        events.wait_until(lambda: len(came(events, end)) >= len(expected), 300)
        events.wait_until(lambda: told(broker).found.overdue == 0, 120)  # a broker that starts writes its offsets late
        delivered, ended = came(events, end), told(broker)

    first: dict[str, int] = {}
    for each in came(events):
        first[each["key"]] = min(first.get(each["key"], 1 << 62), each["storeTimestamp"])
    waiting, undelivered = keys_in(live, keys, "waiting"), keys_in(live, keys, "waiting", "overdue", "unsettled")
    said_delivered = all_that_come - {*undelivered}
    assert (0, len(cancelled)) == (live.found.orphaned, live.found.cancelled)
    assert {key for key in said_delivered if first[key] > after} == set()
    assert {key for key in waiting if key in first and first[key] < before} == set()
    assert min(len(waiting), len(said_delivered)) > MESSAGES // 5

    calendar = live.tables["calendar"].to_pylist()
    expected_timers = Counter(minute_of(sent[key]) for key in undelivered if key[0] == "t")
    assert expected_timers == {round(row["begin"].timestamp()): row["timer"] for row in calendar if row["timer"]}
    assert len(undelivered) == sum(row["timer"] + row["level"] for row in calendar)

    assert sorted(each["key"] for each in delivered) == expected
    assert {key[0] for key in lost} == {"l", "t"}
    assert set(lost).isdisjoint(first)
    assert any(round(due_then[key].timestamp() * 1000) == until for key in expected if key[0] == "t")
    assert all(each["storeTimestamp"] >= round(due_then[each["key"]].timestamp() * 1000) for each in delivered)
    assert (0, 0) == (ended.found.waiting, ended.found.overdue)
    # What was due when the log ended, but not delivered yet, looks delivered once the file is past it.
    ended_at = datetime.fromisoformat(dead.found.last_stored or "").timestamp() * 1000
    unnoticed = all_that_come - set(lost) - set(first)
    assert set(first) <= all_that_come - set(lost)
    assert all(key[0] == "t" and sent[key] <= ended_at + 1000 for key in unnoticed)
    assert len(unnoticed) < len(lost)

    # Sent again with what asked for a delay, a message is delayed again, unless it also says when it was due.
    assert ["rmq_sys_wheel_timer", "Delays"] == topics_of(store, "r0")
    assert ["Delays"] == topics_of(store, "r1")

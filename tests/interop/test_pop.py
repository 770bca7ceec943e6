# SPDX-License-Identifier: Apache-2.0
"""Lag of a group whose consumers pop is what the broker says of it; what is not acknowledged counts for neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from store_core.answers import lag
from tests.interop.live_broker import Events, LiveBroker

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.interop

MESSAGES: Final = 200
UNANSWERED: Final = MESSAGES // 10
Queues = dict[tuple[str, int], tuple[int, int]]
"""Topic and queue -> its end, and the group's offset in it."""


def said_by_the_broker(events: Events) -> Queues:
    asked = len(events.so_far("asked"))
    before = len(events.so_far("queue"))
    events.ask()
    events.wait_until(lambda: len(events.so_far("asked")) > asked, 30)
    rows = events.so_far("queue")[before:]
    return {(row["topic"], row["queueId"]): (row["end"], row["offset"]) for row in rows}


def said_by_files(store: Path) -> tuple[Queues, dict[str, str]]:
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
        events = broker.run("Popping", broker.address, str(MESSAGES))
        events.wait_for("all", 120)
        events.wait_until(lambda: len({each["key"] for each in events.so_far("popped")}) == MESSAGES, 120)
        found: Queues = {}
        kinds: dict[str, str] = {}

        def agrees() -> bool:
            nonlocal found, kinds
            told = said_by_the_broker(events)
            try:
                found, kinds = said_by_files(store)
            except (FileNotFoundError, ValueError):  # not written yet, or the group is not in it yet
                return False
            return "pop_retry" in kinds.values() and found == told

        events.wait_until(agrees, 120)  # the broker writes its offsets every half second

    assert ("pop", "pop_retry") == (kinds["Popped"], kinds["%RETRY%popping_Popped"])
    assert [(MESSAGES // 4, MESSAGES // 4)] * 4 == [found["Popped", queue] for queue in range(4)]
    # Those that are never answered are handed out: neither the broker nor we count them, until their time is over.
    first = [each for each in events.so_far("popped") if not each["reconsumeTimes"]]
    assert UNANSWERED == sum(int(each["key"][1:]) % 10 == 9 for each in first)

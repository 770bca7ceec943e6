# SPDX-License-Identifier: Apache-2.0
"""How transactions ended, by the disk of the broker, is what producers decided: at many moments, and at the end."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from store_core import read_messages
from store_core.answers import Transactions, transactions
from tests.interop.live_broker import Events, LiveBroker

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.interop

MESSAGES: Final = 300
MOST_CHECKS: Final = 4
SETTINGS: Final = {
    "transactionCheckInterval": "3000",
    "transactionCheckMax": str(MOST_CHECKS),
    "transactionOpBatchInterval": "500",
    "transactionTimeOut": "6000",
}
PLANS: Final = ("c", "r", "uc", "ur", "uuc", "uur", "c", "r", "u", "c")
"""As those of ``Decisions.java``: what a producer says at once, and when it is asked, by the last digit."""

ENDS: Final = {"c": "committed", "r": "rolled_back", "u": "given_up"}


def states_in(store: Path, keys: dict[str, str]) -> dict[str, tuple[str, int]]:
    """Return the state of each transaction, and how often the broker asked, by the message's key."""
    asked = Transactions(lists_all=True, rows=10**6, most_checks=MOST_CHECKS, release="5.3")
    rows = asked.ask(store).tables["transactions"].to_pylist()
    return {keys[row["unique_key"]]: (row["state"], row["checks"]) for row in rows if row["unique_key"] in keys}


def decided(events: Events) -> dict[str, str]:
    """Return what the producer has decided about each message, turn by turn."""
    found: dict[str, str] = {}
    for each in events.so_far("decided"):
        found[each["key"]] = found.get(each["key"], "") + each["decision"]
    return found


def is_so(state: str, decisions: str) -> bool:
    """Return whether a state is possible after some decisions, of which the broker may not know all yet."""
    return state in ("pending", ENDS[decisions[-1]]) if decisions else state == "pending"


@pytest.mark.timeout(900)
def test_each_transaction_ends_as_its_producer_decides(tmp_path: Path) -> None:
    moments: list[dict[str, tuple[str, int]]] = []
    with LiveBroker(tmp_path / "broker", 4 << 20, **SETTINGS) as broker:
        events = broker.run("Decisions", str(MESSAGES))
        events.wait_for("all", 120)
        keys = {each["uniqueKey"]: each["key"] for each in events.so_far("sent")}

        def look() -> bool:
            found = states_in(broker.store, keys)
            said = decided(events)  # after the look: the broker can't know more
            assert [key for key, (state, _) in found.items() if not is_so(state, said[key])] == []
            moments.append(found)
            return all(ENDS[PLANS[int(key[-1])][-1]] == state for key, (state, _) in found.items())

        events.wait_until(look, 300)
        said, ended = decided(events), states_in(broker.store, keys)
        log = read_messages(broker.store, columns=["topic", "unique_key"], topic="Decided").read_all()
        report = transactions(broker.store, most_checks=MOST_CHECKS, release="5.3")

    assert len(keys) == len(ended) == MESSAGES
    for number in range(MESSAGES):
        plan, (state, checks) = PLANS[number % 10], ended[f"d{number}"]
        assert (ENDS[plan[-1]], said[f"d{number}"]) == (state, plan if plan != "u" else "u" * (checks + 1))
        assert checks == (len(plan) - 1 if plan != "u" else MOST_CHECKS)
    put = Counter(keys[key] for key in log["unique_key"].to_pylist())
    assert put == {key: 1 for key, (state, _) in ended.items() if state == "committed"}
    assert (report.found.pending, report.found.given_up) == (0, MESSAGES // 10)
    assert went_on(moments) >= 4


def went_on(moments: list[dict[str, tuple[str, int]]]) -> int:
    """Return how many different moments were seen; what is settled once stays so, and checks never become fewer."""
    for before, after in pairwise(moments):
        assert [key for key, (state, _) in before.items() if state != "pending" and after[key][0] != state] == []
        assert [key for key, (_, checks) in before.items() if after[key][1] < checks] == []
    return len({tuple(sorted(Counter(state for state, _ in moment.values()).items())) for moment in moments})

# SPDX-License-Identifier: Apache-2.0
"""The path of messages that real consumers failed on purpose, by the disk of the broker, is what clients saw."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core.answers import dead_letters, trace
from tests.interop.live_broker import LiveBroker

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime
    from pathlib import Path

pytestmark = pytest.mark.interop

MESSAGES: Final = 500
ATTEMPTS: Final = 3
LEVELS: Final = "1s 2s 1s 1s 1s 2s"
SETTINGS: Final = {
    "flushDelayOffsetInterval": "500",
    "messageDelayLevel": LEVELS,
    "transactionOpBatchInterval": "500",
    "transactionTimeOut": "60000",
}
ARRIVALS: Final = frozenset(("send", "commit", "delivery", "retry", "dead_letter"))
PLACE: Final = ("queue_id", "queue_offset", "physical_offset", "reconsume_times")

_Event = dict[str, Any]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, list[_Event]]]]:
    """Provide a store whose broker runs, and what clients saw of each message, by its key."""
    directory = tmp_path_factory.mktemp("fates") / "broker"
    with LiveBroker(directory, 4 << 20, **SETTINGS) as broker:
        events = broker.run("Fates", str(MESSAGES), str(ATTEMPTS))
        events.wait_for("done", 600)
        halves = sum(n % 5 == 1 for n in range(MESSAGES))
        events.wait_until(lambda: operations_in(broker.store) == halves, 60)
        by_key: dict[str, list[_Event]] = {}
        for event in events.so_far("sent", "attempt", "dead"):
            by_key.setdefault(event["key"], []).append(event)
        yield broker.store, by_key


def operations_in(store: Path) -> int:
    """Return of how many half messages an operation says that they are settled."""
    return sum(bool(path_of(store, n, {"operation"})) for n in range(MESSAGES) if n % 5 == 1)


def path_of(store: Path, number: int, kinds: Collection[str] | None = None) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = (
        trace(store, f"f{number}", config=store.parent / "broker.conf", release="5.3").tables["steps"].to_pylist()
    )
    return [step for step in steps if kinds is None or step["step"] in kinds]


def begin_of(number: int) -> list[str]:
    """Return by what the message begins, as it was sent."""
    if number % 5 == 1:
        return ["half"] if number % 15 == 11 else ["half", "commit"]
    return ["delay", "delivery"] if number % 7 == 5 else ["send"]


def test_the_path_of_each_message_is_what_its_producer_and_consumers_saw(
    told: tuple[Path, dict[str, list[_Event]]],
) -> None:
    store, by_key = told
    lengths = set()
    for number in range(MESSAGES):
        (sent,) = (each for each in by_key[f"f{number}"] if each["event"] == "sent")
        once = {int(each["logOffset"]): each for each in by_key[f"f{number}"] if each["event"] != "sent"}
        came = [once[at] for at in sorted(once)]
        failed = sum(each["event"] == "attempt" for each in came[1:])
        is_dead = any(each["event"] == "dead" for each in came)
        steps = path_of(store, number)
        arrivals = [step for step in steps if step["step"] in ARRIVALS]
        kinds = [step["step"] for step in steps if step["step"] != "operation"]
        lengths.add(len(steps))

        assert [*begin_of(number), *["retry_wait", "retry"] * failed, *["dead_letter"] * is_dead] == kinds
        assert (number % 5 == 1) == (len(steps) - len(kinds))
        assert sent["queueOffset"] == steps[0]["queue_offset"]
        assert sent.get("messageId", steps[0]["msg_id"]) == steps[0]["msg_id"]  # clients don't tell that of a half
        assert {sent["uniqueKey"]} == {step["unique_key"] for step in steps}
        assert [
            tuple(each[name] for name in ("queueId", "queueOffset", "logOffset", "reconsumeTimes")) for each in came
        ] == [tuple(step[name] for name in PLACE) for step in arrivals]
        assert [each["storeTimestamp"] for each in came] == [millis(step["store_timestamp"]) for step in arrivals]
        assert [each["messageId"] for each in came] == [step["msg_id"] for step in arrivals]
        if is_dead:
            assert arrivals[-1]["topic"] == came[-1]["topic"] == "%DLQ%failing"
            assert (ATTEMPTS, 1 + ATTEMPTS) == (failed, arrivals[-1]["reconsume_times"])
            assert arrivals[-1]["note"] == f"group failing failed {1 + ATTEMPTS} times"
    assert len(lengths) > 5


def test_nothing_comes_before_it_is_due_and_times_never_go_back(told: tuple[Path, dict[str, list[_Event]]]) -> None:
    store, _ = told
    waits = 0
    for number in range(MESSAGES):
        steps = path_of(store, number)
        times = [step["store_timestamp"] for step in steps]
        assert times == sorted(times)
        for wait, come in pairwise(step for step in steps if step["step"] != "operation"):
            if wait["step"] in ("delay", "retry_wait"):
                waits += 1
                assert come["step"] in ("delivery", "retry")
                assert wait["due"] <= come["store_timestamp"]
                assert "not delivered" not in wait["note"]
    assert waits > MESSAGES // 2


def test_dead_letters_are_those_that_consumers_gave_up(told: tuple[Path, dict[str, list[_Event]]]) -> None:
    store, by_key = told
    dead = {event["uniqueKey"]: event for events in by_key.values() for event in events if event["event"] == "dead"}
    first = {key: path_of(store, int(event["key"][1:]), ARRIVALS)[0] for key, event in dead.items()}
    letters = dead_letters(store, release="5.3").tables["letters"].to_pylist()

    assert sorted(dead) == sorted(letter["unique_key"] for letter in letters)
    for letter in letters:
        event, begun = dead[letter["unique_key"]], first[letter["unique_key"]]
        assert (event["logOffset"], 1 + ATTEMPTS) == (letter["physical_offset"], letter["failures"])
        # The consumer itself allows fewer attempts than the broker's configuration of the group.
        assert ("early", "here") == (letter["why"], letter["origin"])
        place = (begun["topic"], str(begun["queue_id"]), str(begun["queue_offset"]))
        assert "/".join(place) == letter["origin_message"]


def millis(time: datetime) -> int:
    return round(time.timestamp() * 1000)

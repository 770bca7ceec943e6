# SPDX-License-Identifier: Apache-2.0
"""Stores that are passed to RocketMQ: our view of them, and what RocketMQ makes of them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from store_core import DefaultMessageStore
from store_core.errors import StoreError
from tests.golden_stores import golden_stores
from tests.interop.answers import read_rows_one_by_one
from tests.interop.ours import our_config, put_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from store_core import MessageStoreConfig
    from tests.interop.judge import Judge
    from tests.interop.rocketmq import Answer
    from tests.interop.scenarios import Scenario


_FIRST_TIME: Final = 1_700_000_000_000
_EVER: Final = (1 << 63) - 1
_PULL_SIZE: Final = 32
DERIVED: Final = ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index")
"""Directories of queues and index."""

_STORES_OF: Final = {"5.3.4": "5.3", "5.4": "5.5", "5.5.1": "5.5"}
"""The release whose golden stores are taken for one that wrote none, or few."""

QueueView = tuple[int, int, list[int]]
"""First index of a queue, its end, and the physical offsets of the served messages."""


def golden_names(release: str) -> list[str]:
    """Return the names of the golden stores for the RocketMQ of a release, without that of a broker that was killed."""
    wanted = _STORES_OF.get(release, release)
    return [each.name for each in golden_stores() if each.release == wanted and each.scenario != "live"]


@dataclass(frozen=True)
class Handed:
    """A store that we closed: our view of it, and RocketMQ's view of a copy."""

    name: str
    bounds: Answer
    queues: dict[tuple[str, int], QueueView]
    files: dict[str, bytes]
    copy: Path
    future: Future[Answer]

    @property
    def difference(self) -> tuple[str, Any, Any] | None:
        """Name of the store, our view and theirs, if RocketMQ sees something else.

        If a unit does not point to its record, RocketMQ serves what is there and we serve nothing, see `LogLookup`.
        """
        answer = self.future.result()
        seen = {name: answer.get(name) for name in ("loaded", "afterLoad", "afterStart")}
        expected = {"loaded": True, "afterLoad": self.bounds, "afterStart": self.bounds}
        if expected != seen or answer["dispatchBehindBytes"] > 0:
            return self.name, expected, seen | {"behind": answer.get("dispatchBehindBytes")}
        theirs = {place: self._sound(place, view) for place, view in _their_queues(answer).items()}
        places = [place for place in theirs | self.queues if self.queues.get(place) != theirs.get(place)]
        if places:
            return self.name, {p: self.queues.get(p) for p in places}, {p: theirs.get(p) for p in places}
        return None

    def _sound(self, place: tuple[str, int], view: QueueView) -> QueueView:
        """Leave out what only RocketMQ serves; the rest must be equal, in our order."""
        first, end, served = view
        ours, rest = self.queues.get(place, view)[2], iter(served)
        return first, end, ours if all(offset in rest for offset in ours) else served

    @property
    def change(self) -> tuple[str, Any, Any] | None:
        """As `difference`, to the last message, and with the files of queues and index that RocketMQ changed."""
        difference, files = self.difference, derived_files(self.copy)
        changed = [name for name in files | self.files if files.get(name) != self.files.get(name)]
        if difference is None and self.queues != _their_queues(self.future.result()):
            return self.name, self.queues, _their_queues(self.future.result())
        return difference or ((self.name, changed, "changed by RocketMQ") if changed else None)


def _our_queues(store: DefaultMessageStore) -> dict[tuple[str, int], QueueView]:
    found: dict[tuple[str, int], QueueView] = {}
    for queue in store.consume_queue_store.queues():
        place = queue.topic, queue.queue_id
        first, end = store.get_min_offset_in_queue(*place), store.get_max_offset_in_queue(*place)
        if end > 0:
            found[place] = first, end, list(_served(store, *place, first))
    return found


def _served(store: DefaultMessageStore, topic: str, queue_id: int, offset: int) -> Iterable[int]:
    """Get a queue's messages as `ReadBack.pullAll` does."""
    last = -1
    while offset > last:
        result = store.get_message("interop", topic, queue_id, offset, _PULL_SIZE)
        assert result is not None
        yield from (int.from_bytes(record[28:36], signed=True) for record in result.message_buffers)
        last, offset = offset, result.next_begin_offset


def _their_queues(answer: Answer) -> dict[tuple[str, int], QueueView]:
    found = (queue for queue in answer["queues"] if queue["max"] > 0)
    return {(queue["topic"], queue["queueId"]): (queue["min"], queue["max"], queue["messages"]) for queue in found}


def derived_files(root: Path) -> dict[str, bytes]:
    """Read queues and index."""
    paths = (path for name in DERIVED for path in root.joinpath(name).rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def role(judge: Judge) -> Answer:
    """Return the settings that keep releases 4.x from delivering due messages of an open store, as masters do."""
    return {} if judge.release not in ("4.3", "4.9") else {"brokerRole": "SLAVE", "offsetCheckInSlave": True}


def recover_and_hand_over(
    name: str, store: Path, config: MessageStoreConfig, judge: Judge, settings: Answer
) -> Handed | None:
    """Open a store, which recovers it, close it, and pass it to RocketMQ; None if we refuse to open it."""
    try:
        DefaultMessageStore.open(store, config, batch_topics=settings["batch_topics"]).close()
    except StoreError:
        return None
    return hand_over(name, store, config, judge, settings)


def ask_copy(judge: Judge, store: Path, questions: Sequence[Answer], settings: Answer) -> Future[Answer]:
    """Ask RocketMQ about a copy of a store, which it may change."""
    return judge.ask(shutil.copytree(store, store.with_name("asked")), questions, **settings, **role(judge))


def hand_over(name: str, store: Path, config: MessageStoreConfig, judge: Judge, settings: Answer) -> Handed:
    """Read a store without changing it, and let RocketMQ open a copy of it."""
    batch_topics = settings["batch_topics"]
    with DefaultMessageStore.open(store, config, batch_topics=batch_topics, read_only=True) as opened:
        queues = _our_queues(opened)
        bounds = {"min": opened.min_physical_offset, "max": opened.max_physical_offset}
    copy = store.with_name(f"{store.name}-{judge.release}-copy")
    shutil.copytree(store, copy)
    future = judge.open(copy, **settings, **role(judge))
    return Handed(name, bounds, queues, derived_files(copy), copy, future)


def close_ours(
    release: str, scenario: Scenario, directory: Path, rebuilds: str = ""
) -> tuple[Path, MessageStoreConfig]:
    """Write a scenario's messages as a release does, and close the store.

    With `rebuilds` queues and index are then removed, and made again by opening.
    """
    store, puts = directory / scenario.name / "store", scenario.puts(release)
    put_all(store, release, scenario, puts, range(_FIRST_TIME, _FIRST_TIME + len(puts)))
    config = our_config(release, scenario, directory / scenario.name / "broker.properties")
    if rebuilds:
        for name in (*DERIVED, "checkpoint"):
            path = store / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if rebuilds == "after a crash":
            store.joinpath("abort").touch()
        DefaultMessageStore.open(store, config, batch_topics=scenario.batch_topics).close()
    return store, config


def key_questions(store: Path, release: str) -> list[Answer]:
    """Return a question for every key of every message."""
    rows = read_rows_one_by_one(store, release)
    keys = {(row["topic"], key) for row in rows for key in (*(row["keys"] or ()), row["unique_key"]) if key}
    whole = {"kind": "key", "most": 64, "begin": 0, "end": _EVER}
    return [{**whole, "topic": topic, "key": key} for topic, key in sorted(keys)]

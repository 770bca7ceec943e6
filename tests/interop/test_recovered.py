# SPDX-License-Identifier: Apache-2.0
"""RocketMQ takes what we have recovered, dispatched or rebuilt for its own: nothing is cut, rebuilt or missing."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import DefaultMessageStore
from store_core.errors import StoreError
from tests.golden_stores import golden_stores
from tests.interop.ours import our_config, put_all
from tests.interop.questions import our_answer
from tests.interop.reading import read_rows_one_by_one
from tests.interop.scenarios import ALL_RELEASES, Scenario, known_to
from tests.store_core.store.damaged_stores import (
    RELEASES,
    batch_topics_of,
    config_of,
    damaged_archives,
    read_conf,
    unpack_damaged,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future
    from pathlib import Path

    from store_core import MessageStoreConfig
    from tests.golden_stores import UnpackedStore
    from tests.interop.judge import Judge
    from tests.interop.rocketmq import Answer

FIRST_TIME: Final = 1_700_000_000_000
_EVER: Final = (1 << 63) - 1
_PULL_SIZE: Final = 32
_VERSIONS: Final[dict[str, str]] = {release: version for version, release in RELEASES.items()}
_DERIVED: Final = ("consumequeue", "consumequeue_ext", "index")
_NAMES: Final = {
    "cl-size": "mappedFileSizeCommitLog",
    "cq-size": "mappedFileSizeConsumeQueue",
    "ext-size": "mappedFileSizeConsumeQueueExt",
    "bcq-size": "mapperFileSizeBatchConsumeQueue",
    "slot-num": "maxHashSlotNum",
    "index-num": "maxIndexNum",
    "ext": "enableConsumeQueueExt",
    "propcrc": "enabledAppendPropCRC",
    "force-propcrc": "forceVerifyPropCRC",
}
"""Settings of MessageStoreConfig by their names in ``store.conf``."""

_ONLY_5_3: Final = ("mapperFileSizeBatchConsumeQueue", "enabledAppendPropCRC", "forceVerifyPropCRC")

QueueView = tuple[int, int, list[int]]
"""First index of a queue, its end, and the physical offsets of what is served."""


@dataclass(frozen=True)
class Handed:
    """A store that we have closed, as we saw it, and RocketMQ's view of a copy."""

    name: str
    bounds: Answer
    queues: dict[tuple[str, int], QueueView]
    files: dict[str, bytes]
    copy: Path
    future: Future[Answer]

    @property
    def difference(self) -> tuple[str, Any, Any] | None:
        """Name of the store, ours and theirs, where RocketMQ sees something else.

        Where a unit points to something else than its record, RocketMQ serves it and we nothing, see `LogLookup`.
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
        """Leave out what RocketMQ serves besides; that must be all, and the order ours."""
        first, end, served = view
        ours, rest = self.queues.get(place, view)[2], iter(served)
        return first, end, ours if all(offset in rest for offset in ours) else served

    @property
    def change(self) -> tuple[str, Any, Any] | None:
        """Do the same, to the last message; and name files of queues and index that RocketMQ has changed."""
        difference, files = self.difference, _derived_files(self.copy)
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


def _derived_files(root: Path) -> dict[str, bytes]:
    """Read queues and index."""
    paths = (path for name in _DERIVED for path in root.joinpath(name).rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def _role(judge: Judge) -> Answer:
    """Keep releases 4.x from delivering what is due while they have a store open, as masters do."""
    return {} if judge.release == "5.3" else {"brokerRole": "SLAVE", "offsetCheckInSlave": True}


def hand_over(name: str, store: Path, config: MessageStoreConfig, judge: Judge, settings: Answer) -> Handed | None:
    """Open a store, close it, look at it, and have RocketMQ open a copy of it; None if we refuse to."""
    batch_topics = settings["batch_topics"]
    try:
        DefaultMessageStore.open(store, config, batch_topics=batch_topics).close()
    except StoreError:
        return None
    with DefaultMessageStore.open(store, config, batch_topics=batch_topics, read_only=True) as opened:
        queues = _our_queues(opened)
        bounds = {"min": opened.min_physical_offset, "max": opened.max_physical_offset}
    copy = store.with_name(f"{store.name}-{judge.release}-copy")
    shutil.copytree(store, copy)
    future = judge.open(copy, **settings, **_role(judge))
    return Handed(name, bounds, queues, _derived_files(copy), copy, future)


# ---- recovered


def _settings_of(conf: dict[str, str], release: str) -> Answer:
    given: Answer = {_NAMES[key]: json.loads(value) for key, value in conf.items() if key in _NAMES}
    given |= {key.removeprefix("set."): value == "true" for key, value in conf.items() if key.startswith("set.")}
    known = {name: value for name, value in given.items() if release == "5.3" or name not in _ONLY_5_3}
    return known | {"batch_topics": batch_topics_of(conf)}


def recover(path: Path, directory: Path, judge: Judge) -> Handed | None:
    """Recover a copy of a store that has a ``store.conf`` beside it, and hand it over; None if that is refused."""
    conf = read_conf(path / "store.conf")
    if batch_topics_of(conf) and judge.release != "5.3":
        return None
    store = directory / f"{path.name}-{judge.release}"
    shutil.copytree(path / "store", store)
    config = config_of(conf, _VERSIONS[judge.release])
    return hand_over(path.name, store, config, judge, _settings_of(conf, judge.release))


@pytest.mark.interop
def test_rocketmq_takes_damaged_stores_that_we_have_recovered(judge: Judge, tmp_path: Path) -> None:
    archives = damaged_archives()
    stores = [unpack_damaged(archive, tmp_path / "damaged") for archive in archives]
    handed = [handed for store in stores if (handed := recover(store, tmp_path, judge)) is not None]

    assert [] == [each.difference for each in handed if each.difference]
    assert len(handed) > len(archives) / 2


@pytest.mark.interop
def test_rocketmq_takes_its_own_stores_that_we_have_recovered(
    judge: Judge, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    names = [each.name for each in golden_stores() if each.release == judge.release and each.scenario != "live"]
    stores = [golden(name).path for name in names]
    handed = [handed for store in stores if (handed := recover(store, tmp_path, judge)) is not None]

    assert [] == [each.difference for each in handed if each.difference]
    assert len(stores) == len(handed)


# ---- dispatched, and rebuilt


def close_ours(
    release: str, scenario: Scenario, directory: Path, rebuilds: str = ""
) -> tuple[Path, MessageStoreConfig]:
    """Write a scenario's messages as a release does, and close the store.

    With `rebuilds` queues and index are then removed, and made anew by opening.
    """
    store, puts = directory / scenario.name / "store", scenario.puts(release)
    put_all(store, release, scenario, puts, range(FIRST_TIME, FIRST_TIME + len(puts)))
    config = our_config(release, scenario, directory / scenario.name / "broker.properties")
    if rebuilds:
        for name in (*_DERIVED, "checkpoint"):
            path = store / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        if rebuilds == "after a crash":
            store.joinpath("abort").touch()
        DefaultMessageStore.open(store, config, batch_topics=scenario.batch_topics).close()
    return store, config


def hand_over_scenario(judge: Judge, scenario: Scenario, directory: Path, *, rebuilds: str = "") -> Handed:
    """Hand over a store of ours."""
    store, config = close_ours(judge.release, scenario, directory, rebuilds)
    handed = hand_over(scenario.name, store, config, judge, scenario.job_settings)
    assert handed is not None
    return handed


def _scenarios(release: str) -> list[Scenario]:
    return known_to(release, is_ours=True)


@pytest.mark.parametrize("release", ALL_RELEASES)
def test_rocketmq_rebuilds_nothing_of_what_we_dispatched(
    release: str, judge_of: Callable[[str], Judge], tmp_path: Path
) -> None:
    handed = [hand_over_scenario(judge_of(release), scenario, tmp_path) for scenario in _scenarios(release)]

    assert [] == [each.change for each in handed if each.change]


@pytest.mark.interop
@pytest.mark.parametrize("rebuilds", ["after a crash", "after a clean exit"])
def test_rocketmq_rebuilds_nothing_of_what_we_rebuilt(judge: Judge, rebuilds: str, tmp_path: Path) -> None:
    handed = [hand_over_scenario(judge, each, tmp_path, rebuilds=rebuilds) for each in _scenarios(judge.release)]

    assert [] == [each.change for each in handed if each.change]


@pytest.mark.interop
@pytest.mark.parametrize("rebuilds", ["", "after a crash"])
def test_rocketmq_finds_by_key_what_we_indexed(judge: Judge, rebuilds: str, tmp_path: Path) -> None:
    asked = []
    for scenario in _scenarios(judge.release):
        store, config = close_ours(judge.release, scenario, tmp_path, rebuilds)
        questions = _questions(store, judge.release)
        shutil.copytree(store, store.with_name("copy"))
        future = judge.ask(store.with_name("copy"), questions, **scenario.job_settings, **_role(judge))
        with DefaultMessageStore.open(store, config, read_only=True, batch_topics=scenario.batch_topics) as opened:
            asked.append((scenario.name, [our_answer(opened, question) for question in questions], future))

    for name, ours, future in asked:
        assert (name, ours) == (name, future.result()["answers"])


def _questions(store: Path, release: str) -> list[Answer]:
    """Ask for every key of every message."""
    rows = read_rows_one_by_one(store, release)
    keys = {(row["topic"], key) for row in rows for key in (*(row["keys"] or ()), row["unique_key"]) if key}
    whole = {"kind": "key", "most": 64, "begin": 0, "end": _EVER}
    return [{**whole, "topic": topic, "key": key} for topic, key in sorted(keys)]

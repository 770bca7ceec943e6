# SPDX-License-Identifier: Apache-2.0
"""RocketMQ takes stores that we recovered, dispatched, repaired, salvaged or redacted for its own."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import RebuildOptions, read_messages, rebuild_consume_queue
from store_core.answers import Check, plan_repair, redact, repair, salvage
from tests.golden_stores import read_conf
from tests.interop.handed import (
    Handed,
    ask_copy,
    close_ours,
    golden_names,
    hand_over,
    key_questions,
    recover_and_hand_over,
)
from tests.interop.questions import our_answers
from tests.interop.scenarios import Scenario, each_release, known_to
from tests.interop.toolchain import RELEASES
from tests.store_core.answers.planting import plant
from tests.store_core.store.damaged_stores import batch_topics_of, config_of, damaged_archives, unpack_damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from store_core import MessageStoreConfig
    from tests.golden_stores import Golden, UnpackedStore
    from tests.interop.judge import Judge
    from tests.interop.rocketmq import Answer


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

_SINCE_5_3: Final = ("mapperFileSizeBatchConsumeQueue", "enabledAppendPropCRC", "forceVerifyPropCRC")
_SINCE_4_9: Final = ("enableLmq", "enableMultiDispatch")
_UNKNOWN: Final = {"4.3": (*_SINCE_5_3, *_SINCE_4_9), "4.9": _SINCE_5_3}
"""Settings that a release does not know."""

# ---- recovered


def settings_of(conf: dict[str, str], release: str) -> Answer:
    given: Answer = {_NAMES[key]: json.loads(value) for key, value in conf.items() if key in _NAMES}
    given |= {key.removeprefix("set."): value == "true" for key, value in conf.items() if key.startswith("set.")}
    known = {name: value for name, value in given.items() if name not in _UNKNOWN.get(release, ())}
    return known | {"batch_topics": batch_topics_of(conf)}


def recover(path: Path, directory: Path, judge: Judge) -> Handed | None:
    """Recover a copy of a store with its ``store.conf``, and pass it to RocketMQ; None if we refuse to open it."""
    conf = read_conf(path / "store.conf")
    if batch_topics_of(conf) and judge.release in ("4.3", "4.9"):
        return None
    store = directory / f"{path.name}-{judge.release}"
    shutil.copytree(path / "store", store)
    config = config_of(conf, RELEASES[judge.release])
    return recover_and_hand_over(path.name, store, config, judge, settings_of(conf, judge.release))


@pytest.mark.interop
def test_rocketmq_takes_damaged_stores_that_we_have_recovered(judge: Judge, tmp_path: Path) -> None:
    archives = damaged_archives()
    stores = [unpack_damaged(archive, tmp_path / "damaged") for archive in archives]
    handed = [handed for store in stores if (handed := recover(store, tmp_path, judge)) is not None]

    assert [] == [each.difference for each in handed if each.difference]
    assert len(handed) > len(archives) / 2


@pytest.mark.interop
def test_rocketmq_takes_its_own_stores_that_we_have_recovered(judge: Judge, golden: Golden, tmp_path: Path) -> None:
    stores = [golden(name).path for name in golden_names(judge.release)]
    handed = [handed for store in stores if (handed := recover(store, tmp_path, judge)) is not None]

    assert [] == [each.difference for each in handed if each.difference]
    assert len(stores) == len(handed)


# ---- dispatched, and dispatched once more


def hand_over_scenario(judge: Judge, scenario: Scenario, directory: Path, *, rebuilds: str = "") -> Handed:
    """Pass our store to RocketMQ."""
    store, config = close_ours(judge.release, scenario, directory, rebuilds)
    handed = recover_and_hand_over(scenario.name, store, config, judge, scenario.job_settings)
    assert handed is not None
    return handed


def _scenarios(release: str) -> list[Scenario]:
    return known_to(release, is_ours=True)


@pytest.mark.parametrize("release", each_release())
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
        questions = key_questions(store, judge.release)
        future = ask_copy(judge, store, questions, scenario.job_settings)
        asked.append((scenario.name, our_answers(store, config, questions, scenario.batch_topics), future))

    for name, ours, future in asked:
        assert (name, ours) == (name, future.result()["answers"])


_FAULTS: Final = (
    ("unit_dropped", "link_cut"),
    ("queue_missing", "header_ends_after_the_log"),
    ("unknown_queue", "slot_emptied"),
    ("unit_points_inside_a_record", "entry_leads_to_another_record"),
    ("unknown_topic",),
    ("queue_file_cut",),
    ("unit_repeated_at_the_end", "link_to_itself"),
)
"""Faults that are planted together."""

_CHOSEN: Final = {
    "4.3": "4.3.0/basic",
    "4.9": "4.9.7/lmq",
    "5.3": "5.3.3/propcrc",
    "5.3.4": "5.3.3/propcrc",
    "5.4": "5.5.0/basic",
    "5.5": "5.5.0/basic",
    "5.5.1": "5.5.0/basic",
}


@dataclass(frozen=True)
class _Copy:
    """A copy of a store that RocketMQ wrote, with the settings for both sides."""

    name: str
    store: Path
    conf: dict[str, str]
    config: MessageStoreConfig

    @classmethod
    def of(cls, golden: UnpackedStore, directory: Path, name: str, release: str) -> _Copy:
        conf = golden.conf
        store = shutil.copytree(golden.root, directory / name.replace("/", "-") / "store")
        return cls(name, store, conf, config_of(conf, RELEASES[release]))

    def answers(self, questions: Sequence[Answer]) -> list[Any]:
        return our_answers(self.store, self.config, questions, batch_topics_of(self.conf))

    def differences(self, judge: Judge, expected: Sequence[Answer], questions: Sequence[Answer]) -> list[object]:
        """Let RocketMQ open the store; list what it changes, does not serve, or does not find by keys."""
        settings = settings_of(self.conf, judge.release)
        has_crashed = (self.store / "abort").exists()
        handed = hand_over(self.name, self.store, self.config, judge, settings)
        found = ask_copy(judge, self.store, questions, settings).result()["answers"]
        wrong = [each for each in zip(questions, expected, found, strict=True) if each[1] != each[2]]
        change = handed.difference if has_crashed else handed.change
        return [(self.name, each) for each in (change, wrong) if each]


def _options(copy: _Copy, release: str) -> dict[str, Any]:
    slots, entries = (int(copy.conf[name]) for name in ("slot-num", "index-num"))
    topics = batch_topics_of(copy.conf)
    return {"release": release, "batch_topic": topics, "hash_slot_num": slots, "index_num": entries}


def _repair(copy: _Copy, faults: Sequence[str], release: str) -> None:
    """Plant faults, and repair them."""
    for name in faults:
        plant(name, copy.store)
    plan = copy.store.with_name("plan.json")
    made = plan_repair(copy.store, **_options(copy, release))
    assert made.is_needed
    plan.write_text(json.dumps(made.to_json()))
    report = repair(copy.store, plan)
    assert report.tables["places"].num_rows
    assert {} == Check(**_options(copy, release)).ask(copy.store).counts


def _repaired(judge: Judge, golden: UnpackedStore, faults: Sequence[str], directory: Path) -> list[object]:
    copy = _Copy.of(golden, directory, golden.golden.name, judge.release)
    questions = key_questions(copy.store, judge.release)
    expected = copy.answers(questions)
    _repair(copy, faults, judge.release)
    return copy.differences(judge, expected, questions)


@pytest.mark.parametrize("release", each_release())
def test_rocketmq_takes_a_repaired_store_for_its_own(
    release: str, judge_of: Callable[[str], Judge], golden: Golden, tmp_path: Path
) -> None:
    assert [] == _repaired(judge_of(release), golden(_CHOSEN[release]), _FAULTS[0], tmp_path)


def test_rocketmq_answers_every_key_of_a_missing_index_that_was_made(
    judge_of: Callable[[str], Judge], golden: Golden, tmp_path: Path
) -> None:
    assert [] == _repaired(judge_of("5.3"), golden(_CHOSEN["5.3"]), ["index_missing"], tmp_path)


@pytest.mark.interop
def test_rocketmq_takes_all_its_repaired_stores_for_its_own(judge: Judge, golden: Golden, tmp_path: Path) -> None:
    wrong: list[object] = []
    count = 0
    for number, name in enumerate(_plain_stores(judge.release, golden)):
        faults = _FAULTS[number % len(_FAULTS)]
        wrong += _repaired(judge, golden(name), faults, tmp_path)
        count += 1

    assert [] == wrong
    assert count >= 3


def _plain_stores(release: str, golden: Golden) -> list[str]:
    """Return the stores of a release in which each fault can be planted: closed, with an index and small queues."""
    return [name for name in golden_names(release) if _is_plain(golden(name).root)]


def _is_plain(root: Path) -> bool:
    queues = [path for path in root.glob("consumequeue/*/*") if len(list(path.iterdir())) == 1]
    return not (root / "abort").exists() and bool(queues) and any(root.glob("index/*"))


@pytest.mark.parametrize("release", each_release())
def test_rocketmq_takes_a_salvaged_store_for_its_own(
    release: str, judge_of: Callable[[str], Judge], golden: Golden, tmp_path: Path
) -> None:
    judge, source = judge_of(release), _Copy.of(golden(_CHOSEN[release]), tmp_path, "damaged", release)
    for name in ("magic_code_overwritten", "body_bit_flipped"):
        plant(name, source.store)
    target = tmp_path / "salvaged" / "store"
    target.parent.mkdir()
    report = salvage(source.store, target)
    size, slots, entries = (int(source.conf[name]) for name in ("cq-size", "slot-num", "index-num"))
    options = RebuildOptions(
        with_index=True, replace=True, discard_old=True, release=release,
        consume_queue_file_size=size, hash_slot_num=slots, index_num=entries,
    )  # fmt: skip
    rebuild_consume_queue(target, options)
    copy = _Copy("salvaged", target, source.conf, source.config)
    questions = key_questions(target, release)

    assert report.found.lost_ranges > 0
    assert len(questions) > 10
    assert [] == copy.differences(judge, copy.answers(questions), questions)


@pytest.mark.parametrize("release", each_release())
def test_rocketmq_takes_a_redacted_store_for_its_own(
    release: str, judge_of: Callable[[str], Judge], golden: Golden, tmp_path: Path
) -> None:
    copy = _Copy.of(golden(_CHOSEN[release]), tmp_path, "whole", release)
    topic = read_messages(copy.store, columns=["topic"]).read_all()["topic"][0].as_py()
    target = copy.store.with_name("redacted")
    report = redact(copy.store, target, topic=[topic])
    shutil.rmtree(copy.store)
    target.rename(copy.store)
    questions = key_questions(copy.store, release)

    assert report.found.messages > 0
    assert [] == copy.differences(judge_of(release), copy.answers(questions), questions)

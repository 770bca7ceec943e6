# SPDX-License-Identifier: Apache-2.0
"""RocketMQ accepts what we recovered or dispatched as its own: nothing is truncated, rebuilt or missing."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Final

import pytest

from store_core import DefaultMessageStore
from tests.golden_stores import read_conf
from tests.interop.handed import Handed, close_ours, golden_names, key_questions, recover_and_hand_over, role
from tests.interop.questions import our_answer
from tests.interop.scenarios import Scenario, each_release, known_to
from tests.store_core.store.damaged_stores import (
    RELEASES,
    batch_topics_of,
    config_of,
    damaged_archives,
    unpack_damaged,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.golden_stores import Golden
    from tests.interop.judge import Judge
    from tests.interop.rocketmq import Answer

_VERSIONS: Final[dict[str, str]] = {release: version for version, release in RELEASES.items()}
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
    config = config_of(conf, _VERSIONS[judge.release])
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
        shutil.copytree(store, store.with_name("copy"))
        future = judge.ask(store.with_name("copy"), questions, **scenario.job_settings, **role(judge))
        with DefaultMessageStore.open(store, config, read_only=True, batch_topics=scenario.batch_topics) as opened:
            asked.append((scenario.name, [our_answer(opened, question) for question in questions], future))

    for name, ours, future in asked:
        assert (name, ours) == (name, future.result()["answers"])

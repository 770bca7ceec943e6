# SPDX-License-Identifier: Apache-2.0
"""RocketMQ accepts queues and index that our command rebuilt as its own, and finds every message by them."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Final

import pytest

from store_core.command.exit_code import ExitCode
from tests.connector.called import rebuild_consume_queue
from tests.golden_stores import GoldenStore, newer_store, read_conf, unpack
from tests.interop.handed import (
    DERIVED,
    ask_copy,
    close_ours,
    derived_files,
    golden_names,
    hand_over,
    key_questions,
)
from tests.interop.questions import our_answers
from tests.interop.scenarios import SCENARIOS, Scenario, each_release, known_to, random_scenario
from tests.interop.test_recovered import settings_of
from tests.interop.toolchain import RELEASES
from tests.store_core.store.damaged_stores import config_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.golden_stores import Golden
    from tests.interop.judge import Judge

_DONE, _DAMAGED = ExitCode.DONE, ExitCode.DAMAGED
_LOST: Final = (*DERIVED, "checkpoint")


def _rocksdb_stores(release: str) -> list[GoldenStore]:
    version = RELEASES[release]
    found = (newer_store(f"{version}/{name}") for name in ("rocksdb-crash", "rocksdb-aged"))
    return [store for store in found if store is not None]


def _rebuild(store: Path, release: str, *options: str) -> int:
    return rebuild_consume_queue(
        [str(store), "--release", release, "--with-index", "--replace", "--discard-old", *options]
    )


def _lose(store: Path) -> None:
    for name in _LOST:
        path = store / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _differences(judge: Judge, scenario: Scenario, directory: Path) -> list[object]:
    """Lose queues and index of our store, rebuild them, and list what RocketMQ changes in them or does not find.

    What it is to find by keys is what was found before.
    """
    store, config = close_ours(judge.release, scenario, directory)
    questions, before = key_questions(store, judge.release), derived_files(store)
    expected = our_answers(store, config, questions, scenario.batch_topics)
    _lose(store)
    topics = [word for topic in scenario.batch_topics for word in ("--batch-topic", topic)]
    code = _rebuild(store, judge.release, "--config", str(directory / scenario.name / "broker.properties"), *topics)
    handed = hand_over(scenario.name, store, config, judge, scenario.job_settings)
    found = ask_copy(judge, store, questions, scenario.job_settings).result()["answers"]
    missing = [
        (question, found) for question, ours, found in zip(questions, expected, found, strict=True) if ours != found
    ]
    queues = {
        name for name in before | handed.files if "index/" not in name and before.get(name) != handed.files.get(name)
    }
    return [
        (scenario.name, difference)
        for difference in (code != _DONE and code, handed.change, missing, queues)
        if difference
    ]


@pytest.mark.parametrize("release", each_release())
def test_rocketmq_takes_rebuilt_queues_and_index_for_its_own(
    release: str, judge_of: Callable[[str], Judge], tmp_path: Path
) -> None:
    assert [] == _differences(judge_of(release), random_scenario(77), tmp_path)


@pytest.mark.interop
def test_rocketmq_takes_rebuilt_queues_of_all_kinds_for_its_own(judge: Judge, tmp_path: Path) -> None:
    scenarios = known_to(judge.release, is_ours=True)

    assert [] == [found for scenario in scenarios for found in _differences(judge, scenario, tmp_path)]
    assert len(scenarios) > 5


@pytest.mark.parametrize("release", each_release())
def test_light_queues_are_rebuilt_from_where_the_store_had_them(
    release: str, judge_of: Callable[[str], Judge], tmp_path: Path
) -> None:
    """RocketMQ puts messages with light queues off, then on; its queues are built again, byte by byte."""
    judge, scenario = judge_of(release), next(each for each in SCENARIOS if each.name == "light-queues")
    if release not in scenario.releases:
        return
    store, puts = tmp_path / "store", scenario.puts(release)
    judge.put(store, puts).result()
    judge.put(store, puts, **scenario.job_settings).result()
    queues = {name: data for name, data in derived_files(store).items() if "index/" not in name}
    light = [data for name, data in queues.items() if "%LMQ%" in name]
    shutil.rmtree(store / "consumequeue")
    report = tmp_path / "report.json"
    code = _rebuild(store, release, "--consume-queue-file-size", "800", "--json", str(report))
    found = json.loads(report.read_text())

    assert _DONE == code
    assert queues == {name: data for name, data in derived_files(store).items() if "index/" not in name}
    assert len(light) > 2
    named = sum(any(name == "INNER_MULTI_DISPATCH" for name, _ in put.properties) for put in puts)
    kept_out = 0 if release == "4.9" else 4
    expected = {"named": 2 * named, "unindexed": named - kept_out // 2, "unfit": 0, "kept_out": kept_out}
    assert expected == found["light_records"]
    assert any(f"{2 * named:,} records name light queues; " in note for note in found["notes"])


@pytest.mark.interop
def test_rocketmq_takes_its_own_stores_with_rebuilt_queues(judge: Judge, golden: Golden, tmp_path: Path) -> None:
    names = golden_names(judge.release)
    wrong: list[object] = []
    for name in names:
        path = golden(name).path
        store = shutil.copytree(path / "store", tmp_path / path.name / "store")
        conf = read_conf(path / "store.conf")
        code = _rebuild(store, judge.release, "--accept-damage")
        has_crashed = (store / "abort").exists()
        handed = hand_over(
            name, store, config_of(conf, RELEASES[judge.release]), judge, settings_of(conf, judge.release)
        )
        found = handed.difference if has_crashed else handed.change
        wrong += [(name, code, found)] * (found is not None or code not in (_DONE, _DAMAGED))

    assert [] == wrong
    assert len(names) > 5


@pytest.mark.parametrize("release", [release for release in ("5.3", "5.5") if _rocksdb_stores(release)])
def test_rocketmq_takes_files_made_in_the_place_of_a_rocksdb_for_its_own(
    release: str, judge_of: Callable[[str], Judge], golden_directory: Path, tmp_path: Path
) -> None:
    judge, wrong = judge_of(release), list[object]()
    for golden in _rocksdb_stores(release):
        path = unpack(golden, golden_directory).path
        store = shutil.copytree(path / "store", tmp_path / path.name / "store")
        conf = read_conf(path / "store.conf")
        del conf["set.storeType"]
        code = _rebuild(store, release, "--to", "files", "--consume-queue-file-size", conf["cq-size"])
        (store / "abort").unlink(missing_ok=True)  # as docs/guides/rebuild.md says
        handed = hand_over(golden.name, store, config_of(conf, golden.version), judge, settings_of(conf, release))
        wrong += [(golden.name, code, handed.change)] * (handed.change is not None or code != _DONE)

    assert [] == wrong

# SPDX-License-Identifier: Apache-2.0
"""RocketMQ and we write the same bytes for the same messages and times, after a restart, too, and in several places."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.interop.answers import answer_rows, read_rows
from tests.interop.scenarios import ALL_RELEASES, SCENARIOS, known_to, random_scenario
from tests.interop.written import WrittenStore, assert_same_as_ours, assert_same_in_bulk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.judge import Judge


def test_every_kind_of_message_is_stored_byte_for_byte_as_by_rocketmq(
    written_like_ours: WrittenStore, tmp_path: Path
) -> None:
    assert_same_as_ours(written_like_ours, tmp_path / "store")


def test_messages_in_bulk_are_stored_byte_for_byte_as_by_rocketmq(
    written_in_bulk: WrittenStore, tmp_path: Path
) -> None:
    assert_same_in_bulk(written_in_bulk, tmp_path / "store")


@pytest.mark.interop
def test_random_messages_are_stored_byte_for_byte_as_by_rocketmq(judge: Judge, tmp_path: Path) -> None:
    scenarios = [random_scenario(seed) for seed in range(200, 220)]
    stores = [WrittenStore.start(judge, scenario, tmp_path / "theirs") for scenario in scenarios]

    for written in stores:
        assert_same_as_ours(written, tmp_path / written.scenario.name / "ours")
        assert_same_in_bulk(written, tmp_path / written.scenario.name / "bulk")


@pytest.mark.interop
@pytest.mark.parametrize("release", ALL_RELEASES)
def test_messages_after_a_restart_are_stored_as_by_rocketmq(
    release: str, judge_of: Callable[[str], Judge], tmp_path: Path
) -> None:
    judge = judge_of(release)
    scenarios = [scenario for scenario in known_to(release, is_ours=True) if scenario.plain_queues]
    firsts = [WrittenStore.start(judge, scenario, tmp_path / "theirs") for scenario in scenarios]
    for first in firsts:
        assert_same_as_ours(first, tmp_path / first.scenario.name / "ours")
    seconds = [first.go_on(judge) for first in firsts]

    for second in seconds:
        assert_same_as_ours(second, tmp_path / second.scenario.name / "ours")


def spread_over(directory: Path) -> dict[str, object]:
    return {"storePathCommitLog": ",".join(str(directory / name) for name in ("b", "a", "c"))}


@pytest.mark.interop
@pytest.mark.parametrize("release", ["4.9", "5.3", "5.5"])
def test_files_are_spread_as_by_rocketmq(release: str, judge_of: Callable[[str], Judge], tmp_path: Path) -> None:
    judge = judge_of(release)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    rolls = next(scenario for scenario in SCENARIOS if scenario.name == "rolls")
    written = WrittenStore.start(judge, replace(rolls, settings=spread_over(theirs)), theirs)

    assert_same_as_ours(written, ours / "store", spread_over(ours))
    assert all(list(ours.joinpath(name).iterdir()) for name in ("a", "b", "c"))
    opened = judge.open(ours / "store", **{**written.scenario.job_settings, **spread_over(ours)}).result()
    assert opened["loaded"] is True
    assert answer_rows(opened, rolls.segment_size) == written.rows
    assert read_rows([ours / name for name in ("c", "b", "a")], release) == written.rows

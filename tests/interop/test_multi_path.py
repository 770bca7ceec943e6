# SPDX-License-Identifier: Apache-2.0
"""A log in several directories: each has the same files as with RocketMQ (4.9.2 and later)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.interop.answers import answer_rows
from tests.interop.comparison import assert_same_as_ours
from tests.interop.reading import read_rows
from tests.interop.scenarios import SCENARIOS
from tests.interop.written import WrittenStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.judge import Judge

pytestmark = pytest.mark.interop


def spread_over(directory: Path) -> dict[str, object]:
    return {"storePathCommitLog": ",".join(str(directory / name) for name in ("b", "a", "c"))}


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

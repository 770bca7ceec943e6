# SPDX-License-Identifier: Apache-2.0
"""A store that is closed and opened again continues where it was, as RocketMQ's does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.comparison import assert_same_as_ours
from tests.interop.scenarios import ALL_RELEASES, known_to
from tests.interop.written import WrittenStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.interop.judge import Judge

pytestmark = pytest.mark.interop


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

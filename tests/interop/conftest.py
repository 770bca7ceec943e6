# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests against a real RocketMQ."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

import pytest

from tests.interop.judge import Judge
from tests.interop.rocketmq import RocketMq
from tests.interop.scenarios import SCENARIOS, Scenario, scenario_runs
from tests.interop.toolchain import RELEASES, harness_command
from tests.interop.written import WrittenStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def judge_of() -> Iterator[Callable[[str], Judge]]:
    """Give a function that starts the RocketMQ of a release, once a session."""
    started: dict[str, Judge] = {}
    with ExitStack() as processes:

        def judge_of_release(release: str) -> Judge:
            if release not in started:
                process = processes.enter_context(RocketMq(harness_command(RELEASES[release])))
                started[release] = Judge(release, process)
            return started[release]

        yield judge_of_release


@pytest.fixture(params=sorted(RELEASES))
def judge(request: pytest.FixtureRequest, judge_of: Callable[[str], Judge]) -> Judge:
    """Run the test with each release of RocketMQ."""
    return judge_of(cast("str", request.param))


@pytest.fixture(scope="session")
def written_by(
    judge_of: Callable[[str], Judge], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, WrittenStore]]:
    """Give a function that has a release write the stores of all scenarios, side by side and once a session."""
    written: dict[str, dict[str, WrittenStore]] = {}

    def written_by_release(release: str) -> dict[str, WrittenStore]:
        if release not in written:
            judge, directory = judge_of(release), tmp_path_factory.mktemp(f"rocketmq-{release}-")
            known = [scenario for scenario in SCENARIOS if release in scenario.releases]
            written[release] = {scenario.name: WrittenStore.start(judge, scenario, directory) for scenario in known}
        return written[release]

    return written_by_release


@pytest.fixture(params=scenario_runs(), ids=lambda run: f"{run[0]}-{run[1].name}")
def written(request: pytest.FixtureRequest, written_by: Callable[[str], dict[str, WrittenStore]]) -> WrittenStore:
    """Run the test with the store of every scenario, written by every release that knows it."""
    release, scenario = cast("tuple[str, Scenario]", request.param)
    return written_by(release)[scenario.name]


@pytest.fixture(params=[run for run in scenario_runs() if run[1].in_bulk], ids=lambda run: f"{run[0]}-{run[1].name}")
def written_in_bulk(
    request: pytest.FixtureRequest, written_by: Callable[[str], dict[str, WrittenStore]]
) -> WrittenStore:
    """Run the test with the stores whose messages can be appended in bulk."""
    release, scenario = cast("tuple[str, Scenario]", request.param)
    return written_by(release)[scenario.name]

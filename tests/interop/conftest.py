# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests against a real RocketMQ."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

import pytest

from tests.interop.judge import Judge
from tests.interop.rocketmq import RocketMq
from tests.interop.scenarios import Scenario, each_release, in_slice, known_to, scenario_runs
from tests.interop.toolchain import RELEASES, harness_command, missing_tools
from tests.interop.written import WrittenStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _pytest.mark import ParameterSet

# A judge runs for seconds, so the first compiler's code is good enough, and faster to get. The second compiler, of
# OpenJDK 17.0.15, once lost an entry of a TreeMap that no other thread used, while a store was being made.
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"


@pytest.fixture(scope="session")
def judge_of() -> Iterator[Callable[[str], Judge]]:
    """Provide a function that starts the RocketMQ of a release, once per session."""
    started: dict[str, Judge] = {}
    with ExitStack() as processes:

        def judge_of_release(release: str) -> Judge:
            if release not in started:
                process = processes.enter_context(RocketMq(harness_command(RELEASES[release], _FIRST_COMPILER)))
                started[release] = Judge(release, process)
            return started[release]

        yield judge_of_release


@pytest.fixture(params=each_release())
def judge(request: pytest.FixtureRequest, judge_of: Callable[[str], Judge]) -> Judge:
    """Run the test with each release of RocketMQ."""
    return judge_of(cast("str", request.param))


@pytest.fixture(scope="session")
def written_by(
    judge_of: Callable[[str], Judge], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, WrittenStore]]:
    """Return a function with which a release writes the stores of all scenarios, concurrently and once per session."""
    written: dict[str, dict[str, WrittenStore]] = {}

    def written_by_release(release: str) -> dict[str, WrittenStore]:
        if release not in written:
            judge, directory = judge_of(release), tmp_path_factory.mktemp(f"rocketmq-{release}-")
            written[release] = {
                scenario.name: WrittenStore.start(judge, scenario, directory) for scenario in known_to(release)
            }
        return written[release]

    return written_by_release


def _run_name(run: tuple[str, Scenario]) -> str:
    return f"{run[0]}-{run[1].name}"


def _runs(runs: list[tuple[str, Scenario]]) -> list[ParameterSet]:
    return [in_slice(release, (release, scenario)) for release, scenario in runs]


def _requested(request: pytest.FixtureRequest, written_by: Callable[[str], dict[str, WrittenStore]]) -> WrittenStore:
    release, scenario = cast("tuple[str, Scenario]", request.param)
    return written_by(release)[scenario.name]


@pytest.fixture(params=_runs(scenario_runs()), ids=_run_name)
def written(request: pytest.FixtureRequest, written_by: Callable[[str], dict[str, WrittenStore]]) -> WrittenStore:
    """Run the test with the store of every scenario, written by every release that knows it."""
    return _requested(request, written_by)


@pytest.fixture(params=_runs([run for run in scenario_runs() if run[1].is_ours]), ids=_run_name)
def written_like_ours(
    request: pytest.FixtureRequest, written_by: Callable[[str], dict[str, WrittenStore]]
) -> WrittenStore:
    """Run the test with the stores that we write in the same way."""
    return _requested(request, written_by)


@pytest.fixture(params=_runs([run for run in scenario_runs() if run[1].in_bulk]), ids=_run_name)
def written_in_bulk(
    request: pytest.FixtureRequest, written_by: Callable[[str], dict[str, WrittenStore]]
) -> WrittenStore:
    """Run the test with the stores whose messages can be appended in bulk."""
    return _requested(request, written_by)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the slice that runs with all other tests if tools are missing; ``make interop`` fails instead."""
    if (missing := missing_tools()) and item.get_closest_marker("interop") is None:
        pytest.skip(f"{', '.join(missing)} not on the PATH: no real RocketMQ to ask")

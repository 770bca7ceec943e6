# SPDX-License-Identifier: Apache-2.0
"""The forecast deletes what the service that deletes would delete, and skips only rounds in which nothing happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import MessageStoreConfig
from store_core.answers.disk_forecast import DiskForecast, DiskState, LogFile, Reason
from store_core.format.release import RELEASES
from store_core.store.clean import CleanCommitLogService, DiskLimits, DiskSpace, SpaceVerdict
from store_core.store.store_state import RunningFlag, RunningFlags
from tests.budgets import budget
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from store_core.files.mapped_file_queue import MappedFileQueue

HOUR = 3_600_000
MINUTE = 60_000
START = 1_700_006_400_000
"""A full hour: 2023-11-15 00:00 in UTC."""

SIZE = 1000


@dataclass
class File:
    start: int
    last_modified_ms: int
    path: Path = Path("segment")

    def destroy(self) -> None:
        pass


@dataclass
class Queue:
    mapped_files: list[File]
    gone: list[tuple[int, int]] = field(default_factory=list)
    now: int = 0

    def forget(self, files: list[File]) -> None:
        self.gone += [(file.start, self.now) for file in files]
        self.mapped_files = [file for file in self.mapped_files if file not in files]

    def retry_delete_first_file(self) -> None:
        """Do nothing: no deletion fails."""


class Space:
    """A disk that fills evenly while messages are stored, and has room again where files go."""

    def __init__(self, forecast: DiskForecast, queue: Queue, flags: RunningFlags) -> None:
        self.forecast, self.queue, self.flags = forecast, queue, flags
        self.limits = DiskLimits.of(forecast.config)
        self.grown, self.seen = 0, forecast.state.now

    def check(self) -> SpaceVerdict:
        state = self.forecast.state
        factor = 1 + state.overhead
        self.grown += 0 if self.flags.has(RunningFlag.DISK_FULL) else self.queue.now - self.seen
        self.seen = self.queue.now
        used = state.disk_used + state.log_growth * factor * self.grown
        used -= sum(SIZE * factor for _ in self.queue.gone)
        percent = int(-(-max(used, 0) * 100 // state.disk_size))
        return SpaceVerdict.of(self.limits, self.forecast.config.features, percent, percent)


def by_the_service(forecast: DiskForecast, until: int) -> list[tuple[int, int]]:
    """Run the service's rounds one after the other; return starts of deleted files with their times."""
    state = forecast.state
    queue = Queue([File(file.start_offset, file.last_modified) for file in state.files])
    clock, flags = FakeClock(), RunningFlags()
    service = CleanCommitLogService(
        forecast.config,
        cast("MappedFileQueue", queue),
        flags,
        cast("DiskSpace", Space(forecast, queue, flags)),
        clock,
        time_zone=forecast.zone,
    )
    for now in range(state.now, until + 1, forecast.config.clean_resource_interval):
        queue.now = clock.wall_ms = now
        service.delete_expired_files()
    return queue.gone


def config(**values: Any) -> MessageStoreConfig:  # noqa: ANN401 -- those of the configuration
    return MessageStoreConfig(
        **({"clean_resource_interval": 5 * MINUTE, "delete_commit_log_files_interval": 0} | values)
    )


@budget(0.3)
@given(
    ages=st.lists(st.integers(0, 100), min_size=1, max_size=25),
    release=st.sampled_from(RELEASES),
    hours=st.sampled_from(["04", "04;16", "0;1;2;23", "12"]),
    offset=st.sampled_from([0, 8, 5.5, -3.75]),
    shift=st.integers(0, 24 * 60),
    percents=st.tuples(st.integers(0, 99), st.integers(0, 30)),
    ratio=st.integers(10, 95),
    forcibly=st.booleans(),
)
def test_what_goes_is_what_the_service_deletes_round_by_round(
    ages: list[int],
    release: str,
    hours: str,
    offset: float,
    shift: int,
    percents: tuple[int, int],
    ratio: int,
    *,
    forcibly: bool,
) -> None:
    now = START + shift * MINUTE
    files = [LogFile(at * SIZE, SIZE, now - age * HOUR) for at, age in enumerate(ages)]
    files[-1] = files[-1]._replace(size=10**9)
    disk = 40 * SIZE
    state = DiskState(now, tuple(files), (len(ages) - 1) * SIZE, disk, percents[0] * disk // 100, 0, 0.25)
    state = state._replace(log_growth=percents[1] * disk / 100 / (48 * HOUR))
    settings = config(
        release=release, delete_when=hours, disk_max_used_space_ratio=ratio, clean_file_forcibly_enable=forcibly
    )
    forecast = DiskForecast(settings, state, timezone(timedelta(hours=offset)))
    until = now + 48 * HOUR
    forecast.run(until)

    assert by_the_service(forecast, until) == [(each.file.start_offset, each.at) for each in forecast.deletions]


def forecast_of(days: int, growth: float, **values: Any) -> DiskForecast:  # noqa: ANN401 -- as `config`
    """Foresee some days of a log of three files, of which the last is half full, on a disk of a hundred."""
    files = tuple(LogFile(at * SIZE, SIZE, START - (3 - at) * 24 * HOUR, f"{at}") for at in range(3))
    state = DiskState(START, files, 2 * SIZE + SIZE // 2, 100 * SIZE, 3 * SIZE, growth * SIZE / (24 * HOUR), 0.0)
    found = DiskForecast(config(**values), state, UTC)
    found.run(START + days * 24 * HOUR)
    return found


def test_new_files_are_full_when_the_log_has_grown_to_their_end_and_go_in_their_turn() -> None:
    """One file a day, each full at noon; 72 hours later it waits for four o'clock."""
    found = forecast_of(7, 1.0)
    hours = [(each.at - START) / HOUR for each in found.deletions]

    assert [0, 1, 2, 3, 4] == [each.file.start_offset // SIZE for each in found.deletions]
    assert ["0", "1", "2", "", ""] == [each.file.name for each in found.deletions]
    assert [4, 28, 100, 124, 148] == hours
    assert found.log_end_at(START + 24 * HOUR) == 3 * SIZE + SIZE // 2
    assert found.log_begin_at(START) == 0


def test_a_disk_that_fills_says_when_files_go_early_and_when_messages_are_refused() -> None:
    found = forecast_of(9, 40.0, clean_file_forcibly_enable=False)

    assert found.over_ratio_at is not None
    assert found.full_at is not None
    assert found.over_ratio_at < found.full_at  # two files have gone by then
    assert (found.over_ratio_at - START) / (24 * HOUR) == pytest.approx((75 - 3 + 2) / 40, abs=0.01)
    assert max(found.used_at(START + day * 24 * HOUR) for day in range(10)) <= 91 * SIZE
    ends = [found.log_end_at(at) for at in (found.full_at, START + 72 * HOUR, START + 9 * 24 * HOUR)]
    assert ends[0] == ends[1] < ends[2]  # it grows again when files are old enough to go
    forcibly = forecast_of(9, 40.0)
    assert forcibly.full_at is None
    assert Reason.AT_ONCE in {each.reason for each in forcibly.deletions}


def test_the_last_file_stays_however_old() -> None:
    found = forecast_of(300, 0.0)

    assert [0, 1] == [each.file.start_offset // SIZE for each in found.deletions]
    assert found.deleted_at(SIZE - 1) == found.deletions[0]
    assert found.deleted_at(SIZE) == found.deletions[1]
    assert found.deleted_at(2 * SIZE) is None

# SPDX-License-Identifier: Apache-2.0
"""What is foreseen to go is what RocketMQ, and the service that deletes, deleted; what nobody consumed is named."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import InvalidOptionError, MessageStoreConfig, StoreNotFoundError, read_messages
from store_core.answers import Retention, RetentionReport, retention
from store_core.answers.disk_forecast import DiskForecast, DiskState, LogFile, Reason
from store_core.answers.report import Verdict
from store_core.format.release import RELEASES
from store_core.store.clean import CleanCommitLogService, DiskLimits, DiskSpace, SpaceVerdict
from store_core.store.store_state import RunningFlag, RunningFlags
from tests.budgets import budget
from tests.builders import LogBuilder
from tests.store_core.fakes import FakeClock
from tests.store_core.store.test_clean_golden import CLEANED, THERE
from tests.viewed_store import SEGMENT_SIZE, make_viewed_store, write_config

if TYPE_CHECKING:
    from store_core.files.mapped_file_queue import MappedFileQueue
    from tests.golden_stores import Golden


NOW = 1_800_000_000_000
HOUR = 3_600_000
ALL_HOURS = ";".join(map(str, range(24)))


def age(root: Path, hours: list[float]) -> None:
    """Let each segment have changed some hours before `NOW`."""
    for path, ago in zip(sorted((root / "commitlog").iterdir()), hours, strict=False):
        changed = int((NOW - ago * HOUR) * 1_000_000)
        os.utime(path, ns=(changed, changed))


def options(**given: Any) -> Retention:  # noqa: ANN401 -- fields of `Retention`
    usual: dict[str, Any] = {"time_zone": UTC, "disk_size": 2**40, "disk_used": 2**30, "daily_growth": 0}
    return Retention(now=NOW, **(usual | given))


def rows(report: RetentionReport, name: str) -> list[dict[str, Any]]:
    return report.to_json()["tables"][name]  # type: ignore[no-any-return]


@pytest.mark.golden
@pytest.mark.parametrize("case", [case for case in CLEANED if case.split()[0] in THERE])
def test_the_files_that_go_are_those_that_rocketmq_deleted(case: str, golden: Golden, tmp_path: Path) -> None:
    name, old_segments = case.split()
    store = golden(name)
    root = shutil.copytree(store.root, tmp_path / "store")
    age(root, [100.0 if place < int(old_segments) else 1.0 for place in range(50)])
    report = options(days=1, delete_when=ALL_HOURS, release=store.golden.release).ask(root)

    found = Counter(Path(row["path"]).parent.as_posix() for row in rows(report, "files"))
    found["commitlog"] = len(rows(report, "deletions"))
    assert CLEANED[case]["deleted"] == {place: count for place, count in found.items() if count}
    begin = max([0, *(row["start_offset"] + row["bytes"] for row in rows(report, "deletions"))])
    assert CLEANED[case]["log"][0] == max(begin, report.found.log_begin)
    assert CLEANED[case]["log"][1] == report.found.log_end


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = make_viewed_store(tmp_path / "store")
    age(root, [100, 20, 10])
    return root


def test_messages_that_nobody_consumed_are_named_by_group(store: Path) -> None:
    write_config(store, "consumerOffset.json", '{"offsetTable":{"orders@late":{0:3,1:30},"orders@done":{0:30,1:30}}}')
    report = options(days=1, delete_when=ALL_HOURS).ask(store)
    positions = read_messages(store, columns=["queue_offset", "physical_offset"], topic="orders", queue_id=0)
    gone = [
        row["queue_offset"]
        for row in positions.read_all().to_pylist()
        if row["queue_offset"] >= 3 and row["physical_offset"] < SEGMENT_SIZE
    ]
    (loss,) = rows(report, "losses")

    assert Verdict.FINDINGS is report.verdict
    assert ("late", "orders", 0, 3, len(gone)) == tuple(
        loss[name] for name in ("consumer_group", "topic", "queue_id", "queue_offset", "messages")
    )
    assert loss["deleted"] == rows(report, "deletions")[0]["deleted"]
    assert (1, len(gone)) == (report.found.losing_groups, report.found.lost_messages)
    assert f"{len(gone)} messages that 1 group did not consume" in report.to_text()


def test_what_everybody_consumed_goes_without_a_finding(store: Path) -> None:
    write_config(store, "consumerOffset.json", '{"offsetTable":{"orders@done":{0:30,1:30}}}')
    report = options(days=1, delete_when=ALL_HOURS).ask(store)

    assert (1, 0) == (report.found.deleted_segments, report.found.losing_groups)
    assert Verdict.CLEAN is report.verdict


def test_settings_come_from_the_brokers_file_and_from_options(store: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=40\ndeleteWhen=05\ndiskMaxUsedSpaceRatio=60\n")
    found = options(config=conf, days=1).ask(store).found
    other = options(config=conf, days=1, file_reserved_time=200).ask(store).found

    assert (40, "05", 60, 2) == (
        found.file_reserved_time,
        found.delete_when,
        found.delete_ratio,
        found.deleted_segments,
    )
    assert found.first_deletion is not None
    assert "T05:00:" in found.first_deletion
    assert (200, 0) == (other.file_reserved_time, other.deleted_segments)


def test_without_offsets_files_are_foreseen_and_the_rest_is_said(store: Path) -> None:
    (store / "config" / "consumerOffset.json").unlink()
    report = options(days=1, delete_when=ALL_HOURS).ask(store)

    assert 1 == report.found.deleted_segments
    assert any("which messages are not consumed is not known" in note for note in report.found.notes)


def test_the_disk_is_drawn_day_by_day(store: Path) -> None:
    report = options(days=70, disk_size=2**20, disk_used=2**18, daily_growth=20_000).ask(store)
    (bars,) = report.plots

    assert 70 == len(rows(report, "days"))
    assert "10 more days" == bars.more
    assert report.found.kept_hours is not None
    assert 72 <= report.found.kept_hours <= 72 + 24 + 24 * 2 * SEGMENT_SIZE / 20_000
    assert "The disk at the end of each day" in report.to_html()


def test_growth_is_what_the_logs_own_times_say(store: Path) -> None:
    log = read_messages(store, columns=["physical_offset", "store_size", "store_timestamp"]).read_all()
    times = log["store_timestamp"].cast("int64").to_pylist()
    end = log["physical_offset"][-1].as_py() + log["store_size"][-1].as_py()
    found = options(daily_growth=None, days=1).ask(store).found

    assert end == found.log_end
    assert end * 86_400_000 // (times[-1] // 1000 - times[0] // 1000) == found.daily_growth
    assert any("is foreseen up to" in note for note in found.notes)


def test_hours_that_are_none_are_named_with_their_file_or_option(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("deleteWhen=4;b\n")
    with pytest.raises(InvalidOptionError, match=r"broker\.conf: deleteWhen: expected hours .*, found 'b' in '4;b'"):
        options(config=conf)
    with pytest.raises(InvalidOptionError, match=r"delete_when: expected hours .*, found 'four' in 'four'"):
        options(delete_when="four")


@pytest.mark.parametrize(
    "given",
    [
        {"days": 0},
        {"days": 1000},
        {"disk_size": 0},
        {"delete_when": "four"},
        {"daily_growth": -1},
        {"days": 2, "release": "1"},
    ],
)
def test_values_are_checked(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        options(**given)


def test_without_a_log_there_is_nothing_to_foresee(store: Path) -> None:
    shutil.rmtree(store / "commitlog")
    with pytest.raises(StoreNotFoundError):
        options().ask(store)


def test_a_growth_seen_in_less_than_a_day_is_said_to_be_an_estimate(store: Path) -> None:
    log = LogBuilder()
    log.append_all(b"one", store_timestamp=NOW - 1500)
    log.append_all(b"two", store_timestamp=NOW)
    short = log.write(store.parent / "short")
    report = options(days=1, daily_growth=None).ask(short)
    given = options(days=1, daily_growth=1).ask(short)

    assert any("estimate from 1.5 s of messages" in note and "--daily-growth" in note for note in report.found.notes)
    assert not any("estimate" in note for note in given.found.notes)


def test_segments_that_do_not_exist_yet_are_told_apart(store: Path) -> None:
    report = options(days=9, delete_when=ALL_HOURS, daily_growth=SEGMENT_SIZE).ask(store)
    to_come = sum(row["segment"] is None for row in rows(report, "deletions"))

    assert to_come
    assert f"{report.found.deleted_segments - to_come} segments of today and {to_come} segments not written yet, " in (
        " ".join(report.to_text().split())
    )
    assert f"will go by {report.found.until}" in " ".join(report.to_text().split())


def test_settings_may_be_given_as_a_configuration_or_in_a_file(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("fileReservedTime=7\ndeleteWhen=05\n")
    config = MessageStoreConfig(file_reserved_time=7, delete_when="05")
    sizes = {"now": 10**12, "disk_size": 10**9, "disk_used": 1}

    assert retention(store, config=file, **sizes).to_json() == retention(store, config=config, **sizes).to_json()


@pytest.mark.parametrize(
    ("text", "size"),
    [("7", 7), ("10GB", 10**10), ("10 gib", 10 << 30), ("1.5g", 3 << 29), ("2T", 2 << 40), ("3kB", 3000), ("5B", 5)],
)
def test_sizes_may_have_a_unit(text: str, size: int) -> None:
    found = Retention(now=0, disk_size=text, disk_used=0, daily_growth=text).sizes()

    assert (size, size) == (found.disk_size, found.daily_growth)


@pytest.mark.parametrize("text", ["", "GB", "10Q", "1e9", "ten", "10 GBB", "-1GB", "99999999999EB"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"^disk_size: expected "):
        Retention(now=0, disk_size=text)


@pytest.mark.parametrize(
    ("zone", "said"), [("Asia/Tokyo", "in the zone Asia/Tokyo"), (None, "in this machine's zone, ")]
)
def test_the_zone_of_the_hours_is_named(store: Path, zone: str | None, said: str) -> None:
    report = options(time_zone=zone).ask(store)

    assert [line for line in report.lines if f" at 04:00 {said}" in line]


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

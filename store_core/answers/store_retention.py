# SPDX-License-Identifier: Apache-2.0
"""The answer `retention`: which files a broker will delete, when, and which messages nobody has consumed by then."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from store_core.answers.answer import TIME_WORDS, Answer, Kind, function_of, opt, release_option
from store_core.answers.plots import Bar, Bars, Plot, Tone
from store_core.answers.report import Report, ReportColumn, ReportSchema, fact, moment, number, shared, table, text
from store_core.errors import InvalidOptionError, StoreError
from store_core.files.file_system import disk_bytes
from store_core.files.machine import SystemClock
from store_core.files.segment_source import modified_ns
from store_core.files.store_kind import StoreUse
from store_core.files.store_path import nothing_at, places_of
from store_core.files.url_path import UrlPath
from store_core.format.columns import DAY_MS, iso_time, known_time, table_time
from store_core.format.words import agreeing, counted
from store_core.store.read.option_values import LocalZone, parse_zone

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    from store_core.answers.disk_forecast import Deletion, DependentFile, DiskForecast, DiskSizes, DiskState, LogFile
    from store_core.answers.lag_queues import LagJob, QueueLag
    from store_core.format.release import Release
    from store_core.snapshot.log import Log
    from store_core.snapshot.store import Store
    from store_core.store.message_store_config import MessageStoreConfig
    from store_core.store.parts import Engine


_SETTINGS: Final = (
    *("file_reserved_time", "delete_when", "disk_max_used_space_ratio"),
    *("disk_space_clean_forcibly_ratio", "disk_space_warning_level_ratio"),
)
"""Options that stand in place of settings of the broker's, of the same names."""


@dataclass(frozen=True)
class Retention(Answer["RetentionReport"]):
    """Say which files a broker will delete, when and why, and which messages nobody has consumed by then.

    RocketMQ's rules are applied to the files' modification times, to the disk, and to the growth that the log's store
    times show. The exit code is 1 if messages go that a group has not consumed now, or if the disk becomes so full that
    messages are refused.
    """

    NAME: ClassVar = "retention"
    CONFIG_WORDS: ClassVar = "how it deletes"
    SHOWS_WARNINGS: ClassVar = True
    EXAMPLES: ClassVar = (
        "commitlog retention /data/store",
        "commitlog retention /data/store --config broker.conf --days 30",
        "commitlog retention /data/store --file-reserved-time 48 --html new.html",
    )

    days: int = opt(14, "Days that are foreseen.", metavar="N", least=1, most=366)
    release: Release = release_option()
    file_reserved_time: int | None = opt(
        None, "Hours that files are kept, in place of fileReservedTime.", metavar="HOURS"
    )
    delete_when: str | None = opt(
        None,
        "Hours of the day at which files are deleted, such as 04 or 02;14, in place of deleteWhen.",
        metavar="HOURS",
    )
    disk_max_used_space_ratio: int | None = opt(None, "In place of diskMaxUsedSpaceRatio.", metavar="PERCENT")
    disk_space_clean_forcibly_ratio: int | None = opt(
        None, "In place of diskSpaceCleanForciblyRatio.", metavar="PERCENT"
    )
    disk_space_warning_level_ratio: int | None = opt(None, "In place of diskSpaceWarningLevelRatio.", metavar="PERCENT")
    disk_size: int | str | None = opt(
        None,
        "Size of the broker's disk: a number, or such as 10GB or 10GiB.",
        metavar="BYTES",
        shown_default="the store's disk",
    )
    disk_used: int | str | None = opt(
        None,
        "Bytes in use on the broker's disk, in the same forms.",
        metavar="BYTES",
        shown_default="what is in use on the store's disk",
    )
    daily_growth: int | str | None = opt(
        None, "Growth of the log in a day.", metavar="BYTES", shown_default="as the log's store times tell"
    )
    now: int | None = opt(
        None, f"Time that counts as now: {TIME_WORDS}.", kind=Kind.TIME, metavar="TIME", shown_default="the clock"
    )
    time_zone: str | tzinfo | None = opt(
        None,
        "Time zone of the broker's machine, and of the times in the text.",
        metavar="ZONE",
        shown_default="this machine's",
    )
    config: MessageStoreConfig | str | os.PathLike[str] | None = opt(None, "", kind=Kind.FROM_CONFIG)

    def __post_init__(self) -> None:
        """Refuse what is invalid."""
        super().__post_init__()
        self.settings()
        self.sizes()

    def on(self, engine: Engine, store: Store) -> RetentionReport:
        """Look at the queues that groups consume, then foresee deletions.

        The log is taken to grow as its own store times say. What groups consume until then is not foreseen. Of the log,
        its last segment is read, the first record of the first, and a record for each queue.
        """
        outlook = _Outlook(store, self)
        return outlook.report(() if outlook.lag is None else engine.run(outlook.lag).rows)

    def settings(self) -> MessageStoreConfig:
        """Return the broker's settings, with those of the options."""
        from store_core.answers.disk_forecast import settings_of

        return settings_of(self.config, self.release, {name: getattr(self, name) for name in _SETTINGS})

    def sizes(self) -> DiskSizes:
        """Return the sizes of the broker's disk, as far as options have them."""
        from store_core.answers.disk_forecast import DiskSizes

        return DiskSizes.of(self.disk_size, self.disk_used, self.daily_growth)


retention = function_of(Retention)


_HOUR_MS: Final = 3_600_000
_MOST_FILES: Final = 50_000
"""Files by which a log may grow in a forecast: fifty terabytes of the usual size."""


@dataclass(frozen=True, slots=True)
class _Log:
    """The files of a log, where its records end, and the store times of the first and the last."""

    files: tuple[LogFile, ...]
    end: int
    last: int | None
    first: int | None
    is_dledger: bool = False

    @property
    def begin(self) -> int:
        return self.files[0].start_offset

    @property
    def daily_growth(self) -> int:
        """Bytes a day, by the log's own store times; 0 if they don't tell."""
        return (self.end - self.begin) * DAY_MS // self.span if self.span else 0

    @property
    def span(self) -> int:
        """Milliseconds between the two store times; 0 if they don't tell."""
        return 0 if self.first is None or self.last is None else max(self.last - self.first, 0)


class _Outlook:
    """What a store, its disk and its settings tell of deletions; `lag` is the job that looks at its queues, if any."""

    def __init__(self, store: Store, asked: Retention) -> None:
        from store_core.answers.lag_queues import LagJob
        from store_core.snapshot.queues import Queues

        self.asked, self.config, self.sizes = asked, asked.settings(), asked.sizes()
        self.now = SystemClock().now_ms() if asked.now is None else asked.now
        self.zone = None if asked.time_zone is None else parse_zone("time_zone", asked.time_zone)
        self.store = opened = store.configured(self.config)
        self.root = opened.root_for(StoreUse.READ_QUEUES)
        self.is_rocksdb = Queues(self.root).database is not None
        self.log = _log_of(opened)
        self.notes: tuple[str, ...] = ()
        self.lag: LagJob | None = None
        try:
            self.lag = LagJob(opened)
        except StoreError as error:
            self.notes = (f"which messages are not consumed is not known: {error}",)

    def report(self, rows: Sequence[QueueLag]) -> RetentionReport:
        """Foresee deletions; `rows` are what groups did not consume of queues."""
        from store_core.answers.disk_forecast import DiskForecast, dependent_files, losses

        files = [] if self.is_rocksdb else list(dependent_files(self.store))
        forecast = DiskForecast(self.config, self._state(files), self.zone)
        until = self._until(forecast.state)
        forecast.run(until)
        tables = {
            "losses": [] if self.lag is None else list(losses(rows, forecast, until, self.lag.queues)),
            "deletions": [_deletion_row(each) for each in forecast.deletions],
            "files": list(_file_rows(files, forecast)),
            "days": [_day_row(forecast, end) for end in range(self.now + DAY_MS, until + 1, DAY_MS)],
        }
        return RetentionReport.of(self._facts(forecast, until, tables), tables)

    def _until(self, state: DiskState) -> int:
        """Return up to when deletions are foreseen: as asked, unless the log would have too many files by then."""
        asked = self.asked.days * DAY_MS
        most = asked if not state.log_growth else int(_MOST_FILES * state.files[-1].size / state.log_growth)
        return self.now + min(asked, most)

    def _state(self, files: Iterable[DependentFile]) -> DiskState:
        from store_core.answers.disk_forecast import DiskState

        size, used = self.sizes.disk_size, self.sizes.disk_used
        if size is None or used is None:
            size, used = self._disk()
        length = max(self.log.end - self.log.begin, 1)
        growth = self.log.daily_growth if self.sizes.daily_growth is None else self.sizes.daily_growth
        overhead = round(sum(file.size for file in files) / length, 4)
        return DiskState(self.now, self.log.files, self.log.end, size, used, growth / DAY_MS, overhead)

    def _disk(self) -> tuple[int, int]:
        """Return size and use of the store's disk, as far as the options do not say."""
        if isinstance(self.root, UrlPath):
            raise InvalidOptionError(
                f"{self.root} is not on a local disk: give the size and use of the broker's, disk_size and disk_used"
            )
        size, used = disk_bytes(self.root)
        given = self.sizes.disk_used
        return self.sizes.disk_size or size, used if given is None else given

    def _facts(self, forecast: DiskForecast, until: int, tables: dict[str, list[dict[str, Any]]]) -> RetentionFacts:
        from store_core.store.clean import DiskLimits

        config, state, limits = self.config, forecast.state, DiskLimits.of(self.config)
        left = forecast.log_end_at(until) - forecast.log_begin_at(until)
        lost = tables["losses"]
        return RetentionFacts(
            store=str(self.root),
            now=iso_time(self.now),
            until=iso_time(until),
            release=config.release,
            file_reserved_time=config.file_reserved_time,
            delete_when=config.delete_when,
            time_zone=None if self.zone is None else str(self.zone),
            delete_ratio=limits.delete,
            forcible_ratio=limits.forcible,
            warning_ratio=limits.warning,
            clean_file_forcibly_enable=config.clean_file_forcibly_enable,
            log_begin=self.log.begin,
            log_end=self.log.end,
            first_store_timestamp=known_time(self.log.first),
            last_store_timestamp=known_time(self.log.last),
            daily_growth=round(state.log_growth * DAY_MS),
            overhead=state.overhead,
            disk_size=state.disk_size,
            disk_used=state.disk_used,
            deleted_segments=len(forecast.deletions),
            deleted_bytes=sum(each.file.size for each in forecast.deletions),
            first_deletion=known_time(forecast.deletions[0].at if forecast.deletions else None),
            over_ratio_at=known_time(forecast.over_ratio_at),
            full_at=known_time(forecast.full_at),
            kept_hours=round(left / state.log_growth / _HOUR_MS, 1) if state.log_growth else None,
            losing_groups=len(lost),
            lost_messages=sum(row["messages"] for row in lost),
            notes=(*self.notes, *self._own_notes(until)),
        )

    def _own_notes(self, until: int) -> Iterator[str]:
        from store_core.answers.disk_forecast import mistaken_settings

        if until < self.now + self.asked.days * DAY_MS:
            more = f"the log would have {_MOST_FILES:,} more files by then"
            yield f"this is foreseen up to {iso_time(until)} only: {more}"
        yield from mistaken_settings(self.config)
        if self.sizes.disk_size is None:
            yield (
                "the disk is the one that this store is on now: for a copy, say what the broker's disk has "
                "(--disk-size, --disk-used)"
            )
        if isinstance(self.root, UrlPath):
            yield "times of modification are those of the copy: each file counts as written at that time"
        if self.sizes.daily_growth is None and self.log.daily_growth and self.log.span < DAY_MS:
            seen = f"{self.log.span / 1000:,g} s of messages"
            yield f"the growth is an estimate from {seen}: give the broker's own, in bytes a day (--daily-growth)"
        if self.sizes.daily_growth is None and not self.log.daily_growth:
            yield "the growth is not known: the log's first and last record have no store times that differ"
        if self.is_rocksdb:
            yield "queues are in a RocksDB, which drops units by compaction, not files"
        if self.log.is_dledger:
            yield "this is a DLedger log, which deletes by settings of its own, of the same names and defaults"


# ---- what is there


def _log_of(store: Store) -> _Log:
    log = store.log
    for _ in log.segments[1:]:
        try:
            return _described(store, log)
        except FileNotFoundError:  # a broker deletes the first ones
            log = log.remaining()
    return _described(store, log)


def _described(store: Store, log: Log) -> _Log:
    from store_core.answers.disk_forecast import LogFile
    from store_core.snapshot.log import first_store_timestamp

    end = store.log_end if store.end is None else store.end
    segments = [each for each in log.segments if each.start_offset < end] or log.segments[:1]
    if not segments:
        raise nothing_at(places_of(store.paths), ())
    files = tuple(
        LogFile(segment.start_offset, segment.size, modified_ns(segment) // 1_000_000, segment.name)
        for segment in segments
    )
    is_dledger = bool(segments[0].framing.lead)
    return _Log(files, end, store.last_store_time, first_store_timestamp(segments[0]), is_dledger)


# ---- rows of the report


def _deletion_row(deletion: Deletion) -> dict[str, Any]:
    file = deletion.file
    return {
        "segment": file.name or None,
        "start_offset": file.start_offset,
        "bytes": file.size,
        "last_modified": table_time(file.last_modified),
        "deleted": table_time(deletion.at),
        "reason": deletion.reason.value,
    }


def _file_rows(files: Iterable[DependentFile], forecast: DiskForecast) -> Iterator[dict[str, Any]]:
    """Yield the files that go; each goes when the log begins after all that it points to."""
    for file in files:
        gone = forecast.deleted_at(file.needed_up_to)
        if gone is not None:
            yield {"path": file.path, "bytes": file.size, "deleted": table_time(gone.at)}


def _day_row(forecast: DiskForecast, end: int) -> dict[str, Any]:
    used = max(round(forecast.used_at(end)), 0)
    return {
        "day": table_time(end),
        "disk_used": used,
        "percent": -(-used * 100 // forecast.state.disk_size),
        "log_bytes": forecast.log_end_at(end) - forecast.log_begin_at(end),
        "deleted_segments": sum(end - DAY_MS < each.at <= end for each in forecast.deletions),
    }


_MOST_DAYS: Final = 60
_DELETED: Final = moment("deleted", "when it goes")


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """The facts of a forecast."""

    store: str = fact("the store root")
    now: str = fact("time from which this is foreseen, in ISO 8601")
    until: str = fact("time up to which it is")
    release: str = fact("RocketMQ whose rules these are")
    file_reserved_time: int = fact("hours after its last change from which a file may go at an hour of `delete_when`")
    delete_when: str = fact("hours of the day")
    time_zone: str | None = fact("their time zone; null is that of the machine that made the report")
    delete_ratio: int = fact("percent of the disk above which old files go at any hour")
    forcible_ratio: int = fact("percent above which files go whatever their age, if `clean_file_forcibly_enable`")
    warning_ratio: int = fact("percent above which messages are refused")
    clean_file_forcibly_enable: bool = fact("whether files go before their time where the disk is full")
    log_begin: int = fact("physical offset at which the log begins")
    log_end: int = fact("physical offset at which it ends")
    first_store_timestamp: str | None = fact("store time of the first record, in ISO 8601, or null")
    last_store_timestamp: str | None = fact("store time of the last record, likewise")
    daily_growth: int = fact("bytes added to the log in a day")
    overhead: float = fact("bytes of queues and index, without the last file of each, for each byte of the log")
    disk_size: int = fact("bytes of the disk")
    disk_used: int = fact("bytes in use on it now")
    deleted_segments: int = fact("segment files that go")
    deleted_bytes: int = fact("their bytes")
    first_deletion: str | None = fact("when the first goes, in ISO 8601, or null")
    over_ratio_at: str | None = fact("when the disk is first above `delete_ratio`, or null")
    full_at: str | None = fact(
        "when it is first above `warning_ratio`, or null; the log grows again when files have gone", tells="findings"
    )
    kept_hours: float | None = fact("hours of messages that are left at `until`, at the growth seen; null without any")
    losing_groups: int = fact("consumer groups of which messages go that are not consumed now", tells="findings")
    lost_messages: int = fact("these messages; each counts once for each group")
    notes: tuple[str, ...] = fact("what else an operator should know", default=())


_REPORT_TABLES: Final = (
    table(
        "losses",
        "Messages that go and are not consumed now",
        text("consumer_group", "name of the group"),
        text("topic", "topic of the first of them"),
        *shared("queue_id", "queue_offset"),
        *shared("physical_offset", "store_timestamp", in_text=False),
        _DELETED,
        number("messages", "how many of the group go by `until`"),
    ),
    table(
        "deletions",
        "Segments that go",
        text("segment", "name of the file; null for one that is not there yet"),
        number("start_offset", "physical offset of its first byte", in_text=False),
        number("bytes", "its bytes"),
        moment("last_modified", "when it was last changed, or will be full"),
        _DELETED,
        text(
            "reason",
            "`hour`: old enough at an hour of `delete_when`; `disk`: old enough, and the disk above "
            "`delete_ratio`; `disk_forcibly`: the disk is above `forcible_ratio`",
        ),
    ),
    table(
        "files",
        "Files of queues and index that follow",
        text("path", "below the store root"),
        number("bytes", "its bytes on disk"),
        _DELETED,
    ),
    table(
        "days",
        "Days",
        moment("day", "its end"),
        number("disk_used", "bytes in use on the disk then"),
        ReportColumn("percent", pa.int32(), "of the disk"),
        number("log_bytes", "bytes of the log then"),
        number("deleted_segments", "segments that went in it"),
    ),
)


class RetentionReport(Report[RetentionFacts]):
    """What a broker will delete."""

    SCHEMA: ClassVar = ReportSchema.of("retention", 1, RetentionFacts, *_REPORT_TABLES)
    IS_JUDGEMENT: ClassVar = False

    @property
    def plots(self) -> tuple[Plot, ...]:
        """The disk at the end of each day, beside its size."""
        rows = self.tables["days"].slice(0, _MOST_DAYS)
        days = [each.as_py() for each in rows["day"].cast(pa.timestamp("us")).cast(pa.date32())]
        used, percents = rows["disk_used"].to_pylist(), rows["percent"].to_pylist()
        bars = tuple(
            Bar(day.isoformat(), value, self._tone(percent), f"{percent} %, {value:,} bytes", self.found.disk_size)
            for day, value, percent in zip(days, used, percents, strict=True)
        )
        left = self.tables["days"].num_rows - len(bars)
        return (Bars("The disk at the end of each day", bars, counted(left, "more day") if left else ""),)

    def _tone(self, percent: int) -> Tone:
        if percent > self.found.warning_ratio:
            return Tone.BAD
        return Tone.WARNING if percent > self.found.delete_ratio else Tone.GOOD

    def _lines(self) -> Iterator[str]:
        found, to_come = self.found, self.tables["deletions"]["segment"].null_count
        if found.deleted_segments:
            in_all = agreeing(found.deleted_segments, "", " in all")
            what = f"{_segments(found.deleted_segments, to_come)}, {found.deleted_bytes:,} bytes{in_all},"
            yield f"{what} will go by {found.until}, the first at {found.first_deletion}"
        else:
            yield f"no segment will go by {found.until}"
        if found.losing_groups:
            yield (
                f"{counted(found.lost_messages, 'message')} that {counted(found.losing_groups, 'group')} did not "
                f"consume would go with {agreeing(found.deleted_segments, 'it', 'them')}"
            )
        if found.over_ratio_at is not None:
            yield f"the disk is above {found.delete_ratio} % from {found.over_ratio_at} on: old files go at any hour"
        if found.full_at is not None:
            refused = "messages are refused, and the log stops growing until files go"
            yield f"the disk is above {found.warning_ratio} % from {found.full_at} on: {refused}"
        yield (
            f"the log grows by {found.daily_growth:,} bytes a day; files stay {found.file_reserved_time} hours after "
            f"their last change, and then go at {_hours(found.delete_when)} {_zone_of(found)}"
        )
        if found.kept_hours is not None:
            yield f"messages of {found.kept_hours:g} hours are left at the end"
        yield from found.notes


def _hours(delete_when: str) -> str:
    """Return the hours of the day in words: ``04;16`` is 04:00 and 16:00."""
    from store_core.store.clean import parse_delete_when

    return " and ".join(f"{hour:02}:00" for hour in sorted(parse_delete_when(delete_when)))


def _zone_of(found: RetentionFacts) -> str:
    """Say whose hours these are."""
    if found.time_zone is not None and found.time_zone != str(LocalZone()):
        return f"in the zone {found.time_zone}"
    offset = datetime.fromisoformat(found.now).astimezone(LocalZone()).isoformat()[-6:]
    return f"in this machine's zone, {offset} now; if the broker's is another one, give that (--time-zone)"


def _segments(count: int, to_come: int) -> str:
    """Say how many segments there are, and how many of them are not there yet."""
    if not to_come:
        return counted(count, "segment")
    future = f"{counted(to_come, 'segment')} not written yet"
    return future if to_come == count else f"{counted(count - to_come, 'segment')} of today and {future}"

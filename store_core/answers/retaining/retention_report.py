# SPDX-License-Identifier: Apache-2.0
"""The report of what a broker will delete, and when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.report import Report
from store_core.answers.report_plots import Bar, Bars, Tone
from store_core.answers.report_schema import Fact, ReportColumn, ReportSchema, ReportTable
from store_core.answers.verdict import Verdict
from store_core.format.columns import TIMESTAMP_TYPE
from store_core.format.counted import agreeing, counted
from store_core.store.clean.log_cleaner import parse_delete_when
from store_core.store.read.store_time import LocalZone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.answers.report_plots import Plot

__all__ = ["RETENTION_SCHEMA", "RetentionFacts", "RetentionReport"]

_MOST_DAYS: Final = 60
_DELETED: Final = ReportColumn("deleted", TIMESTAMP_TYPE, "when it goes")

RETENTION_SCHEMA: Final = ReportSchema(
    "retention",
    1,
    (
        Fact("store", "the store root"),
        Fact("now", "time from which this is foreseen, in ISO 8601"),
        Fact("until", "time up to which it is"),
        Fact("release", "RocketMQ whose rules these are"),
        Fact("file_reserved_time", "hours after its last change from which a file may go at an hour of `delete_when`"),
        Fact("delete_when", "hours of the day"),
        Fact("time_zone", "their time zone; null is that of the machine that made the report"),
        Fact("delete_ratio", "percent of the disk above which old files go at any hour"),
        Fact("forcible_ratio", "percent above which files go whatever their age, if `clean_file_forcibly_enable`"),
        Fact("warning_ratio", "percent above which messages are refused"),
        Fact("clean_file_forcibly_enable", "whether files go before their time where the disk is full"),
        Fact("log_begin", "physical offset at which the log begins"),
        Fact("log_end", "physical offset at which it ends"),
        Fact("first_store_timestamp", "store time of the first record, in ISO 8601, or null"),
        Fact("last_store_timestamp", "store time of the last record, likewise"),
        Fact("daily_growth", "bytes added to the log in a day"),
        Fact("overhead", "bytes of queues and index, without the last file of each, for each byte of the log"),
        Fact("disk_size", "bytes of the disk"),
        Fact("disk_used", "bytes in use on it now"),
        Fact("deleted_segments", "segment files that go"),
        Fact("deleted_bytes", "their bytes"),
        Fact("first_deletion", "when the first goes, in ISO 8601, or null"),
        Fact("over_ratio_at", "when the disk is first above `delete_ratio`, or null"),
        Fact("full_at", "when it is first above `warning_ratio`, or null; the log grows again when files have gone"),
        Fact("kept_hours", "hours of messages that are left at `until`, at the growth seen; null without any"),
        Fact("losing_groups", "consumer groups of which messages go that are not consumed now"),
        Fact("lost_messages", "these messages; each counts once for each group"),
        Fact("notes", "what else an operator should know"),
    ),
    (
        ReportTable(
            "losses",
            "Messages that go and are not consumed now",
            (
                ReportColumn("consumer_group", pa.string(), "name of the group"),
                ReportColumn("topic", pa.string(), "topic of the first of them"),
                ReportColumn("queue_id", pa.int32(), "its queue"),
                ReportColumn("queue_offset", pa.int64(), "its place in the queue"),
                ReportColumn("physical_offset", pa.int64(), "where its record is", in_text=False),
                ReportColumn("store_timestamp", TIMESTAMP_TYPE, "when it was stored", in_text=False),
                _DELETED,
                ReportColumn("messages", pa.int64(), "how many of the group go by `until`"),
            ),
        ),
        ReportTable(
            "deletions",
            "Segments that go",
            (
                ReportColumn("segment", pa.string(), "name of the file; null for one that is not there yet"),
                ReportColumn("start_offset", pa.int64(), "physical offset of its first byte", in_text=False),
                ReportColumn("bytes", pa.int64(), "its bytes"),
                ReportColumn("last_modified", TIMESTAMP_TYPE, "when it was last changed, or will be full"),
                _DELETED,
                ReportColumn(
                    "reason",
                    pa.string(),
                    "`hour`: old enough at an hour of `delete_when`; `disk`: old enough, and the disk above "
                    "`delete_ratio`; `disk_forcibly`: the disk is above `forcible_ratio`",
                ),
            ),
        ),
        ReportTable(
            "files",
            "Files of queues and index that follow",
            (
                ReportColumn("path", pa.string(), "below the store root"),
                ReportColumn("bytes", pa.int64(), "its bytes on disk"),
                _DELETED,
            ),
        ),
        ReportTable(
            "days",
            "Days",
            (
                ReportColumn("day", TIMESTAMP_TYPE, "its end"),
                ReportColumn("disk_used", pa.int64(), "bytes in use on the disk then"),
                ReportColumn("percent", pa.int32(), "of the disk"),
                ReportColumn("log_bytes", pa.int64(), "bytes of the log then"),
                ReportColumn("deleted_segments", pa.int64(), "segments that went in it"),
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class RetentionFacts:
    """The facts of a forecast, as `RETENTION_SCHEMA` explains them."""

    store: str
    now: str
    until: str
    release: str
    file_reserved_time: int
    delete_when: str
    time_zone: str | None
    delete_ratio: int
    forcible_ratio: int
    warning_ratio: int
    clean_file_forcibly_enable: bool
    log_begin: int
    log_end: int
    first_store_timestamp: str | None
    last_store_timestamp: str | None
    daily_growth: int
    overhead: float
    disk_size: int
    disk_used: int
    deleted_segments: int
    deleted_bytes: int
    first_deletion: str | None
    over_ratio_at: str | None
    full_at: str | None
    kept_hours: float | None
    losing_groups: int
    lost_messages: int
    notes: tuple[str, ...] = ()


class RetentionReport(Report[RetentionFacts]):
    """What a broker will delete, as `RETENTION_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = RETENTION_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """Findings if messages go that are not consumed, or the disk becomes full."""
        is_finding = self.found.losing_groups or self.found.full_at is not None
        return Verdict.FINDINGS if is_finding else Verdict.CLEAN

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
        return _lines(self.found, self.tables["deletions"]["segment"].null_count)


def _lines(found: RetentionFacts, to_come: int) -> Iterator[str]:
    """Yield the lines of a forecast in which some of the segments that go are not there yet."""
    if found.deleted_segments:
        in_all = agreeing(found.deleted_segments, "", " in all")
        what = f"{_segments(found.deleted_segments, to_come)}, {found.deleted_bytes:,} bytes{in_all},"
        yield f"{what} will go by {found.until}, the first at {found.first_deletion}"
    else:
        yield f"no segment will go by {found.until}"
    if found.losing_groups:
        yield (
            f"{counted(found.lost_messages, 'message')} that {counted(found.losing_groups, 'group')} did not consume "
            f"would go with {agreeing(found.deleted_segments, 'it', 'them')}"
        )
    if found.over_ratio_at is not None:
        yield f"the disk is above {found.delete_ratio} % from {found.over_ratio_at} on: old files go at any hour"
    if found.full_at is not None:
        refused = "messages are refused, and the log stops growing until files go"
        yield f"the disk is above {found.warning_ratio} % from {found.full_at} on: {refused}"
    yield (
        f"the log grows by {found.daily_growth:,} bytes a day; files stay {found.file_reserved_time} hours after their "
        f"last change, and then go at {_hours(found.delete_when)} {_zone_of(found)}"
    )
    if found.kept_hours is not None:
        yield f"messages of {found.kept_hours:g} hours are left at the end"
    yield from found.notes


def _hours(delete_when: str) -> str:
    """Return the hours of the day in words: ``04;16`` is 04:00 and 16:00."""
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

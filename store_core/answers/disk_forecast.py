# SPDX-License-Identifier: Apache-2.0
"""What a broker deletes in time to come, by its settings: segments, files of queues and index, and messages."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from store_core.answers.lag_queues import GroupKind, QueueLag
from store_core.errors import InvalidOptionError, SegmentVanishedError
from store_core.files.segment_source import blocks_on_disk, file_at
from store_core.format.columns import table_time
from store_core.queue.index_format import INDEX_HEADER_SIZE
from store_core.snapshot.index import KeyFile
from store_core.snapshot.queues import FileQueue, Queues, UnitFile
from store_core.store.clean import DiskLimits, SpaceVerdict, expiry_rule, hour_at, parse_delete_when
from store_core.store.message_store_config import MessageStoreConfig

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import tzinfo
    from pathlib import Path

    from store_core.format.release import Release
    from store_core.snapshot.store import Store


_HOURS: Final = range(24)
_PERCENTS: Final = range(101)
_RATIOS: Final = {
    "disk_max_used_space_ratio": "delete",
    "disk_space_clean_forcibly_ratio": "forcible",
    "disk_space_warning_level_ratio": "warning",
}
"""Settings, and what they are in `DiskLimits`."""


def settings_of(
    config: MessageStoreConfig | str | os.PathLike[str] | None, release: Release, given: Mapping[str, Any]
) -> MessageStoreConfig:
    """Return a broker's settings, with those that are given in place of its file's; refuse mistakes."""
    where = "delete_when"
    if not isinstance(config, MessageStoreConfig):
        where = where if config is None else f"{config}: deleteWhen"
        usual = MessageStoreConfig(release=release)
        config = usual if config is None else MessageStoreConfig.from_properties(config, release)
    given = {name: value for name, value in given.items() if value is not None}
    _refuse_mistaken(given)
    config = replace(config, **given)
    parse_delete_when(config.delete_when, where)
    return config


def _refuse_mistaken(given: Mapping[str, Any]) -> None:
    """Refuse settings that are mistakes, such as an hour 25.

    * `given`: Fields of `MessageStoreConfig`; a value that is not of the field's type is for that class to refuse.
    """
    hours, hour = given.get("file_reserved_time"), given.get("delete_when")
    if isinstance(hours, int) and hours < 0:
        raise InvalidOptionError(
            f"file_reserved_time: expected 0 hours or more, found {hours}: RocketMQ would delete each file but the "
            f"last one as soon as it may"
        )
    if isinstance(hour, str):
        wrong = sorted(parse_delete_when(hour, "delete_when") - set(_HOURS))
        if wrong:
            raise InvalidOptionError(
                f"delete_when: expected hours of the day, 0 to 23, separated by semicolons, found {wrong[0]} in "
                f"{hour!r}: RocketMQ would accept it, and never delete at that hour"
            )
    for name in _RATIOS:
        ratio = given.get(name)
        if isinstance(ratio, int) and ratio not in _PERCENTS:
            raise InvalidOptionError(f"{name}: expected a percentage, 0 to 100, found {ratio}")


def mistaken_settings(config: MessageStoreConfig) -> Iterator[str]:
    """Yield how a broker reads settings that are probably mistakes."""
    hours = parse_delete_when(config.delete_when)
    never = sorted(hours - set(_HOURS))
    if never:
        also = "" if hours - set(never) else ", so that old files go only when the disk fills up"
        yield f"deleteWhen is {config.delete_when}: the hour {never[0]} never comes{also}"
    if config.file_reserved_time < 0:
        yield (
            f"fileReservedTime is {config.file_reserved_time} hours: each file but the last one goes as soon as it may"
        )
    limits = DiskLimits.of(config)
    for name, limit in _RATIOS.items():
        ratio, used = getattr(config, name), getattr(limits, limit)
        if ratio != used:
            yield f"{name} is {ratio} %: RocketMQ takes {used} % for it, its nearest bound"


_UNITS: Final = "KMGTPE"
_BYTES: Final = re.compile(rf"(-?[0-9]{{1,19}}(?:\.[0-9]{{1,9}})?)\s*(?:([{_UNITS}])(i?B)?|B)?", re.IGNORECASE)


class DiskSizes(NamedTuple):
    """Sizes of the broker's disk by the options, in bytes: all, in use, and the growth of the log in a day.

    None stands for the file system of the store, and for the growth by the log's store times.
    """

    disk_size: int | None = None
    disk_used: int | None = None
    daily_growth: int | None = None

    @classmethod
    def of(cls, *given: int | str | None) -> Self:
        """Read sizes that may be text with a unit, and refuse those that no disk has."""
        sizes = cls(*map(_bytes_of, cls._fields, given))
        for name, value, (least, most) in zip(cls._fields, sizes, _BOUNDS, strict=True):
            if value is not None and not least <= value <= most:
                raise InvalidOptionError(f"{name}: expected {least} to {most}, found {value}")
        size, used = sizes.disk_size, sizes.disk_used
        if size is not None and used is not None and used > size:
            raise InvalidOptionError(f"disk_used: expected at most disk_size, {size:,} bytes, found {used:,} bytes")
        return sizes


_BOUNDS: Final = ((1, 2**62), (0, 2**62), (0, 2**50))


def _bytes_of(name: str, value: int | str | None) -> int | None:
    """Return a number of bytes that may be text with a unit, as other programs for disks read it."""
    if not isinstance(value, str):
        return value
    found = _BYTES.fullmatch(value.strip())
    if found is None:
        raise InvalidOptionError(f"{name}: expected bytes such as 10000000000, 10GB or 10GiB, found {value!r}")
    number, unit, suffix = found[1], (found[2] or "").upper(), (found[3] or "").lower()
    return int(Decimal(number) * (1000 if suffix == "b" else 1024) ** (_UNITS.index(unit) + 1 if unit else 0))


_QUARTER_MS: Final = 900_000
"""Hours of the day begin at a quarter of an hour in UTC, in every time zone."""


class Reason(Enum):
    """Why a file is deleted; the value is the column ``reason``."""

    HOUR = "hour"
    DISK = "disk"
    AT_ONCE = "disk_forcibly"


class LogFile(NamedTuple):
    """A file of a log."""

    start_offset: int
    size: int
    last_modified: int  # ms; of a file that is not full yet, when it will be
    name: str = ""  # empty for one that does not exist yet

    @property
    def end_offset(self) -> int:
        """Physical offset one past its last byte."""
        return self.start_offset + self.size


class Deletion(NamedTuple):
    """A file, when it is deleted, ms, and why."""

    file: LogFile
    at: int
    reason: Reason


class DiskState(NamedTuple):
    """A log and its disk at a time.

    * `disk_size`, `disk_used`: Bytes.
    """

    now: int  # ms
    files: tuple[LogFile, ...]  # in order; the last one is being written
    log_end: int  # physical offset
    disk_size: int
    disk_used: int
    log_growth: float  # bytes of the log a ms
    overhead: float  # bytes of queues and index for each byte of the log


class _GrowthClock:
    """How long a log has grown, which it does not do while messages are refused; times in ms."""

    def __init__(self, now: int) -> None:
        self._turns, self._grown = [now], [0]
        self._is_growing = [True]

    @property
    def is_growing(self) -> bool:
        """Whether it grows after the last turn."""
        return self._is_growing[-1]

    def turn(self, now: int, *, is_growing: bool) -> None:
        """Let it grow from a time on, or not."""
        if is_growing is not self.is_growing:
            self._grown.append(self.growing_ms(now))
            self._turns.append(now)
            self._is_growing.append(is_growing)

    def growing_ms(self, now: int) -> int:
        """Return for how long it has grown at a time."""
        at = max(bisect_right(self._turns, now) - 1, 0)
        return self._grown[at] + (now - self._turns[at] if self._is_growing[at] else 0)

    def time_of(self, growing_ms: int) -> int:
        """Return when it will have grown for so long, which has to be after its last turn, while it grows."""
        return self._turns[-1] + growing_ms - self._grown[-1]


@dataclass
class DiskForecast:
    """Goes through the rounds of ``CleanCommitLogService``; those in which nothing can happen are skipped.

    The decisions are those of `store_core.store.clean`: when the hour or the disk asks for deletion, which files may
    go, and how many in a round. A round is every ``cleanResourceInterval``; where within that the broker's are, is not
    known. All of the store is taken to be on one disk, which grows evenly, but not while the disk is so full that
    messages are refused. The deletion of a file also frees its share of queues and index.

    * `zone`: Time zone of ``deleteWhen``; None is the machine's.

    * `full_at`, `over_ratio_at`: When the disk is first so full that messages are refused, and that files go at any
      hour, ms.
    """

    config: MessageStoreConfig
    state: DiskState
    zone: tzinfo | None = None

    def __post_init__(self) -> None:
        self.deletions: list[Deletion] = []
        self.full_at: int | None = None
        self.over_ratio_at: int | None = None
        self._files = list(self.state.files)
        self._freed = 0.0
        self._clock = _GrowthClock(self.state.now)
        self._rule = expiry_rule(self.config)
        self._hours = parse_delete_when(self.config.delete_when)
        self._limits = DiskLimits.of(self.config)

    def run(self, until: int) -> None:
        """Go through all rounds up to a time, ms."""
        now = self.state.now
        while now <= until:
            deleted = self._round(now)
            now = now + self.config.clean_resource_interval if deleted else self._next_event(now)

    def used_at(self, now: int) -> float:
        """Return the bytes of the disk in use at a time that the rounds have passed."""
        freed = sum(each.file.size for each in self.deletions if each.at <= now) * (1 + self.state.overhead)
        return self._grown(now) - freed

    def log_begin_at(self, now: int) -> int:
        """Return the physical offset at which the log begins at a time that the rounds have passed."""
        gone = [each.file.end_offset for each in self.deletions if each.at <= now]
        return max(gone, default=self.state.files[0].start_offset)

    def deleted_at(self, position: int) -> Deletion | None:
        """Return the deletion by which a position of the log goes; None if it stays."""
        index = bisect_left(self.deletions, position + 1, key=lambda each: each.file.end_offset)
        return self.deletions[index] if index < len(self.deletions) else None

    def log_end_at(self, now: int) -> int:
        """Return the physical offset at which the log ends at a time."""
        return self.state.log_end + int(self.state.log_growth * self._clock.growing_ms(now))

    # ---- rounds

    def _grown(self, now: int) -> float:
        grown = self.state.log_growth * (1 + self.state.overhead) * self._clock.growing_ms(now)
        return self.state.disk_used + grown

    def _round(self, now: int) -> int:
        """Delete what a broker would delete in one round, and return how many files."""
        self._roll(now)
        used = max(self._grown(now) - self._freed, 0)
        percent = int(-(-used * 100 // self.state.disk_size))
        verdict = SpaceVerdict.of(self._limits, self.config.features, percent, percent)
        if verdict.is_full and self.full_at is None:
            self.full_at = now
        if verdict.is_full is not None:
            self._clock.turn(now, is_growing=not verdict.is_full)
        if verdict.wants_deletion and self.over_ratio_at is None:
            self.over_ratio_at = now
        is_time = hour_at(now, self.zone) in self._hours
        if not (is_time or verdict.wants_deletion):
            return 0
        at_once = verdict.at_once and self.config.clean_file_forcibly_enable
        reason = Reason.AT_ONCE if at_once else Reason.HOUR if is_time else Reason.DISK
        return self._delete(now, reason)

    def _delete(self, now: int, reason: Reason) -> int:
        count, at_once = 0, reason is Reason.AT_ONCE
        for file in self._files[:-1][: self._rule.batch_max]:
            if not self._rule.may_delete(file.last_modified, now, at_once=at_once):
                break
            self.deletions.append(Deletion(file, now, reason))
            self._freed += file.size * (1 + self.state.overhead)
            count += 1
        del self._files[:count]
        return count

    def _roll(self, now: int) -> None:
        """Begin new files, as far as the log has grown."""
        end = self.log_end_at(now)
        while (last := self._files[-1]).end_offset <= end and self.state.log_growth > 0:
            self._files[-1] = last._replace(last_modified=self._filled_at(last))
            self._files.append(LogFile(last.end_offset, last.size, now))

    def _filled_at(self, file: LogFile) -> int:
        return self._clock.time_of(int((file.end_offset - self.state.log_end) / self.state.log_growth))

    def _next_event(self, now: int) -> int:
        """Return the round in which something can happen next: an hour, an age, a limit, or a full file."""
        step = self.config.clean_resource_interval
        times = [now - now % _QUARTER_MS + _QUARTER_MS, *self._limits_after(now)]
        if len(self._files) > 1:
            times.append(self._files[0].last_modified + self._rule.reserved_ms)
        if self.state.log_growth > 0 and self._clock.is_growing:
            times.append(self._filled_at(self._files[-1]))
        soonest = min(time for time in times if time > now)
        rounds = -(-(soonest - self.state.now) // step)
        return max(self.state.now + rounds * step, now + step)

    def _limits_after(self, now: int) -> list[int]:
        growth = self.state.log_growth * (1 + self.state.overhead)
        if growth <= 0 or not self._clock.is_growing:
            return []
        used = self._grown(now) - self._freed
        limits: Sequence[int] = (self._limits.delete, self._limits.forcible, self._limits.warning)
        return [now + int((limit * self.state.disk_size / 100 - used) / growth) + 1 for limit in limits]


class DependentFile(NamedTuple):
    """A file of queues or index, which is deleted after the records that it points to."""

    path: str  # below the store's root
    size: int  # bytes of disk
    needed_up_to: int  # physical offset: it goes when the log begins after it


def dependent_files(store: Store) -> Iterator[DependentFile]:
    """Yield the files of queues and index that can be deleted, in the order of deletion in each directory.

    The last file of each never goes. A file goes only after those before it (RocketMQ: ``CleanConsumeQueueService``).
    Queues in a RocksDB have none.
    """
    for queue in store.queues.each():
        if isinstance(queue, FileQueue):
            yield from _in_order(store, ((file.path, _last_position(file)) for file in queue.listed[:-1]))
    yield from _in_order(store, ((path, _index_end(path)) for path in store.index.paths[:-1]))


def _in_order(store: Store, files: Iterator[tuple[Path, int | None]]) -> Iterator[DependentFile]:
    root, above = store.root, -1
    for path, position in files:
        if position is None or (store.end is not None and position >= store.end):
            return  # the last one: a broker has filled it since, and begun another
        above = max(above, position)
        yield DependentFile(str(path).removeprefix(f"{root}/"), blocks_on_disk(file_at(path)), above)


def _last_position(file: UnitFile) -> int | None:
    """Return the position that the last unit of a file points to; None if the file is gone, or has none."""
    with closing(file), suppress(SegmentVanishedError):
        return file.place(file.count - 1)[0] if file.count else None
    return None


def _index_end(path: Path) -> int | None:
    try:
        file = KeyFile(path)
    except FileNotFoundError:
        return None
    return file.header.end_physical_offset if file.size >= INDEX_HEADER_SIZE else None


def losses(rows: Iterable[QueueLag], forecast: DiskForecast, until: int, queues: Queues) -> Iterator[dict[str, Any]]:
    """Yield a row for each group that loses messages until then, ms: the first of them, and how many it loses."""
    begin = forecast.log_begin_at(until)
    going = [(*row.first, row) for row in rows if row.first is not None and row.first[1] < begin]
    going = [each for each in going if each[-1].asked.kind is not GroupKind.SYSTEM]
    firsts: dict[str, tuple[int, int, QueueLag]] = {}
    counts: Counter[str] = Counter()
    with queues:
        for offset, position, _, row in sorted(going, key=lambda each: (each[1], each[0])):
            queue = row.topic, row.queue_id
            counts[row.asked.group] += queues.first_at(*queue, begin, offset, row.max_offset or offset) - offset
            firsts.setdefault(row.asked.group, (offset, position, row))
    for group, (offset, position, row) in firsts.items():
        gone = forecast.deleted_at(position)
        yield {
            "consumer_group": group,
            "topic": row.topic,
            "queue_id": row.queue_id,
            "queue_offset": offset,
            "physical_offset": position,
            "store_timestamp": table_time(row.oldest),
            "deleted": None if gone is None else table_time(gone.at),
            "messages": counts[group],
        }

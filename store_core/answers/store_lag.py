# SPDX-License-Identifier: Apache-2.0
"""The answer `lag`: how far consumer groups are behind, in messages, bytes and time, and which messages these are."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np

from store_core.answers.lag_queues import (
    NO_OFFSET,
    BrokerGroups,
    ConsumedQueue,
    GroupKind,
    consumed_queues,
    is_system_group,
    queue_lags,
)
from store_core.answers.lag_report import (
    WRONG_STATES,
    LagFacts,
    LagReport,
    group_rows,
    largest_first,
    queue_row,
    summed_rows,
)
from store_core.answers.local_engine import local_engine
from store_core.broker.topic_kind import DEAD_LETTER_PREFIX
from store_core.errors import SegmentVanishedError
from store_core.files.store_kind import StoreUse
from store_core.format.times import iso_time
from store_core.snapshot.log import Log
from store_core.snapshot.queues import Queues, TopicFilter
from store_core.snapshot.store import Store
from store_core.store.configured_store import configured_paths
from store_core.store.parts import check_least
from store_core.store.read.queued_log import LogBesideQueues
from store_core.store.read.store_time import check_calendar_time, parse_zone, store_time

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from datetime import date, tzinfo

    from store_core.answers.lag_queues import QueueLag
    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.store.parts import Engine, ProgressSink

__all__ = ["LagJob", "LagOptions", "LagPart", "LagPartial", "lag", "lag_by"]

_log: Final = logging.getLogger("store_core")

_LAST_FILES: Final = 2
"""Segments that a broker may write: one may be made ahead."""

_PART_QUEUES: Final = 200
"""Queues in a part: the bounds of their files take some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class LagOptions:
    """Which groups' lag is measured, and as of when; made by `of`.

    Attributes
    ----------
    group, topic : tuple of str
        Names; empty for all. A retry topic is that of its group: it goes with no other topic.
    as_of : int or None
        Store time, ms: queues are taken as they were then; None for now.
    now : int or None
        The present, ms, from which ages are counted; None for `as_of`. Without both there are no ages.
    most_messages : int
        How many of the messages that were not consumed are listed; with 0 none is read.
    """

    group: tuple[str, ...] = ()
    topic: tuple[str, ...] = ()
    as_of: int | None = None
    now: int | None = None
    most_messages: int = 0

    @classmethod
    def of(  # noqa: PLR0913 -- an argument for each option
        cls,
        *,
        group: Collection[str] = (),
        topic: Collection[str] = (),
        as_of: int | str | date | None = None,
        now: int | str | date | None = None,
        most_messages: int = 0,
        time_zone: str | tzinfo | None = None,
    ) -> Self:
        """Make options of what a user gives; times may be text, as for `store_core.read_messages`.

        Raises
        ------
        InvalidOptionError
            If a value is invalid.
        """
        zone = None if time_zone is None else parse_zone("time_zone", time_zone)
        times = {
            name: None if value is None else store_time(name, value, zone)
            for name, value in (("as_of", as_of), ("now", now))
        }
        for name, time in times.items():
            check_calendar_time(name, time)
        check_least(0, most_messages=most_messages)
        return cls(_names(group), _names(topic), times["as_of"], times["now"], most_messages)

    @property
    def age_from(self) -> int | None:
        """The time from which ages are counted, ms."""
        return self.as_of if self.now is None else self.now


def _names(given: Collection[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


@dataclass(frozen=True, slots=True)
class LagPart:
    """Queues that are looked at together."""

    queues: tuple[ConsumedQueue, ...]


@dataclass(frozen=True, slots=True)
class LagPartial:
    """What was found in the queues of a part."""

    rows: tuple[QueueLag, ...]
    dead_letters: tuple[tuple[str, int], ...]  # topics of dead letters, and how many messages are in a queue of each
    messages: tuple[dict[str, Any], ...]  # rows of the report's table


class LagJob:
    """Compares committed offsets with queues, some queues at a time; see `store_core.store.parts.Job`."""

    def __init__(self, store: StorePaths, options: LagOptions) -> None:
        opened = Store(store)
        root = opened.root_for(StoreUse.READ_QUEUES)
        self.options = options
        self.root = root
        self.groups = BrokerGroups.of(root)
        self.segments: tuple[Segment, ...] = opened.log.segments
        self.log_end = None if options.as_of is None else _log_end_at(store, options.as_of)
        self.queues = Queues(root, LogBesideQueues(root, self.segments))
        self.written = max(file.stat().st_mtime_ns for file in self.groups.files) // 1_000_000

    def plan(self) -> Sequence[LagPart]:
        """Return the parts: queues that groups consume, then those with their dead letters."""
        asked = consumed_queues(self.queues, self.groups, self.options.group, self.options.topic)
        names = {each.group for queue in asked for each in queue.groups}
        dead = tuple(f"{DEAD_LETTER_PREFIX}{name}" for name in sorted(names))
        found = self.queues.names(TopicFilter(dead)) if dead else ()
        queues = [*asked, *(ConsumedQueue(*name, ()) for name in found)]
        return [LagPart(tuple(queues[at : at + _PART_QUEUES])) for at in range(0, len(queues), _PART_QUEUES)]

    def run(self, part: LagPart) -> LagPartial:
        """Look at the queues of a part."""
        rows: list[QueueLag] = []
        dead: list[tuple[str, int]] = []
        with self.queues as queues:
            for asked in part.queues:
                if asked.groups:
                    rows += self._rows(asked)
                else:
                    bounds = queues.bounds(asked.topic, asked.queue_id)
                    dead.append((asked.topic, 0 if bounds is None else bounds.max_offset - bounds.min_offset))
            most = self.options.most_messages
            listed = _unconsumed(rows, most, queues, self.segments) if most else []
        return LagPartial(tuple(rows), tuple(dead), tuple(listed))

    def _rows(self, asked: ConsumedQueue) -> list[QueueLag]:
        name = asked.topic, asked.queue_id
        try:
            bounds = self.queues.bounds(*name)
            then = self.queues.before(*name, bounds, self.log_end)
            return queue_lags(asked, bounds, then, self.queues, Log(self.segments), self._written_before)
        except SegmentVanishedError as error:
            _log.warning("%s", error.problem)
            return queue_lags(asked, None, None, self.queues, Log(()), None)

    @property
    def _written_before(self) -> int | None:
        """When the offsets were written, ms, if the log's last files were written later; else None."""
        files = [Path(segment.path) for segment in self.segments[-_LAST_FILES:] if segment.is_plain]
        is_newer = any(file.stat().st_mtime_ns // 1_000_000 > self.written for file in files if file.is_file())
        return self.written if is_newer and self.options.as_of is None else None

    def merge(self, partials: Iterable[LagPartial]) -> LagReport:
        """Make the report."""
        found = list(partials)
        rows = [row for each in found for row in each.rows]
        messages = [row for each in found for row in each.messages][: self.options.most_messages]
        dead: defaultdict[str, int] = defaultdict(int)
        for topic, count in (pair for each in found for pair in each.dead_letters):
            dead[topic.removeprefix(DEAD_LETTER_PREFIX)] += count
        shown = [queue_row(row, self.options.age_from) for row in rows]
        tables = {
            "groups": [*group_rows(shown, dead), *self._unknown(rows)],
            "topics": summed_rows(shown, ("consumer_group", "topic", "kind")),
            "queues": largest_first(shown),
            "messages": messages,
        }
        return LagReport.of(self._facts(rows, tables["groups"]), tables)

    def _unknown(self, rows: Sequence[QueueLag]) -> Iterator[dict[str, Any]]:
        """Yield the groups that are configured and have no offsets."""
        known = {each.group for each in (*self.groups.committed, *self.groups.broadcast)} | {
            row.asked.group for row in rows
        }
        if not self.options.topic:
            for name in sorted(self.groups.configured - known):
                if not is_system_group(name) and (not self.options.group or name in self.options.group):
                    yield {"consumer_group": name, "queues": 0, "wrong_offsets": 0, "is_unknown": True}

    def _facts(self, rows: Sequence[QueueLag], groups: Sequence[dict[str, Any]]) -> LagFacts:
        options, states = self.options, [row.state for row in rows]
        return LagFacts(
            store=str(self.root),
            as_of=None if options.as_of is None else iso_time(options.as_of),
            log_end=self.log_end,
            now=None if options.age_from is None else iso_time(options.age_from),
            offsets_files=tuple(map(str, self.groups.files)),
            offsets_written=iso_time(self.written),
            groups=sum(not row.get("is_unknown") for row in groups),
            queues=len(rows),
            messages=sum(row.messages or 0 for row in rows),
            bytes=sum(row.size or 0 for row in rows),
            newer_messages=sum(row.newer for row in rows),
            missing_bytes=Log(self.segments).missing_bytes,
            **{state: states.count(state) for state in (*WRONG_STATES, NO_OFFSET)},
            notes=(*self.groups.notes, *self._notes(rows, groups)),
        )

    def _notes(self, rows: Sequence[QueueLag], groups: Sequence[dict[str, Any]]) -> Iterator[str]:
        kinds = {row.asked.kind for row in rows}
        if GroupKind.POP in kinds or GroupKind.REVIVE in kinds:
            yield (
                "of groups that pop, the offset is that of the messages handed out: those not acknowledged yet are "
                "consumed here, until the broker puts them into a retry topic (kind revive: what it has still to do)"
            )
        if GroupKind.BROADCAST in kinds:
            yield "kind broadcast: the offset is that of the slowest consumer behind a proxy"
        unknown = [str(row["consumer_group"]) for row in groups if row.get("is_unknown")]
        if unknown:
            yield (
                f"no offsets of {', '.join(unknown[:5])}{' and others' if len(unknown) > 5 else ''}: never consumed, "  # noqa: PLR2004 -- a few names
                f"or in broadcast mode, where consumers keep their offsets themselves"
            )


def _log_end_at(store: StorePaths, time: int) -> int | None:
    from store_core.store.read.read_plan import log_end_at  # plans reads, too, of which most lags need nothing

    return log_end_at(store, time)


def lag_by(engine: Engine, store: StorePaths, options: LagOptions | None = None) -> LagReport:
    """Measure the lag of groups on an engine; see `lag`."""
    return engine.run(LagJob(store, options or LagOptions()))


def lag(
    store: StorePaths,
    options: LagOptions | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
) -> LagReport:
    """Say how far consumer groups are behind: messages, bytes and age, by group, topic and queue.

    What groups have committed is compared with the queues. Of the log only single messages are read: the first one of
    each queue that is not consumed, whose store time is its age; the last ones of queues, unless newer ones were read
    before; and those that are to be listed. Only if a last one is not there the log's end is looked for, in its last
    file: what a queue has past it does not count. A message counts as not consumed only if it is there; a committed
    offset that is not within its queue is named. Nothing is written or locked.

    Parameters
    ----------
    store : path or sequence of paths
        The store's root, with the broker's ``config`` in it.
    options : LagOptions, optional
    config : path, optional
        The broker's configuration, as of option `config` of `store_core.read_messages`.
    processes : int
        1 is this process alone. More are started by ``spawn``, so a script has to call this below
        ``if __name__ == "__main__":``.
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part.

    Returns
    -------
    LagReport

    Raises
    ------
    StoreNotFoundError
        If there is no store, or no file with committed offsets.
    InvalidOptionError
        If a group or topic that is asked for is not known.
    StoreError
        If a file is broken, or the store is of a kind whose queues can't be read.

    Examples
    --------
    >>> from store_core.answers import LagOptions, lag
    >>> report = lag("/data/store", LagOptions.of(group=["billing"], most_messages=10))  # doctest: +SKIP
    >>> print(report.to_text())  # doctest: +SKIP
    """
    store = configured_paths(store, config)
    with local_engine(processes, on_progress) as engine:
        return lag_by(engine, store, options)


# ---- messages that are not consumed

_LISTED_COLUMNS: Final = ("physical_offset", "store_timestamp", "tags", "keys", "unique_key", "born_host")


class _Listed(NamedTuple):
    """A message of a group that it has not consumed."""

    row: QueueLag
    queue_offset: int
    position: int
    size: int


def _unconsumed(
    rows: Iterable[QueueLag], most: int, queues: Queues, segments: Sequence[Segment]
) -> list[dict[str, Any]]:
    """Return the first messages that are not consumed, queue by queue; only their records are read.

    * `most`: How many.
    * `segments`: Of the log, in order.

    Returns: Rows of the report's table; what a record would tell is null if the log does not have it.
    """
    listed = list(_listed(rows, most, queues))
    if not listed:
        return []
    # Decoding records is a large part of the code, and needed only here.
    from store_core.store.read.read_options import ReadOptions
    from store_core.store.read.records_at import records_at

    starts, sizes = (np.array(values, np.int64) for values in zip(*(each[2:] for each in listed), strict=True))
    read = ReadOptions(columns=_LISTED_COLUMNS, verify_crc=False, fail_on_data_loss=False, nearest_times=True)
    found = {row["physical_offset"]: row for batch in records_at(segments, starts, sizes, read) for row in _rows(batch)}
    return [_row(each) | found.get(each.position, {}) for each in listed]


def _listed(rows: Iterable[QueueLag], most: int, queues: Queues) -> Iterator[_Listed]:
    left = most
    for row in rows:
        if row.first is None or left <= 0:
            continue
        begin, end = row.first[0], row.max_offset or 0
        for run in queues.units(row.topic, row.queue_id, begin, min(end, begin + left)):
            some = zip(run.offsets.tolist(), run.starts.tolist(), run.sizes.tolist(), strict=True)
            for each in some:
                if left > 0:
                    left -= 1
                    yield _Listed(row, *each)


def _rows(batch: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 -- of Arrow
    columns = [
        (batch.column(name).cast("int64") if name == "store_timestamp" else batch.column(name)).to_pylist()
        for name in _LISTED_COLUMNS
    ]
    return (dict(zip(_LISTED_COLUMNS, values, strict=True)) for values in zip(*columns, strict=True))


def _row(each: _Listed) -> dict[str, Any]:
    return {
        "consumer_group": each.row.asked.group,
        "topic": each.row.topic,
        "queue_id": each.row.queue_id,
        "queue_offset": each.queue_offset,
        "physical_offset": each.position,
        "store_size": each.size,
    }

# SPDX-License-Identifier: Apache-2.0
"""The answer `delays`: when delayed messages are due, and which are late."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.answer import TIME_WORDS, Answer, Kind, flag, function_of, opt, release_option
from store_core.answers.delay_states import (
    DELAY_COLUMNS,
    DelayState,
    LevelRules,
    TimerRules,
    cancelled_by_others,
    delay_levels,
    delayed_rows,
    level_states,
    levels_note,
    timer_states,
)
from store_core.answers.message_reads import MISSING_BYTES, ReadJob, missing_line, read_of
from store_core.answers.plots import Bar, Bars, HeatMap, HeatRow, Plot, Tone
from store_core.answers.report import Report, ReportSchema, fact, moment, number, shared, table, text
from store_core.files.machine import SystemClock
from store_core.files.names import CONFIG_DIRECTORY, TIMER_CHECK_FILE
from store_core.format.columns import iso_time, known_time, table_time
from store_core.format.record.delayed import SCHEDULE_TOPIC, TIMER_TOPIC
from store_core.format.release import Release, rules_of
from store_core.format.words import agreeing, counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from store_core.snapshot.store import Store
    from store_core.store.parts import Engine


_SECOND: Final = 1000
_LARGEST: Final = 2**53
"""Later times than those that a calendar has are not put into one."""


class Scale(NamedTuple):
    """How a calendar is divided."""

    cell: int  # seconds of a cell
    row: int  # seconds of a row of the heat map
    digits: int  # characters of a time in ISO 8601 that name a row
    ends: tuple[str, str]  # names of a row's first and last cell


_SCALES: Final = (
    Scale(60, 3600, 13, (":00", ":59")),
    Scale(3600, 86400, 10, ("00:00", "23:00")),
    Scale(86400, 30 * 86400, 10, ("first day", "30th")),
)
_LONGEST: Final = (12 * 3600, 40 * 86400)
_MOST_ROWS: Final = 48


def scale_of(due: npt.NDArray[np.int64]) -> Scale:
    """Return the scale for times in ms: minutes if they are within half a day, hours within 40 days, else days."""
    span = int(due.max() - due.min()) // _SECOND if due.size else 0
    return _SCALES[bisect_left(_LONGEST, span)]


def calendar_rows(due: Mapping[str, npt.NDArray[np.int64]], scale: Scale) -> list[dict[str, Any]]:
    """Return a row for each cell with anything in it: when it begins, and how many of each kind are due in it.

    * `due`: Kind -> times in ms.
    """
    cell = scale.cell * _SECOND
    counts = {kind: Counter((times[np.abs(times) < _LARGEST] // cell).tolist()) for kind, times in due.items()}
    cells = sorted(set().union(*counts.values()))
    return [
        {"begin": at * cell * 1000, "seconds": scale.cell} | {kind: those[at] for kind, those in counts.items()}
        for at in cells
    ]


def heat_map(cells: Sequence[tuple[int, int]], scale: Scale) -> HeatMap:
    """Return a heat map of cells: when each begins, in seconds, and how many it has."""
    columns = scale.row // scale.cell
    rows: dict[int, list[int]] = {}
    for begin, count in cells:
        row = rows.setdefault(begin // scale.row, [0] * columns)
        row[begin % scale.row // scale.cell] += count
    shown = sorted(rows.items())[:_MOST_ROWS]
    names = (iso_time(at * scale.row * _SECOND)[: scale.digits].replace("T", " ") for at, _ in shown)
    made = (
        HeatRow(name, tuple(row), counted(sum(row), "message")) for name, (_, row) in zip(names, shown, strict=True)
    )
    more = f"and {len(rows) - len(shown):,} more rows, which the JSON has" if len(rows) > len(shown) else ""
    return HeatMap("When messages are due that are not delivered (UTC)", scale.ends, tuple(made), more)


@dataclass(frozen=True)
class Delays(Answer["DelaysReport"]):
    """Tell when delayed messages and timers are due, which are overdue, and which no broker will deliver.

    Only the topics where they wait are read, and delayOffset.json and timercheck. The exit code is 1 if messages are
    late, or will not be delivered.
    """

    NAME: ClassVar = "delays"
    IS_SUMMED: ClassVar = True
    EXAMPLES: ClassVar = (
        "commitlog delays /data/store",
        "commitlog delays /data/store --now 2024-05-01T12:00:00Z --html report.html",
        "commitlog delays /data/store --config broker.conf --all --json",
    )
    CONFIG_WORDS: ClassVar = "messageDelayLevel"

    late_after: int = opt(
        60, "A message that is overdue for longer than this is a finding.", metavar="SECONDS", least=0
    )
    now: int | None = opt(
        None, f"Time that counts as now: {TIME_WORDS}.", kind=Kind.TIME, metavar="TIME", shown_default="the clock"
    )
    lists_all: bool = flag("List also messages without a problem.", "--all")
    rows: int = opt(1000, "Rows that are listed; all are counted.", metavar="N", least=0)
    release: Release = release_option()
    config: str | os.PathLike[str] | None = opt(None, "", kind=Kind.FROM_CONFIG)

    def on(self, engine: Engine, store: Store) -> DelaysReport:
        """Read the topics where they wait."""
        from store_core.answers.delay_states import stray_timers
        from store_core.snapshot.config import DELAY_OFFSETS

        levels = delay_levels(self.config, self.release)
        root, extent = store.root, store.asked_log
        config = store.config.of_release(self.release)
        delivered, notes = config.known(DELAY_OFFSETS)
        read_until, offset = config.timer_check
        last_stored = store.last_store_time
        offsets_written, check_written = (
            config.written(root / CONFIG_DIRECTORY / name) for name in (DELAY_OFFSETS.name, TIMER_CHECK_FILE)
        )
        topics = (SCHEDULE_TOPIC, TIMER_TOPIC)
        job = ReadJob(store, read_of(DELAY_COLUMNS, delayed_rows, topic=topics, release=self.release, verify_crc=False))
        rows = engine.run(job)
        delayed, put = (rows.filter(pc.equal(rows["topic"], topic)) for topic in topics)
        now = SystemClock().now_ms() if self.now is None else self.now
        rules = LevelRules(levels, delivered, now, last_stored or 0, offsets_written)
        timers = TimerRules(read_until, offset, now, last_stored or 0, rules_of(self.release), check_written)
        judged = {"level": level_states(delayed, rules), "timer": timer_states(put, timers)}
        notes += _notes_of_others(*cancelled_by_others(put, timers), self.release)
        stray = stray_timers(store.timers, extent, self.release, store.end)
        notes += () if stray is None else (stray.note,)
        notes += levels_note(store, _last_of_levels(judged["level"]))
        notes = (*job.notes, *store.queue_notes, *notes)
        return _Made(root, self, rules, timers, last_stored, judged, notes, extent.missing_bytes).report()


delays = function_of(Delays)


def _notes_of_others(cancelled: int, releases: tuple[str, ...], release: Release) -> tuple[str, ...]:
    """Say that the log has cancellations of timers as other releases write them."""
    if not releases:
        return ()
    shown = counted(cancelled, "timer")
    names = " and ".join(releases)
    advice = f"if the broker of this store is one, use release {releases[-1]}"
    return (f"{shown} not cancelled by the rules of RocketMQ {release}, but by those of {names}: {advice}",)


def _last_of_levels(rows: pa.Table) -> Iterator[tuple[int, int, int, int]]:
    """Yield where the last message of each level is, and when it is due; see `levels_note`."""
    delayed = rows.filter(pc.greater(rows["due"], rows["store_timestamp"]))
    last = {row["level"]: row for row in delayed.to_pylist()}
    return ((level - 1, row["queue_offset"], row["physical_offset"], row["due"]) for level, row in last.items())


@dataclass(frozen=True, slots=True)
class _Made:
    """What a report is made of: rows by kind."""

    root: Path
    options: Delays
    rules: LevelRules
    timers: TimerRules
    last_stored: int | None
    judged: Mapping[str, pa.Table]
    notes: tuple[str, ...]
    missing_bytes: int

    def report(self) -> DelaysReport:
        due = {kind: _due_of(_undelivered(table)) for kind, table in self.judged.items()}
        scale = scale_of(np.concatenate(list(due.values())))
        states = Counter(state for table in self.judged.values() for state in table["state"].to_pylist())
        waiting = np.concatenate([_due_of(_in_state(table, DelayState.WAITING)) for table in self.judged.values()])
        late = self.rules.at - 1000 * self.options.late_after
        overdue = [_due_of(_in_state(table, DelayState.OVERDUE)) for table in self.judged.values()]
        facts = DelaysFacts(
            store=str(self.root),
            now=iso_time(self.rules.at),
            last_stored=known_time(self.last_stored),
            messages=sum(table.num_rows for table in self.judged.values()),
            late=sum(int((times < late).sum()) for times in overdue),
            has_delay_offsets=self.rules.next_offsets is not None or not self.judged["level"].num_rows,
            has_timer_check=self.timers.read_until is not None or not self.judged["timer"].num_rows,
            next_due=iso_time(int(waiting.min())) if waiting.size else None,
            missing_bytes=self.missing_bytes,
            notes=(*self.notes, *self._age_notes(), *self._offset_notes()),
            **{state.value: states[state.value] for state in DelayState},
        )
        tables = {
            "levels": [*self._level_rows(), *self._timer_rows()],
            "topics": self._topic_rows(),
            "calendar": calendar_rows(due, scale),
            "messages": self._message_rows(),
        }
        return DelaysReport.of(facts, tables)

    def _age_notes(self) -> Iterator[str]:
        """Say how old the broker's files are, where the log has messages after them."""
        from store_core.snapshot.config import DELAY_OFFSETS

        last = self.rules.last_stored
        offsets, check = (DELAY_OFFSETS.name, self.rules.written), (TIMER_CHECK_FILE, self.timers.written)
        for kind, (name, written) in {"level": offsets, "timer": check}.items():
            if written is not None and written < last and self.judged[kind].num_rows:
                yield (
                    f"what is delivered is as of {iso_time(written)}, when {CONFIG_DIRECTORY}/{name} was written; the "
                    f"log goes on to {iso_time(last)}: what was due since then is counted apart"
                )

    def _offset_notes(self) -> Iterator[str]:
        """Name offsets that are beyond the messages of their level: those that come next would be passed over."""
        rows = self.judged["level"]
        for level, offset in sorted((self.rules.next_offsets or {}).items()):
            mine = rows.filter(pc.equal(rows["level"], level))
            end = (pc.max(mine["queue_offset"]).as_py() or 0) + 1 if mine.num_rows else None
            if end is not None and offset > end:
                yield f"level {level}: delayOffset.json has {offset}, and the queue in the log ends at {end}"

    def _level_rows(self) -> Iterator[dict[str, Any]]:
        rows = self.judged["level"]
        for level in sorted(set(rows["level"].to_pylist())):
            mine = rows.filter(pc.equal(rows["level"], level))
            is_known = 0 < level <= len(self.rules.delays)
            yield {
                "kind": "level",
                "level": level,
                "delay": self.rules.delays[level - 1] if is_known else None,
                "next_offset": (self.rules.next_offsets or {}).get(level),
                **_totals(mine),
            }

    def _timer_rows(self) -> Iterator[dict[str, Any]]:
        if self.judged["timer"].num_rows:
            next_offset = None if self.timers.read_until is None else self.timers.next_offset
            yield {"kind": "timer", "next_offset": next_offset, **_totals(self.judged["timer"])}

    def _topic_rows(self) -> list[dict[str, Any]]:
        found = []
        for kind, judged in self.judged.items():
            for topic in pc.unique(judged["real_topic"]).to_pylist():
                is_it = pc.is_null(judged["real_topic"]) if topic is None else pc.equal(judged["real_topic"], topic)
                mine = _totals(judged.filter(is_it))
                if any(mine[name] for name in _COUNTED):
                    found.append({"real_topic": topic, "kind": kind, **mine})
        return sorted(found, key=lambda row: (row["real_topic"] or "", row["kind"]))

    def _message_rows(self) -> list[dict[str, Any]]:
        others = [DelayState.UNSETTLED, DelayState.WAITING] if self.options.lists_all else []
        listed = [DelayState.ORPHANED, DelayState.OVERDUE, *others]
        found: list[dict[str, Any]] = []
        for state in listed:
            for kind, judged in self.judged.items():
                rows = _in_state(judged, state).sort_by("due").slice(0, self.options.rows)
                found += [{"kind": kind, **row} for row in rows.to_pylist()]
        for row in found:
            row["due"], row["store_timestamp"] = table_time(row["due"]), table_time(row["store_timestamp"])
        return found[: self.options.rows]


_UNDELIVERED: Final = (DelayState.WAITING, DelayState.OVERDUE, DelayState.UNSETTLED)
"""What a broker has still to deliver, as far as its files say."""

_COUNTED: Final = (*_UNDELIVERED, DelayState.ORPHANED)


def _in_state(table: pa.Table, state: DelayState) -> pa.Table:
    return table.filter(pc.equal(table["state"], state.value))


def _undelivered(table: pa.Table) -> pa.Table:
    return table.filter(pc.is_in(table["state"], pa.array(_UNDELIVERED)))


def _due_of(table: pa.Table) -> npt.NDArray[np.int64]:
    due: npt.NDArray[np.int64] = table["due"].to_numpy()
    return due


def _totals(table: pa.Table) -> dict[str, Any]:
    """Return the counts of some messages, and when the first and the last of those that are not delivered are due."""
    states = Counter(table["state"].to_pylist())
    due = _due_of(_undelivered(table))
    return {
        "messages": table.num_rows,
        "end_offset": (pc.max(table["queue_offset"]).as_py() or 0) + 1 if table.num_rows else None,
        **{state.value: states[state.value] for state in _COUNTED},
        "first_due": table_time(int(due.min())) if due.size else None,
        "last_due": table_time(int(due.max())) if due.size else None,
    }


_STATES: Final = (
    number("waiting", "not due yet"),
    number("overdue", "due, and not delivered"),
    number("unsettled", "due after the broker's file was written, and perhaps delivered since", in_text=False),
    number("orphaned", "never to be delivered"),
)
_DUE: Final = (
    moment("first_due", "when the first that is not delivered is due"),
    moment("last_due", "when the last is due"),
)
_KIND: Final = text("kind", "`level` for a delay level, `timer` for a timer of RocketMQ 5")


@dataclass(frozen=True, slots=True)
class DelaysFacts:
    """The facts of the answer."""

    store: str = fact("the store's root")
    now: str = fact("time as of which messages are due, ISO 8601")
    last_stored: str | None = fact("store time of the log's last record, ISO 8601, or null in an empty log")
    messages: int = fact("delayed messages and timers in the log", default=0)
    waiting: int = fact("those that are not due yet", default=0)
    overdue: int = fact(
        "those that are due and not delivered: a broker that starts now delivers them at once", default=0
    )
    late: int = fact("of these, those due longer ago than the option `late_after` allows", default=0, tells="findings")
    unsettled: int = fact(
        "those due between when the broker wrote its file and the log's end: perhaps delivered since", default=0
    )
    orphaned: int = fact("those that no broker will deliver", default=0, tells="findings")
    delivered: int = fact("those that the broker has delivered", default=0)
    cancelled: int = fact("timers that another message has cancelled", default=0)
    rolled: int = fact(
        "timers that were put again, further ahead than the wheel reaches; the last copy is counted", default=0
    )
    has_delay_offsets: bool = fact("whether there is a delayOffset.json, or no delayed message", default=True)
    has_timer_check: bool = fact("whether there is a config/timercheck, or no timer", default=True)
    next_due: str | None = fact("when the next message is due, ISO 8601, or null", default=None, over="min")
    missing_bytes: int = fact(MISSING_BYTES, default=0, tells="damaged")
    notes: tuple[str, ...] = fact("what else an operator should know", default=())


_REPORT_TABLES: Final = (
    table(
        "levels",
        "Delay levels, and the timer",
        _KIND,
        number("level", "delay level; null for the timer"),
        number("delay", "its delay, ms"),
        number("messages", "messages in the log"),
        number("next_offset", "queue offset that is delivered next"),
        number("end_offset", "queue offset after its last message in the log"),
        *_STATES,
        *_DUE,
    ),
    table("topics", "By real topic", text("real_topic", "where messages are delivered"), _KIND, *_STATES, *_DUE),
    table(
        "calendar",
        "When messages are due that are not delivered",
        moment("begin", "when the minute, hour or day begins, UTC"),
        number("seconds", "how long it is", in_text=False),
        number("level", "delayed messages due in it"),
        number("timer", "timers due in it"),
    ),
    table(
        "messages",
        "Messages that are overdue, or never to be delivered",
        _KIND,
        text("state", "one of the facts"),
        text("reason", "why it will not be delivered"),
        moment("due", "when it is due"),
        number("level", "delay level"),
        text("real_topic", "where it is to be delivered"),
        text("real_queue_id", "its real queue", in_text=False),
        *shared("unique_key"),
        number("queue_offset", "in the queue where it waits", in_text=False),
        *shared("physical_offset"),
        *shared("store_timestamp", in_text=False),
    ),
)

_TONES: Final = {
    "waiting": Tone.PLAIN,
    "overdue": Tone.WARNING,
    "unsettled": Tone.PLAIN,
    "orphaned": Tone.BAD,
    "delivered": Tone.GOOD,
    "cancelled": Tone.PLAIN,
    "rolled": Tone.PLAIN,
}


class DelaysReport(Report[DelaysFacts]):
    """When the delayed messages of a store are due."""

    SCHEMA: ClassVar = ReportSchema.of("delays", 1, DelaysFacts, *_REPORT_TABLES)

    @property
    def plots(self) -> tuple[Plot, ...]:
        """What became of messages, and a calendar of those that are not delivered."""
        counts = ((name, getattr(self.found, name), tone) for name, tone in _TONES.items())
        bars = Bars("Delayed messages", tuple(Bar(name, n, tone, f"{n:,}") for name, n, tone in counts if n))
        table = self.tables["calendar"]
        if not table.num_rows:
            return (bars,)
        begins = pc.divide(table["begin"].cast(pa.int64()), 1_000_000).to_pylist()
        dues = pc.add(table["level"], table["timer"]).to_pylist()
        scale = max(each for each in _SCALES if each.cell in table["seconds"].to_pylist())  # of several stores
        return bars, heat_map(list(zip(begins, dues, strict=True)), scale)

    def _lines(self) -> Iterator[str]:
        found = self.found
        yield f"{found.store}: {counted(found.messages, 'delayed message')}, as of {found.now}"
        for name, what in _WORDS.items():
            count: int = getattr(found, name)
            if count:
                yield f"{count:,} {agreeing(count, *what)}"
        if found.next_due is not None:
            yield f"the next one is due at {found.next_due}"
        if not found.has_delay_offsets:
            yield "no delayOffset.json can be read: a broker that starts with this store delivers all levels again"
        if not found.has_timer_check:
            yield "there is no config/timercheck: a broker that starts with this store delivers all timers again"
        if found.missing_bytes:
            yield missing_line(found.missing_bytes)
        yield from found.notes


_WORDS: Final = {
    "waiting": ("waits: it is not due yet", "wait: they are not due yet"),
    "overdue": ("is overdue: due, and not delivered", "are overdue: due, and not delivered"),
    "unsettled": (
        "was due after the broker wrote down what it had delivered: it may be delivered since",
        "were due after the broker wrote down what it had delivered: they may be delivered since",
    ),
    "orphaned": ("is orphaned: no broker will deliver it", "are orphaned: no broker will deliver them"),
    "delivered": ("is delivered", "are delivered"),
    "cancelled": ("timer is cancelled", "timers are cancelled"),
    "rolled": (
        "timer was put again, to wait for another turn of the wheel",
        "timers were put again, to wait for another turn of the wheel",
    ),
}
"""What is said of one, and of several."""

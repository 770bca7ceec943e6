# SPDX-License-Identifier: Apache-2.0
"""The answer `delays`: which delayed messages and timers are due when, are overdue, or will never be delivered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.life.calendar import calendar_rows, scale_of
from store_core.answers.life.delay_report import DelaysFacts, DelaysReport
from store_core.answers.life.delay_rows import DELAY_COLUMNS, delayed_rows, timer_rows
from store_core.answers.life.delay_states import (
    DelayState,
    LevelRules,
    TimerRules,
    cancelled_by_others,
    delay_levels,
    level_states,
    timer_states,
)
from store_core.answers.life.message_read import read_of
from store_core.answers.life.message_reads import ReadJob
from store_core.answers.life.stray_timers import stray_timers
from store_core.answers.local_engine import local_engine
from store_core.files.clock import SystemClock
from store_core.files.config_paths import CONFIG_DIRECTORY, TIMER_CHECK_FILE
from store_core.format.counted import counted
from store_core.format.iso_time import iso_time
from store_core.format.record.delayed import SCHEDULE_TOPIC, TIMER_TOPIC
from store_core.format.releases.release import DEFAULT_RELEASE, rules_of
from store_core.format.table_time import table_time
from store_core.snapshot.config import DELAY_OFFSETS, Config
from store_core.snapshot.log import Log
from store_core.store.configured_store import configured_paths, told
from store_core.store.least_value import check_least
from store_core.store.read.last_rows import last_rows
from store_core.store.read.store_time import check_calendar_time
from store_core.views.store_root import root_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.clock import Clock
    from store_core.files.store_path import StorePaths
    from store_core.format.releases.release import Release
    from store_core.store.parts import Engine, ProgressSink

__all__ = ["DelaysOptions", "delays", "delays_by"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaysOptions:
    """How delayed messages are judged.

    Attributes
    ----------
    at : int, optional
        As of which time, ms since 1970; now by default.
    late_after : int
        Seconds for which a message may be overdue before that is a finding: a broker writes only every ten seconds
        down what it has delivered.
    lists_all : bool
        Whether the table has the messages that wait, too.
    most_rows : int
        Messages that are listed; all are counted.
    broker_config : path, optional
        The broker's configuration file, if it sets ``messageDelayLevel``.
    release : str
        RocketMQ release that serves the store.
    """

    at: int | None = None
    late_after: int = 60
    lists_all: bool = False
    most_rows: int = 1000
    broker_config: str | os.PathLike[str] | None = None
    release: Release = DEFAULT_RELEASE


def delays(  # noqa: PLR0913 -- what is asked, of which store, and by how many processes
    paths: StorePaths,
    options: DelaysOptions | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
    clock: Clock | None = None,
) -> DelaysReport:
    """Tell when the delayed messages and timers of a store are due, and which will not be delivered.

    Only the topics where they wait are read, through their queues where these prove complete. Nothing is written, and
    no lock is taken. Damage is left out.

    Parameters
    ----------
    paths : path or sequence of paths
        As of `store_core.read_messages`.
    options : DelaysOptions, optional
    config : path, optional
        The broker's configuration, as of option `config` of `store_core.read_messages`.
    processes : int
        1 is this process alone. More are started by ``spawn``, so a script has to call this below
        ``if __name__ == "__main__":``.
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part.
    clock : Clock, optional

    Raises
    ------
    StoreError
        If an option is invalid, or the path has nothing to read.

    Examples
    --------
    >>> from store_core.answers import delays
    >>> print(delays("/data/store").to_text())  # doctest: +SKIP
    """
    options = told(options or DelaysOptions(), config)
    with local_engine(processes, on_progress) as engine:
        return delays_by(engine, paths, options, clock=clock)


def delays_by(
    engine: Engine, paths: StorePaths, options: DelaysOptions | None = None, *, clock: Clock | None = None
) -> DelaysReport:
    """Tell when delayed messages are due, on an engine; see `delays`."""
    chosen = options or DelaysOptions()
    check_calendar_time("at", chosen.at)
    check_least(0, late_after=chosen.late_after, most_rows=chosen.most_rows)
    levels = delay_levels(chosen.broker_config, chosen.release)
    paths = configured_paths(paths, chosen.broker_config)
    root = root_of(paths)
    # What is delivered is asked first, so that nothing which is delivered meanwhile appears orphaned.
    config = Config(root, chosen.release)
    delivered, notes = config.known(DELAY_OFFSETS, "what is delivered of delay levels")
    written = _written(root, DELAY_OFFSETS.name), _written(root, TIMER_CHECK_FILE)
    known = _Known(delivered, *config.timer_check, _last_stored(paths), *written)
    shared: dict[str, Any] = {"release": chosen.release, "verify_crc": False}
    reads = {
        "levels": read_of(DELAY_COLUMNS, delayed_rows, topic=(SCHEDULE_TOPIC,), **shared),
        "timers": read_of(DELAY_COLUMNS, timer_rows, topic=(TIMER_TOPIC,), **shared),
    }
    found = engine.run(ReadJob(paths, reads))
    at = (clock or SystemClock()).now_ms() if chosen.at is None else chosen.at
    last_stored = known.last_stored or 0
    rules = LevelRules(levels, known.delay_offsets or {}, at, last_stored, known.offsets_written)
    features = rules_of(chosen.release)
    until, offset, check_written = known.timers_read_until, known.timers_offset, known.check_written
    timers = TimerRules(until, offset, at, last_stored, features, check_written)
    judged = {
        "level": level_states(found.tables["levels"], rules),
        "timer": timer_states(found.tables["timers"], timers),
    }
    notes += _notes_of_others(*cancelled_by_others(found.tables["timers"], timers), chosen.release)
    extent = Log.for_reading(paths)
    missing_bytes, stray = extent.missing_bytes, stray_timers(root, extent.segments, chosen.release)
    notes += () if stray is None else (stray.note,)
    return _Made(root, chosen, rules, known, judged, (*found.notes, *notes), missing_bytes).report()


@dataclass(frozen=True, slots=True)
class _Known:
    """What the broker's files say: None where there is no file."""

    delay_offsets: dict[int, int] | None
    timers_read_until: int | None
    timers_offset: int
    last_stored: int | None
    offsets_written: int | None
    check_written: int | None


def _written(root: Path, name: str) -> int | None:
    """Return when a file of the broker's configuration was written, ms; None if that is not known."""
    try:
        return (root / CONFIG_DIRECTORY / name).stat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def _notes_of_others(cancelled: int, releases: tuple[str, ...], release: Release) -> tuple[str, ...]:
    """Say that the log has cancellations of timers as other releases write them."""
    if not releases:
        return ()
    shown = counted(cancelled, "timer")
    names = " and ".join(releases)
    advice = f"if the broker of this store is one, use release {releases[-1]}"
    return (f"{shown} not cancelled by the rules of RocketMQ {release}, but by those of {names}: {advice}",)


def _last_stored(paths: StorePaths) -> int | None:
    """Return the store time of the last record, ms; None in an empty log."""
    read = read_of(("store_timestamp",)).options
    batches = last_rows(paths, read, 1)
    if not batches:
        return None
    time: int = batches[-1]["store_timestamp"].cast(pa.int64())[-1].as_py()
    return time // 1000


@dataclass(frozen=True, slots=True)
class _Made:
    """What a report is made of: rows by kind."""

    root: Path
    options: DelaysOptions
    rules: LevelRules
    known: _Known
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
        known = self.known
        facts = DelaysFacts(
            store=str(self.root),
            at=iso_time(self.rules.at),
            last_stored=None if known.last_stored is None else iso_time(known.last_stored),
            scale=scale,
            messages=sum(table.num_rows for table in self.judged.values()),
            late=sum(int((times < late).sum()) for times in overdue),
            has_delay_offsets=known.delay_offsets is not None or not self.judged["level"].num_rows,
            has_timer_check=known.timers_read_until is not None or not self.judged["timer"].num_rows,
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
        """Say as of when the broker's files are, where they are older than the log's end and that counts."""
        known, last = self.known, self.known.last_stored or 0
        files = ("level", DELAY_OFFSETS.name, known.offsets_written), ("timer", TIMER_CHECK_FILE, known.check_written)
        for kind, name, written in files:
            if written is not None and written < last and self.judged[kind].num_rows:
                yield (
                    f"what is delivered is as of {iso_time(written)}, when {CONFIG_DIRECTORY}/{name} was written; the "
                    f"log goes on to {iso_time(last)}: what was due since then is counted apart"
                )

    def _offset_notes(self) -> Iterator[str]:
        """Name offsets that are beyond the messages of their level: those that come next would be passed over."""
        rows = self.judged["level"]
        for level, offset in sorted(self.rules.next_offsets.items()):
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
                "next_offset": self.rules.next_offsets.get(level),
                **_totals(mine),
            }

    def _timer_rows(self) -> Iterator[dict[str, Any]]:
        if self.judged["timer"].num_rows:
            next_offset = None if self.known.timers_read_until is None else self.known.timers_offset
            yield {"kind": "timer", "next_offset": next_offset, **_totals(self.judged["timer"])}

    def _topic_rows(self) -> list[dict[str, Any]]:
        found = []
        for kind, table in self.judged.items():
            for topic in pc.unique(table["real_topic"]).to_pylist():
                is_it = pc.is_null(table["real_topic"]) if topic is None else pc.equal(table["real_topic"], topic)
                mine = _totals(table.filter(is_it))
                if any(mine[name] for name in _COUNTED):
                    found.append({"real_topic": topic, "kind": kind, **mine})
        return sorted(found, key=lambda row: (row["real_topic"] or "", row["kind"]))

    def _message_rows(self) -> list[dict[str, Any]]:
        others = [DelayState.UNSETTLED, DelayState.WAITING] if self.options.lists_all else []
        wanted = [DelayState.ORPHANED, DelayState.OVERDUE, *others]
        found: list[dict[str, Any]] = []
        for state in wanted:
            for kind, table in self.judged.items():
                rows = _in_state(table, state).sort_by("due").slice(0, self.options.most_rows)
                found += [{"kind": kind, **row} for row in rows.to_pylist()]
        for row in found:
            row["due"], row["store_timestamp"] = table_time(row["due"]), table_time(row["store_timestamp"])
        return found[: self.options.most_rows]


_COUNTED: Final = (DelayState.WAITING, DelayState.OVERDUE, DelayState.UNSETTLED, DelayState.ORPHANED)


def _in_state(table: pa.Table, state: DelayState) -> pa.Table:
    return table.filter(pc.equal(table["state"], state.value))


def _undelivered(table: pa.Table) -> pa.Table:
    states = [state.value for state in DelayState if state.is_undelivered]
    return table.filter(pc.is_in(table["state"], pa.array(states)))


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

# SPDX-License-Identifier: Apache-2.0
"""Delayed messages and timers in a log: their rows, and whether they wait, are overdue, or will never be delivered."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.message_reads import RecordLookUp
from store_core.broker.transactions import with_ms
from store_core.errors import StoreError
from store_core.format.columnar.arrow_slices import with_properties
from store_core.format.columns import iso_time
from store_core.format.record.delayed import SCHEDULE_TOPIC, TIMER_TOPIC
from store_core.format.release import RELEASE_RULES, Release
from store_core.snapshot.timers import Timers, due_times
from store_core.snapshot.units import QueueDoubtError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    from store_core.format.release_rules import ReleaseRules
    from store_core.snapshot.log import Log
    from store_core.snapshot.store import Store


_MOST: Final = 100_000
"""Timers whose records are looked at: a record takes some microseconds."""


class StrayTimers(NamedTuple):
    """Units of the log of timers that lead to no timer.

    * `position`, `physical_offset`: Where the first one is in the log of timers, and where it leads to.
    """

    timers: int
    path: str  # the file of the first of them
    position: int
    physical_offset: int
    found: str  # what is there

    @property
    def note(self) -> str:
        """What is said of them."""
        leads = "pending timer of timerlog leads" if self.timers == 1 else "pending timers of timerlog lead"
        return (
            f"{self.timers} {leads} past the log's end or to other records, as after a log that was cut and has grown "
            f"again: a broker does not deliver them. The first, at {self.position} in {self.path}, leads to offset "
            f"{self.physical_offset}: {self.found}"
        )


def stray_timers(timers: Timers, log: Log, release: str, end: int | None = None) -> StrayTimers | None:
    """Return the pending timers that lead to no timer in the log; None if all do, or there are none.

    Those before the log's first record are left out: what they led to was deleted.

    * `end`: Physical offset at which the log is read to its end, if a broker goes on writing it.
    """
    if not log.segments or log.segments[0].entries is not None:
        return None
    most = np.iinfo(np.int64).max if end is None else end
    units_at: dict[int, list[tuple[int, str, int]]] = {}
    count = 0
    for file in timers.files:
        units = Timers.units(file).units
        is_pending = due_times(units) >= (timers.read_until or 0)
        is_pending &= (units["physical_offset"] >= log.begin) & (units["physical_offset"] < most)
        for number in np.flatnonzero(is_pending)[: _MOST - count].tolist():
            unit = units[number]
            place = file.start_offset + number * units.dtype.itemsize
            units_at.setdefault(int(unit["physical_offset"]), []).append((place, file.path, int(unit["store_size"])))
            count += 1
    look_up = RecordLookUp(log.segments, units_at, release)
    records = look_up.merge(map(look_up.run, look_up.plan()))
    begin = log.remaining().begin  # after the look-up: what was deleted meanwhile is not missing
    stray: list[StrayTimers] = []
    for offset, found_units in units_at.items():
        if offset < begin:
            continue
        nothing = f"the log's last file ends at {log.end}" if offset >= log.end else "no record begins there"
        for place, path, size in found_units:
            found = nothing if offset not in records else _mistaken(records[offset], size)
            if found is not None:
                stray.append(StrayTimers(0, path, place, offset, found))
    return min(stray, key=lambda each: each.position)._replace(timers=len(stray)) if stray else None


def _mistaken(record: Mapping[str, Any], size: int) -> str | None:
    """Return what a record is, if not the timer of some bytes."""
    if record["topic"] != TIMER_TOPIC:
        return f"a message of topic {record['topic'][:100]!r}"
    return None if record["store_size"] == size else f"a timer of {record['store_size']} bytes, not of {size}"


DELAY_COLUMNS: Final = ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "properties", "body")

_PROPERTIES: Final = {
    "real_topic": "REAL_TOPIC",
    "real_queue_id": "REAL_QID",
    "unique_key": "UNIQ_KEY",
    "delay_level": "DELAY",
    "due": "TIMER_OUT_MS",
    "cancels": "TIMER_DEL_UNIQKEY",
    "roll_times": "TIMER_ROLL_TIMES",
}
_INTEGER: Final = "^[+-]?[0-9]{1,18}$"


def delayed_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return delayed messages and timers, read with `DELAY_COLUMNS`: whether they have a body, not the body."""
    has_body = pc.greater(pc.fill_null(pc.binary_length(batch["body"]), 0), 0)
    rows = with_ms(with_properties(batch.append_column("has_body", has_body).drop_columns(["body"]), _PROPERTIES))
    for name in ("delay_level", "due"):
        rows = rows.set_column(rows.schema.get_field_index(name), name, integers_in(rows[name]))
    return rows


def integers_in(texts: pa.Array) -> pa.Array:
    """Return numbers in decimal; null for what is none."""
    is_number = pc.match_substring_regex(texts, _INTEGER)
    digits = pc.replace_substring_regex(texts, r"^\+", "")
    return pc.if_else(pc.fill_null(is_number, False), digits, pa.scalar(None, pa.string())).cast(pa.int64())  # noqa: FBT003 -- a value


def delay_levels(config: str | os.PathLike[str] | None, release: Release) -> tuple[int, ...]:
    """Return the delay of each level, ms: as a broker's file sets ``messageDelayLevel``, or the usual ones."""
    from store_core.store.message_store_config import MessageStoreConfig

    if config is None:
        return MessageStoreConfig(release=release).delay_levels
    return MessageStoreConfig.from_properties(config, release=release).delay_levels


def levels_note(store: Store, waiting: Iterable[tuple[int, int, int, int]]) -> tuple[str, ...]:
    """Return what is said of the first message for which its queue has another time; nothing if there is none.

    * `waiting`: Queue id, queue offset, physical offset, and when the levels say that it is due, ms.
    """
    with suppress(StoreError, QueueDoubtError, OSError):  # what is wrong with queues is for `check` to say
        for queue_id, offset, position, due in waiting:
            for units in store.queues.units(SCHEDULE_TOPIC, queue_id, offset, offset + 1):
                told = int(units.stored["tags_code"][0])
                if units.starts[0] == position and told != due:
                    times = f"is due at {iso_time(due)}, and by its queue, as a broker goes, at {iso_time(told)}"
                    found = f"level {queue_id + 1}: by the levels that are assumed the message at {position} {times}"
                    return (f"{found}. If the broker has its own messageDelayLevel, give its configuration (--config)",)
    return ()


class DelayState(StrEnum):
    """What becomes of a message; the value is its name in reports."""

    WAITING = "waiting"
    OVERDUE = "overdue"
    UNSETTLED = "unsettled"
    ORPHANED = "orphaned"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"
    ROLLED = "rolled"


_SLOWEST_MS: Final = 5000
"""Delay of a busy broker's delivery: messages due within it before the files were written may be undelivered."""

_NO_LEVEL: Final = "no such delay level: no broker looks at its queue"
_NO_TOPIC: Final = "does not name its real topic and queue"
_PASSED: Final = "delayOffset.json is past it, and it was not due when the log ended"
_PASSED_TIMER: Final = "config/timercheck is past it, and it was not due when the log ended"
_SINCE: Final = "due after the broker wrote down what it had delivered: may be delivered since"
_EMPTY: Final = "has an empty body, which the timer never delivers"
_EMPTY_LEVEL: Final = "has an empty body: RocketMQ 5 refuses to put it, and gets no further in its level"


@dataclass(frozen=True, slots=True)
class LevelRules:
    """What is known of the delivery of delayed messages."""

    delays: Sequence[int]  # of each level, ms, level 1 first
    next_offsets: Mapping[int, int] | None
    """Level -> the queue offset that is delivered next; a level without one begins at its queue's first. None without
    the file that says so."""
    at: int  # as of when, ms
    last_stored: int  # store time of the log's last record, ms: what was delivered later is not in it
    written: int | None = None  # when the broker wrote the offsets, ms, if that is known


@dataclass(frozen=True, slots=True)
class TimerRules:
    """What is known of the delivery of timers.

    * `last_stored`, `written`: As of `LevelRules`.
    """

    read_until: int | None
    """The slot of the wheel that is read next, ms; None without the file that says so: all are delivered again."""
    next_offset: int  # queue offset of the first timer that is not in the wheel
    at: int  # as of when, ms
    last_stored: int
    features: ReleaseRules  # of the release that serves the store: how cancelling timers name others
    written: int | None = None


def level_states(rows: pa.Table, rules: LevelRules) -> pa.Table:
    """Return delayed messages with ``due`` in ms, ``state`` and ``reason``, in place of what these follow from."""
    levels = _numbers(rows["queue_id"]) + 1
    due = _due_times(rows, rules)
    next_offsets = rules.next_offsets or {}
    following = np.array([next_offsets.get(level, 0) for level in range(len(rules.delays) + 1)], np.int64)
    is_level = (levels > 0) & (levels <= len(rules.delays))
    is_passed = _numbers(rows["queue_offset"]) < following[np.where(is_level, levels, 0)]
    found = _States(due, rules)
    found.say(DelayState.DELIVERED, is_passed)
    found.say(DelayState.ORPHANED, is_passed & (due > rules.last_stored), _PASSED)
    found.say(DelayState.ORPHANED, ~is_passed & ~_has_place(rows), _NO_TOPIC)
    found.say(DelayState.ORPHANED, ~is_level, _NO_LEVEL)
    found.explain(DelayState.OVERDUE, ~_flags(rows["has_body"]), _EMPTY_LEVEL)
    return found.added_to(rows.append_column("level", pa.array(levels, pa.int64())))


def timer_states(rows: pa.Table, rules: TimerRules) -> pa.Table:
    """Return timers with ``due`` in ms, ``state`` and ``reason``; those that only cancel another are left out."""
    timers = rows.filter(pc.is_null(rows["cancels"]))
    due = _numbers(timers["due"])
    until = -1 if rules.read_until is None else rules.read_until
    offsets = _numbers(timers["queue_offset"])
    is_read = (due < until) & (offsets < rules.next_offset)
    found = _States(due, rules)
    found.say(DelayState.DELIVERED, is_read)
    found.say(DelayState.ORPHANED, is_read & (due > rules.last_stored), _PASSED_TIMER)
    found.say(DelayState.ORPHANED, ~_flags(timers["has_body"]) & (is_read | (due <= rules.at)), _EMPTY)
    found.say(DelayState.ORPHANED, ~_has_place(timers) & ~is_read, _NO_TOPIC)
    found.say(DelayState.CANCELLED, _is_cancelled(timers, rows.filter(pc.is_valid(rows["cancels"])), rules.features))
    found.say(DelayState.ROLLED, _is_put_again(timers))
    return found.added_to(timers.append_column("level", pa.nulls(timers.num_rows, pa.int64())))


class _States:
    """States and reasons; what is said later holds."""

    def __init__(self, due: npt.NDArray[np.int64], rules: LevelRules | TimerRules) -> None:
        self._due = due
        self._states = np.where(due > rules.at, DelayState.WAITING.value, DelayState.OVERDUE.value).astype(object)
        self._reasons = np.full(due.size, None, object)
        if rules.written is not None and rules.written < rules.last_stored:
            is_between = (due > rules.written - _SLOWEST_MS) & (due <= min(rules.last_stored, rules.at))
            self.say(DelayState.UNSETTLED, is_between, _SINCE)

    def say(self, state: DelayState, where: npt.NDArray[np.bool_], reason: str | None = None) -> None:
        self._states[where] = state.value
        self._reasons[where] = reason

    def explain(self, state: DelayState, where: npt.NDArray[np.bool_], reason: str) -> None:
        self._reasons[where & (self._states == state.value)] = reason

    def added_to(self, rows: pa.Table) -> pa.Table:
        kept = rows.select([name for name in _KEPT if name in rows.column_names])
        added = {
            "due": pa.array(self._due),
            "state": pa.array(self._states.tolist(), pa.string()),
            "reason": pa.array(self._reasons.tolist(), pa.string()),
        }
        for name, values in added.items():
            kept = kept.append_column(name, values)
        return kept


_KEPT: Final = (
    "level",
    "real_topic",
    "real_queue_id",
    "unique_key",
    "queue_offset",
    "physical_offset",
    "store_timestamp",
)


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = pc.fill_null(column, 0).to_numpy().astype(np.int64)
    return numbers


def _flags(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = column.to_numpy()
    return flags


def cancelled_by_others(rows: pa.Table, rules: TimerRules) -> tuple[int, tuple[str, ...]]:
    """Return how many timers count as cancelled by the rules of other releases alone, and which these are.

    A producer names a timer as the release of its broker wants it, so these cancellations are for another one.
    """
    timers, cancelling = rows.filter(pc.is_null(rows["cancels"])), rows.filter(pc.is_valid(rows["cancels"]))
    here, most, releases = _is_cancelled(timers, cancelling, rules.features), 0, []
    for name, features in RELEASE_RULES.items() if cancelling.num_rows else ():
        others = features.has_timer_messages and _is_cancelled(timers, cancelling, features) & ~here
        if np.any(others):
            most = max(most, int(np.count_nonzero(others)))
            releases.append(name)
    return most, tuple(releases)


def _due_times(rows: pa.Table, rules: LevelRules) -> npt.NDArray[np.int64]:
    """Return when messages are due: RocketMQ adds the delay of property DELAY, whichever queue it is in.

    A level above the highest is the highest; without one, a message is due at once
    (5.3: ``CommitLog.checkMessageAndReturnSize``).
    """
    delays = np.array([0, *rules.delays], np.int64)
    levels = np.clip(_numbers(rows["delay_level"]), 0, len(rules.delays))
    due: npt.NDArray[np.int64] = _numbers(rows["store_timestamp"]) + delays[levels]
    return due


def _has_place(rows: pa.Table) -> npt.NDArray[np.bool_]:
    queues = integers_in(rows["real_queue_id"].combine_chunks())
    return _flags(pc.and_(pc.is_valid(rows["real_topic"]), pc.is_valid(queues)))


def _is_cancelled(timers: pa.Table, cancelling: pa.Table, features: ReleaseRules) -> npt.NDArray[np.bool_]:
    """Return which timers another one of their time cancels, as `store_core.views.timers` does for units."""
    from store_core.views.timers import cancel_key

    if not cancelling.num_rows:
        return np.zeros(timers.num_rows, bool)
    named = set(zip(cancelling["cancels"].to_pylist(), cancelling["due"].to_pylist(), strict=True))
    columns = (timers[name].to_pylist() for name in ("unique_key", "real_topic", "due"))
    return np.array(
        [
            key is not None and (cancel_key(topic, key, features), due) in named
            for key, topic, due in zip(*columns, strict=True)
        ],
        bool,
    )


def _is_put_again(timers: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which timers were put again, to wait for another turn of the wheel: those before a copy that says so."""
    keys, is_copy = timers["unique_key"].to_pylist(), _flags(pc.is_valid(timers["roll_times"]))
    last = {key: at for at, key in enumerate(keys) if is_copy[at] and key is not None}
    return np.array([at < last.get(key, -1) for at, key in enumerate(keys)], bool)

# SPDX-License-Identifier: Apache-2.0
"""The views ``timerlog`` and ``timerwheel``: messages that wait for their time, as the store has them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from store_core.errors import StoreError, UnsafeSizeError
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.segment_source import Segment, file_at, open_segment
from store_core.format.columnar.arrow_slices import fixed_array, repeat_text
from store_core.format.layout import TIMER_SLOT, unit_dtype
from store_core.format.properties import REAL_TOPIC, TIMER_DEL_UNIQKEY, UNIQ_KEY, PropertyParser
from store_core.format.record.decode import decode_message
from store_core.format.release import rules_of
from store_core.snapshot.timers import (
    CANCELS,
    ROLLS,
    TIMER_DTYPE,
    TIMER_LOG,
    SlotChains,
    Timers,
    due_times,
    followed_slots,
)
from store_core.views.view import ViewOptions, absent, make_batch, tell, timestamps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import numpy.typing as npt

    from store_core.format.release_rules import ReleaseRules
    from store_core.snapshot.log import Log
    from store_core.snapshot.store import Store


_log: Final = logging.getLogger("store_core")


@dataclass(frozen=True, slots=True, eq=False)
class TimerCancels:
    """The cancelling timers that are pending, by time.

    A broker collects the properties TIMER_DEL_UNIQKEY of a slot's cancelling timers, and delivers none of the slot's
    others whose key is among them: by the release, REAL_TOPIC, a plus sign and UNIQ_KEY, or UNIQ_KEY alone. A timer
    that is to be put again cancels nothing yet. RocketMQ: ``TimerMessageStore.TimerDequeueGetMessageService``.
    """

    units: npt.NDArray[np.void]  # their units, ordered by time
    due: npt.NDArray[np.int64]  # int64: their times, ms, ascending
    log: Log
    features: ReleaseRules

    def are_cancelled(self, units: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Return which units are cancelled; not those of whose message, or cancelling message, nothing is left."""
        cancelled = np.zeros(len(units), np.bool_)
        due = due_times(units)
        rows = np.flatnonzero(np.isin(due, self.due) & ~_cancels(units))
        rows = rows[np.argsort(due[rows], kind="stable")]
        time, keys = None, frozenset[str]()
        for row, properties in self._properties(units, rows):
            if due[row] != time:
                time, keys = due[row], self._keys(int(due[row]))
            cancelled[row] = (
                UNIQ_KEY in properties
                and cancel_key(properties.get(REAL_TOPIC), properties[UNIQ_KEY], self.features) in keys
            )
        return cancelled

    def _keys(self, time: int) -> frozenset[str]:
        first, stop = np.searchsorted(self.due, (time, time + 1))
        found = self._properties(self.units, np.arange(first, stop))
        return frozenset(properties[TIMER_DEL_UNIQKEY] for _, properties in found if TIMER_DEL_UNIQKEY in properties)

    def _properties(
        self, units: npt.NDArray[np.void], rows: npt.NDArray[np.int64]
    ) -> Iterator[tuple[int, Mapping[str, str]]]:
        """Yield the properties of the messages of some timers, as far as they are in the log."""
        parser = PropertyParser.of_release(self.features.release)
        for row in rows.tolist():
            offset = int(units["physical_offset"][row])
            segment = self.log.segment_at(offset)
            if segment is None:
                continue
            try:
                with open_segment(segment) as opened:
                    data = segment.record(opened, offset).data
                    message = decode_message(data, 0, offset, parser=parser, verify_crc=False)
            except StoreError:
                continue  # a broker passes over what it can't read
            yield row, message.properties


def cancel_key(real_topic: str | None, unique_key: str, features: ReleaseRules) -> str:
    """Return by what a cancelling timer names the timer with a unique key."""
    return f"{real_topic or ''}+{unique_key}" if features.cancels_timers_by_topic_and_key else unique_key


def find_cancels(timers: Timers, log: Log, after: int, options: ViewOptions) -> TimerCancels | None:
    """Find the cancelling timers that are due at a time, ms, or later, in all files of a log; None without any."""
    found = [np.empty(0, TIMER_DTYPE)]
    for file in timers.pending_files(after):
        units = told_units(file, options)
        found.append(units[_cancels(units) & (due_times(units) >= after)])
    units = np.concatenate(found)
    order = np.argsort(due_times(units), kind="stable")
    features = rules_of(options.read.release)
    return TimerCancels(units[order], due_times(units)[order], log, features) if order.size else None


def _cancels(units: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    cancels: npt.NDArray[np.bool_] = units["magic"] & (CANCELS | ROLLS) == CANCELS
    return cancels


def told_units(file: Segment, options: ViewOptions) -> npt.NDArray[np.void]:
    """Return the units of a file; without `fail_on_data_loss`, those before what is wrong, which is told."""
    units, problem = Timers.units(file)
    if problem is not None:
        tell(problem, options)
    return units


_SLOT: Final = unit_dtype(TIMER_SLOT)
_PRECISION: Final = 1000
"""Milliseconds of a slot (``timerPrecisionMs``), where no unit shows it."""

_MOST_BYTES: Final = 1 << 30
"""Bytes of a wheel that are read; RocketMQ's has 1,209,600 slots of 32 bytes."""

_UNITS_AT_ONCE: Final = 1 << 16
"""Units of the log of timers whose chains are followed together."""

_CHAINED: Final = ("units", "state", "due_timestamp", "is_pending")
"""Columns of a slot for which the log of timers is read."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """One file of the log of timers."""

    file: Segment
    timers: Timers  # all of them
    log: Log  # the commit log, which has the messages of timers

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield a row for each unit."""
        units = told_units(self.file, options)
        most, after = options.read.max_records_per_batch, self.timers.read_until
        due = due_times(units)
        is_asked = after is not None and options.asks_for("is_pending", "is_cancelled") and bool((due >= after).any())
        cancels = find_cancels(self.timers, self.log, after, options) if is_asked and after is not None else None
        for first in range(0, len(units), most):
            some = units[first : first + most]
            is_cancelled = np.zeros(len(some), np.bool_) if cancels is None else cancels.are_cancelled(some)
            yield self._batch(some, is_cancelled, first, options)

    def _batch(
        self, units: npt.NDArray[np.void], is_cancelled: npt.NDArray[np.bool_], first: int, options: ViewOptions
    ) -> pa.RecordBatch:
        begin = self.file.start_offset + first * TIMER_DTYPE.itemsize
        due = due_times(units)

        def stored(name: str) -> pa.Array:
            return fixed_array(units[name].astype(units[name].dtype.newbyteorder("=")))

        def times(name: str, values: npt.NDArray[np.int64]) -> pa.TimestampArray:
            record = units["physical_offset"]
            return timestamps(values, options, name, lambda row: f"the timer of the record at offset {record[row]}")

        return make_batch(
            options,
            {
                "due_timestamp": lambda: times("due_timestamp", due),
                "is_pending": lambda: _is_pending(due, self.timers.read_until, is_cancelled),
                "is_cancelled": lambda: _unless_unknown(is_cancelled, self.timers.read_until),
                "is_rolled": lambda: pa.array(units["magic"] & ROLLS != 0),
                "is_cancelling": lambda: pa.array(units["magic"] & CANCELS != 0),
                "write_timestamp": lambda: times("write_timestamp", units["write_timestamp"].astype(np.int64)),
                "position": lambda: pa.array(begin + TIMER_DTYPE.itemsize * np.arange(len(units))),
                "segment": lambda: repeat_text(self.file.name, len(units)),
                **{
                    name: lambda name=name: stored(name)  # type: ignore[misc]  # mypy can't infer lambdas with defaults
                    for name in ("delay", "physical_offset", "store_size", "topic_hash", "previous_position")
                },
            },
        )


@dataclass(frozen=True, slots=True)
class WheelPart:
    """The whole wheel."""

    file: Segment  # its start offset is 0
    timers: Timers

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield a row for each slot that was ever used."""
        with open_segment(self.file) as opened:
            slots = opened.chunk(0, self.file.size // _SLOT.itemsize * _SLOT.itemsize).view(_SLOT)
            numbers = np.flatnonzero(slots["time"])
            used = slots[numbers]
        last = used["last_position"].astype(np.int64)
        judged = _judged(used, followed_slots(last, self._chunks(options) if options.asks_for(*_CHAINED) else ()))
        most = options.read.max_records_per_batch
        for first in range(0, len(used), most):
            some = slice(first, first + most)
            yield self._batch(numbers[some], used[some], judged.some(some), options)

    def _chunks(self, options: ViewOptions) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]]:
        """Yield positions and units of some units at a time, the last ones first."""
        for file in reversed(self.timers.files):
            units = told_units(file, options)
            positions = Timers.positions(file, len(units))
            for first in range((len(units) - 1) // _UNITS_AT_ONCE * _UNITS_AT_ONCE, -1, -_UNITS_AT_ONCE):
                some = slice(first, first + _UNITS_AT_ONCE)
                yield positions[some], units[some]

    def _batch(
        self, numbers: npt.NDArray[np.int64], used: npt.NDArray[np.void], judged: _Judged, options: ViewOptions
    ) -> pa.RecordBatch:
        return make_batch(
            options,
            {
                "slot": lambda: fixed_array(numbers.astype(np.int32)),
                "due_timestamp": lambda: timestamps(
                    judged.due, options, "due_timestamp", lambda row: f"{self.file.path}: slot {numbers[row]}"
                ),
                "is_pending": lambda: _is_pending(judged.due, self.timers.read_until),
                "timers": lambda: fixed_array(used["timers"].astype(np.int32)),
                "units": lambda: pa.array(judged.units, mask=judged.units < 0),
                "state": lambda: pa.array(judged.states.tolist(), pa.string()),
                "first_position": lambda: fixed_array(used["first_position"].astype(np.int64)),
                "last_position": lambda: fixed_array(used["last_position"].astype(np.int64)),
            },
        )


class _Judged(NamedTuple):
    """Slots beside the units that they lead to: the slots' times in ms, numbers of units or -1, and states."""

    due: npt.NDArray[np.int64]
    units: npt.NDArray[np.int64]
    states: npt.NDArray[np.object_]

    def some(self, rows: slice) -> _Judged:
        """Return those of some slots."""
        return _Judged(self.due[rows], self.units[rows], self.states[rows])


def plan_log(store: Store, options: ViewOptions) -> list[LogPart]:
    """List the files of ``timerlog/``."""
    timers, log = _timers(store.root, options), store.log
    return [LogPart(file, timers, log) for file in timers.files]


def plan_wheel(store: Store, options: ViewOptions) -> list[WheelPart]:
    """Find the wheel's file, and list those of ``timerlog/``."""
    wheel = _wheel_in(store.root)
    if not wheel.is_file():
        tell(_no_timers_at(wheel), options)
        return []
    file = file_at(wheel)
    if file.size > _MOST_BYTES:
        raise UnsafeSizeError(
            "wheel of timers too large", file.path, 0, f"at most {_MOST_BYTES} bytes", f"{file.size} bytes", b"",
            "RocketMQ makes one of 38,707,200 bytes. Compare it with another copy of the store",
        )  # fmt: skip
    return [WheelPart(file, _timers(store.root, options))]


def _wheel_in(root: Path) -> Path:
    """Return the wheel's file: the last snapshot, since a broker that makes some does not write ``timerwheel``."""
    wheel = root / "timerwheel"
    paths = (root / name for name in names_in(root, OsFileSystem()))  # also by URL
    snapshots = [path for path in paths if path.stem == wheel.name and path.suffix[1:].isdecimal()]
    last = max(snapshots, key=lambda path: int(path.suffix[1:]), default=wheel)
    if last is not wheel:
        _log.warning("%s is read, as by a broker with timerWheelSnapshotFlush; one without it reads %s", last, wheel)
    return last


def _timers(root: Path, options: ViewOptions) -> Timers:
    timers = Timers.of(root)
    if not (root / TIMER_LOG).is_dir():
        tell(_no_timers_at(root / TIMER_LOG), options)
    for note in timers.notes:
        _log.warning("%s", note)
    return timers


def _no_timers_at(path: Path) -> StoreError:
    return absent(
        path.parent,
        f"{path} is missing: expected what a broker of RocketMQ 5.0 or later keeps there, unless its timers are in a "
        f"RocksDB (timerRocksDBEnable), which the view rocksdbstore shows. Timers are also messages of the topic "
        f"rmq_sys_wheel_timer, with their time in the property TIMER_OUT_MS",
    )


def _is_pending(
    due: npt.NDArray[np.int64], read_until: int | None, is_cancelled: npt.NDArray[np.bool_] | None = None
) -> pa.BooleanArray:
    is_later = due >= (read_until or 0)  # the slot of that time is read next (TimerMessageStore.dequeue)
    return _unless_unknown(is_later if is_cancelled is None else is_later & ~is_cancelled, read_until)


def _unless_unknown(values: npt.NDArray[np.bool_], read_until: int | None) -> pa.BooleanArray:
    return pa.nulls(len(values), pa.bool_()) if read_until is None else pa.array(values)


def _judged(used: npt.NDArray[np.void], chains: SlotChains) -> _Judged:
    """Compare slots with the chains that end where they say; what is found first names the state, from the last on."""
    times = used["time"].astype(np.int64)
    due = times * _precision(times[chains.is_there], chains.due[chains.is_there])
    states = np.full(len(used), "ok", object)
    states[chains.timers != used["timers"]] = "wrong_count"
    states[~chains.is_whole | (chains.first != used["first_position"])] = "broken"
    states[chains.due != due] = "wrong_time"
    states[~chains.is_there] = "not_in_log"
    return _Judged(due, np.where(chains.is_there, chains.units, -1), states)


def _precision(times: npt.NDArray[np.int64], due: npt.NDArray[np.int64]) -> int:
    """Return the milliseconds of a slot: what most slots and the units that they lead to agree on."""
    is_time = times > 0
    ratios = due[is_time] // times[is_time]
    values, counts = np.unique(ratios[ratios > 0], return_counts=True)
    return int(values[counts.argmax()]) if values.size else _PRECISION

# SPDX-License-Identifier: Apache-2.0
"""The views ``timerlog`` and ``timerwheel``: the timers of RocketMQ 5, and the slots that lead to them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from store_core.errors import CorruptRecordError, SegmentVanishedError, StoreNotFoundError, UnsafeSizeError
from store_core.files.access import explained_access
from store_core.files.file_system import OsFileSystem
from store_core.files.local_listing import segments_in
from store_core.files.segment_source import Segment, open_segment
from store_core.format.columnar.arrow_slices import fixed_array, repeat_text
from store_core.format.layout import unit_dtype
from store_core.format.timer_layout import TIMER_SLOT
from store_core.queue.timer.timer_log import CANCELS, ROLLS, TIMER_DTYPE, TimerChains, due_times, timer_units
from store_core.views.config_table import without_file
from store_core.views.store_root import root_of
from store_core.views.view_part import make_batch, timestamps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.store_path import StorePaths
    from store_core.views.view_options import ViewOptions

__all__ = ["LogPart", "WheelPart", "plan_log", "plan_wheel", "timer_check"]

_log: Final = logging.getLogger("store_core")

_SLOT: Final = unit_dtype(TIMER_SLOT)
_LONG: Final = np.dtype(">i8")
_PRECISION: Final = 1000
"""Milliseconds of a slot (``timerPrecisionMs``), where no unit shows it."""

_CHECKED: Final = 3
"""Numbers of ``config/timercheck`` that are read: a time, a position in the log of timers, a queue offset."""

_MOST_BYTES: Final = 1 << 30
"""Bytes of a wheel that are read; RocketMQ's has 1,209,600 slots of 32 bytes."""

_CHAINED: Final = ("units", "state", "due_timestamp", "is_pending")
"""Columns of a slot for which the log of timers is read."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """One file of the log of timers.

    Attributes
    ----------
    file : Segment
    read_until : int or None
        The time up to which slots were due, ms; None if unknown.
    """

    file: Segment
    read_until: int | None

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield a row for each unit."""
        units = _units_of(self.file, options)
        most = options.read.max_records_per_batch
        for first in range(0, len(units), most):
            yield self._batch(units[first : first + most], first, options)

    def _batch(self, units: npt.NDArray[np.void], first: int, options: ViewOptions) -> pa.RecordBatch:
        begin = self.file.start_offset + first * TIMER_DTYPE.itemsize
        due = due_times(units)

        def stored(name: str) -> pa.Array:
            return fixed_array(units[name].astype(units[name].dtype.newbyteorder("=")))

        return make_batch(
            options,
            {
                "due_timestamp": lambda: timestamps(due),
                "is_pending": lambda: _is_pending(due, self.read_until),
                "is_rolled": lambda: pa.array(units["magic"] & ROLLS != 0),
                "is_cancelling": lambda: pa.array(units["magic"] & CANCELS != 0),
                "write_timestamp": lambda: timestamps(units["write_timestamp"].astype(np.int64)),
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
    """The whole wheel.

    Attributes
    ----------
    file : Segment
        Its start offset is 0.
    files : tuple of Segment
        The log of timers.
    read_until : int or None
        As of `LogPart`.
    """

    file: Segment
    files: tuple[Segment, ...]
    read_until: int | None

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield a row for each slot that was ever used."""
        with open_segment(self.file) as opened:
            slots = opened.raw[: opened.raw.size // _SLOT.itemsize * _SLOT.itemsize].view(_SLOT)
            numbers = np.flatnonzero(slots["time"])
            used = slots[numbers]
        judged = _judged(used, _chains(self.files if options.asks_for(*_CHAINED) else (), options))
        most = options.read.max_records_per_batch
        for first in range(0, len(used), most):
            some = slice(first, first + most)
            yield self._batch(numbers[some], used[some], judged.some(some), options)

    def _batch(
        self, numbers: npt.NDArray[np.int64], used: npt.NDArray[np.void], judged: _Judged, options: ViewOptions
    ) -> pa.RecordBatch:
        return make_batch(
            options,
            {
                "slot": lambda: fixed_array(numbers.astype(np.int32)),
                "due_timestamp": lambda: timestamps(judged.due),
                "is_pending": lambda: _is_pending(judged.due, self.read_until),
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


def plan_log(paths: StorePaths, options: ViewOptions) -> list[LogPart]:
    """List the files of ``timerlog/``.

    Raises
    ------
    StoreNotFoundError
        If there is no such directory, unless `fail_on_data_loss` is off.
    """
    root = root_of(paths)
    files, read_until = _files(root, options), _read_until(root)
    return [LogPart(file, read_until) for file in files]


def plan_wheel(paths: StorePaths, options: ViewOptions) -> list[WheelPart]:
    """Find the file ``timerwheel``, and list those of ``timerlog/``.

    Raises
    ------
    StoreNotFoundError
        If either is missing, unless `fail_on_data_loss` is off.
    """
    root = root_of(paths)
    wheel = root / "timerwheel"
    if not wheel.is_file():
        without_file(_nothing_at(wheel), options)
        return []
    file = Segment(str(wheel), 0, wheel.stat().st_size)
    if file.size > _MOST_BYTES:
        raise UnsafeSizeError(
            "wheel of timers too large", file.path, 0, f"at most {_MOST_BYTES} bytes", f"{file.size} bytes", b"",
            "RocketMQ makes one of 38,707,200 bytes. Compare it with another copy of the store",
        )  # fmt: skip
    return [WheelPart(file, _files(root, options), _read_until(root))]


def _files(root: Path, options: ViewOptions) -> tuple[Segment, ...]:
    directory = root / "timerlog"
    if not directory.is_dir():
        without_file(_nothing_at(directory), options)
        return ()
    notes: list[str] = []
    with explained_access(directory):
        files = tuple(segments_in(directory, notes))
    for note in notes:
        _log.warning("%s", note)
    return files


def _nothing_at(path: Path) -> StoreNotFoundError:
    return StoreNotFoundError(
        f"{path} is missing: expected what a broker of RocketMQ 5.0 or later keeps there, unless its timers are in a "
        f"RocksDB (timerRocksDBEnable), which the view rocksdbstore shows. Timers are also messages of the topic "
        f"rmq_sys_wheel_timer, with their time in the property TIMER_OUT_MS. With fail_on_data_loss=false "
        f"(failOnDataLoss in Spark) there are no rows"
    )


def _read_until(root: Path) -> int | None:
    return timer_check(root)[0]


def timer_check(root: Path) -> tuple[int | None, int]:
    """Return what ``config/timercheck`` says; None and 0 without it.

    Returns
    -------
    int or None
        The time up to which slots were due when the broker last wrote the file, ms.
    int
        The queue offset of the first timer that was not in the wheel then.
    """
    try:
        file = OsFileSystem().open(root / "config" / "timercheck", writable=False)
        data = file.read(_CHECKED * _LONG.itemsize, 0)
        file.close()
    except OSError:
        return None, 0
    numbers: list[int] = np.frombuffer(data[: len(data) // _LONG.itemsize * _LONG.itemsize], _LONG).tolist()
    read_until, _, offset = [*numbers, 0, 0, 0][:_CHECKED]
    return (read_until if numbers else None), offset


def _is_pending(due: npt.NDArray[np.int64], read_until: int | None) -> pa.BooleanArray:
    return pa.nulls(len(due), pa.bool_()) if read_until is None else pa.array(due > read_until)


def _units_of(file: Segment, options: ViewOptions) -> npt.NDArray[np.void]:
    """Return the units of a file; without `fail_on_data_loss`, those before what is wrong."""
    try:
        with open_segment(file) as opened:
            units, is_sound = timer_units(opened.raw)
            if is_sound:
                return units
            at = units.nbytes
            error: Exception = CorruptRecordError(
                "no unit of a timer", file.path, file.start_offset + at, "a unit of 52 bytes, or the end of the file",
                "neither", opened.raw[at : at + TIMER_DTYPE.itemsize].tobytes(),
                "fail_on_data_loss=false (failOnDataLoss in Spark) leaves out the rest of the file",
            )  # fmt: skip
    except SegmentVanishedError as gone:
        units, error = np.empty(0, TIMER_DTYPE), gone
    if options.read.fail_on_data_loss:
        raise error
    _log.warning("%s", error)
    return units


def _chains(files: tuple[Segment, ...], options: ViewOptions) -> TimerChains:
    found = [_units_of(file, options) for file in files]
    positions = [
        file.start_offset + TIMER_DTYPE.itemsize * np.arange(len(units))
        for file, units in zip(files, found, strict=True)
    ]
    empty = np.empty(0, np.int64)
    return TimerChains.of(np.concatenate([empty, *positions]), np.concatenate([np.empty(0, TIMER_DTYPE), *found]))


def _judged(used: npt.NDArray[np.void], chains: TimerChains) -> _Judged:
    """Compare slots with the chains that end where they say; what is found first names the state, from the last on."""
    wanted = used["last_position"].astype(np.int64)
    found = np.searchsorted(chains.positions, wanted)
    is_there = (wanted >= 0) & (np.append(chains.positions, -1)[found] == wanted)
    last = np.where(is_there, found, chains.positions.size)
    times = used["time"].astype(np.int64)
    due = times * _precision(times[is_there], chains.due[last[is_there]])
    first, timers, units = (np.append(each, -1)[last] for each in (chains.first, chains.timers, chains.units))
    states = np.full(len(used), "ok", object)
    states[timers != used["timers"]] = "wrong_count"
    states[~np.append(chains.is_whole, False)[last] | (first != used["first_position"])] = "broken"
    states[np.append(chains.due, 0)[last] != due] = "wrong_time"
    states[~is_there] = "not_in_log"
    return _Judged(due, units, states)


def _precision(times: npt.NDArray[np.int64], due: npt.NDArray[np.int64]) -> int:
    """Return the milliseconds of a slot: what most slots and the units that they lead to agree on."""
    is_time = times > 0
    ratios = due[is_time] // times[is_time]
    values, counts = np.unique(ratios[ratios > 0], return_counts=True)
    return int(values[counts.argmax()]) if values.size else _PRECISION

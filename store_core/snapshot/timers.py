# SPDX-License-Identifier: Apache-2.0
"""The timers of a store: the log of their units, and the chains by which a wheel's slots lead to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from store_core.errors import CorruptRecordError, SegmentVanishedError
from store_core.files.access import explained_access
from store_core.files.segment_listing import segments_in
from store_core.files.segment_source import Segment, open_segment
from store_core.format.layout import BLANK_RECORD, TIMER_LOG_UNIT, MagicCode, unit_dtype
from store_core.snapshot.config import Config

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import numpy.typing as npt


TIMER_LOG: Final = "timerlog"
"""Directory of the log of timers below a store's root."""

TIMER_DTYPE: Final = unit_dtype(TIMER_LOG_UNIT)
_LONGEST_DELAY_MS: Final = (1 << 31) - 1
"""Of a unit, which has 32 bits for it."""

ROLLS: Final = 2
"""Bit of the magic of a timer that is put again when its slot comes (``TimerMessageStore.MAGIC_ROLL``)."""

CANCELS: Final = 4
"""Bit of the magic of a timer that cancels another one (``MAGIC_DELETE``)."""

_IS_TIMER: Final = 1
_KNOWN: Final = _IS_TIMER | ROLLS | CANCELS
_END_DTYPE: Final = np.dtype(
    [("size", ">i4"), ("zeros", ">i8"), ("magic_code", unit_dtype(BLANK_RECORD)["magic_code"])]
)
_END_MAGIC: Final = int(MagicCode.BLANK)


def timer_units(raw: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.void], bool]:
    """Return the units of a file of the log of timers, and whether the file ends as it should after them.

    * `raw`: uint8, shape (m,): the whole file.

    Returns: Shape (n,), in stored byte order; unit k is at byte k times the unit's size.
    Returns: Whether zeros, the end of the file, or its last mark follow.
    """
    count = raw.size // TIMER_DTYPE.itemsize
    units = raw[: count * TIMER_DTYPE.itemsize].view(TIMER_DTYPE)
    is_unit = (units["size"] == TIMER_DTYPE.itemsize) & (units["magic"] & _IS_TIMER == _IS_TIMER)
    is_unit &= (units["magic"] & ~_KNOWN == 0) & (units["delay"] >= 0)
    stop = count if is_unit.all() else int(is_unit.argmin())
    rest = raw[stop * TIMER_DTYPE.itemsize :]
    return units[:stop], _is_end(rest)


def _is_end(rest: npt.NDArray[np.uint8]) -> bool:
    if not rest[: TIMER_DTYPE.itemsize].any():
        return True
    if rest.size < _END_DTYPE.itemsize:
        return False
    end = rest[: _END_DTYPE.itemsize].view(_END_DTYPE)[0]
    return int(end["size"]) == rest.size and int(end["magic_code"]) == _END_MAGIC


def due_times(units: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """Return the times of the slots that units are in, ms."""
    due: npt.NDArray[np.int64] = units["write_timestamp"].astype(np.int64) + units["delay"].astype(np.int64)
    return due


class TimerUnits(NamedTuple):
    """The units of a file, in stored byte order, up to what is wrong in it, if anything is."""

    units: npt.NDArray[np.void]
    problem: CorruptRecordError | SegmentVanishedError | None


@dataclass(frozen=True, slots=True)
class Timers:
    """The log of timers below a store's root, as it was listed."""

    root: Path
    files: tuple[Segment, ...]  # by position
    notes: tuple[str, ...]  # on what was left out
    read_until: int | None  # the time up to which slots were due, ms; None if unknown

    @classmethod
    def of(cls, root: Path, config: Config | None = None) -> Self:
        """List the files, none if there is no log of timers; `config` is that of the store."""
        directory, notes = root / TIMER_LOG, list[str]()
        files: tuple[Segment, ...] = ()
        if directory.is_dir():
            with explained_access(directory):
                files = tuple(segments_in(directory, notes))
        return cls(root, files, tuple(notes), (config or Config(root)).timer_check.read_until)

    @staticmethod
    def units(file: Segment) -> TimerUnits:
        """Return the units of a file."""
        try:
            with open_segment(file) as opened:
                raw = opened.chunk(0, file.size)
                units, is_sound = timer_units(raw)
                at = units.nbytes
                problem = None if is_sound else CorruptRecordError(
                    "no unit of a timer", file.path, file.start_offset + at,
                    "a unit of 52 bytes, or the end of the file", "neither",
                    raw[at : at + TIMER_DTYPE.itemsize].tobytes(),
                    "failOnDataLoss=false leaves out the rest of the file",
                )  # fmt: skip
                return TimerUnits(units, problem)
        except SegmentVanishedError as gone:
            return TimerUnits(np.empty(0, TIMER_DTYPE), gone)

    @staticmethod
    def positions(file: Segment, count: int) -> npt.NDArray[np.int64]:
        """Return the positions of the first units of a file in the log of timers."""
        return file.start_offset + TIMER_DTYPE.itemsize * np.arange(count)

    def pending_files(self, after: int) -> Iterator[Segment]:
        """Yield the files that may have timers that are due at a time or later, ms; units are in the order of puts."""
        for number, file in enumerate(self.files):
            if number + 1 == len(self.files) or _first_write(self.files[number + 1]) + _LONGEST_DELAY_MS >= after:
                yield file


def _first_write(file: Segment) -> int:
    """Return when the first unit of a file was put, ms; far in the future if it has none."""
    with open_segment(file) as opened:
        first = opened.chunk(0, min(file.size, TIMER_DTYPE.itemsize))
        unit = first[: first.size // TIMER_DTYPE.itemsize * TIMER_DTYPE.itemsize].view(TIMER_DTYPE)
        return int(unit["write_timestamp"][0]) if unit.size and unit["size"][0] else 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class TimerChains:
    """The chains of units, each from its last unit to the first; int64 arrays of shape (n,), one item for each unit.

    * `units`, `timers`: How many units that chain has, and how many are timers, less those that cancel.
    """

    positions: npt.NDArray[np.int64]  # ascending positions of the units in the log of timers
    due: npt.NDArray[np.int64]  # the time of each, ms
    first: npt.NDArray[np.int64]  # position of the first unit of the chain that ends with each
    units: npt.NDArray[np.int64]
    timers: npt.NDArray[np.int64]
    is_whole: npt.NDArray[np.bool_]
    """bool: whether the chain leads over units of one time to one that has none before it, or out of these units."""
    rest: npt.NDArray[np.int64]  # the lower position to which the chain leads out of these units; -1 if it does not

    @classmethod
    def of(cls, positions: npt.NDArray[np.int64], units: npt.NDArray[np.void]) -> TimerChains:
        """Follow all chains at once: each step doubles how far back every unit is known.

        A unit leads to one at a lower position, or the chain is broken there, so no chain is a circle.
        """
        before, is_broken = _before(positions, units)
        previous = units["previous_position"].astype(np.int64)
        leads_out = is_broken & (previous >= 0) & (previous < (positions[0] if positions.size else 0))
        rest, is_broken = np.where(leads_out, previous, -1), is_broken & ~leads_out
        due, none = due_times(units), positions.size
        first = np.append(np.arange(none), none)
        length = np.append(np.ones(none, np.int64), 0)
        timers = np.append(np.where(units["magic"] & CANCELS, -1, 1).astype(np.int64), 0)
        broken = np.append(is_broken | ((before < none) & (due != np.append(due, 0)[before])), False)
        before = np.append(before, none)
        while (before < none).any():
            first = np.where(before < none, first[before], first)
            length, timers, broken = length + length[before], timers + timers[before], broken | broken[before]
            before = before[before]
        first = first[:-1]
        return cls(positions, due, positions[first], length[:-1], timers[:-1], ~broken[:-1], rest[first])


@dataclass(frozen=True, slots=True, eq=False)
class SlotChains:
    """The chains to which slots lead; arrays of shape (n,), one item for each slot. What is not there is 0.

    * `first`, `units`, `timers`, `is_whole`: As of `TimerChains`, in the whole log.
    """

    is_there: npt.NDArray[np.bool_]  # bool: whether the slot's last unit is in the log of timers
    due: npt.NDArray[np.int64]  # the time of that unit, ms
    first: npt.NDArray[np.int64]
    units: npt.NDArray[np.int64]
    timers: npt.NDArray[np.int64]
    is_whole: npt.NDArray[np.bool_]


def followed_slots(
    last: npt.NDArray[np.int64], chunks: Iterable[tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]]
) -> SlotChains:
    """Follow chains from the last units of slots, a part of the log of timers at a time, in bounded memory.

    A chain leads to lower positions only, so each part is read once.

    * `last`: int64: position of each slot's last unit; -1 for none.
    * `chunks`: Positions, ascending, and units of parts of the log, the last part first.
    """
    count = last.size
    due, first, length, timers = np.zeros((4, count), np.int64)
    found = SlotChains(np.zeros(count, np.bool_), due, first, length, timers, np.ones(count, np.bool_))
    places = last.copy()
    for positions, units in chunks:
        if not positions.size:
            continue
        here = np.flatnonzero((places >= positions[0]) & (places <= positions[-1]))
        if here.size:
            places[here] = _follow(found, here, places[here], TimerChains.of(positions, units))
        if not (places >= 0).any():
            break
    found.is_whole[places >= 0] = False
    found.is_whole[~found.is_there] = False
    return found


def _follow(
    found: SlotChains, slots: npt.NDArray[np.int64], places: npt.NDArray[np.int64], chains: TimerChains
) -> npt.NDArray[np.int64]:
    """Add a part of the log to the chains of some slots; return where they go on, -1 where they do not."""
    at = np.searchsorted(chains.positions, places)
    is_unit = chains.positions[at] == places
    found.is_whole[slots[~is_unit]] = False
    slots, at = slots[is_unit], at[is_unit]
    is_begun = found.is_there[slots]
    found.is_whole[slots] &= chains.is_whole[at] & (~is_begun | (found.due[slots] == chains.due[at]))
    found.due[slots] = np.where(is_begun, found.due[slots], chains.due[at])
    found.is_there[slots] = True
    found.first[slots] = chains.first[at]
    found.units[slots] += chains.units[at]
    found.timers[slots] += chains.timers[at]
    rest = np.full(places.size, -1)
    rest[is_unit] = chains.rest[at]
    return rest


def _before(
    positions: npt.NDArray[np.int64], units: npt.NDArray[np.void]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the number of the unit before each in its slot, that of all units for none; and whether it is missing."""
    previous = units["previous_position"].astype(np.int64)
    found = np.searchsorted(positions, previous)
    is_there = (previous >= 0) & (previous < positions)
    is_there[is_there] = positions[found[is_there]] == previous[is_there]
    return np.where(is_there, found, positions.size), (previous != -1) & ~is_there

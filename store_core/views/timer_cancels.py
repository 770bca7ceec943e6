# SPDX-License-Identifier: Apache-2.0
"""Which pending timers a broker will not deliver, because another timer of the same time cancels them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import StoreError
from store_core.files.segment_source import load_record, open_pages
from store_core.format.properties import UNIQ_KEY, PropertyParser
from store_core.format.property_string import REAL_TOPIC, TIMER_DEL_UNIQKEY
from store_core.format.record.decode import decode_message
from store_core.format.releases.release import rules_of
from store_core.snapshot.timers import CANCELS, ROLLS, TIMER_DTYPE, Timers, due_times

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.format.releases.release_rules import ReleaseRules
    from store_core.snapshot.log import Log
    from store_core.views.view_options import ViewOptions

__all__ = ["TimerCancels", "cancel_key", "find_cancels", "told_units"]

_log: Final = logging.getLogger("store_core")

_KEY_SEPARATOR: Final = "+"


@dataclass(frozen=True, slots=True, eq=False)
class TimerCancels:
    """The cancelling timers that are pending, by time.

    A broker collects the properties TIMER_DEL_UNIQKEY of a slot's cancelling timers, and delivers none of the slot's
    others whose key is among them: by the release, REAL_TOPIC, a plus sign and UNIQ_KEY, or UNIQ_KEY alone. A timer
    that is to be put again cancels nothing yet. RocketMQ: ``TimerMessageStore.TimerDequeueGetMessageService``.

    Attributes
    ----------
    units : numpy.ndarray
        Their units, ordered by time.
    due : numpy.ndarray
        int64: their times, ms, ascending.
    """

    units: npt.NDArray[np.void]
    due: npt.NDArray[np.int64]
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
                with open_pages(segment) as opened:
                    raw, at = opened.raw.data, offset - segment.start_offset
                    load_record(opened, at)
                    message = decode_message(raw, at, segment.start_offset, parser=parser, verify_crc=False)
            except StoreError:
                continue  # a broker passes over what it can't read
            yield row, message.properties


def cancel_key(real_topic: str | None, unique_key: str, features: ReleaseRules) -> str:
    """Return by what a cancelling timer names the timer with a unique key."""
    return f"{real_topic or ''}{_KEY_SEPARATOR}{unique_key}" if features.cancels_timers_by_topic_and_key else unique_key


def find_cancels(timers: Timers, log: Log, after: int, options: ViewOptions) -> TimerCancels | None:
    """Find the cancelling timers that are due at a time or later, in all files of a log of timers.

    Parameters
    ----------
    after : int
        Milliseconds.

    Returns
    -------
    TimerCancels or None
        None if there are none.
    """
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
    """Return the units of a file; without `fail_on_data_loss`, those before what is wrong, which is told.

    Raises
    ------
    CorruptRecordError, SegmentVanishedError
        With `fail_on_data_loss`: if there is something else than units, or the file is gone.
    """
    units, problem = Timers.units(file)
    if problem is not None and options.read.fail_on_data_loss:
        raise problem
    if problem is not None:
        _log.warning("%s", problem)
    return units

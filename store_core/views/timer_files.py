# SPDX-License-Identifier: Apache-2.0
"""The files of a log of timers, as views read them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import CorruptRecordError, SegmentVanishedError, StoreNotFoundError
from store_core.files.access import explained_access
from store_core.files.local_listing import segments_in
from store_core.files.segment_source import open_segment
from store_core.queue.timer.timer_log import TIMER_DTYPE, timer_units
from store_core.views.config_table import without_file

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.views.view_options import ViewOptions

__all__ = ["list_timer_files", "no_timers_at", "positions_of", "units_of"]

_log: Final = logging.getLogger("store_core")


def list_timer_files(root: Path, options: ViewOptions) -> tuple[Segment, ...]:
    """List the files of ``timerlog/``, by position.

    Raises
    ------
    StoreNotFoundError
        If there is no such directory, unless `fail_on_data_loss` is off.
    """
    directory = root / "timerlog"
    if not directory.is_dir():
        without_file(no_timers_at(directory), options)
        return ()
    notes: list[str] = []
    with explained_access(directory):
        files = tuple(segments_in(directory, notes))
    for note in notes:
        _log.warning("%s", note)
    return files


def no_timers_at(path: Path) -> StoreNotFoundError:
    """Return the error for a missing file or directory of timers."""
    return StoreNotFoundError(
        f"{path} is missing: expected what a broker of RocketMQ 5.0 or later keeps there, unless its timers are in a "
        f"RocksDB (timerRocksDBEnable), which the view rocksdbstore shows. Timers are also messages of the topic "
        f"rmq_sys_wheel_timer, with their time in the property TIMER_OUT_MS. With failOnDataLoss=false "
        f"there are no rows"
    )


def units_of(file: Segment, options: ViewOptions) -> npt.NDArray[np.void]:
    """Return the units of a file; without `fail_on_data_loss`, those before what is wrong.

    Raises
    ------
    CorruptRecordError, SegmentVanishedError
        With `fail_on_data_loss`: if there is something else than units, or the file is gone.
    """
    try:
        with open_segment(file) as opened:
            units, is_sound = timer_units(opened.raw)
            if is_sound:
                return units
            at = units.nbytes
            error: Exception = CorruptRecordError(
                "no unit of a timer", file.path, file.start_offset + at, "a unit of 52 bytes, or the end of the file",
                "neither", opened.raw[at : at + TIMER_DTYPE.itemsize].tobytes(),
                "failOnDataLoss=false leaves out the rest of the file",
            )  # fmt: skip
    except SegmentVanishedError as gone:
        units, error = np.empty(0, TIMER_DTYPE), gone
    if options.read.fail_on_data_loss:
        raise error
    _log.warning("%s", error)
    return units


def positions_of(file: Segment, count: int) -> npt.NDArray[np.int64]:
    """Return the positions of the first units of a file in the log of timers."""
    return file.start_offset + TIMER_DTYPE.itemsize * np.arange(count)

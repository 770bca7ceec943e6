# SPDX-License-Identifier: Apache-2.0
"""The part of the layout's table that is about timers (RocketMQ 5.0 and later: ``TimerMessageStore``)."""

from __future__ import annotations

from typing import Final

from store_core.format.layout import Field, Unit

__all__ = ["TIMER_LOG_UNIT", "TIMER_SLOT", "TIMER_UNITS"]

TIMER_LOG_UNIT: Final = Unit(
    "timer_log_unit",
    "TimerLog.UNIT_SIZE",
    "One timer, in timerlog/. A file ends with a size (i4), 8 zeros, and the magic code of a blank record.",
    (
        Field("size", "size", ">i4", "bytes of the unit"),
        Field("previous_position", "prev pos", ">i8", "unit before it in the same slot; -1 for the first"),
        Field("magic", "magic value", ">i4", "bits: 1 a timer, 2 to be put again later, 4 cancels another"),
        Field("write_timestamp", "curr write time", ">i8", "when it was put, ms, a multiple of the wheel's precision"),
        Field("delay", "delayed time", ">i4", "ms from then until the time of its slot"),
        Field("physical_offset", "offsetPy", ">i8", "position of the timer's record in the log"),
        Field("store_size", "sizePy", ">i4", "bytes of the record"),
        Field("topic_hash", "hash code of real topic", ">i4", "Java hash of the topic it will be delivered to"),
        Field("reserved", "reserved value", ">i8", "0"),
    ),
)

TIMER_SLOT: Final = Unit(
    "timer_slot",
    "Slot.SIZE",
    "All timers of one time, in timerwheel. The slot of a time is its number modulo that of the slots.",
    (
        Field("time", "delayed time", ">i8", "in units of the precision, a second unless configured; 0 if never used"),
        Field("first_position", "firstPos", ">i8", "first unit in timerlog; -1 for none"),
        Field("last_position", "lastPos", ">i8", "last unit in timerlog; -1 for none"),
        Field("timers", "num", ">i4", "timers, less those that cancel"),
        Field("magic", "magic", ">i4", "0"),
    ),
)

TIMER_UNITS: Final = (TIMER_LOG_UNIT, TIMER_SLOT)

# SPDX-License-Identifier: Apache-2.0
"""The part of the layout's table that is about ``rocksdbstore/`` (RocketMQ 5.4 and later)."""

from __future__ import annotations

from typing import Final

from store_core.format.layout import Field, Unit

__all__ = [
    "STORED_HALF",
    "STORED_HALF_KEY",
    "STORED_INDEX",
    "STORED_INDEX_KEY",
    "STORED_TIMER",
    "STORED_TIMER_KEY",
    "STORED_UNITS",
]

STORED_INDEX_KEY: Final = Unit(
    "stored_index_key",
    "IndexRocksDBRecord.getKeyBytes",
    "How keys begin in column family `default` of rocksdbstore/ (indexRocksDBEnable).",
    (Field("hour", "storeTime", ">i8", "store time rounded down to an hour, ms"),),
    tail="`@topic@K@key@UNIQ_KEY@`, `@topic@T@tags@UNIQ_KEY@` or `@topic@U@UNIQ_KEY@`; the physical offset (i8)",
)

STORED_INDEX: Final = Unit(
    "stored_index",
    "IndexRocksDBRecord.getValueBytes",
    "One key of one message: a value in column family `default`.",
    (Field("store_timestamp", "storeTime", ">i8", "store time of the record, ms"),),
)

STORED_TIMER_KEY: Final = Unit(
    "stored_timer_key",
    "TimerRocksDBRecord.getKeyBytes",
    "How keys begin in column family `timer` of rocksdbstore/ (timerRocksDBEnable).",
    (Field("due_timestamp", "delayTime", ">i8", "when the timer is due: TIMER_OUT_MS"),),
    tail="UNIQ_KEY",
)

STORED_TIMER: Final = Unit(
    "stored_timer",
    "TimerRocksDBRecord.getValueBytes",
    "One pending timer: a value in column family `timer`.",
    (
        Field("store_size", "sizePy", ">i4", "bytes of the timer's record"),
        Field("physical_offset", "offsetPy", ">i8", "position of that record in the log"),
    ),
)

STORED_HALF_KEY: Final = Unit(
    "stored_half_key",
    "TransRocksDBRecord.getKeyBytes",
    "How keys begin in column family `trans` of rocksdbstore/ (transRocksDBEnable).",
    (Field("physical_offset", "offsetPy", ">i8", "position of the half message's record in the log"),),
    tail="`@topic@transaction id`, with the topic that the message will be in",
)

STORED_HALF: Final = Unit(
    "stored_half",
    "TransRocksDBRecord.getValueBytes",
    "One half message that is neither committed nor rolled back: a value in column family `trans`.",
    (
        Field("check_times", "checkTimes", ">i4", "how often its producer was asked"),
        Field("store_size", "sizePy", ">i4", "bytes of the record"),
    ),
)

STORED_UNITS: Final = (
    STORED_INDEX_KEY,
    STORED_INDEX,
    STORED_TIMER_KEY,
    STORED_TIMER,
    STORED_HALF_KEY,
    STORED_HALF,
)

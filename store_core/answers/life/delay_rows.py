# SPDX-License-Identifier: Apache-2.0
"""Delayed messages and timers in a log, as rows of few columns."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.broker.transaction_rows import with_ms
from store_core.format.columnar.map_values import with_properties

__all__ = ["DELAY_COLUMNS", "delayed_rows", "integers_in", "timer_rows"]

DELAY_COLUMNS: Final = ("queue_id", "queue_offset", "physical_offset", "store_timestamp", "properties", "body")

_COMMON: Final = {"real_topic": "REAL_TOPIC", "real_queue_id": "REAL_QID", "unique_key": "UNIQ_KEY"}
_OF_LEVEL: Final = _COMMON | {"delay_level": "DELAY"}
_OF_TIMER: Final = _COMMON | {"due": "TIMER_OUT_MS", "cancels": "TIMER_DEL_UNIQKEY", "roll_times": "TIMER_ROLL_TIMES"}
_INTEGER: Final = "^[+-]?[0-9]{1,18}$"


def delayed_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages of the schedule topic, read with `DELAY_COLUMNS`: whether they have a body, not the body."""
    return _with_numbers(_reduced(batch, _OF_LEVEL), "delay_level")


def timer_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages of the timer's topic, read with `DELAY_COLUMNS`: whether they have a body, not the body."""
    return _with_numbers(_reduced(batch, _OF_TIMER), "due")


def integers_in(texts: pa.Array) -> pa.Array:
    """Return numbers in decimal; null for what is none."""
    is_number = pc.match_substring_regex(texts, _INTEGER)
    digits = pc.replace_substring_regex(texts, r"^\+", "")
    return pc.if_else(pc.fill_null(is_number, False), digits, pa.scalar(None, pa.string())).cast(pa.int64())  # noqa: FBT003 -- a value


def _reduced(batch: pa.RecordBatch, names: dict[str, str]) -> pa.RecordBatch:
    has_body = pc.greater(pc.fill_null(pc.binary_length(batch["body"]), 0), 0)
    return with_ms(with_properties(batch.append_column("has_body", has_body).drop_columns(["body"]), names))


def _with_numbers(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    at = batch.schema.get_field_index(name)
    return batch.set_column(at, name, integers_in(batch.column(at)))

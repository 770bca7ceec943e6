# SPDX-License-Identifier: Apache-2.0
"""Messages as new ones in a DataFrame: without what the delivery of the old ones put into them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from store_core.answers.life.replay import OF_DELIVERY, OF_RECORD, WAITING_TOPICS
from store_core.format.properties import REAL_TOPIC
from store_core.format.record.delayed import OF_WAITING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["copied", "undelivered"]


def copied(frame: DataFrame) -> DataFrame:
    """Return messages as `store_core.answers.life.replay.copied_batch` does."""
    real = F.when(F.col("topic").isin(*WAITING_TOPICS), F.col("properties")[REAL_TOPIC])
    queue_id = F.when(real.isNull(), F.col("queue_id"))
    named = frame.withColumns({"topic": F.coalesce(real, "topic"), "queue_id": queue_id})
    return undelivered(named, OF_WAITING)


def undelivered(frame: DataFrame, left_out: tuple[str, ...] = OF_DELIVERY) -> DataFrame:
    """Return messages as `store_core.answers.life.replay.undelivered` does; the writer drops checksums itself."""
    kept = F.map_filter("properties", lambda name, _: ~name.isin(*left_out))
    return frame.withColumns({"properties": kept, "sys_flag": F.col("sys_flag").bitwiseAND(F.lit(~OF_RECORD))})

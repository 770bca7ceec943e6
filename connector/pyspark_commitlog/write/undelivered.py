# SPDX-License-Identifier: Apache-2.0
"""Messages as new ones in a DataFrame: without what the delivery of the old ones put into them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 -- Spark's own convention

from store_core.answers.life.replay_rows import OF_DELIVERY, OF_RECORD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["undelivered"]


def undelivered(frame: DataFrame) -> DataFrame:
    """Return messages as `store_core.answers.life.replay_rows.undelivered` does; the writer drops checksums itself."""
    kept = F.map_filter("properties", lambda name, _: ~name.isin(*OF_DELIVERY))
    return frame.withColumns({"properties": kept, "sys_flag": F.col("sys_flag").bitwiseAND(F.lit(~OF_RECORD))})

# SPDX-License-Identifier: Apache-2.0
"""How many bytes of a log a streaming query has not read yet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark_commitlog.stream.spark_api import HAS_LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.streaming.listener import StreamingQueryProgress

__all__ = ["bytes_behind"]

_OFFSET = "physicalOffset"


def bytes_behind(progress: StreamingQueryProgress | Mapping[str, Any] | None) -> int | None:
    """Return how far a query was behind the end of its logs when a batch was planned, in bytes.

    Parameters
    ----------
    progress : StreamingQueryProgress or mapping
        ``query.lastProgress``, one of ``query.recentProgress``, or what a listener gets.

    Returns
    -------
    int or None
        The sum over all sources that are commit logs. None if there is none, before the first batch, and on PySpark
        4.1, which reports the batch's own end as that of the source.
    """
    if progress is None or not HAS_LIMITS:
        return None
    known = json.loads(progress.json) if hasattr(progress, "json") else progress
    distances = list(_distances(known))
    return sum(distances) if distances else None


def _distances(progress: Mapping[str, Any]) -> Iterator[int]:
    for source in progress.get("sources", ()):
        end, latest = (_physical_offset(source.get(name)) for name in ("endOffset", "latestOffset"))
        if end is not None and latest is not None:
            yield max(latest - end, 0)


def _physical_offset(offset: object) -> int | None:
    """Return the place that an offset names, which is JSON or text of it; None for another source's."""
    try:
        known = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None
    found = known.get(_OFFSET) if isinstance(known, dict) else None
    return found if isinstance(found, int) else None

# SPDX-License-Identifier: Apache-2.0
"""The input partition of a read: what one Spark task reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from store_core.store.read.ranges import ReadRange

__all__ = ["CommitLogPartition"]


@dataclass(frozen=True)
class CommitLogPartition(InputPartition):
    """Ranges of segment files, mostly one: made beside the driver, pickled, and passed to `CommitLogReader.read`."""

    ranges: tuple[ReadRange, ...]

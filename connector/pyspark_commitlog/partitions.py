# SPDX-License-Identifier: Apache-2.0
"""The input partition of a read: what one Spark task reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from store_core.store.read.read_plan import ReadRange

__all__ = ["CommitLogPartition"]


@dataclass(frozen=True)
class CommitLogPartition(InputPartition):
    """A range of one segment file: made beside the driver, pickled, and passed to `CommitLogReader.read` in one task.

    Attributes
    ----------
    read_range : ReadRange
    """

    read_range: ReadRange

# SPDX-License-Identifier: Apache-2.0
"""Explaining a read before it is made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from store_core.store.read.read_options import ReadOptions
from store_core.store.read.read_plan import plan_ranges
from store_core.store.read.relative_time import with_absolute_times

if TYPE_CHECKING:
    from store_core.files.store_path import StorePaths
    from store_core.store.read.lookup.explanation import ReadExplanation

__all__ = ["explain"]


def explain(path: StorePaths, **options: object) -> ReadExplanation:
    """Return how `read_messages` would read, and what that costs; only what planning needs is read.

    Parameters
    ----------
    path : path or sequence of paths
        As of `read_messages`.
    **options
        Those of `read_messages`, under the same names.

    Raises
    ------
    StoreError
        As `read_messages`.

    Examples
    --------
    >>> print(explain(store, topic="orders", queue_id=0))  # doctest: +SKIP
    queues: units of queues lead to the records, and account for those between them
      reads 16,057,212 bytes of the log in 2 files
      of 4,364,922 units of queues, 43,649 records are read at their positions
    """
    plan = plan_ranges(path, ReadOptions.parse(**with_absolute_times(path, options)))
    return replace(plan.explanation, notes=(*plan.notes, *plan.explanation.notes))

# SPDX-License-Identifier: Apache-2.0
"""Planning a view: parts of bounded work that any process can read, in any order."""

from __future__ import annotations

from dataclasses import replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final, TypeAlias

from store_core.errors import SegmentVanishedError
from store_core.files.store_path import located
from store_core.store.read.read_plan import log_end_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from store_core.files.store_path import StorePaths
    from store_core.views.view_options import ViewOptions
    from store_core.views.view_part import ViewPart

    Planner: TypeAlias = Callable[[StorePaths, ViewOptions], Sequence[ViewPart]]

__all__ = ["plan_view", "resolved"]

_ATTEMPTS: Final = 100
"""How often planning restarts because a broker deleted a file meanwhile; each time there is one file less."""

_PLANNERS: Final[Mapping[str, str]] = {
    "consumequeue": "store_core.views.consumequeue:plan",
    "index": "store_core.views.index:plan",
    "segments": "store_core.views.segments:plan",
    "topics": "store_core.views.topics:plan",
    "consumer_offsets": "store_core.views.consumer_offsets:plan",
    "subscription_groups": "store_core.views.small_tables:plan_subscription_groups",
    "delay_offsets": "store_core.views.small_tables:plan_delay_offsets",
    "checkpoint": "store_core.views.small_tables:plan_checkpoint",
    "timerlog": "store_core.views.timers:plan_log",
    "timerwheel": "store_core.views.timers:plan_wheel",
    "rocksdbstore": "store_core.views.rocksdb_store:plan",
}
"""Imported when a view is read: those of configuration files import the broker, which the others do not need."""


def resolved(paths: StorePaths, options: ViewOptions) -> ViewOptions:
    """Return options that know where the log ended at the time `as_of`; called once, before `plan_view`.

    Raises
    ------
    StoreNotFoundError
        If there is no log: only its records tell what was there at a time.
    """
    if options.read.as_of is None:
        return options
    end = log_end_at(options.read.configured(paths), options.read.as_of, options.read.storage)
    return replace(options, log_end=end)


def plan_view(paths: StorePaths, options: ViewOptions) -> tuple[ViewPart, ...]:
    """Plan the reading of a view; called once, before any part is read.

    Parameters
    ----------
    paths : path or sequence of paths
        The store's root, its ``commitlog`` directory, or a segment.
    options : ViewOptions
        As `resolved` returns them.

    Returns
    -------
    tuple of ViewPart
        In the order of the rows; each can be pickled, and read by any process that sees the files.

    Raises
    ------
    StoreError
        If the store has nothing for the view, or what it has is broken.
    """
    plan: Planner = resolve_name(_PLANNERS[options.name])
    paths = options.read.configured(paths)
    for attempt in range(_ATTEMPTS):
        try:
            return tuple(plan(located(paths, options.read.storage), options))
        except SegmentVanishedError:
            if attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")

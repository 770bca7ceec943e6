# SPDX-License-Identifier: Apache-2.0
"""The views by name: their options and the functions that plan them. What only names one needs no Arrow for columns."""

from __future__ import annotations

from typing import Final, NamedTuple

ALWAYS: Final = (
    "columns",
    "max_records_per_batch",
    "fail_on_data_loss",
    "release",
    "storage",
    "config",
    "store_path_commit_log",
)
"""Options that every view takes."""


class ViewPlan(NamedTuple):
    """Which function plans the reading of a view, imported when it is read, and what it takes."""

    function: str  # as of `pkgutil.resolve_name`
    own_options: tuple[str, ...] = ()  # besides `ALWAYS`, by their names in Python


_QUEUES: Final = ("topic", "topics_pattern", "queue_id")
_OFFSETS: Final = ("starting_offsets", "ending_offsets")
_TIMES: Final = ("starting_timestamp", "ending_timestamp")
_AS_OF: Final = ("as_of", "time_zone")
_HERE: Final = "store_core.views"
VIEW_PLANS: Final = {
    "consumequeue": ViewPlan(f"{_HERE}.queues:plan_units", (*_QUEUES, *_OFFSETS, *_AS_OF, "max_partition_bytes")),
    "index": ViewPlan(f"{_HERE}.index:plan", ("topic", "key", *_OFFSETS, *_TIMES, *_AS_OF, "max_partition_bytes")),
    "segments": ViewPlan(f"{_HERE}.segments:plan", (*_OFFSETS, *_AS_OF, "verify_crc")),
    "topics": ViewPlan(f"{_HERE}.queues:plan_topics", (*_QUEUES, *_AS_OF)),
    "consumer_offsets": ViewPlan(f"{_HERE}.config:plan_consumer_offsets", (*_QUEUES, *_AS_OF)),
    "subscription_groups": ViewPlan(f"{_HERE}.config:plan_subscription_groups"),
    "delay_offsets": ViewPlan(f"{_HERE}.config:plan_delay_offsets"),
    "checkpoint": ViewPlan(f"{_HERE}.config:plan_checkpoint"),
    "timerlog": ViewPlan(f"{_HERE}.timers:plan_log"),
    "timerwheel": ViewPlan(f"{_HERE}.timers:plan_wheel"),
    "rocksdbstore": ViewPlan(f"{_HERE}.config:plan_rocksdb"),
}
"""All views but that of the messages; `store_core.views.view_columns.VIEWS` has the columns of each."""

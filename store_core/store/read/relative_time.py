# SPDX-License-Identifier: Apache-2.0
"""Times such as ``-15m``: so long before the store time of the log's last message, whenever that was.

A copy is of yesterday, and on a live store the last message is of now, so this is what people mean of both. It is
looked up once, when a read is planned: what is asked for is then as if that time had been given.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from store_core.errors import InvalidOptionError
from store_core.store.read.option_table import shown_option
from store_core.store.read.option_values import OffsetBound, ReadMode
from store_core.store.read.read_options import TIMES, ReadOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths

__all__ = ["is_relative", "last_store_time", "with_absolute_times"]

_RELATIVE: Final = re.compile(r"-([0-9]{1,9})([smhdw])")
_UNITS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_PLACES: Final = ("config", "storage", "store_path_commit_log")
"""Options that say which log is meant."""


def is_relative(value: object) -> bool:
    """Return whether a value is such a time: ``-``, a number, and s, m, h, d or w."""
    return isinstance(value, str) and _RELATIVE.fullmatch(value.strip()) is not None


def with_absolute_times(
    paths: StorePaths, options: Mapping[str, object], names: Iterable[str] = TIMES
) -> dict[str, Any]:
    """Return options by name, with times in ms where relative ones were given; others are as they were."""
    found = {name: str(options[name]).strip() for name in names if is_relative(options.get(name))}
    if not found:
        return dict(options)
    places = ReadOptions.parse(**{name: options[name] for name in _PLACES if options.get(name) is not None})
    last = last_store_time(places.store_of(paths).paths)
    if last is None:
        name, text = next(iter(found.items()))
        raise InvalidOptionError(
            f"{shown_option(name)}: {text} is a time before the store time of the log's last message, and the log has "
            f"none: expected a time such as 2024-05-01T12:00:00Z"
        )
    return {**options, **{name: last - _milliseconds(text) for name, text in found.items()}}


def _milliseconds(text: str) -> int:
    found = _RELATIVE.fullmatch(text)
    return 0 if found is None else int(found[1]) * _UNITS[found[2]]


def last_store_time(paths: StorePaths) -> int | None:
    """Return the store time of the last message of a log, in ms; None if it has none."""
    # Reading records is much code, and few times are relative.
    from store_core.files.segment_source import open_ahead  # noqa: PLC0415
    from store_core.snapshot.log import Log, has_record  # noqa: PLC0415
    from store_core.snapshot.log_end import end_by_tail  # noqa: PLC0415

    log = Log.for_reading(paths)
    for segment in filter(has_record, reversed(log.segments)):
        end = end_by_tail(segment, verify_crc=False, open_bytes=open_ahead)
        chain = None if end is None else end.found.chain
        found = None if chain is None else log.time_at(segment.start_offset + chain.place.last_sound)
        found = _last_time_of(segment, paths) if found is None else found
        if found is not None:
            return found
    return None


def _last_time_of(segment: Segment, paths: StorePaths) -> int | None:
    """Return the same of a segment whose last part does not tell it, by reading all of it."""
    from store_core.store.read.message_reader import read_range  # noqa: PLC0415 -- as above
    from store_core.store.read.read_plan import plan_ranges  # noqa: PLC0415

    options = ReadOptions(
        columns=("store_timestamp_ms",),
        starting_offsets=OffsetBound(physical=segment.start_offset),
        mode=ReadMode.DROPMALFORMED,
        fail_on_data_loss=False,
        verify_crc=False,
    )
    last = None
    for part in plan_ranges(paths, options).ranges:
        for batch in read_range(part, options):
            last = int(batch.column(0)[-1].as_py()) if batch.num_rows else last
    return last

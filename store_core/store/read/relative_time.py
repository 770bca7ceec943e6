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
from store_core.store.read.read_options import TIMES, ReadOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from store_core.files.store_path import StorePaths

__all__ = ["is_relative", "with_absolute_times"]

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
    last = places.store_of(paths).last_store_time
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

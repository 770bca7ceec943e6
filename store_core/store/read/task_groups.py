# SPDX-License-Identifier: Apache-2.0
"""Which ranges of a plan one task reads: a look-up may leave few records in each of many segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.store.read.ranges import ReadRange

__all__ = ["task_groups"]

_TASK_BYTES: Final = 32 << 20
"""Bytes of records that are worth a task of their own."""

_OPENING: Final = 64 << 10
"""Bytes that could be read in the time that opening a segment takes."""

_PICKING: Final = 1 << 10
"""Bytes that could be read in the 3 µs that a picked record takes, however small it is."""


def task_groups(ranges: Sequence[ReadRange]) -> list[tuple[ReadRange, ...]]:
    """Return the ranges that each task reads, in order.

    Picked records are read together up to a size, with what a look-up scans beside them. Other scans are read one by
    one, as they were split, but those of a compressed archive: each is reached by expanding what precedes it.
    """
    groups: list[list[ReadRange]] = []
    room = 0
    is_looked_up = any(part.picks is not None for part in ranges)
    for part in ranges:
        if groups and _is_in_archive_of(groups[-1][-1], part):
            groups[-1].append(part)
            continue
        if part.picks is not None:
            size = part.picks.size + _PICKING * len(part.picks) + _OPENING
        else:
            size = part.end - part.walk_begin if is_looked_up else _TASK_BYTES
        if not groups or size > room:
            groups.append([])
            room = _TASK_BYTES
        groups[-1].append(part)
        room -= size
    return [tuple(group) for group in groups]


def _is_in_archive_of(one: ReadRange, other: ReadRange) -> bool:
    is_expanded = other.segment.codec is not None and bool(other.segment.archive)
    return is_expanded and one.segment.archive == other.segment.archive

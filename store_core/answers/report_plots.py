# SPDX-License-Identifier: Apache-2.0
"""What the plots of reports show; `store_core.answers.report_page` draws them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from store_core.format.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Bar", "Bars", "HeatMap", "HeatRow", "Lane", "Plot", "Strip", "Tone", "lanes_of"]


class Tone(StrEnum):
    """What a colour stands for; never the only thing that says so."""

    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Lane:
    """Ranges of offsets of one kind.

    Attributes
    ----------
    ranges : tuple of (int, int)
        Begin and end, exclusive.
    label : str
        How many there are, in words.
    """

    name: str
    ranges: tuple[tuple[int, int], ...]
    tone: Tone
    label: str


@dataclass(frozen=True, slots=True)
class Strip:
    """Where along the bytes of a log something is: lanes one below the other, on one axis.

    Attributes
    ----------
    begin, end : int
        Physical offsets between which the axis runs.
    """

    title: str
    begin: int
    end: int
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """A quantity.

    Attributes
    ----------
    label : str
        The quantity in words.
    full : int
        What it would be if nothing were missing, drawn behind it; 0 if that has no meaning.
    """

    name: str
    value: int
    tone: Tone
    label: str
    full: int = 0


@dataclass(frozen=True, slots=True)
class Bars:
    """Quantities side by side, on one axis that begins at 0.

    Attributes
    ----------
    more : str
        What is not shown, in words; empty if nothing is.
    """

    title: str
    bars: tuple[Bar, ...]
    more: str = ""


@dataclass(frozen=True, slots=True)
class HeatRow:
    """A row of a heat map.

    Attributes
    ----------
    values : tuple of int
        As many in each row.
    label : str
        All of them together, in words.
    """

    name: str
    values: tuple[int, ...]
    label: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Quantities by two measures, such as days and hours: the larger, the darker.

    Attributes
    ----------
    ends : (str, str)
        Names of the first and the last column.
    more : str
        What is not shown, in words; empty if nothing is.
    """

    title: str
    ends: tuple[str, str]
    rows: tuple[HeatRow, ...]
    more: str = ""


Plot: TypeAlias = Strip | Bars | HeatMap


def lanes_of(
    ranges: Iterable[tuple[str, int, int]], tones: Mapping[str, Tone], what: str = "range"
) -> tuple[Lane, ...]:
    """Return a lane for each kind that has a tone and ranges, in the order of the tones.

    Parameters
    ----------
    ranges : iterable of (str, int, int)
        Kind, begin and end.
    what : str
        What one of them is.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    for kind, begin, end in ranges:
        found.setdefault(kind, []).append((begin, end))
    return tuple(
        Lane(kind, tuple(found[kind]), tone, counted(len(found[kind]), what))
        for kind, tone in tones.items()
        if kind in found
    )

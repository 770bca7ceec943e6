# SPDX-License-Identifier: Apache-2.0
"""Words for people: counts with their nouns, and the nearest name."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection


def counted(count: int, what: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "range"), counted(2000, "range")
    ('1 range', '2,000 ranges')
    """
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def agreeing(count: int, one: str, many: str) -> str:
    """Return the words that go with a count: those for one, or those for any other.

    >>> agreeing(1, "is", "are"), agreeing(0, "is", "are")
    ('is', 'are')
    """
    return one if count == 1 else many


_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"))


def age_words(milliseconds: int) -> str:
    """Return a duration in its two largest units.

    >>> age_words(97_200_000), age_words(61_500), age_words(999)
    ('1d 3h', '1m 1s', '0s')
    """
    left = max(milliseconds, 0)
    counts: list[str] = []
    for size, name in _UNITS:
        count, left = divmod(left, size)
        if count or counts:
            counts.append(f"{count}{name}")
    return " ".join(counts[:2]) or "0s"


_MOST_SHOWN: Final = 5


def did_you_mean(name: str, known: Collection[str], likeness: float = 0.6) -> str:
    """Return a question that suggests the nearest of some names; empty if none is alike to this degree, from 0 to 1.

    Case is ignored.

    >>> did_you_mean("Ordes", ["payments", "orders"])
    "did you mean 'orders'?"
    """
    by_folded = {other.lower(): other for other in sorted(known)}
    near = difflib.get_close_matches(name.lower(), by_folded, 1, likeness)
    return f"did you mean {by_folded[near[0]]!r}?" if near else ""


def hint_of(name: object, known: Collection[str]) -> str:
    """Return the same question as the end of an error; empty if no name is near.

    >>> hint_of("PERMISIVE", ["FAILFAST", "PERMISSIVE"])
    "; did you mean 'PERMISSIVE'?"
    """
    question = did_you_mean(str(name), known)
    return f"; {question}" if question else ""


def without_controls(text: str) -> str:
    r"""Return a text in which control characters are escaped, so that it can't act on a terminal that shows a log.

    >>> without_controls("orders\x1b[2J")
    'orders\\x1b[2J'
    """
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def known_names(names: Collection[str]) -> str:
    """Return the first of some names as a list that ends with how many more there are."""
    shown = ", ".join(map(without_controls, sorted(names)[:_MOST_SHOWN]))
    return f"{shown} and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else shown

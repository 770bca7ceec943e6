# SPDX-License-Identifier: Apache-2.0
"""Which groups' lag is measured, and as of when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from store_core.store.least_value import check_least
from store_core.store.read.store_time import check_calendar_time, parse_zone, store_time

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import date, tzinfo

__all__ = ["LagOptions"]


@dataclass(frozen=True, slots=True)
class LagOptions:
    """Which groups' lag is measured, and as of when; made by `of`.

    Attributes
    ----------
    group, topic : tuple of str
        Names; empty for all. A retry topic is that of its group: it goes with no other topic.
    as_of : int or None
        Store time, ms: queues are taken as they were then; None for now.
    now : int or None
        The present, ms, from which ages are counted; None for `as_of`. Without both there are no ages.
    most_messages : int
        How many of the messages that were not consumed are listed; with 0 none is read.
    """

    group: tuple[str, ...] = ()
    topic: tuple[str, ...] = ()
    as_of: int | None = None
    now: int | None = None
    most_messages: int = 0

    @classmethod
    def of(  # noqa: PLR0913 -- an argument for each option
        cls,
        *,
        group: Collection[str] = (),
        topic: Collection[str] = (),
        as_of: int | str | date | None = None,
        now: int | str | date | None = None,
        most_messages: int = 0,
        time_zone: str | tzinfo | None = None,
    ) -> Self:
        """Make options of what a user gives; times may be text, as for `store_core.read_messages`.

        Raises
        ------
        InvalidOptionError
            If a value is invalid.
        """
        zone = None if time_zone is None else parse_zone("time_zone", time_zone)
        times = {
            name: None if value is None else store_time(name, value, zone)
            for name, value in (("as_of", as_of), ("now", now))
        }
        for name, time in times.items():
            check_calendar_time(name, time)
        check_least(0, most_messages=most_messages)
        return cls(_names(group), _names(topic), times["as_of"], times["now"], most_messages)

    @property
    def age_from(self) -> int | None:
        """The time from which ages are counted, ms."""
        return self.as_of if self.now is None else self.now


def _names(given: Collection[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)

# SPDX-License-Identifier: Apache-2.0
"""Store times as read options, from text or Python values, and the time zone of those without one."""

from __future__ import annotations

import difflib
import re
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from store_core.errors import InvalidOptionError
from store_core.format.columns import iso_time
from store_core.store.read.option_table import is_integer, parse_integer, refuse_value, shown_option

LATEST_TIME: Final = 253_339_228_800_000
"""The year 9998, in ms: a calendar ends with the year 9999."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LONG: Final = 2**63 - 1
_EXPECTED: Final = "ms since 1970, or a time in ISO 8601 such as 2024-05-01T12:00:00Z"
_CALENDAR: Final = re.compile(
    r"((?:19|20|21)[0-9]{2})([0-9]{2})([0-9]{2})(?:([0-9]{2})([0-9]{2})([0-9]{2})?([0-9]{3})?)?"
)
"""A time as RocketMQ's clients write ``consumeTimestamp``, also with ms as in its names of files, and without a time.

As ms these are hours of 1970, minutes of 1976, or centuries that no store has seen.
"""
_WITH_SECONDS: Final = 14
_SECONDS: Final = range(10**9, 10**10)
"""Ten-digit numbers: as seconds the years 2001 to 2286, as ms January to April 1970."""

_LOCAL: Final = "local"
_UTC_NAMES: Final = ("Z", "UTC", "GMT", "UT")
_OFFSET: Final = re.compile(
    r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2}(?::[0-9]{1,2})?|[0-9]{1,2}:[0-9]{2}:[0-9]{2}|[0-9]{4}|[0-9]{6})"
)
"""The offsets Spark accepts: those of Java 17's ``ZoneId.of``, and one-digit hours or minutes next to a colon."""

_ALIKE: Final = 0.8
"""Minimum similarity of a zone name to be suggested; short names such as CST are similar without meaning the same."""

_LARGEST_OFFSET: Final = timedelta(hours=18)
"""The limit of Java's ``ZoneOffset``."""


def store_time(name: str, value: object, zone: tzinfo | None = None) -> int:
    """Return a store time in ms since 1970; finer times are rounded up to the next ms.

    A local time that the clocks skip is shifted forward by the gap, and of one that occurs twice the first is taken, as
    Java's ``LocalDateTime.atZone`` and so Spark do. A ``datetime`` with ``fold=1`` means the second.

    * `value`: ms, ISO 8601, digits such as 20240501120000, a ``datetime`` or a ``date``, which means its midnight.
    * `zone`: Zone of times that have none.
    """
    local = local_time(name, value)
    if local is None:
        return _milliseconds(name, value)
    if local.utcoffset() is None:
        local = local.replace(tzinfo=_known_zone(name, value, local, zone))
    return -((_EPOCH - local) // _MILLISECOND)


def check_calendar_time(name: str, value: int | None) -> None:
    """Check a time, in ms, from which ages or days are counted: from 1970 on, and one that a calendar has; or none."""
    if value is not None and not 0 <= value <= LATEST_TIME:
        raise InvalidOptionError(
            f"{shown_option(name)}: expected a time from 1970-01-01 to {iso_time(LATEST_TIME)}, as 0 to {LATEST_TIME} "
            f"ms, found {value}"
        )


def local_time(name: str, value: object) -> datetime | None:
    """Return a time option as a ``datetime``, with or without a zone; None for a number of ms."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time())
    digits = _CALENDAR.fullmatch(str(value).strip())
    if digits is not None:
        return _calendar_time(name, digits)
    if not isinstance(value, str) or is_integer(value):
        return None
    try:
        return datetime.fromisoformat(value.strip())
    except ValueError:
        refuse_value(name, value, _EXPECTED)


def _calendar_time(name: str, digits: re.Match[str]) -> datetime | None:
    """Return the time that digits stand for; None for a few that are none, and so are ms."""
    year, month, day, hour, minute, second, ms = (int(part or 0) for part in digits.groups())
    try:
        return datetime(year, month, day, hour, minute, second, ms * 1000)  # noqa: DTZ001 -- in the zone that is given
    except ValueError:
        if len(digits[0]) < _WITH_SECONDS:
            return None
        refuse_value(name, digits[0], f"{_EXPECTED}, or digits such as 20240501120000")


def _milliseconds(name: str, value: object) -> int:
    number = parse_integer(name, value, -_LONG - 1, _LONG, _EXPECTED)
    if number in _SECONDS:
        raise InvalidOptionError(
            f"{shown_option(name)}: {number} may be seconds or ms since 1970. For {iso_time(number * 1000)} write "
            f"{number * 1000}; for {iso_time(number)} write that"
        )
    return number


def _known_zone(name: str, value: object, local: datetime, zone: tzinfo | None) -> tzinfo:
    if zone is not None:
        return zone
    text = value.strip() if isinstance(value, str) else str(value)
    if ":" not in text:
        text = local.isoformat(timespec="auto" if local.second or local.microsecond else "minutes")
    raise InvalidOptionError(
        f"{shown_option(name)}: {value!r} has no time zone. Write '{text}Z' for UTC or '{text}+08:00' for that offset, "
        f"or name its zone by {shown_option('time_zone')}, such as Asia/Shanghai"
    )


# ------------------------------------------------------------------------------------------------------- time zones


class LocalZone(tzinfo):
    """The zone of this machine, or of the environment variable ``TZ``."""

    def __str__(self) -> str:
        return _LOCAL

    def utcoffset(self, moment: datetime | None, /) -> timedelta | None:
        """Return the offset at a local time."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, moment: datetime | None, /) -> timedelta | None:  # noqa: ARG002 -- of `tzinfo`
        """Return nothing: no part of an offset is told apart."""
        return None

    def tzname(self, moment: datetime | None, /) -> str | None:
        """Return the zone's name at a local time."""
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime, /) -> datetime:
        """Return a moment as local time."""
        local = moment.replace(tzinfo=UTC).astimezone()
        return local.replace(tzinfo=self)


def parse_zone(name: str, value: object) -> tzinfo:
    """Return a time zone from a name, an offset in a form that Spark accepts, ``local``, or a ``tzinfo``."""
    if isinstance(value, tzinfo):
        return value
    if not isinstance(value, str):
        refuse_value(name, value, "a time zone such as 'Asia/Shanghai' or '+08:00'")
    text = value.strip()
    if text in _UTC_NAMES:
        return UTC
    if text.lower() == _LOCAL:
        return LocalZone()
    match = _OFFSET.fullmatch(text)
    if match is not None:
        return _fixed_zone(name, value, match)
    try:
        return ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise _unknown_zone(name, text) from None


def _fixed_zone(name: str, value: object, match: re.Match[str]) -> tzinfo:
    parts = match[2].split(":") if ":" in match[2] else re.findall("..?", match[2])
    hours, minutes, seconds = (int(part) for part in (*parts, "0", "0")[:3])
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if offset > _LARGEST_OFFSET or max(minutes, seconds) >= 60:  # noqa: PLR2004 -- of an hour, and of a minute
        refuse_value(name, value, "an offset of at most 18:00 hours")
    return timezone(-offset if match[1] == "-" else offset)


def _unknown_zone(name: str, text: str) -> InvalidOptionError:
    """Make the error for an unknown zone name; short ones such as CST, which Java knows, are ambiguous."""
    known = {zone.lower(): zone for zone in available_timezones()}
    near = difflib.get_close_matches(text.lower(), known, 1, _ALIKE)
    hint = f"; did you mean {known[near[0]]!r}?" if near else ""
    without = "" if known else " This machine has no database of time zones: pip install tzdata."
    return InvalidOptionError(
        f"{shown_option(name)}: expected a region such as 'Asia/Shanghai' or an offset such as '+08:00', "
        f"found {text!r}{hint}{without}"
    )

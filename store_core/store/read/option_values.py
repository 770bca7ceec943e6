# SPDX-License-Identifier: Apache-2.0
"""Values of the read options: a parser for each, from Spark's text or from a Python value; and times and their zone."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from enum import Enum
from typing import Final, SupportsIndex, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from store_core.errors import InvalidOptionError
from store_core.files.storage import StorageSettings
from store_core.format.columns import iso_time, resolve_columns
from store_core.format.record.scan import is_message_id
from store_core.format.release import RELEASES, release_hint
from store_core.format.words import hint_of
from store_core.store.read.option_table import (
    is_integer,
    listed,
    parse_integer,
    refuse_list,
    refuse_value,
    shown_option,
)

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


OptionParser: TypeAlias = "Callable[[str, object], object]"
"""Takes an option's name and raw value; returns the parsed value, or raises InvalidOptionError."""


_EARLIEST: Final = -2
_LATEST: Final = -1
_EDGES: Final = {_EARLIEST: "earliest", _LATEST: "latest"}
_IN_STREAMS: Final = {_EARLIEST: " (of a stream also latest)", _LATEST: ""}
_INT: Final = 2**31 - 1
_QUEUE_IDS: Final = f"queue ids from {-_INT - 1} to {_INT}, separated by commas"
_BYTES: Final = re.compile(r"([0-9]{1,19})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_BYTE_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_TAG_SEPARATOR: Final = "||"
_ALL_TAGS: Final = "*"


class ReadMode(Enum):
    """How a read handles damage; the names are those of Spark's CSV and JSON sources."""

    FAILFAST = "stop with an error"
    DROPMALFORMED = "continue at the next sound record"
    PERMISSIVE = "continue at the next sound record, and return the damaged bytes as a row"


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """Where reading starts or ends.

    Attributes
    ----------
    physical : int or None
        Position in the log, in bytes; None stands for the log's own bound.
    queues : tuple of (str, int, int)
        Topic, queue and queue offset; queues not listed are unrestricted.
    """

    physical: int | None = None
    queues: tuple[tuple[str, int, int], ...] = ()


def parse_names(name: str, value: object) -> tuple[str, ...]:
    """Parse a comma-separated list, around whose names blanks are allowed, or take those of a list as they are."""
    value = listed(name, value, "names, separated by commas")
    items = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        refuse_value(name, value, "names, separated by commas")
    if not items or not all(items):
        refuse_value(name, value, "names, separated by commas, none of them empty")
    return tuple(items)


def _topics(name: str, value: object) -> tuple[str, ...]:
    return tuple(_checked_topic(name, topic) for topic in parse_names(name, value))


def _checked_topic(name: str, topic: str) -> str:
    """Refuse what no topic is called; bytes of a directory's name that are not UTF-8 are as of `os.fsdecode`."""
    return checked_text(name, topic, errors="surrogateescape")


def checked_text(name: str, text: str, errors: str = "strict") -> str:
    """Return a text that an option has, unless it can't be encoded.

    * `errors`: As of `str.encode`.
    """
    try:
        text.encode(errors=errors)
    except UnicodeEncodeError as error:
        found = f"{text!r}, with a surrogate at index {error.start}"
        raise InvalidOptionError(f"{shown_option(name)}: expected characters, found {found}") from error
    return text


def _pattern(name: str, value: object) -> str:
    text = value.pattern if isinstance(value, re.Pattern) else value
    refuse_list(name, text, "a regular expression")
    if not isinstance(text, str):
        refuse_value(name, value, "a regular expression")
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidOptionError(
            f"{shown_option(name)}: {text!r} is not a valid Python regular expression: {error}"
        ) from error
    return text


def _queue_ids(name: str, value: object) -> tuple[int, ...]:
    value = listed(name, value, _QUEUE_IDS)
    items = value.split(",") if isinstance(value, str) else value
    items = [items] if isinstance(items, SupportsIndex) else items
    if not isinstance(items, list | tuple) or not items:
        refuse_value(name, value, _QUEUE_IDS)
    return tuple(parse_integer(name, item, -_INT - 1, _INT, _QUEUE_IDS) for item in items)


def _tags(name: str, value: object) -> tuple[str, ...]:
    """Parse a tag expression as consumers do (RocketMQ 4.x and 5.x: ``FilterAPI.buildSubscriptionData``)."""
    if isinstance(value, str):
        tags_of_list = listed(name, value, "a tag expression such as 'TagA || TagB'")
        value = _TAG_SEPARATOR.join(tags_of_list) if isinstance(tags_of_list, list) else value
    if not isinstance(value, str):
        refuse_value(name, value, "a tag expression such as 'TagA || TagB'")
    tags = tuple(tag.strip() for tag in value.split(_TAG_SEPARATOR) if tag.strip())
    if not tags:
        refuse_value(name, value, "a tag expression such as 'TagA || TagB', or '*' for all")
    checked_text(name, value)
    return () if value.strip() == _ALL_TAGS else tags


def _key(name: str, value: object) -> str:
    refuse_list(name, value, "one key")
    if not isinstance(value, str) or not value:
        refuse_value(name, value, "one key")
    return checked_text(name, value)


def _msg_id(name: str, value: object) -> str:
    if not isinstance(value, str) or not is_message_id(value.strip()):
        refuse_value(
            name,
            value,
            "an offset message id of 32 hexadecimal digits, or 56 with an IPv6 host, as in column msg_id; the id that "
            "a producer's client made is option uniqueKey",
        )
    return value.strip().upper()


def _position(name: str, value: object) -> int:
    return parse_integer(name, value, 0, _LONG, f"a physical offset: a number from 0 to {_LONG}")


def _file_or_directories(name: str, value: object) -> str:
    found = os.fspath(value) if isinstance(value, str | os.PathLike) else value
    if not isinstance(found, str) or not found.strip() or not _is_path(found):
        refuse_value(name, value, "a path on this machine")
    return found


def _is_path(text: str) -> bool:
    """Return whether a text can be a path of this machine at all."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _filter(name: str, value: object) -> str:
    refuse_list(name, value, "a consumer's filter")
    if not isinstance(value, str):
        refuse_value(name, value, "a consumer's filter: tags such as 'TagA || TagB', or an SQL92 expression")
    return checked_text(name, value)


def _offsets(edge: int) -> Callable[[str, object], OffsetBound]:
    """Make the parser of the bound at one edge of the log; the opposite edge would leave no rows, and is refused."""

    def parse(name: str, value: object) -> OffsetBound:
        ends = f"{_EDGES[edge]}{_IN_STREAMS[edge]}"
        expected = (
            f'a physical offset from 0 to {_LONG}, {ends}, or queue offsets as JSON such as {{"topic":{{"0":12}}}}'
        )
        text = value.strip() if isinstance(value, str) else value
        if isinstance(text, str) and text.lower() == _EDGES[edge]:
            return OffsetBound()
        if isinstance(text, str) and text.startswith("{"):
            text = _json(name, text)
        if isinstance(text, Mapping):
            return OffsetBound(None, tuple(_queue_offsets(name, text, edge)))
        return OffsetBound(parse_integer(name, text, 0, _LONG, expected))

    return parse


def _json(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOptionError(f"{shown_option(name)}: {text!r} is not JSON: {error}") from error


def _queue_offsets(name: str, topics: Mapping[object, object], edge: int) -> list[tuple[str, int, int]]:
    """Flatten ``{topic: {queue: offset}}``, leaving out unrestricted queues."""
    expected = f"an offset from 0 to {_LONG}, or {edge}, for each queue of each topic"
    found = []
    for topic, queues in topics.items():
        if not isinstance(topic, str) or not isinstance(queues, Mapping):
            refuse_value(name, topics, 'queue offsets as {"topic":{"0":12}}')
        _checked_topic(name, topic)
        for queue, offset in queues.items():
            queue_id = parse_integer(name, queue, -_INT - 1, _INT, f"a queue id from {-_INT - 1} to {_INT}")
            bound = parse_integer(name, offset, _EARLIEST, _LONG, expected)
            if bound < 0 and bound != edge:
                refuse_value(name, offset, expected)
            if bound >= 0:
                found.append((topic, queue_id, bound))
    return found


def parse_bytes(name: str, value: object) -> int:
    """Parse a number of bytes, which may have a unit."""
    match = _BYTES.fullmatch(value.strip()) if isinstance(value, str) else None
    number = int(match[1]) << _BYTE_UNITS[match[2].lower()] if match else value
    return parse_integer(name, number, 1, _LONG, f"a number of bytes from 1 to {_LONG}, such as 134217728 or 128m")


def parse_count(name: str, value: object) -> int:
    """Parse a number of 1 or more, as Java's ``int``."""
    return parse_integer(name, value, 1, _INT, f"a number from 1 to {_INT}")


def parse_boolean(name: str, value: object) -> bool:
    """Parse true or false."""
    known = {"true": True, "false": False}
    found = known.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        refuse_value(name, value, "true or false")
    return found


def _mode(name: str, value: object) -> ReadMode:
    if isinstance(value, ReadMode):
        return value
    return ReadMode[_one_of(*ReadMode.__members__, fold=str.upper)(name, value)]


def _filter_type(name: str, value: object) -> str:
    from store_core.format.filter.message_selector import FILTER_TYPES  # noqa: PLC0415 -- most reads have no filter

    return _one_of(*FILTER_TYPES, fold=str.upper)(name, value)


def _one_of(
    *allowed: str, fold: Callable[[str], str] = str, hint: Callable[[str], str] | None = None
) -> Callable[[str, object], str]:
    """Make the parser of a name, whose case `fold` may change; `hint` ends the error in place of the nearest name."""

    def parse(name: str, value: object) -> str:
        text = fold(value.strip()) if isinstance(value, str) else value
        if not isinstance(text, str) or text not in allowed:
            advice = hint_of(value, allowed) if hint is None else hint(str(value))
            refuse_value(name, value, f"one of {', '.join(allowed)}", advice)
        return text

    return parse


OPTION_PARSERS: Final[Mapping[str, OptionParser]] = {
    "columns": lambda name, value: resolve_columns(parse_names(name, value)),
    "topic": _topics,
    "topics_pattern": _pattern,
    "queue_id": _queue_ids,
    "tag": _tags,
    "key": _key,
    "unique_key": _key,
    "msg_id": _msg_id,
    "physical_offset": _position,
    "filter": _filter,
    "filter_type": _filter_type,
    "starting_offsets": _offsets(_EARLIEST),
    "ending_offsets": _offsets(_LATEST),
    "starting_timestamp": store_time,
    "ending_timestamp": store_time,
    "as_of": store_time,
    "time_zone": parse_zone,
    "max_partition_bytes": parse_bytes,
    "min_partitions": parse_count,
    "max_records_per_batch": parse_count,
    "mode": _mode,
    "verify_crc": parse_boolean,
    "decompress": parse_boolean,
    "fail_on_data_loss": parse_boolean,
    "use_consume_queues": _one_of("auto", "never", fold=str.lower),
    "use_index_files": _one_of("auto", "never", fold=str.lower),
    "release": _one_of(*RELEASES, hint=release_hint),
    "storage": lambda _, value: StorageSettings.of(value),
    "config": _file_or_directories,
    "store_path_commit_log": _file_or_directories,
}

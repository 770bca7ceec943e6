# SPDX-License-Identifier: Apache-2.0
"""The options of reading, parsed once: from Spark's text or from Python values."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from operator import index
from typing import TYPE_CHECKING, Final, NoReturn, SupportsIndex

from store_core.errors import InvalidOptionError
from store_core.format.columns import CORRUPT_RECORD, DEFAULT_COLUMNS, resolve_columns
from store_core.format.message_selector import FILTER_TYPES, MessageSelector
from store_core.format.near_name import did_you_mean
from store_core.format.properties import PropertyParser
from store_core.store.option_checks import check_filter, check_filter_type, check_order, shown_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

__all__ = ["OffsetBound", "ReadMode", "ReadOptions"]

_EARLIEST: Final = -2
_LATEST: Final = -1
_EDGES: Final = {_EARLIEST: "earliest", _LATEST: "latest"}
_LONG: Final = 2**63 - 1
_INT: Final = 2**31 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_BYTES: Final = re.compile(r"([0-9]{1,19})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_BYTE_UNITS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_TAG_SEPARATOR: Final = "||"
_ALL_TAGS: Final = "*"
_RELEASES: Final = ("4.3", "4.9", "5.3")


class ReadMode(Enum):
    """What damage does to a read; the names are those of Spark's CSV and JSON sources."""

    FAILFAST = "stop with an error"
    DROPMALFORMED = "go on at the next sound record"
    PERMISSIVE = "go on at the next sound record, and give the damaged bytes a row"


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """Where reading starts or ends.

    Attributes
    ----------
    physical : int or None
        Position in the log, in bytes; None stands for the log's own bound.
    queues : tuple of (str, int, int)
        Topic, queue and queue offset; queues that are not named are not narrowed.
    """

    physical: int | None = None
    queues: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a store is read. Make it with `parse`; it pickles.

    Attributes
    ----------
    columns : tuple of str
        Canonical names, in the order of the rows.
    topic : tuple of str
        Exact names; empty for all topics.
    topics_pattern : str or None
        Regular expression (Python's) that must match the whole topic.
    queue_id : tuple of int
        Empty for all queues.
    tag : tuple of str
        Values of property TAGS; empty for all messages.
    key : str or None
        One of the keys in property KEYS, or the UNIQ_KEY.
    filter : str or None
        A consumer's filter: then the rows are those that RocketMQ gives such a consumer.
    filter_type : str
        The language of `filter`: ``"TAG"`` or ``"SQL92"``.
    starting_offsets, ending_offsets : OffsetBound
        The end is exclusive.
    starting_timestamp, ending_timestamp : int or None
        Store time in ms; the end is exclusive. They win over the offsets.
    use_index_files : str
        ``"auto"`` or ``"never"``; the rows are the same.
    max_partition_bytes : int or None
        Most bytes of a range; None for a range a segment.
    min_partitions : int or None
        How many ranges there should be at least.
    max_records_per_batch : int
        Most rows of a batch.
    mode : ReadMode
    verify_crc : bool
        Whether bodies that are read must match their checksums.
    decompress : bool
        Whether the column ``body`` holds expanded bodies.
    fail_on_data_loss : bool
        Whether missing files are errors.
    release : str
        RocketMQ that wrote the store: ``"4.3"``, ``"4.9"`` or ``"5.3"``; they parse properties differently.
    """

    columns: tuple[str, ...] = DEFAULT_COLUMNS
    topic: tuple[str, ...] = ()
    topics_pattern: str | None = None
    queue_id: tuple[int, ...] = ()
    tag: tuple[str, ...] = ()
    key: str | None = None
    filter: str | None = None
    filter_type: str = "TAG"
    starting_offsets: OffsetBound = OffsetBound()
    ending_offsets: OffsetBound = OffsetBound()
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    use_index_files: str = "auto"
    max_partition_bytes: int | None = None
    min_partitions: int | None = None
    max_records_per_batch: int = 16384
    mode: ReadMode = ReadMode.FAILFAST
    verify_crc: bool = True
    decompress: bool = False
    fail_on_data_loss: bool = True
    release: str = "5.3"

    @classmethod
    def parse(cls, **named: object) -> Self:
        """Parse options given by name, as text or as Python values; None stands for "not given".

        Raises
        ------
        InvalidOptionError
            If a name is unknown (the nearest one is named), a value can't be used, or two options contradict.
        """
        for name in named.keys() - _PARSERS.keys():
            _refuse_name(name)
        parsed = {name: _PARSERS[name](name, value) for name, value in named.items() if value is not None}
        options = cls(**parsed)  # type: ignore[arg-type]  # each parser gives its field's type
        if options.is_permissive and "columns" not in parsed:
            options = cls(**parsed, columns=(*DEFAULT_COLUMNS, CORRUPT_RECORD))  # type: ignore[arg-type]  # as above
        _check_pairs(options)
        if options.filter is not None and "filter_type" not in parsed:
            check_filter_type(options.filter)
        return options

    @property
    def is_permissive(self) -> bool:
        """Whether damaged ranges become rows, so that every column can be null."""
        return self.mode is ReadMode.PERMISSIVE

    @property
    def is_failfast(self) -> bool:
        """Whether damage ends the read."""
        return self.mode is ReadMode.FAILFAST

    @property
    def is_strict(self) -> bool:
        """Whether anything wrong with the files ends the read."""
        return self.is_failfast and self.fail_on_data_loss

    @property
    def start(self) -> OffsetBound:
        """Where reading starts, as far as offsets say."""
        return self.starting_offsets if self.starting_timestamp is None else OffsetBound()

    @property
    def end(self) -> OffsetBound:
        """Where reading ends, as far as offsets say."""
        return self.ending_offsets if self.ending_timestamp is None else OffsetBound()

    @property
    def selector(self) -> MessageSelector | None:
        """The consumer's filter, compiled."""
        return None if self.filter is None else MessageSelector.of(self.filter_type, self.filter, self.release)

    @property
    def property_parser(self) -> PropertyParser:
        """How the chosen release reads a properties string."""
        return PropertyParser.of_release(self.release)


def _refuse(name: str, value: object, expected: str) -> NoReturn:
    raise InvalidOptionError(f"{shown_option(name)}: expected {expected}, found {value!r}")


def _refuse_name(name: str) -> NoReturn:
    hint = did_you_mean(name, _PARSERS)
    raise InvalidOptionError(f"unknown option {name!r}; {hint}{' ' * bool(hint)}The options are {', '.join(_PARSERS)}")


# ------------------------------------------------------------------------------------------------- parsers of one value


def _strings(name: str, value: object) -> tuple[str, ...]:
    """Parse a comma list, or take a sequence of strings."""
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        _refuse(name, value, "names, separated by commas")
    texts = tuple(item.strip() for item in items)
    if not texts or not all(texts):
        _refuse(name, value, "names, separated by commas, none of them empty")
    return texts


def _columns(name: str, value: object) -> tuple[str, ...]:
    return resolve_columns(_strings(name, value))


def _pattern(name: str, value: object) -> str:
    text = value.pattern if isinstance(value, re.Pattern) else value
    if not isinstance(text, str):
        _refuse(name, value, "a regular expression")
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidOptionError(
            f"{shown_option(name)}: {text!r} is no regular expression of Python's: {error}"
        ) from error
    return text


def _is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text.strip()) is not None


def _integer(name: str, value: object, low: int, high: int, expected: str) -> int:
    """Parse a number, or take anything that Python lets be an index, such as numpy's integers."""
    number = int(value) if isinstance(value, str) and _is_integer(value) else value
    if not isinstance(number, SupportsIndex) or isinstance(number, bool) or not low <= index(number) <= high:
        _refuse(name, value, expected)
    return index(number)


def _queue_ids(name: str, value: object) -> tuple[int, ...]:
    items = value.split(",") if isinstance(value, str) else value
    items = [items] if isinstance(items, SupportsIndex) else items
    if not isinstance(items, list | tuple) or not items:
        _refuse(name, value, "queue ids, separated by commas")
    return tuple(_integer(name, item, -_INT - 1, _INT, "queue ids, separated by commas") for item in items)


def _tags(name: str, value: object) -> tuple[str, ...]:
    """Parse a tag expression as consumers do (RocketMQ 4.x and 5.x: ``FilterAPI.buildSubscriptionData``)."""
    if not isinstance(value, str):
        _refuse(name, value, "a tag expression such as 'TagA || TagB'")
    tags = tuple(tag.strip() for tag in value.split(_TAG_SEPARATOR) if tag.strip())
    if not tags:
        _refuse(name, value, "a tag expression such as 'TagA || TagB', or '*' for all")
    return () if value.strip() == _ALL_TAGS else tags


def _key(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        _refuse(name, value, "one key")
    return value


def _filter(name: str, value: object) -> str:
    if not isinstance(value, str):
        _refuse(name, value, "a consumer's filter: tags such as 'TagA || TagB', or an SQL92 expression")
    return value


def _offsets(edge: int) -> Callable[[str, object], OffsetBound]:
    """Make the parser of the bound at one edge of the log; the other edge would leave no rows, and is refused."""

    def parse(name: str, value: object) -> OffsetBound:
        expected = f'a physical offset, {_EDGES[edge]}, or queue offsets as JSON such as {{"topic":{{"0":12}}}}'
        text = value.strip() if isinstance(value, str) else value
        if isinstance(text, str) and text.lower() == _EDGES[edge]:
            return OffsetBound()
        if isinstance(text, str) and text.startswith("{"):
            text = _json(name, text)
        if isinstance(text, dict):
            return OffsetBound(None, tuple(_queue_offsets(name, text, edge)))
        return OffsetBound(_integer(name, text, 0, _LONG, expected))

    return parse


def _json(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidOptionError(f"{shown_option(name)}: {text!r} is no JSON: {error}") from error


def _queue_offsets(name: str, topics: Mapping[object, object], edge: int) -> list[tuple[str, int, int]]:
    """Flatten ``{topic: {queue: offset}}``, leaving out queues that are not narrowed."""
    expected = f"an offset of 0 or more, or {edge}, for each queue of each topic"
    found = []
    for topic, queues in topics.items():
        if not isinstance(topic, str) or not isinstance(queues, dict):
            _refuse(name, topics, 'queue offsets as {"topic":{"0":12}}')
        for queue, offset in queues.items():
            queue_id = _integer(name, queue, -_INT - 1, _INT, "a queue id")
            bound = _integer(name, offset, _EARLIEST, _LONG, expected)
            if bound < 0 and bound != edge:
                _refuse(name, offset, expected)
            if bound >= 0:
                found.append((topic, queue_id, bound))
    return found


def _timestamp(name: str, value: object) -> int:
    """Parse ms since 1970, or ISO 8601; a time without a zone is UTC. Finer times round up to the next ms."""
    expected = "ms since 1970, or a time in ISO 8601 such as 2024-05-01T12:00:00Z"
    try:
        time = datetime.fromisoformat(value.strip()) if isinstance(value, str) and not _is_integer(value) else value
        if isinstance(time, datetime):
            return -((_EPOCH - (time if time.tzinfo else time.replace(tzinfo=UTC))) // _MILLISECOND)
    except (ValueError, OverflowError):
        _refuse(name, value, expected)
    return _integer(name, time, -_LONG - 1, _LONG, expected)


def _bytes(name: str, value: object) -> int:
    match = _BYTES.fullmatch(value.strip()) if isinstance(value, str) else None
    number = int(match[1]) << _BYTE_UNITS[match[2].lower()] if match else value
    return _integer(name, number, 1, _LONG, "a number of bytes of 1 or more, such as 134217728 or 128m")


def _count(name: str, value: object) -> int:
    return _integer(name, value, 1, _INT, "a number of 1 or more")


def _boolean(name: str, value: object) -> bool:
    known = {"true": True, "false": False}
    found = known.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        _refuse(name, value, "true or false")
    return found


def _mode(name: str, value: object) -> ReadMode:
    if isinstance(value, ReadMode):
        return value
    return ReadMode[_one_of(*ReadMode.__members__)(name, value.upper() if isinstance(value, str) else value)]


def _filter_type(name: str, value: object) -> str:
    return _one_of(*FILTER_TYPES)(name, value.upper() if isinstance(value, str) else value)


def _one_of(*allowed: str) -> Callable[[str, object], str]:
    def parse(name: str, value: object) -> str:
        text = value.strip() if isinstance(value, str) else value
        if not isinstance(text, str) or text not in allowed:
            _refuse(name, value, f"one of {', '.join(allowed)}")
        return text

    return parse


_PARSERS: Final[Mapping[str, Callable[[str, object], object]]] = {
    "columns": _columns,
    "topic": _strings,
    "topics_pattern": _pattern,
    "queue_id": _queue_ids,
    "tag": _tags,
    "key": _key,
    "filter": _filter,
    "filter_type": _filter_type,
    "starting_offsets": _offsets(_EARLIEST),
    "ending_offsets": _offsets(_LATEST),
    "starting_timestamp": _timestamp,
    "ending_timestamp": _timestamp,
    "use_index_files": _one_of("auto", "never"),
    "max_partition_bytes": _bytes,
    "min_partitions": _count,
    "max_records_per_batch": _count,
    "mode": _mode,
    "verify_crc": _boolean,
    "decompress": _boolean,
    "fail_on_data_loss": _boolean,
    "release": _one_of(*_RELEASES),
}


def _check_pairs(options: ReadOptions) -> None:
    if options.topic and options.topics_pattern is not None:
        shown = f"{shown_option('topic')} and {shown_option('topics_pattern')}"
        raise InvalidOptionError(f"{shown}: expected one of them, found both")
    if options.filter is not None:
        check_filter(options.filter, options.filter_type, options.release)
    check_order("timestamp", options.starting_timestamp, options.ending_timestamp)
    if options.starting_timestamp is None and options.ending_timestamp is None:
        check_order("offsets", options.starting_offsets.physical, options.ending_offsets.physical)
        ends = {(topic, queue): offset for topic, queue, offset in options.ending_offsets.queues}
        for topic, queue, start in options.starting_offsets.queues:
            check_order("offsets", start, ends.get((topic, queue)), f" of queue {queue} of {topic}")

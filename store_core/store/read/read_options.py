# SPDX-License-Identifier: Apache-2.0
"""The read options, parsed once from Spark's text or from Python values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from store_core.errors import FilterError, InvalidOptionError
from store_core.files.storage import NO_SETTINGS, StorageSettings
from store_core.format.columns import CORRUPT_RECORD, DEFAULT_COLUMNS, STORE, iso_time
from store_core.format.filter.message_selector import MessageSelector
from store_core.format.properties import PropertyParser
from store_core.format.record.scan import position_of_message_id
from store_core.format.release import DEFAULT_RELEASE
from store_core.format.words import did_you_mean
from store_core.snapshot.store import Store, stores_of
from store_core.store.read.option_table import READ_OPTIONS, shown_option
from store_core.store.read.option_values import (
    OPTION_PARSERS,
    OffsetBound,
    OptionParser,
    ReadMode,
    parse_zone,
    store_time,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import tzinfo

    from store_core.files.store_path import StorePaths


_WHOLE_LOG: Final = OffsetBound()
_NO_OPTION: Final = {"is_option": False}
TIMES: Final = ("starting_timestamp", "ending_timestamp", "as_of")
"""Options that are times."""


_NARROWING: Final = frozenset(option.field for option in READ_OPTIONS if option.scope == "rows") - {
    "filter_type",
    "time_zone",
}
"""Options that select rows: all that are about rows, but for what other ones mean."""


class AskedQueue(NamedTuple):
    """A queue that is asked for.

    Attributes
    ----------
    topics : tuple of str
        One of which has it; empty for any topic.
    queue_id : int
    """

    topics: tuple[str, ...]
    queue_id: int


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a store is read; made by `parse`, and picklable.

    Attributes
    ----------
    columns : tuple of str
        Canonical names, in the order of the rows.
    topic : tuple of str
        Exact names; empty for all topics.
    topics_pattern : str or None
        Python regular expression that must match the whole topic.
    queue_id : tuple of int
        Empty for all queues.
    tag : tuple of str
        Values of property TAGS; empty for all messages.
    key : str or None
        One of the keys in property KEYS, or the UNIQ_KEY.
    unique_key : str or None
        The UNIQ_KEY alone: the id that the producer's client made.
    msg_id : str or None
        Offset message id, 32 or 56 hexadecimal digits, as in column ``msg_id``.
    physical_offset : int or None
        Position of one record in the log, in bytes.
    filter : str or None
        A consumer's filter; the rows are then those that RocketMQ would deliver to such a consumer.
    filter_type : str
        The language of `filter`: ``"TAG"`` or ``"SQL92"``.
    starting_offsets, ending_offsets : OffsetBound
        The end is exclusive.
    starting_timestamp, ending_timestamp : int or None
        Store time in ms since 1970; the end is exclusive. They take precedence over offsets. `parse` also takes ISO
        8601, a ``datetime``, or a ``date`` for its midnight.
    as_of : int or None
        Store time in ms since 1970: the rows are those that were there when the broker's clock first showed it, which
        are the records before the first, in the order of the log, that was stored then or later. Other bounds hold as
        well. `parse` takes it in the same forms.
    time_zone : tzinfo or None
        Zone of times given to `parse` without one, as a name (``"Asia/Shanghai"``), offset (``"+08:00"``) or
        ``tzinfo``; if None, such times are refused.
    max_partition_bytes : int or None
        Maximum bytes of a range; None for one range per segment.
    min_partitions : int or None
        Desired minimum number of ranges.
    max_records_per_batch : int
        Maximum rows of a batch.
    mode : ReadMode
    verify_crc : bool
        Whether bodies that are read must match their checksums.
    decompress : bool
        Whether the column ``body`` holds expanded bodies.
    fail_on_data_loss : bool
        Whether missing files are errors.
    use_consume_queues : str
        ``"auto"`` reads topics and queues by their consume queues where that pays, and verifies each record;
        ``"never"`` scans the log, whatever queues hold.
    use_index_files : str
        The same for keys by the index files.
    release : str
        The RocketMQ release that serves the store, one of `RELEASES`; ``"4.3"``, which stands for all up to 4.9.0,
        parses properties differently.
    storage : StorageSettings
        Settings of the object store or file system, if the path is a URL; `parse` takes them as a mapping. They are
        never shown.
    config : str or None
        The broker's configuration file, which says where the log of a root is.
    store_path_commit_log : str or None
        Which log is meant, where a root has one and its configuration names another: the directory, or several,
        separated by commas.
    nearest_times : bool
        No option: whether times that no table holds are the nearest that Arrow has, for what calculates with times.
    store_name : str
        No option: what column ``store`` has.
    told : set of str
        No option: what this read has warned of in this process, once for all of its ranges.
    """

    columns: tuple[str, ...] = DEFAULT_COLUMNS
    topic: tuple[str, ...] = ()
    topics_pattern: str | None = None
    queue_id: tuple[int, ...] = ()
    tag: tuple[str, ...] = ()
    key: str | None = None
    unique_key: str | None = None
    msg_id: str | None = None
    physical_offset: int | None = None
    filter: str | None = None
    filter_type: str = "TAG"
    starting_offsets: OffsetBound = _WHOLE_LOG
    ending_offsets: OffsetBound = _WHOLE_LOG
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    as_of: int | None = None
    time_zone: tzinfo | None = None
    max_partition_bytes: int | None = None
    min_partitions: int | None = None
    max_records_per_batch: int = 16384
    mode: ReadMode = ReadMode.FAILFAST
    verify_crc: bool = True
    decompress: bool = False
    fail_on_data_loss: bool = True
    use_consume_queues: str = "auto"
    use_index_files: str = "auto"
    release: str = DEFAULT_RELEASE
    storage: StorageSettings = NO_SETTINGS
    config: str | None = None
    store_path_commit_log: str | None = None
    nearest_times: bool = field(default=False, metadata=_NO_OPTION)
    store_name: str = field(default="", metadata=_NO_OPTION)
    told: set[str] = field(default_factory=set, compare=False, repr=False, metadata=_NO_OPTION)

    @classmethod
    def parse(cls, **named: object) -> Self:
        """Parse options given by name, as text or as Python values; None means "not given".

        Raises
        ------
        InvalidOptionError
            If a name is unknown (the message suggests the nearest), a value is invalid, or two options contradict.
        """
        for name in named.keys() - OPTION_PARSERS.keys():
            known = did_you_mean(name, OPTION_PARSERS) or f"the options are {', '.join(OPTION_PARSERS)}"
            raise InvalidOptionError(f"unknown option {name!r}; {known}")
        zone = named.get("time_zone")
        time = partial(store_time, zone=None if zone is None else parse_zone("time_zone", zone))
        parsers: dict[str, OptionParser] = {**OPTION_PARSERS, **dict.fromkeys(TIMES, time)}
        parsed = {name: parsers[name](name, value) for name, value in named.items() if value is not None}
        options = cls(**parsed)  # type: ignore[arg-type]  # each parser returns its field's type
        if options.is_permissive and "columns" not in parsed:
            options = cls(**parsed, columns=(*DEFAULT_COLUMNS, CORRUPT_RECORD))  # type: ignore[arg-type]  # as above
        _check_pairs(options)
        # As tags, a filter that looks like SQL92 would match no row.
        if options.filter is not None and "filter_type" not in parsed and _LOOKS_LIKE_SQL.search(options.filter):
            raise InvalidOptionError(
                f"{shown_option('filter')}: expected tags such as 'TagA || TagB', found {options.filter!r}, which "
                f"looks like SQL92; say which it is with {shown_option('filter_type')}: SQL92 or TAG"
            )
        return options

    def store_of(self, paths: StorePaths) -> Store:
        """Return the store at some paths, as the configuration and the settings of a storage say."""
        return Store(paths, config=self.config, storage=self.storage, store_path_commit_log=self.store_path_commit_log)

    def stores_of(self, paths: StorePaths | Sequence[Store]) -> tuple[Store, ...]:
        """Return the stores at some paths, likewise."""
        return stores_of(
            paths, config=self.config, storage=self.storage, store_path_commit_log=self.store_path_commit_log
        )

    def named(self, store: Store) -> ReadOptions:
        """Return the options for one of several stores; its name is set only for the column that has it."""
        return replace(self, store_name=store.name) if STORE in self.columns else self

    @property
    def selects_rows(self) -> bool:
        """Whether an option narrows what is read; without one the whole log is."""
        return any(getattr(self, each.name) != each.default for each in fields(self) if each.name in _NARROWING)

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
        """Where reading starts, by the offsets alone."""
        return self.starting_offsets if self.starting_timestamp is None else _WHOLE_LOG

    @property
    def end(self) -> OffsetBound:
        """Where reading ends, by the offsets alone."""
        return self.ending_offsets if self.ending_timestamp is None else _WHOLE_LOG

    @property
    def named_topics(self) -> tuple[str, ...]:
        """The topics that are asked for by name: as `topic`, and with queue offsets."""
        bounds = (*self.start.queues, *self.end.queues)
        return tuple(dict.fromkeys([*self.topic, *(topic for topic, _, _ in bounds)]))

    @property
    def asked_queues(self) -> tuple[AskedQueue, ...]:
        """The queues that are asked for by their ids: as `queue_id`, and with queue offsets."""
        bounds = (*self.start.queues, *self.end.queues)
        by_id = [AskedQueue(self.topic, queue_id) for queue_id in self.queue_id]
        return tuple(dict.fromkeys([*by_id, *(AskedQueue((topic,), queue_id) for topic, queue_id, _ in bounds)]))

    @property
    def position(self) -> int | None:
        """The only physical offset at which a row can be; None if there is no such restriction."""
        named = None if self.msg_id is None else position_of_message_id(self.msg_id)
        return named if self.physical_offset is None else self.physical_offset

    @property
    def names_queues(self) -> bool:
        """Whether only some topics or queues are requested by their names."""
        return bool(self.topic or self.topics_pattern is not None or self.queue_id)

    @property
    def named_key(self) -> str | None:
        """The key that is asked for, of whatever kind; None if there is none."""
        return self.key if self.unique_key is None else self.unique_key

    @property
    def selector(self) -> MessageSelector | None:
        """The consumer's filter, compiled."""
        return None if self.filter is None else MessageSelector.of(self.filter_type, self.filter, self.release)

    @property
    def property_parser(self) -> PropertyParser:
        """How the chosen release parses a properties string."""
        return PropertyParser.of_release(self.release)


def _check_pairs(options: ReadOptions) -> None:
    if options.topic and options.topics_pattern is not None:
        shown = f"{shown_option('topic')} and {shown_option('topics_pattern')}"
        raise InvalidOptionError(f"{shown}: expected one of them, found both; leave one out")
    if options.filter is not None:
        try:
            MessageSelector.of(options.filter_type, options.filter, options.release)
        except FilterError as error:
            language = f"{shown_option('filter_type')} is {options.filter_type}"
            raise InvalidOptionError(f"{shown_option('filter')}: {error}; {language}") from error
    _check_order("timestamp", options.starting_timestamp, options.ending_timestamp, shown=iso_time)
    if options.starting_timestamp is None and options.ending_timestamp is None:
        _check_order("offsets", options.starting_offsets.physical, options.ending_offsets.physical)
        ends = {(topic, queue): offset for topic, queue, offset in options.ending_offsets.queues}
        for topic, queue, start in options.starting_offsets.queues:
            _check_order("offsets", start, ends.get((topic, queue)), f" of queue {queue} of {topic}")


_LOOKS_LIKE_SQL: Final = re.compile(r"[=<>']|\bIS\s+(?:NOT\s+)?NULL\b", re.IGNORECASE)


def _check_order(
    kind: str, start: int | None, end: int | None, where: str = "", *, shown: Callable[[int], str] = str
) -> None:
    """Refuse a start after the end.

    * `kind`: What the names of both options end with.
    * `where`: An addition to the error.
    * `shown`: Returns the text of a bound.
    """
    if start is not None and end is not None and start > end:
        first, last = shown_option(f"starting_{kind}"), shown_option(f"ending_{kind}")
        raise InvalidOptionError(f"{first}: expected at most {last}, {shown(end)}, found {shown(start)}{where}")


_RELATIVE: Final = re.compile(r"-([0-9]{1,9})([smhdw])")
_UNITS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_PLACES: Final = ("config", "storage", "store_path_commit_log")
"""Options that say which log is meant."""


def is_relative(value: object) -> bool:
    """Return whether a value is such a time: ``-``, a number, and s, m, h, d or w."""
    return isinstance(value, str) and _RELATIVE.fullmatch(value.strip()) is not None


def with_absolute_times(
    paths: StorePaths | Sequence[Store], options: Mapping[str, object], names: Iterable[str] = TIMES
) -> dict[str, Any]:
    """Return options by name, with times in ms where relative ones were given; others are as they were."""
    found = {name: str(options[name]).strip() for name in names if is_relative(options.get(name))}
    if not found:
        return dict(options)
    places = ReadOptions.parse(**{name: options[name] for name in _PLACES if options.get(name) is not None})
    ends = [end for store in places.stores_of(paths) if (end := store.last_store_time) is not None]
    if not ends:
        name, text = next(iter(found.items()))
        raise InvalidOptionError(
            f"{shown_option(name)}: {text} counts back from the store time of the log's last message, and there is "
            f"none: expected a time such as 2024-05-01T12:00:00Z"
        )
    return {**options, **{name: max(ends) - _milliseconds(text) for name, text in found.items()}}


def _milliseconds(text: str) -> int:
    found = _RELATIVE.fullmatch(text)
    return 0 if found is None else int(found[1]) * _UNITS[found[2]]

# SPDX-License-Identifier: Apache-2.0
"""Reading the messages of a store in one call, single ones and the last; and whether it has what was asked for."""

from __future__ import annotations

import logging
import re
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Final, Literal, Never, SupportsIndex, TypeAlias

import pyarrow as pa

from store_core.errors import StoreError
from store_core.files.store_path import StorePaths, given_paths, store_roots
from store_core.files.url_path import UrlPath
from store_core.format.columns import arrow_schema
from store_core.format.record.scan import is_message_id
from store_core.format.words import did_you_mean, known_names
from store_core.snapshot.config import TOPICS, Config, TopicConfig
from store_core.snapshot.queues import Queues
from store_core.snapshot.units import TopicFilter
from store_core.store.read.message_reader import read_range
from store_core.store.read.option_table import NamedBy
from store_core.store.read.read_options import AskedQueue, ReadOptions, with_absolute_times
from store_core.store.read.read_plan import plan_and_walk, plan_ranges

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import date, tzinfo
    from pathlib import Path

    from store_core.snapshot.store import Store
    from store_core.store.read.lookup.explanation import ReadExplanation
    from store_core.store.read.option_values import ReadMode
    from store_core.store.read.ranges import ReadRange


_log: Final = logging.getLogger("store_core")

Names: TypeAlias = "str | list[str] | tuple[str, ...]"
Numbers: TypeAlias = "SupportsIndex | str | list[int] | tuple[int, ...]"
Offsets: TypeAlias = "SupportsIndex | str | Mapping[str, Mapping[int, int]] | Mapping[str, Mapping[str, int]]"
Time: TypeAlias = "SupportsIndex | str | date"
Settings: TypeAlias = "Mapping[str, str] | str"
Mode: TypeAlias = "ReadMode | Literal['FAILFAST', 'DROPMALFORMED', 'PERMISSIVE']"


def read_messages(  # noqa: PLR0913 -- an argument for each option: editors complete them, and types are checked
    path: StorePaths,
    *,
    columns: Names | None = None,
    topic: Names | None = None,
    topics_pattern: str | re.Pattern[str] | None = None,
    queue_id: Numbers | None = None,
    tag: str | None = None,
    key: str | None = None,
    unique_key: str | None = None,
    msg_id: str | None = None,
    physical_offset: SupportsIndex | str | None = None,
    filter: str | None = None,  # noqa: A002 -- the option's name
    filter_type: Literal["TAG", "SQL92"] | None = None,
    starting_offsets: Offsets | None = None,
    ending_offsets: Offsets | None = None,
    starting_timestamp: Time | None = None,
    ending_timestamp: Time | None = None,
    as_of: Time | None = None,
    time_zone: str | tzinfo | None = None,
    max_partition_bytes: SupportsIndex | str | None = None,
    min_partitions: SupportsIndex | None = None,
    max_records_per_batch: SupportsIndex | None = None,
    mode: Mode | None = None,
    verify_crc: bool | None = None,
    decompress: bool | None = None,
    fail_on_data_loss: bool | None = None,
    use_consume_queues: Literal["auto", "never"] | None = None,
    use_index_files: Literal["auto", "never"] | None = None,
    release: str | None = None,
    storage: Settings | None = None,
    config: str | os.PathLike[str] | None = None,
    store_path_commit_log: str | os.PathLike[str] | None = None,
    **unknown: Never,
) -> pa.RecordBatchReader:
    """Read the messages of a store, without a broker and without Spark.

    Parameters
    ----------
    path : path or sequence of paths
        A store root, a ``commitlog`` directory, a segment file, or several of these that together form one log; or
        several stores, also as a pattern such as ``"/data/*/store"``, see `store_core.stores_of`.
    columns, topic, ..., store_path_commit_log : optional
        Options. `store_core.ReadOptions` documents each, with its default, under the same name; None means "not given".
    **unknown
        Not accepted: an unknown name is refused, and the nearest option suggested.

    Returns
    -------
    pyarrow.RecordBatchReader
        In log order, store by store. It has what the log held when this function was called, not what a broker appends
        later.

    Raises
    ------
    StoreError
        If an option is invalid, or the path has nothing to read. Damage is raised by the batch that reaches it.

    Examples
    --------
    >>> table = read_messages(store, columns=["topic", "body"], topic="orders").read_all()  # doctest: +SKIP
    """
    named = {name: value for name, value in locals().items() if name not in {"path", "unknown"}}
    options = parsed_options(path, {**named, **unknown})
    return messages_of(options.stores_of(path), options)


def parsed_options(path: StorePaths | Sequence[Store], named: Mapping[str, object]) -> ReadOptions:
    """Return the options of a read by their names; times may be relative to the log's last message."""
    return ReadOptions.parse(**with_absolute_times(path, named))


def messages_of(stores: Sequence[Store], options: ReadOptions, *, by_moment: bool = False) -> pa.RecordBatchReader:
    """Read the messages of stores, one after the other, as they are now or as of their moments; see `read_messages`."""
    asked = [options.named(store) for store in stores]
    planned = [
        plan_and_walk(store if by_moment else store.paths, each, by_tail=True)
        for store, each in zip(stores, asked, strict=True)
    ]
    watch = TopicWatch.of(stores, options)
    batches = watch.to_end(
        batch
        for each, (plan, mapped) in zip(asked, planned, strict=True)
        for part in plan.ranges
        for batch in read_range(part, each, mapped, watch.unseen)
    )
    return pa.RecordBatchReader.from_batches(arrow_schema(options.columns, nullable=options.is_permissive), batches)


def explain(path: StorePaths, **options: object) -> ReadExplanation:
    """Return how `read_messages` would read, and what that costs; only what planning needs is read.

    Parameters
    ----------
    path : path or sequence of paths
        As of `read_messages`.
    **options
        Those of `read_messages`, under the same names.

    Raises
    ------
    StoreError
        As `read_messages`.

    Examples
    --------
    >>> print(explain(store, topic="orders", queue_id=0))  # doctest: +SKIP
    queues: units of queues lead to the records, and account for those between them
      reads 16,057,212 bytes of the log in 2 files
      of 4,364,922 units of queues, 43,649 records are read at their positions
    """
    plan = plan_ranges(path, ReadOptions.parse(**with_absolute_times(path, options)))
    return replace(plan.explanation, notes=(*plan.notes, *plan.explanation.notes))


# ---- whether a store has what was asked for

_MOST_QUEUES: Final = 1 << 16
_MOST_SHOWN: Final = 20


def roots_of(stores: Iterable[Store]) -> tuple[Path, ...]:
    """Return the directories that may be the roots of some stores."""
    return tuple(dict.fromkeys(root for store in stores for root in store_roots(store.paths)))


def stored_topics(roots: Iterable[Path]) -> frozenset[str]:
    """Return the topics that roots have as queue directories or in ``config/topics.json``, if readable."""
    found: set[str] = set()
    for root in roots:
        with suppress(StoreError, OSError), Queues(root) as queues:
            found |= queues.topics()
        found.update(_configured(root))
    return frozenset(found)


def stored_queues(roots: Iterable[Path], topics: Iterable[str]) -> frozenset[int]:
    """Return the ids of queues of some topics, from the same places as `stored_topics`."""
    return frozenset(number for root in roots for number in _queues_of(root, list(topics)))


def _queues_of(root: Path, topics: Sequence[str]) -> Iterator[int]:
    with suppress(StoreError, OSError), Queues(root) as queues:
        yield from (queue_id for _, queue_id in queues.names(TopicFilter(tuple(topics))))
    for config in filter(None, map(_configured(root).get, topics)):
        yield from range(min(max(config.read_queue_nums, config.write_queue_nums, 0), _MOST_QUEUES))


def _unread(roots: Sequence[Path]) -> str:
    """Return why the queues of a store can't tell which topics they have; empty if all can."""
    if not roots:
        return "of a store that is not on this machine neither queues nor config/topics.json are read"
    for root in roots:
        try:
            with Queues(root) as queues:
                queues.topics()
        except (StoreError, OSError) as error:
            return f"the queues of {root} can't be read: {error}"
    return ""


def _unknown_in(roots: Sequence[Path]) -> str:
    """Return that neither queues nor configuration of a store know something."""
    return f"neither the queues nor config/topics.json of {', '.join(map(str, roots))} know it"


def _with_queues(root: Path, topics: Collection[str]) -> Iterator[str]:
    """Yield those of some topics that have queues; others are not listed."""
    with suppress(StoreError, OSError), Queues(root) as queues:
        yield from (topic for topic, _ in queues.names(TopicFilter(tuple(topics))) if topics)


def _configured(root: Path) -> Mapping[str, TopicConfig]:
    """Return the topics of a broker's topic table, by name."""
    return Config(root).known(TOPICS)[0] or {}


def hint_of(topic: str, known: Collection[str]) -> str:
    """Return a hint which topic may have been meant, or else which topics exist."""
    return did_you_mean(topic, known) or (f"the topics are {known_names(known)}" if known else "no topic is known")


@dataclass(slots=True)
class TopicWatch:
    """Watches a read for requested topics and queues that the store does not know outside its log."""

    unseen: set[str]  # such topics of which no record was read yet; a reader takes them out
    roots: tuple[Path, ...]  # where the store may have queues and configuration
    known: frozenset[str]  # topics that the store knows; none if that was not needed
    queues: tuple[AskedQueue, ...]  # queues that are asked for by their ids

    @classmethod
    def of(cls, stores: Sequence[Store], options: ReadOptions) -> TopicWatch:
        """Look up the topics and queues of options beside the logs of stores; if none is named, nothing is read."""
        asked, queues = set(options.named_topics), options.asked_queues
        is_local = not any(isinstance(path, UrlPath) for store in stores for path in given_paths(store.paths))
        roots = roots_of(stores) if (asked or queues) and is_local else ()
        missing = asked - {topic for root in roots for topic in _with_queues(root, asked)}
        needs_all = missing or any(not topics for topics, _ in queues)
        known = stored_topics(roots) if needs_all else frozenset[str]()
        return cls(missing - known, roots, known, queues)

    def to_end(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches through, and at the end warn of topics found nowhere."""
        yield from batches
        self.warn_after_read()

    def warn_after_read(self) -> None:
        """Warn of topics found nowhere, and of queues that topics do not have."""
        self.warn_of_queues()
        self._warn_of_topics("topic %r: no record of it was read, and %s")

    def warn_before_read(self) -> None:
        """Warn of topics and queues that only the log can still have, if the store knows others outside its log."""
        self.warn_of_queues()
        if self.known:
            self._warn_of_topics("topic %r has rows only if the log still has records of it: %s")

    def warn_of_queues(self) -> None:
        """Warn of queues that topics do not have outside the log, though they have others there."""
        for topics, number in self.queues:
            ids = stored_queues(self.roots, topics or sorted(self.known))
            if ids and number not in ids:
                of_topics = f" of topic {', '.join(map(repr, topics))}" if topics else ""
                shown = ", ".join(map(str, sorted(ids)[:_MOST_SHOWN])) + ", ..." * (len(ids) > _MOST_SHOWN)
                why = _unread(self.roots) or _unknown_in(self.roots)
                _log.warning("queue %s%s: %s; the ids are %s", number, of_topics, why, shown)

    def _warn_of_topics(self, text: str) -> None:
        """Warn of each topic of which no record was read, and say why nothing beside the log knows it."""
        unread = _unread(self.roots) if self.unseen else ""
        why = unread or _unknown_in(self.roots)
        for topic in sorted(self.unseen):
            hint = hint_of(topic, self.known) if self.known or not unread else ""
            _log.warning(text, topic, f"{why}{hint and f'; {hint}'}")


_ASKED: Final = ("topic", "queue_id", "storage", "config", "store_path_commit_log")
"""Options that say which topics and queues of which store are meant."""


def has_unknown_topic(paths: StorePaths, options: ReadOptions) -> bool:
    """Return whether none of the topics, or of the queues, that were asked for is known outside the log.

    False if none was asked for. Only for a read without rows: a log may have topics and queues that neither queues nor
    configuration know.
    """
    if not options.topic and not options.queue_id:
        return False
    roots = roots_of(options.stores_of(paths))
    known = stored_topics(roots)
    if options.topic and known.isdisjoint(options.topic):
        if unread := _unread(roots):
            raise StoreError(f"whether there is a topic {', '.join(map(repr, options.topic))} is not known: {unread}")
        return True
    if not options.queue_id:
        return False
    if stored := stored_queues(roots, options.topic or known):
        return stored.isdisjoint(options.queue_id)
    logged = _logged_queues(paths, options)
    if logged.isdisjoint(options.queue_id):
        shown = (", ".join(map(str, ids)) for ids in (options.queue_id, sorted(logged)))
        _log.warning("queue %s: no message is in it; the ids are %s", *shown)
    return logged.isdisjoint(options.queue_id)


def _logged_queues(paths: StorePaths, options: ReadOptions) -> frozenset[int]:
    """Return the queues of topics in a log that has neither queues nor configuration beside it."""
    whole = replace(
        ReadOptions.parse(columns=["queue_id"], mode="DROPMALFORMED", fail_on_data_loss=False),
        topic=options.topic, storage=options.storage, config=options.config,
        store_path_commit_log=options.store_path_commit_log,
    )  # fmt: skip
    batches = messages_of(whole.stores_of(paths), whole)
    return frozenset(each for batch in batches for each in batch[0].to_pylist())


def is_nowhere(paths: StorePaths, read: Mapping[str, Any], *, names_topics: bool = False) -> bool:
    """Return whether none of the topics, or of the queues, that were asked for is in a store, and warn of queues.

    False if none was asked for. For a command that does not read messages: the log is read only if queues and
    configuration know none of them. With `names_topics` it warns of topics, too, as a view has done by then.
    """
    chosen = {name: read[name] for name in _ASKED if name in read}
    options = ReadOptions.parse(columns=["physical_offset"], mode="DROPMALFORMED", fail_on_data_loss=False, **chosen)
    if not has_unknown_topic(paths, options):
        return False
    stores = options.stores_of(paths)
    ranges = [part for store in stores for part in plan_ranges(store.paths, options).ranges]
    is_absent = not any(batch.num_rows for part in ranges for batch in read_range(part, options))
    watch = TopicWatch.of(stores, options)
    (watch.warn_after_read if is_absent and names_topics else watch.warn_of_queues)()
    return is_absent


_PIECE: Final = 8 << 20
"""Bytes of the last segment that are read at once; where its records start is known from planning."""


def last_rows(
    store: StorePaths | Store, options: ReadOptions, most: int, before: int | None = None
) -> list[pa.RecordBatch]:
    """Read the last rows of a log.

    * `store`: One; a `Store` is read as of its moment.
    * `before`: Physical offset where the read ends, if not at the log's end.

    Returns: In log order.
    """
    bound = options.ending_offsets if before is None else replace(options.ending_offsets, physical=before)
    plan, mapped = plan_and_walk(store, replace(options, max_partition_bytes=_PIECE, ending_offsets=bound))
    found: deque[pa.RecordBatch] = deque()
    for part in reversed(_pieces(plan.ranges)):
        missing = most - sum(batch.num_rows for batch in found)
        if missing <= 0:
            break
        found.extendleft(reversed(_last_of(read_range(part, options, mapped), missing)))
    return list(found)


def _pieces(ranges: Sequence[ReadRange]) -> list[ReadRange]:
    """Join the ranges of all segments but the last: each read of a part would walk its segment from the start."""
    segments = [list(parts) for _, parts in groupby(ranges, lambda part: part.segment)]
    whole = [replace(parts[0], end=parts[-1].end) for parts in segments[:-1]]
    return [*whole, *(segments[-1] if segments else [])]


def _last_of(batches: Iterable[pa.RecordBatch], most: int) -> list[pa.RecordBatch]:
    """Return the last rows of some batches, and keep no more of them than needed."""
    kept: deque[pa.RecordBatch] = deque()
    rows = 0
    for batch in batches:
        kept.append(batch)
        rows += batch.num_rows
        while rows - kept[0].num_rows >= most:
            rows -= kept.popleft().num_rows
    if rows > most:
        kept[0] = kept[0].slice(rows - most)
    return list(kept)


_POSITION: Final = re.compile(r"(?P<topic>.+)/(?P<queue_id>[0-9]{1,10})/(?P<offset>[0-9]{1,18})")


def find_message(
    path: StorePaths, what: str, kind: NamedBy | None, read: Mapping[str, Any]
) -> pa.RecordBatchReader | None:
    """Find the messages that a word means.

    * `kind`: If None, it is tried as what it looks like, then as a key: ids of producers look like offset message ids.
    * `read`: Options of the reader; its filters apply as well.

    Returns: With at least one row, in log order; None if there is no such message.
    """
    for found in meanings_of(what, kind):
        reader = read_messages(path, **{**read, **found})
        batches = iter(reader)
        first = next(batches, None)
        if first is not None:
            return pa.RecordBatchReader.from_batches(reader.schema, chain([first], batches))
    return None


def meanings_of(what: str, kind: NamedBy | None) -> Iterator[dict[str, Any]]:
    """Yield the options of the reader for what a word may mean, the likeliest first; arguments as of `find_message`."""
    position = _POSITION.fullmatch(what)
    if kind in (None, NamedBy.ID) and is_message_id(what):
        yield {"msg_id": what.upper()}
    if kind in (None, NamedBy.POSITION) and position is not None:
        topic, queue_id, offset = position["topic"], int(position["queue_id"]), int(position["offset"])
        yield {
            "topic": [topic],
            "queue_id": queue_id,
            "starting_offsets": {topic: {queue_id: offset}},
            "ending_offsets": {topic: {queue_id: offset + 1}},
            **dict.fromkeys(("starting_timestamp", "ending_timestamp")),  # which take precedence
        }
    if kind in (None, NamedBy.KEY):
        yield {"key": what}

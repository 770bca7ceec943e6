# SPDX-License-Identifier: Apache-2.0
"""Finding the records of a key by index files, and of topics and queues by their units, trusted as a broker does.

An index file has the entries of all records between the first and the last that its header names. What lies before the
first file, between files and after the last is scanned; so is what a file covers whose chain of the key is broken. A
reader verifies each record that an entry leads to, and takes those that have the key.

Only the queues that are asked for are read. A reader verifies each record that a unit leads to: its topic, queue and
queue offset. Units are put in the order of the log, so all records before the furthest one that any queue or the index
names have theirs; what lies behind that is scanned.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import SegmentVanishedError
from store_core.files.segment_source import Segment, size_on_disk
from store_core.format.columnar.records import Records
from store_core.format.java import hash_code, positive_hash
from store_core.queue.queue_path import is_light, refusal_of
from store_core.snapshot.index import BrokenChainError, Index, KeyFile
from store_core.snapshot.queues import Queues
from store_core.snapshot.units import EVERY_QUEUE, Queue, QueueDoubtError, QueueName, TopicFilter, UnitRange
from store_core.store.read.chunk_rows import has_message_named
from store_core.store.read.lookup.explanation import (
    EVERYTHING,
    LookedUp,
    Proven,
    Question,
    ReadExplanation,
    is_far,
    price_of_picks,
    size_in,
)
from store_core.store.read.picks import Picks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import ExitStack

    from store_core.queue.index_format import IndexHeader
    from store_core.store.read.read_options import ReadOptions


_WHY_INDEX: Final = "the index leads to the records; `commitlog check` proves an index"
_REQUESTS: Final = 8
"""Requests that an index file on another machine takes about: its header, a slot, and the chain from there."""

_CLIENT_ID: Final = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
"""An id as RocketMQ's clients make it (``MessageClientIDSetter``), with an IPv4 or an IPv6 address."""


def last_entry_record(question: Question) -> Proven | None:
    """Return the last record that the newest index file has an entry of, by its header; None if none is there."""
    last = Index(question.root).last()
    if last is None or last.header.index_count <= 1:
        return None
    return question.record_at(last.header.end_physical_offset)


def look_up_index(question: Question, topics: Sequence[str]) -> LookedUp:
    """Find the records of the key that options name, which may be of any of some topics."""
    index = Index(question.root)
    if not index.paths:
        return LookedUp.scan("there is no index beside the log")
    hashes = sorted({positive_hash(hash_code(f"{topic}#{question.options.named_key}")) for topic in topics})
    if _price(len(index.paths), len(hashes), question) > question.room:
        return LookedUp.scan("reading the index would cost too much")
    notes: list[str] = []
    covered: list[tuple[IndexHeader, Proven]] = []
    starts: set[int] = set()
    hits: list[int] = []
    for file in _files(index, notes):
        last = question.record_at(file.header.end_physical_offset)
        if last is None:
            notes.append(
                f"index file {file.path} is not used: the log has no record where its header says that it ends"
            )
            continue
        try:
            found = [offset for each in hashes for offset in file.chain(each)]
        except (BrokenChainError, SegmentVanishedError) as error:
            notes.append(f"index file {file.path} is not used: {error}")
            continue
        hits += found
        # Of the first and the last record other entries may be in other files.
        starts.update((*found, file.header.begin_physical_offset, last.start))
        covered.append((file.header, last))
    if not covered:
        return LookedUp.scan("no index file can be used", tuple(notes))
    if _may_be_of_batch(question.options) and not any(_is_named(offset, question) for offset in hits):
        why = "no entry leads to a message of this id, and of a client's batch the index has only the last ids"
        return LookedUp.scan(why, tuple(notes))
    picked = _picks(sorted(starts), question)
    if picked is not None and price_of_picks([picked], question.segments, question.costs) > question.room:
        return LookedUp.scan("the answer is a large part of the log", tuple(notes))
    trusted = _joined(
        (header.begin_physical_offset, min(last.end + last.segment.framing.lead, question.doubt))
        for header, last in covered
    )
    edges = frozenset(last.end for _, last in covered)
    furthest = max((last for _, last in covered), key=lambda record: record.start)
    reach = trusted[-1][1] if trusted else 0
    explained = ReadExplanation("index", _WHY_INDEX, entries=len(hits), reach=reach, notes=tuple(notes))
    return LookedUp(explained, picked, trusted, edges, furthest)


def _may_be_of_batch(options: ReadOptions) -> bool:
    """Return whether a message of a client's batch may be asked for by the id that its producer got.

    Such a message has two properties UNIQ_KEY: its own, and the batch's, which is the last one, and in the index. Ids
    are unique: if an entry leads to a message of this id, there is no other. A key that clients do not make is none.
    """
    return options.unique_key is not None or (options.key is not None and _CLIENT_ID.fullmatch(options.key) is not None)


def _is_named(start: int, question: Question) -> bool:
    """Return whether the record at a physical offset has the key that is asked for: hashes are equal by chance, too."""
    found = question.record_at(start)
    if found is None:
        return False
    segment, parser = found.segment, question.options.property_parser
    with question.opened(segment) as source:
        raw = segment.record(source, start)
        return has_message_named(Records(raw, np.zeros(1, np.int64), segment.name, start, parser), question.options)


def _price(files: int, hashes: int, question: Question) -> int:
    """Return what following the chains costs, in bytes of a scan."""
    costs = question.costs
    requests = (1 + hashes) * _REQUESTS if is_far(question.segments) else 0
    return files * (costs.per_file + hashes * costs.per_record + requests * costs.per_request)


def _files(index: Index, notes: list[str]) -> Iterator[KeyFile]:
    """Yield the index files that have entries, and note which are not used."""
    for file in index.files(trusts_size=True):
        if file.slots and file.stop > 1:
            yield file
        elif not file.slots and not file.is_empty:
            notes.append(f"index file {file.path} is not used: its slots do not lead to the entries that it counts")


def _picks(starts: Sequence[int], question: Question) -> Picks | None:
    """Return the records at some physical offsets, ascending; where none can be, one of a size that is found wrong."""
    found: list[tuple[int, int]] = []
    for segment in question.segments:
        inside = [start for start in starts if segment.start_offset <= start < segment.end_offset]
        if inside:
            with question.opened(segment) as source:
                found += [(start, size_in(segment, source, start) or 1) for start in inside]
    return Picks.of(*zip(*found, strict=True)) if found else None


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return ranges ascending, those that overlap or touch as one."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif begin < end:
            found.append((begin, end))
    return tuple(found)


_LARGE: Final = "the answer is a large part of the log"
_WHY_QUEUES: Final = "the queues lead to the records; `commitlog check` proves queues"
_AT_ONCE: Final = 12
"""Queues on another machine that are read at a time."""

_OPENING: Final = 8
"""Requests that finding a range of units in a file on another machine takes, at most."""

_MOST_TRIED: Final = 16
"""Units from the furthest on of which the record is looked at: those behind a torn end lead to none."""


@dataclass(frozen=True, slots=True)
class QueuesBesideLog:
    """The queues of a store, as far as look-ups use them: its files, or else its RocksDB, as brokers do.

    Light message queues are left out: their units stand for records that other queues have, too.
    """

    stored: Queues
    database_cost: int = 0  # what it costs to open the RocksDB that they are in; 0 if they are files

    @classmethod
    def open(cls, question: Question, resources: ExitStack) -> QueuesBesideLog | str:
        """Open a store's queues, or say why they are not read."""
        queues = Queues(question.root)
        cost = 0 if queues.database is None else question.costs.per_database
        if cost > question.room:
            return "opening the RocksDB of the queues would cost too much"
        return cls(resources.enter_context(queues), cost)

    @property
    def dispatched(self) -> int:
        """Physical offset up to which a RocksDB has all units."""
        found = self.stored.dispatched
        return EVERYTHING if found is None else found

    @property
    def topics(self) -> list[str]:
        """The topics of all queues."""
        return list(dict.fromkeys(queue.name[0] for queue in self.queues()))

    def queues(self, wanted: TopicFilter = EVERY_QUEUE) -> list[Queue]:
        """List the queues that are asked for."""
        found = self.stored.each(wanted)
        return [queue for queue in found if not is_light(queue.name[0]) and refusal_of(*queue.name) is None]

    def furthest(self, question: Question, asked: Sequence[Queue]) -> Proven | None:
        """Return the last record of the log that a queue has a unit for, or the index an entry; None without one.

        All queues are looked at if that is cheap, and worth it: what lies behind the record is scanned. A queue whose
        last unit can't be one is left out.
        """
        costs, last_segment = question.costs, question.segments[-1]
        by_entry = last_entry_record(question)
        behind = last_segment.start_offset + size_on_disk(last_segment) - (0 if by_entry is None else by_entry.end)
        price = costs.per_file + costs.per_request * _OPENING * is_far(question.segments)
        most = min(question.room, behind)
        queues = self.queues() if len(asked) * price < most else asked
        tried = filter(None, map(_last_pick, queues if len(queues) * price <= most else asked))
        newest = sorted(tried, key=_pick_start, reverse=True)[:_MOST_TRIED]
        records = (question.record_at(_pick_start(pick), pick) for pick in newest)
        by_unit = next((record for record in records if record is not None), None)
        found = (each for each in (by_unit, by_entry) if each is not None)
        return max(found, key=lambda record: record.start, default=None)


def _last_pick(queue: Queue) -> Picks | None:
    """Return the record of a queue's last unit; None if it has none, or that can't be one."""
    try:
        last = queue.last()
    except QueueDoubtError:
        return None
    if not last.starts.size:
        return None
    return Picks.of(last.starts, last.sizes, last.offsets, queue.name)


def _pick_start(pick: Picks) -> int:
    return int(pick.starts[0])


def look_up_queues(question: Question, beside: QueuesBesideLog) -> LookedUp:
    """Find the records of the topics and queues that options name."""
    options = question.options
    wanted = TopicFilter.of(options.topic, options.topics_pattern, options.queue_id)
    try:
        asked = [queue for queue in beside.queues(wanted) if queue.files]
        unknown = set(options.topic) - {queue.name[0] for queue in asked}
        if unknown:  # a deleted topic has no queues any more, and its messages are in the log until they expire
            return LookedUp.scan(f"topic {min(unknown)!r} has no queue that is asked for")
        per_file = question.costs.per_file + question.costs.per_request * _OPENING * is_far(question.segments)
        if beside.database_cost + sum(queue.files * per_file for queue in asked) > question.room:
            return LookedUp.scan("reading the queues would cost too much")
        return _looked_up(question, beside, [(queue, _offsets_asked(options, queue.name)) for queue in asked])
    except QueueDoubtError as error:
        return LookedUp.scan(f"a queue can't be trusted: {error}", (str(error),))


def _looked_up(question: Question, beside: QueuesBesideLog, asked: Sequence[tuple[Queue, tuple[int, int]]]) -> LookedUp:
    # Before the units are read: what a broker puts meanwhile is behind it.
    furthest = beside.furthest(question, [queue for queue, _ in asked])
    if furthest is None:
        return LookedUp.scan("no unit of a queue leads to a record")
    log_start = question.segments[0].start_offset
    wanted = [(queue, queue.range(log_start, *bounds)) for queue, bounds in asked]
    per_unit = question.costs.per_record + (question.costs.per_stored_unit if beside.database_cost else 0)
    if per_unit * sum(units.end - units.begin for _, units in wanted) > question.room:
        return LookedUp.scan(_LARGE)
    picked = _picked(wanted, question.segments)
    if picked is not None and price_of_picks([picked], question.segments, question.costs) > question.room:
        return LookedUp.scan(_LARGE)
    units = 0 if picked is None else len(picked)
    end = min(furthest.end, question.doubt, beside.dispatched)
    explained = ReadExplanation("queues", _WHY_QUEUES, units=units, reach=end)
    return LookedUp(explained, picked, ((0, end),), frozenset({furthest.end}), furthest)


def _picked(wanted: Sequence[tuple[Queue, UnitRange]], segments: Sequence[Segment]) -> Picks | None:
    if is_far(segments):
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            read = list(pool.map(lambda pair: pair[0].picked(pair[1]), wanted))
    else:
        read = [queue.picked(units) for queue, units in wanted]
    names = tuple(queue.name for queue, _ in wanted)
    pieces = [
        Picks(units.starts, units.sizes, np.full(units.starts.size, number, np.int32), units.offsets)
        for number, units in enumerate(read)
        if units.starts.size
    ]
    return Picks.joined(pieces, names) if pieces else None


def _offsets_asked(options: ReadOptions, name: QueueName) -> tuple[int, int]:
    """Return the queue offsets between which messages of a queue are asked for."""
    first, end = (
        {(topic, queue_id): offset for topic, queue_id, offset in bound.queues}
        for bound in (options.start, options.end)
    )
    return first.get(name, 0), end.get(name, EVERYTHING)

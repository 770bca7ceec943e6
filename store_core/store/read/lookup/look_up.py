# SPDX-License-Identifier: Apache-2.0
"""Which way a look-up goes, and positions, which need none.

A look-up trusts what a broker trusts, and its reader verifies every record that it returns. So on a store on which
`commitlog check` has no finding the rows are those of a scan; on any other store each row is right, and where one is
missing, `check` has a finding.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from store_core.errors import CorruptDatabaseError, UnsupportedStoreError
from store_core.files.names import INDEX_DIRECTORY
from store_core.files.segment_source import Segment, segment_at
from store_core.files.store_kind import has_queues
from store_core.files.store_path import StorePaths, store_roots
from store_core.format.record.scan import check_frame, head_reader
from store_core.queue.queue_path import refusal_of
from store_core.snapshot.queues import Queues
from store_core.snapshot.units import QueueDoubtError
from store_core.store.read.lookup.explanation import LookedUp, LookUpCosts, Proven, Question, ReadExplanation
from store_core.store.read.lookup.records import QueuesBesideLog, last_entry_record, look_up_index, look_up_queues
from store_core.store.read.picks import Picks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store_core.store.read.read_options import ReadOptions


_read_place: Final = head_reader("queue_id", "queue_offset")

_READ_IN_ANOTHER_WAY: Final = re.compile("[\x01\x02\ufffd\ud800-\udfff]")
"""Characters of a key that releases read differently, or that stand for malformed bytes."""

_PROVEN: Final = "the position is given, and the queue that the record names has a unit for it"
_WALKED: Final = "the position is given; its segment is walked to it, because no unit of a queue proves the record"
"""Nothing is known of the record."""


def _look_up_position(question: Question) -> LookedUp:
    """Find the record at the physical offset that options name; one that no unit proves is walked to."""
    position = question.options.position or 0
    home = segment_at(question.segments, position)
    picked = None if home is None else _proven(question, home, position)
    if home is None or picked is None:
        return LookedUp(ReadExplanation("position", _WALKED))
    furthest = Proven(home, position, position + int(picked.sizes[0]))
    if home is question.segments[-1]:
        known = last_entry_record(question)
        furthest = known if known is not None and known.start > position else furthest
    explained = ReadExplanation("position", _PROVEN, units=1)
    return LookedUp(explained, picked, ((position, position + 1),), furthest=furthest)


def _proven(question: Question, segment: Segment, position: int) -> Picks | None:
    """Return the sound record at a position if the queue that it names has a unit that points back to it."""
    at, framing = position - segment.start_offset, segment.framing
    if at < framing.lead:
        return None
    with question.opened(segment) as source:
        raw = segment.view(source).frame(at - framing.lead, with_body=True)
        check = check_frame(raw.data, 0, position - framing.lead, framing)
        if check.spans is None:
            return None
        queue_id, queue_offset = _read_place(raw.data, framing.lead)
        name = raw[check.spans.topic_start : check.spans.topic_stop].tobytes()
    topic, size = name.decode("utf-8", "surrogateescape"), check.size - framing.lead
    if refusal_of(topic, queue_id) is not None or queue_offset < 0:
        return None
    with Queues(question.root) as queues:
        if queues.database is not None and question.costs.per_database > question.room:
            return None
        try:
            queue = queues.get(topic, queue_id)
            found = None if queue is None else queue.unit_at(queue_offset)
        except (QueueDoubtError, FileNotFoundError):
            return None
    return Picks.of([position], [size], [queue_offset], (topic, queue_id)) if found == (position, size) else None


def look_up(
    paths: StorePaths, segments: Sequence[Segment], asked_size: int, options: ReadOptions, costs: LookUpCosts
) -> LookedUp:
    """Choose how a read finds its records, before the log's end is known.

    * `paths`: As given to the read.
    * `segments`: All of the log, in order.
    * `asked_size`: Bytes of those that can have rows.
    """
    is_position = options.position is not None and options.use_consume_queues != "never"
    refusal = _refusal(segments, options)
    if refusal is None and asked_size < costs.least_log and not is_position:
        refusal = f"a scan reads less than {costs.least_log >> 20} MiB"
    if refusal is not None:
        return LookedUp.scan(refusal)
    roots = [root for root in store_roots(paths) if has_queues(root) or (root / INDEX_DIRECTORY).is_dir()]
    if len(roots) != 1:
        missing = "there are queues of several stores" if roots else "there are no queues and no index beside the log"
        return LookedUp(ReadExplanation("position", _WALKED)) if is_position else LookedUp.scan(missing)
    with closing(Question(roots[0], segments, options, costs, int(costs.most_share * asked_size))) as question:
        try:
            found = _look_up_position(question) if is_position else _by_key_or_queue(question)
        except (OSError, CorruptDatabaseError, UnsupportedStoreError) as error:
            found = LookedUp.scan(f"the queues or the index can't be read: {error}", (str(error),))
        return replace(found, chains=question.chains)


def _refusal(segments: Sequence[Segment], options: ReadOptions) -> str | None:
    """Return why all of the log is read, by what the options say; None if a look-up may pay."""
    if any(segment.archive for segment in segments):
        return "the store is in an archive, whose queues and index are not read"
    if any(segment.codec is not None for segment in segments):
        return "segments are compressed, which are read from their beginning"
    by_queue = options.use_consume_queues != "never" and (options.names_queues or options.position is not None)
    key_refusal = _index_refusal(options)
    if key_refusal is not None and not by_queue:
        is_key = options.named_key is not None
        is_off = (options.names_queues or options.position is not None) and not is_key
        off = "option use_consume_queues is never" if is_off else "no option names topics, queues or a position"
        return key_refusal if is_key else off
    return None if options.is_failfast else f"mode {options.mode.name} looks for damage everywhere"


def _by_key_or_queue(question: Question) -> LookedUp:
    options = question.options
    with ExitStack() as resources:
        open_queues = cache(partial(QueuesBesideLog.open, question, resources))
        by_key = _by_key(question, open_queues)
        if not by_key.is_scan or not options.names_queues or options.use_consume_queues == "never":
            return by_key
        beside = open_queues()
        found = LookedUp.scan(beside) if isinstance(beside, str) else look_up_queues(question, beside)
    why_not = by_key.explained
    note = (f"the index is not used: {why_not.why}",) if options.named_key is not None else ()
    return replace(found, explained=replace(found.explained, notes=(*why_not.notes, *note, *found.explained.notes)))


def _by_key(question: Question, open_queues: Callable[[], QueuesBesideLog | str]) -> LookedUp:
    """Look up by the index, which has each key together with its topic: without one, of every topic."""
    refusal = _index_refusal(question.options)
    if refusal is not None:
        return LookedUp.scan(refusal)
    topics: Sequence[str] = question.options.topic
    if not topics:
        beside = open_queues()
        topics = () if isinstance(beside, str) else beside.topics
    if not topics:
        return LookedUp.scan("no topic is named, and there are no queues that name all topics")
    return look_up_index(question, topics)


def _index_refusal(options: ReadOptions) -> str | None:
    """Return why options have no use for an index; None if they have."""
    named = options.named_key
    if named is None:
        return "no option names a key"
    if options.use_index_files == "never":
        return "option use_index_files is never"
    if any(_READ_IN_ANOTHER_WAY.search(text) for text in (named, *options.topic)):
        return "releases read such a key or topic in different ways"
    return None

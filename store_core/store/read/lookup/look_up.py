# SPDX-License-Identifier: Apache-2.0
"""Which way a look-up goes, and positions, which need none.

A look-up trusts what a broker trusts, and its reader verifies every record that it returns. So on a store on which
`commitlog check` has no finding the rows are those of a scan; on any other store each row is right, and where one is
missing, `check` has a finding.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from store_core.errors import CorruptDatabaseError, UnsupportedStoreError
from store_core.files.names import INDEX_DIRECTORY
from store_core.files.store_kind import has_queues
from store_core.files.store_path import StorePaths, store_roots
from store_core.format.columnar.chain import Chain, Place
from store_core.format.record.record_head import head_reader
from store_core.format.record.scan import check_frame
from store_core.queue.queue_path import refusal_of
from store_core.snapshot.log_end import SegmentEnd, segment_end
from store_core.snapshot.queues import QueueDoubtError, Queues
from store_core.store.read.lookup.explanation import (
    SCAN,
    LookedUp,
    LookUpCosts,
    OpenedSegments,
    Proven,
    Question,
    ReadExplanation,
    Unsuitable,
    one_pick,
)
from store_core.store.read.lookup.index import last_entry_record, look_up_index
from store_core.store.read.lookup.queues import QueuesBesideLog, look_up_queues

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store_core.files.segment_source import Segment
    from store_core.store.read.picks import Picks
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions


_read_place: Final = head_reader("queue_id", "queue_offset")

_READ_IN_ANOTHER_WAY: Final = re.compile("[\x01\x02\ufffd\ud800-\udfff]")
"""Characters of a key that releases read differently, or that stand for malformed bytes."""

_PROVEN: Final = "the position is given, and the queue that the record names has a unit for it"
WALKED: Final = LookedUp(
    "position",
    "the position is given; its segment is walked to it, because no unit of a queue proves the record",
    None,
)
"""Nothing is known of the record."""


def look_up_position(question: Question, resources: ExitStack) -> LookedUp:
    """Find the record at the physical offset that options name; one that no unit proves is walked to."""
    position = question.options.position or 0
    home = question.segment_at(position)
    picked = None if home is None else _proven(question, home, position, resources)
    if home is None or picked is None:
        return WALKED
    furthest = Proven(home, position, position + int(picked.sizes[0]))
    if home is question.segments[-1]:
        known = last_entry_record(question)
        furthest = known if known is not None and known.start > position else furthest
    return LookedUp("position", _PROVEN, picked, ((position, position + 1),), furthest=furthest, units=1)


def _proven(question: Question, segment: Segment, position: int, resources: ExitStack) -> Picks | None:
    """Return the sound record at a position if the queue that it names has a unit that points back to it."""
    at, framing = position - segment.start_offset, segment.framing
    if at < framing.lead:
        return None
    with question.opened.opened(segment) as source:
        raw = segment.view(source).frame(at - framing.lead, with_body=True)
        check = check_frame(raw.data, 0, position - framing.lead, framing)
        if check.spans is None:
            return None
        queue_id, queue_offset = _read_place(raw.data, framing.lead)
        name = raw[check.spans.topic_start : check.spans.topic_stop].tobytes()
    topic, size = name.decode("utf-8", "surrogateescape"), check.size - framing.lead
    if refusal_of(topic, queue_id) is not None or queue_offset < 0:
        return None
    queues = resources.enter_context(Queues(question.root))
    if queues.database is not None and question.costs.per_database > question.room:
        return None
    try:
        queue = queues.get(topic, queue_id)
        found = None if queue is None else queue.unit_at(queue_offset)
    except (QueueDoubtError, FileNotFoundError):
        return None
    return one_pick(position, size, (topic, queue_id), queue_offset) if found == (position, size) else None


class LookUp:
    """How a read finds its records, chosen before the log's end is known.

    * `paths`: As given to the read.
    * `segments`: All of the log, in order.
    * `asked_size`: Bytes of those that can have rows.
    """

    def __init__(
        self, paths: StorePaths, segments: Sequence[Segment], asked_size: int, options: ReadOptions, costs: LookUpCosts
    ) -> None:
        self._segments, self._options, self._costs = segments, options, costs
        self._asked_size, self._room = asked_size, int(costs.most_share * asked_size)
        self._opened = OpenedSegments()
        self._resources = ExitStack()
        self._resources.callback(self._opened.close)
        try:
            self._chosen = self._choose(paths)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close what it reads from; the ranges that it returned stay as they are."""
        self._resources.close()

    @property
    def is_scan(self) -> bool:
        """Whether all records are read, without a look-up."""
        return isinstance(self._chosen, Unsuitable)

    @property
    def mapped(self) -> dict[Segment, Chain]:
        """Segments on another machine of which something is kept."""
        return self._opened.chains

    def end_of(self, segment: Segment, *, is_first: bool) -> SegmentEnd:
        """Find where a segment's records end, from where they are known on; parameters as of `segment_end`."""
        after = Place() if isinstance(self._chosen, Unsuitable) else self._chosen.known_place(segment)
        return segment_end(
            segment,
            is_first=is_first,
            verify_crc=self._options.verify_crc,
            has_tail=self._options.is_permissive,
            after=after,
        )

    def looked_up(self, parts: Sequence[ReadRange]) -> tuple[list[ReadRange], ReadExplanation]:
        """Return what is asked for, or what the look-up leaves of it; and why."""
        chosen = self._chosen
        if isinstance(chosen, Unsuitable):
            return list(parts), ReadExplanation(SCAN, chosen.reason, notes=chosen.notes)
        explained = ReadExplanation(
            chosen.plan,
            chosen.why,
            units=chosen.units,
            entries=chosen.entries,
            reach=chosen.reach,
            notes=chosen.notes,
        )
        return chosen.narrowed(parts), explained

    # ------------------------------------------------------------------------------------------------------- choosing

    def _choose(self, paths: StorePaths) -> LookedUp | Unsuitable:
        options, costs = self._options, self._costs
        is_position = options.position is not None and options.use_consume_queues != "never"
        refusal = self._refusal()
        if refusal is None and self._asked_size < costs.least_log and not is_position:
            refusal = f"a scan reads less than {costs.least_log >> 20} MiB"
        if refusal is not None:
            return Unsuitable(refusal)
        roots = [root for root in store_roots(paths) if has_queues(root) or (root / INDEX_DIRECTORY).is_dir()]
        if len(roots) != 1:
            missing = (
                "there are queues of several stores" if roots else "there are no queues and no index beside the log"
            )
            return WALKED if is_position else Unsuitable(missing)
        question = Question(roots[0], self._segments, options, costs, self._room, self._opened)
        try:
            return look_up_position(question, self._resources) if is_position else self._by_key_or_queue(question)
        except (OSError, CorruptDatabaseError, UnsupportedStoreError) as error:
            return Unsuitable(f"the queues or the index can't be read: {error}", (str(error),))

    def _refusal(self) -> str | None:
        options = self._options
        if any(segment.archive for segment in self._segments):
            return "the store is in an archive, whose queues and index are not read"
        if any(segment.codec is not None for segment in self._segments):
            return "segments are compressed, which are read from their beginning"
        by_queue = options.use_consume_queues != "never" and (options.names_queues or options.position is not None)
        key_refusal = _index_refusal(options)
        if key_refusal is not None and not by_queue:
            is_key = options.named_key is not None
            is_off = (options.names_queues or options.position is not None) and not is_key
            off = "option use_consume_queues is never" if is_off else "no option names topics, queues or a position"
            return key_refusal if is_key else off
        return None if options.is_failfast else f"mode {options.mode.name} looks for damage everywhere"

    def _by_key_or_queue(self, question: Question) -> LookedUp | Unsuitable:
        options = self._options
        open_queues = cache(partial(QueuesBesideLog.open, question, self._resources))
        by_key = self._by_key(question, open_queues)
        if isinstance(by_key, LookedUp) or not options.names_queues or options.use_consume_queues == "never":
            return by_key
        beside = open_queues()
        found = Unsuitable(beside) if isinstance(beside, str) else look_up_queues(question, beside)
        is_key = options.named_key is not None
        note = (f"the index is not used: {by_key.reason}",) if is_key else ()
        return replace(found, notes=(*by_key.notes, *note, *found.notes))

    def _by_key(self, question: Question, open_queues: Callable[[], QueuesBesideLog | str]) -> LookedUp | Unsuitable:
        """Look up by the index, which has each key together with its topic: without one, of every topic."""
        refusal = _index_refusal(self._options)
        if refusal is not None:
            return Unsuitable(refusal)
        topics: Sequence[str] = self._options.topic
        if not topics:
            beside = open_queues()
            topics = () if isinstance(beside, str) else beside.topics
        if not topics:
            return Unsuitable("no topic is named, and there are no queues that name all topics")
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

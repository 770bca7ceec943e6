# SPDX-License-Identifier: Apache-2.0
"""Finding one record by its position: the queue that the record names itself has to have a unit that leads to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.format.record.framing import check_frame
from store_core.format.record.record_head import head_reader
from store_core.queue.queue_path import refusal_of
from store_core.snapshot.queues import QueueDoubtError, Queues
from store_core.store.read.lookup.index import last_entry_record
from store_core.store.read.lookup.looked_up import LookedUp, Proven, one_pick

if TYPE_CHECKING:
    from contextlib import ExitStack

    from store_core.files.segment_source import Segment
    from store_core.store.read.lookup.looked_up import Question
    from store_core.store.read.picks import Picks

__all__ = ["WALKED", "look_up_position"]

_read_place: Final = head_reader("queue_id", "queue_offset")

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
    with question.opened.opened(segment) as pages:
        segment.view(pages).load_frame(at - framing.lead)
        check = check_frame(pages.raw.data, at - framing.lead, segment.start_offset, framing)
        if check.spans is None:
            return None
        queue_id, queue_offset = _read_place(pages.raw.data, at)
        name = pages.raw[check.spans.topic_start : check.spans.topic_stop].tobytes()
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

# SPDX-License-Identifier: Apache-2.0
"""The rules of a rebuild: which queues and index to make, and by which release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from store_core.queue.consume_queue.consume_queue_table import MAX_QUEUES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.queue.queue_rules import QueueRules

__all__ = ["RebuildRules"]


@dataclass(frozen=True, slots=True)
class RebuildRules:
    """What to rebuild, and by which release's rules.

    Attributes
    ----------
    queue_rules : QueueRules
    topics : frozenset of str, optional
        Only queues of these topics; None for all.
    queue_id : int, optional
        Only queues of this id; None for all.
    queues : frozenset of (str, int), optional
        Only these queues, by topic and id; None for all.
    since_offset : int
        Physical offset from which records count; queues keep what they have for earlier records. 0 for all.
    index_since_offset : int
        The same for the index, which keeps whole files.
    check_crc : bool
        Whether a record whose body does not match its checksum ends the log, as in recovery. Dispatching does not check
        bodies, nor does this by default.
    has_queues, has_index : bool
        What to rebuild.
    max_queues : int
        Maximum number of queues.
    infers_batch_topics : bool
        Whether a topic with records that only a batch topic can have is rebuilt as one, even if `queue_rules` do not
        name it.
    is_salvaged : bool
        Whether to continue after damage with the next record that proves itself, as reading in mode DROPMALFORMED does.
        Otherwise the log ends at the first bytes that are not a record, as for a broker.
    is_proven : bool
        Whether a record also counts as damage if it is not where it says it is, or does not match the checksum over all
        of it that it has; and a blank record if it is not as long as the rest of its file. A broker checks none of
        these, nor does dispatching. Without `is_salvaged`, they are only counted.
    """

    queue_rules: QueueRules
    topics: frozenset[str] | None = None
    queue_id: int | None = None
    since_offset: int = 0
    index_since_offset: int = 0
    check_crc: bool = False
    has_queues: bool = True
    has_index: bool = False
    max_queues: int = MAX_QUEUES
    infers_batch_topics: bool = False
    is_salvaged: bool = False
    is_proven: bool = False
    queues: frozenset[tuple[str, int]] | None = None

    @property
    def first_offset(self) -> int:
        """Physical offset of the first record needed."""
        wanted = [self.since_offset] * self.has_queues + [self.index_since_offset] * self.has_index
        return min(wanted, default=0)

    @property
    def is_partial(self) -> bool:
        """Whether queues are left out or partly copied, so that others must stay in place."""
        is_chosen = any(chosen is not None for chosen in (self.topics, self.queue_id, self.queues))
        return is_chosen or self.since_offset > 0

    @property
    def is_plain(self) -> bool:
        """Whether all queues are simple ones without an extension, whose units take only 20 bytes each."""
        return not self.queue_rules.is_ext_enabled and not self.queue_rules.batch_topics

    def wants(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue is to be rebuilt."""
        if self.queues is not None and (topic, queue_id) not in self.queues:
            return False
        return (self.topics is None or topic in self.topics) and self.queue_id in (None, queue_id)

    def with_batch_topics(self, topics: Iterable[str]) -> RebuildRules:
        """Return rules by which these topics are also batch topics."""
        known = self.queue_rules.batch_topics | frozenset(topics)
        return replace(self, queue_rules=replace(self.queue_rules, batch_topics=known))

    def is_whole(self, topic: str) -> bool:
        """Return whether the units of a topic's queues need more than 20 bytes each."""
        return self.queue_rules.is_ext_enabled or topic in self.queue_rules.batch_topics

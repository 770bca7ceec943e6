# SPDX-License-Identifier: Apache-2.0
"""Whether the consume queues lead to records: a record that no unit names is in the log, and no consumer gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store_core.files.abort_file import ABORT_FILE
from store_core.files.store_lock import is_lock_held
from store_core.snapshot.queues import QueueDoubtError, Queues

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from store_core.snapshot.units import Queue

__all__ = ["QueuedRecord", "absent_records"]


class QueuedRecord(NamedTuple):
    """A record, and the place in a queue that it says it has."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


def absent_records(root: Path, records: Iterable[QueuedRecord]) -> set[int] | None:
    """Return the physical offsets of records to which their queues do not lead; None if there are no queue files.

    What a crash or a running broker has not put into its queues yet is not absent: as long as the store is open, a
    queue that ends before a record proves nothing.

    Parameters
    ----------
    root : Path
        The store's root.
    """
    by_queue: dict[tuple[str, int], list[QueuedRecord]] = {}
    for record in records:
        by_queue.setdefault((record.topic, record.queue_id), []).append(record)
    if not by_queue:
        return set()
    beside = Queues(root)
    queues = {queue.name: queue for queue in beside.each() if queue.files} if beside.database is None else {}
    if not queues:
        return None
    is_open = is_lock_held(root) or (root / ABORT_FILE).exists()
    return {
        offset for queue, wanted in by_queue.items() for offset in _absent(queues.get(queue), wanted, is_open=is_open)
    }


def _absent(queue: Queue | None, wanted: list[QueuedRecord], *, is_open: bool) -> Iterable[int]:
    if queue is None:
        return [] if is_open else [record.physical_offset for record in wanted]
    missing = [record.physical_offset for record in wanted if not _leads_to(queue, record)]
    last = max(queue.last().starts.tolist(), default=0) if is_open else 2**63 - 1
    return [offset for offset in missing if offset < last]


def _leads_to(queue: Queue, record: QueuedRecord) -> bool:
    try:
        unit = queue.unit_at(record.queue_offset)
    except QueueDoubtError:
        return False
    return unit is not None and unit[0] == record.physical_offset

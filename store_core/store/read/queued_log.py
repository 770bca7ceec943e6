# SPDX-License-Identifier: Apache-2.0
"""The log that queues lead into, as far as it tells where they begin and end."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.files.local_listing import segments_in
from store_core.files.remote.url_path import UrlPath
from store_core.files.segment_source import open_pages
from store_core.files.store_lock import is_lock_held
from store_core.format.record.scan import check_frame
from store_core.format.sys_flag import TransactionType
from store_core.snapshot.log import Log
from store_core.snapshot.log_end import find_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.files.segment_source import Segment
    from store_core.snapshot.units import QueueName

__all__ = ["LogBesideQueues"]

_QUEUED: Final = [kind.name for kind in TransactionType if kind.is_queued]


def _belongs(batch: pa.RecordBatch, name: QueueName | None) -> pa.BooleanArray:
    """Return which records belong in queues, or in one queue."""
    belongs = pc.is_in(batch["transaction_type"], pa.array(_QUEUED))
    if name is None:
        return belongs
    return pc.and_(belongs, pc.and_(pc.equal(batch["topic"], name[0]), pc.equal(batch["queue_id"], name[1])))


class LogBesideQueues:
    """A store's log; see `store_core.snapshot.database_queues.QueuedLog`.

    Its end is not told where a broker may be writing, a part of the log may be elsewhere, or the end would have to be
    downloaded. The record of a queue's last unit is looked at first: if it is sound, the log is not walked.

    * `root`: The store's root.
    * `segments`: All of the log's, in order.
    """

    def __init__(self, root: Path, segments: Sequence[Segment]) -> None:
        self.start = segments[0].start_offset if segments else 0
        paths = [segment.path for segment in segments]
        is_below = any(Path(path).is_relative_to(root) for path in paths)
        self._paths = (str(root),) if is_below else tuple(paths)
        self._root = root
        self._segments = tuple(segments) if self._ends(segments) else ()
        self._known = 0  # up to where the log is known to have records
        self._is_searched = False

    def _ends(self, segments: Sequence[Segment]) -> bool:
        """Return whether queues are to end where the log ends."""
        if not segments or isinstance(self._root, UrlPath) or not segments[-1].is_plain:
            return False
        return not (Log(tuple(segments)).problems or is_lock_held(self._root))

    def queued(self, begin: int, name: QueueName | None = None) -> pa.Table:
        """Return `QUEUED_COLUMNS` of the records from a physical offset on that belong in queues, or in one queue."""
        from store_core.snapshot.database_queues import QUEUED_COLUMNS  # noqa: PLC0415 -- for a RocksDB alone
        from store_core.store.read.read_messages import read_messages  # noqa: PLC0415 -- as above

        columns = [*QUEUED_COLUMNS, "transaction_type"]
        if not self._paths:
            return pa.table({column: [] for column in columns})
        # Asked for a topic, a read would look first whether queues or configuration know it, and open the RocksDB.
        found = read_messages(list(self._paths), columns=columns, starting_offsets=begin, verify_crc=False)
        return pa.Table.from_batches((batch.filter(_belongs(batch, name)) for batch in found), found.schema)

    def end_before(self, position: int, size: int) -> int | None:
        """Return where the log ends if that is not after the place of a record; else None, also if it is unknown."""
        if not self._segments or position < self._known:
            return None
        try:
            if self._has(position, size):
                self._known = position + size
                return None
            self._search()
            return self._known if position >= self._known and not self._may_grow() else None
        except OSError:  # files that are gone or may not be read: the queue is all that is known
            return None

    def _has(self, position: int, size: int) -> bool:
        """Return whether there is a sound record; those in a segment that was compressed after it was written are."""
        index = bisect_right(self._segments, position, key=lambda segment: segment.start_offset) - 1
        if index < 0 or size <= 0 or position + size > self._segments[index].end_offset:
            return False
        segment = self._segments[index]
        begin = position - segment.start_offset - segment.framing.lead
        if not segment.is_plain or begin < 0:
            return not segment.is_plain
        stop = position + size - segment.start_offset
        with open_pages(segment) as opened:
            opened.load(begin, stop)
            check = check_frame(opened.raw.data, begin, segment.start_offset, segment.framing, verify_crc=True)
        return check.reason is None and check.size == stop - begin

    def _search(self) -> None:
        if not self._is_searched:
            written = Path(self._segments[-1].path).stat().st_mtime_ns
            self._known = max(self._known, _end_of(self._segments, written))
            self._is_searched = True

    def _may_grow(self) -> bool:
        """Return whether a broker has opened the store, or added a segment, since it was listed."""
        directories = {Path(segment.path).parent for segment in self._segments}
        last = self._segments[-1].start_offset
        found = (segment for each in directories for segment in segments_in(each, [], compressed=True))
        is_longer = any(each.start_offset > last and (each.size or not each.is_plain) for each in found)
        return is_longer or is_lock_held(self._root)


@lru_cache(maxsize=1)
def _end_of(segments: tuple[Segment, ...], written: int) -> int:  # noqa: ARG001 -- a file that changes is walked again
    """Return where a log ends; parts that one process reads have it in common."""
    return find_end(segments).end_offset

# SPDX-License-Identifier: Apache-2.0
"""What a store says and does about what is derived from its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.queue.message_check import check_message_and_return_size

if TYPE_CHECKING:
    from store_core.queue.consume_queue_store import ConsumeQueueStore
    from store_core.queue.index_service import IndexService
    from store_core.store.commit_log import CommitLog
    from store_core.store.derived import DerivedStructures
    from store_core.store.reput import ReputMessageService

__all__ = ["StoreQueues"]


class StoreQueues:
    """The part of `DefaultMessageStore` that is about queues and index."""

    commit_log: CommitLog
    is_read_only: bool
    _derived: DerivedStructures
    _batch_topics: frozenset[str]

    @property
    def consume_queue_store(self) -> ConsumeQueueStore:
        """The consume queues."""
        return self._derived.queues

    @property
    def index_service(self) -> IndexService:
        """The key index."""
        return self._derived.index

    @property
    def reput_message_service(self) -> ReputMessageService:
        """What follows the log and fills queues and index; who waits for messages is in its `listeners`."""
        return self._derived.reput

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that are not in queues and index yet."""
        return self._derived.dispatch_behind_bytes

    def dispatch_now(self) -> None:
        """Bring what may be dispatched to queues and index, and wait for that; a service does it all the time.

        With synchronous flush and release 5.3 that is what is on disk, and with write buffers what is committed.

        Raises
        ------
        OSError
            As the system says.
        """
        if self.dispatch_behind_bytes > 0 and not self.is_read_only:
            self._derived.reput.run_once()

    def get_max_offset_in_queue(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """Return the index behind the last message of a queue; 0 if there is none.

        Parameters
        ----------
        topic : str
        queue_id : int
        committed : bool
            Count what can be read; else give the index that the next message gets, which may be ahead of that.
        """
        if not committed:
            return self.commit_log.queue_offsets.next_offset(topic, queue_id)
        self.dispatch_now()
        queue = self.consume_queue_store.get(topic, queue_id)
        return queue.max_offset_in_queue if queue is not None else 0

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the index of the first message of a queue that is still there.

        A queue that was never seen is empty (RocketMQ makes it when it is asked): 0, with a batch topic -1.
        """
        self.dispatch_now()
        queue = self.consume_queue_store.get(topic, queue_id)
        if queue is None:
            return -1 if self.is_batch_topic(topic) else 0
        return queue.min_offset_in_queue

    def is_batch_topic(self, topic: str) -> bool:
        """Whether a topic has the attribute ``queue.type=BatchCQ``."""
        return topic in self._batch_topics

    # ---- cutting

    def truncate_dirty_files(self, offset: int) -> None:
        """End log and queues at an offset, and go on from there (``DefaultMessageStore.truncateDirtyFiles``, 5.x).

        Nobody may put meanwhile. The index is left as it is: what it says of messages behind the end finds none, and
        new messages up to where it ended are not put into it, as in RocketMQ.

        Parameters
        ----------
        offset : int
            Physical offset at which a record begins. One behind the end of the log changes nothing.

        Raises
        ------
        OSError
            As the system says.
        """
        if offset < self.commit_log.max_offset:
            with self._derived.reput.paused():
                self._derived.recovery.truncate(offset)
                reput = self._derived.reput
                reput.reput_from_offset = min(reput.reput_from_offset, offset)

    def truncate_files(self, offset: int) -> bool:
        """Do as `truncate_dirty_files` if a record begins at the offset (``truncateFiles``, 5.x).

        Returns
        -------
        bool
            False if no record begins there: then nothing changes.
        """
        if offset < self.commit_log.max_offset and not self._is_aligned(offset):
            return False
        self.truncate_dirty_files(offset)
        return True

    def _is_aligned(self, offset: int) -> bool:
        queue = self.commit_log.mapped_file_queue
        file = queue.find_mapped_file_by_offset(offset, return_first=offset == 0)
        view = file.select(0) if file is not None else None
        if view is None:
            return True
        position, rules = offset % queue.file_size, self._derived.rules
        return check_message_and_return_size(
            view, position, len(view), rules, check_crc=True, read_body=True
        ).is_success

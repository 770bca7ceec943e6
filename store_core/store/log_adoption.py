# SPDX-License-Identifier: Apache-2.0
"""Taking over records that something else has written after the end of an open store's log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from store_core.store.running_flags import RunningFlag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.queue.known_batch import KnownColumns
    from store_core.store.message_store import DefaultMessageStore

__all__ = ["LogAdoption"]

_LOG: Final = logging.getLogger("store_core")


class LogAdoption:
    """Lets an open store take over records that were written to its segments, and not put by it.

    Make it before the first of them is written. While they are written, take their queue offsets from `offsets`; then
    either `adopt` them, or `leave_to_recovery`, or `vouch_again` if they are not in the log after all.

    Parameters
    ----------
    store : DefaultMessageStore
        Nobody puts messages into it meanwhile.

    Attributes
    ----------
    offsets : QueueOffsets
        The next index of every queue: the store's own, copied.
    """

    def __init__(self, store: DefaultMessageStore) -> None:
        self._store = store
        self._end = store.commit_log.mapped_file_queue.max_wrote_position
        self._vouched = store.checkpoint.physic_msg_timestamp, store.checkpoint.logics_msg_timestamp
        self.offsets = store.commit_log.queue_offsets.copy()

    def vouch_for_nothing(self) -> None:
        """Have a recovery start at the first segment from now on, whatever it holds.

        Raises
        ------
        OSError
            As the system says.
        """
        self._vouch(0, 0)
        self._store.checkpoint.flush()

    def vouch_again(self) -> None:
        """Have the checkpoint say what it said before; it is written when the store next writes it."""
        self._vouch(*self._vouched)

    def leave_to_recovery(self) -> None:
        """Take no more messages, and keep the ``abort`` file: the next to open the store recovers it."""
        self._store.running_flags.set(RunningFlag.NOT_WRITEABLE)

    def adopt(
        self, begin_offset: int, end_offset: int, store_timestamp: int, known: Iterable[KnownColumns] = ()
    ) -> None:
        """Extend the log over the records, and dispatch them; what fails is left to the next recovery.

        Parameters
        ----------
        begin_offset, end_offset : int
            Physical offsets at which the first record begins and the last one ends.
        store_timestamp : int
            Of the last record, ms.
        known : iterable of KnownColumns
            Of the first of these records, so that they need not be read.
        """
        reput = self._store.reput_message_service
        try:
            with reput.paused():
                is_next = reput.reput_from_offset in (self._end, begin_offset)
                self._store.commit_log.adopt(end_offset, store_timestamp, self.offsets)
                reput.run_once(gather=True, known=known if is_next else ())
        except OSError as error:
            self.leave_to_recovery()
            _LOG.error(
                "the records from %d to %d are in the log, but not all are in queues and index yet: %s",
                begin_offset,
                end_offset,
                error,
            )
        physic, logics = self._vouched
        self._vouch(max(physic, store_timestamp), max(logics, self._store.checkpoint.logics_msg_timestamp))

    def _vouch(self, physic: int, logics: int) -> None:
        checkpoint = self._store.checkpoint
        checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp = physic, logics

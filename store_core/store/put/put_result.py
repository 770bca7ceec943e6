# SPDX-License-Identifier: Apache-2.0
"""What became of a put, and how many replicas have it."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from store_core.format.message import AppendMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.store.message_store_config import BrokerConfig, MessageStoreConfig


@dataclass(frozen=True, slots=True)
class PutMessageResult:
    """Outcome of a put (RocketMQ: ``PutMessageResult``).

    Attributes
    ----------
    status : PutMessageStatus
    append_message_result : AppendMessageResult or None
        None if the message was refused before anything was appended.
    """

    status: PutMessageStatus
    append_message_result: AppendMessageResult | None = None

    @property
    def is_ok(self) -> bool:
        """Whether the message is in the log, judged by the append alone, as RocketMQ does.

        A result with FLUSH_DISK_TIMEOUT is ok; one with PUT_OK whose append said END_OF_FILE twice is not.
        """
        return self.append_message_result is not None and self.append_message_result.is_ok


@dataclass(frozen=True, slots=True, eq=False)
class AppendBatchResult:
    """Outcome of appending many messages.

    Attributes
    ----------
    status : PutMessageStatus
        As for a single put. If it is neither PUT_OK nor about flush or replicas, only the first `msg_num` messages are
        in the log, as if all had been put one by one and the next had failed.
    msg_num : int
        Number of these messages that are in the log.
    wrote_offset : int
        Where the log ended before the append.
    next_offset : int
        Where it ends now; blank records in between are included.
    store_timestamp : int
        Store time of all these messages, ms.
    physical_offsets, queue_offsets : numpy.ndarray
        int64, shape (msg_num,).
    """

    status: PutMessageStatus
    msg_num: int
    wrote_offset: int
    next_offset: int
    store_timestamp: int
    physical_offsets: npt.NDArray[np.int64]
    queue_offsets: npt.NDArray[np.int64]

    @property
    def is_ok(self) -> bool:
        """Whether all messages are in the log."""
        return self.status in (
            PutMessageStatus.PUT_OK,
            PutMessageStatus.FLUSH_DISK_TIMEOUT,
            PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
            PutMessageStatus.SLAVE_NOT_AVAILABLE,
        )

    @classmethod
    def refused(cls, status: PutMessageStatus, offset: int) -> AppendBatchResult:
        """Make the result for messages of which none was appended."""
        nothing = np.zeros(0, np.int64)
        return cls(status, 0, offset, offset, 0, nothing, nothing)


def join_results(results: Sequence[AppendBatchResult]) -> AppendBatchResult:
    """Combine the results of batches appended one after another; there is at least one."""
    return AppendBatchResult(
        results[-1].status,
        sum(result.msg_num for result in results),
        results[0].wrote_offset,
        results[-1].next_offset,
        results[0].store_timestamp,
        np.concatenate([result.physical_offsets for result in results]),
        np.concatenate([result.queue_offsets for result in results]),
    )


_Known = TypeVar("_Known")
_Result = TypeVar("_Result", "PutMessageResult", "AppendBatchResult")


def settle(
    result: _Result, flush: Future[PutMessageStatus] | None, replicas: Future[PutMessageStatus] | None
) -> _Result | Future[_Result]:
    """Return a result at once, or a future for when flush and replication, which run concurrently, are done.

    If both fail, the result has the status of the replicas (``CommitLog.handleDiskFlushAndHA``).
    """
    asked = [future for future in (flush, replicas) if future is not None]
    if not asked:
        return result
    joined: Future[_Result] = Future()

    def done(_: Future[PutMessageStatus]) -> None:
        if all(future.done() for future in asked):
            with suppress(InvalidStateError):
                joined.set_result(replace(result, status=join_statuses(asked)))

    for future in asked:
        future.add_done_callback(done)
    return joined


def join_statuses(answers: list[Future[PutMessageStatus]]) -> PutMessageStatus:
    """Return the last status that is not PUT_OK; a failed service counts as UNKNOWN_ERROR."""
    status = PutMessageStatus.PUT_OK
    for answer in answers:
        failed = answer.cancelled() or answer.exception() is not None
        found = PutMessageStatus.UNKNOWN_ERROR if failed else answer.result()
        status = status if found is PutMessageStatus.PUT_OK else found
    return status


def as_future(outcome: _Result | Future[_Result]) -> Future[_Result]:
    """Return an outcome as a future."""
    return outcome if isinstance(outcome, Future) else completed(outcome)


def wait_for(outcome: _Result | Future[_Result], timeout: float, otherwise: _Result) -> _Result:
    """Wait for an outcome, at most `timeout` seconds (``DefaultMessageStore.waitForPutResult``)."""
    if not isinstance(outcome, Future):
        return outcome
    try:
        return outcome.result(timeout)
    except (TimeoutError, CancelledError):
        return otherwise


ALL_IN_SYNC: Final = -1
"""As a number of acknowledgements: all in-sync replicas (``MixAll.ALL_ACK_IN_SYNC_STATE_SET``)."""

_MASTER_AND_SLAVE: Final = 2


def completed(result: _Known) -> Future[_Known]:
    """Return a completed future."""
    future: Future[_Known] = Future()
    future.set_result(result)
    return future


class ReplicaService:
    """What a put needs of replication (RocketMQ: ``HAService``); this one is of a master without slaves."""

    def in_sync_replicas(self, offset: int) -> int:  # noqa: ARG002 -- others depend on it
        """Return the number of replicas in sync with a log of this length, including the master (5.x)."""
        return 1

    def alive_replicas(self) -> int:
        """Return the number of live replicas, including the master (5.x, ``enableSlaveActingMaster``)."""
        return 1

    def is_slave_ok(self, offset: int) -> bool:  # noqa: ARG002 -- others depend on it
        """Return whether a slave is connected and close enough to a log of this length (4.x)."""
        return False

    def replicate(
        self,
        next_offset: int,  # noqa: ARG002 -- nobody will acknowledge
        acknowledgements: int,  # noqa: ARG002 -- as above
        timeout_ms: int,  # noqa: ARG002 -- as above
    ) -> Future[PutMessageStatus]:
        """Wait until replicas have the log up to `next_offset`: PUT_OK or FLUSH_SLAVE_TIMEOUT.

        * `acknowledgements`: Required number of copies, including the master's; `ALL_IN_SYNC` for all in-sync replicas.
        """
        return completed(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)


class Replication:
    """Decides when a put waits for replicas, and for how many (RocketMQ: ``CommitLog.needHandleHA``, ``handleHA``).

    Release 4.x waits for one slave, or returns SLAVE_NOT_AVAILABLE. 5.x waits for ``inSyncReplicas`` copies, one of
    them the master's own; in controller mode, or if a slave may act as master, it refuses messages beforehand if there
    are too few replicas.
    """

    def __init__(self, config: MessageStoreConfig, broker: BrokerConfig, replicas: ReplicaService) -> None:
        self._config = config
        self._features = config.features
        self._broker = broker
        self._replicas = replicas
        self._is_possible = config.broker_role == "SYNC_MASTER" and not (
            config.duplication_enable and self._features.skips_replicas_with_duplication
        )

    def is_needed(self, *, waits: bool) -> bool:
        """Return whether a put waits for replicas, given whether its message requests waiting."""
        return waits and self._is_possible

    def acknowledgements(self, offset: int) -> int | None:
        """Return the number of copies a put needs, with the log at `offset`; None if there can't be enough (5.x)."""
        wanted = self._config.in_sync_replicas
        if not self._features.waits_for_in_sync_replicas:
            return _MASTER_AND_SLAVE
        if self._broker.enable_controller_mode:
            enough = self._replicas.in_sync_replicas(offset) >= self._config.min_in_sync_replicas
            found = ALL_IN_SYNC if self._config.all_ack_in_sync_state_set else wanted
            return found if enough else None
        if self._broker.enable_slave_acting_master:
            in_sync = min(self._replicas.alive_replicas(), self._replicas.in_sync_replicas(offset))
            if self._config.enable_auto_in_sync_replicas:
                wanted = max(min(wanted, in_sync), self._config.min_in_sync_replicas)
            return wanted if wanted <= in_sync else None
        return wanted

    def handle_ha(self, next_offset: int, acknowledgements: int) -> Future[PutMessageStatus]:
        """Wait for replicas, after the log has grown to `next_offset`."""
        if not self._features.waits_for_in_sync_replicas:
            if not self._replicas.is_slave_ok(next_offset):
                return completed(PutMessageStatus.SLAVE_NOT_AVAILABLE)
            by_slave_timeout = self._features.waits_for_slave_by_slave_timeout
            timeout = self._config.slave_timeout if by_slave_timeout else self._config.sync_flush_timeout
            return self._replicas.replicate(next_offset, _MASTER_AND_SLAVE, timeout)
        if 0 <= acknowledgements <= 1:
            return completed(PutMessageStatus.PUT_OK)
        return self._replicas.replicate(next_offset, acknowledgements, self._config.slave_timeout)

# SPDX-License-Identifier: Apache-2.0
"""The outcome of a put, once flush and replication have completed."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from store_core.format.append_result import PutMessageStatus

if TYPE_CHECKING:
    from store_core.store.put.bulk_append import AppendBatchResult
    from store_core.store.put.put_result import PutMessageResult

__all__ = ["as_future", "join_statuses", "settle", "wait_for"]

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
    if isinstance(outcome, Future):
        return outcome
    future: Future[_Result] = Future()
    future.set_result(outcome)
    return future


def wait_for(outcome: _Result | Future[_Result], timeout: float, otherwise: _Result) -> _Result:
    """Wait for an outcome, at most `timeout` seconds (``DefaultMessageStore.waitForPutResult``)."""
    if not isinstance(outcome, Future):
        return outcome
    try:
        return outcome.result(timeout)
    except (TimeoutError, CancelledError):
        return otherwise

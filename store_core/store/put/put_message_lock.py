# SPDX-License-Identifier: Apache-2.0
"""The put lock, under which messages are appended: its holder is the log's only writer."""

from __future__ import annotations

from threading import Lock, RLock
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from store_core.files.clock import Clock

__all__ = ["PutMessageLock", "PutMessageReentrantLock", "PutMessageSpinLock", "make_put_message_lock"]


class PutMessageLock(Protocol):
    """A lock for a ``with`` statement (RocketMQ: ``PutMessageLock``)."""

    def __enter__(self) -> object:
        """Acquire the lock, waiting if needed."""
        ...

    def __exit__(self, *_: object) -> None:
        """Release it."""
        ...


class PutMessageReentrantLock:
    """A lock that puts waiting threads to sleep (RocketMQ: ``PutMessageReentrantLock``)."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class PutMessageSpinLock:
    """A lock that waiting threads retry in a loop (RocketMQ: ``PutMessageSpinLock``).

    Between tries the waiting thread yields, since a tight loop would keep the holder from running. The lock is not
    re-entrant.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()

    def __enter__(self) -> Self:
        while not self._lock.acquire(blocking=False):
            self._clock.sleep(0)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def make_put_message_lock(*, reentrant: bool, clock: Clock) -> PutMessageLock:
    """Choose the kind of lock (``useReentrantLockWhenPutMessage``)."""
    return PutMessageReentrantLock() if reentrant else PutMessageSpinLock(clock)

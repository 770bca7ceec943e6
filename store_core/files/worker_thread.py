# SPDX-License-Identifier: Apache-2.0
"""A thread that does its caller's work in order, at most a few pieces behind."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

__all__ = ["WorkerThread"]


class WorkerThread:
    """Does pieces of work in order, in a thread of its own.

    Parameters
    ----------
    most_waiting : int
        Most unfinished pieces when another one is accepted; its caller waits until there are no more.
    """

    def __init__(self, name: str, most_waiting: int) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._most_waiting = most_waiting
        self._waiting: deque[Future[object]] = deque()

    def take(self, work: Callable[..., object], *arguments: Any) -> None:  # noqa: ANN401 -- whatever `work` takes
        """Queue a piece of work; raise the error of an earlier piece instead, if there is one."""
        self.wait(self._most_waiting)
        self._waiting.append(self._executor.submit(work, *arguments))

    def wait(self, most_waiting: int = 0) -> None:
        """Wait until at most `most_waiting` pieces are unfinished; raise the error of one that failed."""
        while len(self._waiting) > most_waiting:
            self._waiting.popleft().result()

    def close(self) -> None:
        """Wait until all pieces are finished, failed or not, and end the thread."""
        self._executor.shutdown()

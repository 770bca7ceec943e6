# SPDX-License-Identifier: Apache-2.0
"""A thread that works beside its caller, a few pieces behind."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

__all__ = ["WorkerThread"]


class WorkerThread:
    """Does pieces of work in their order, in a thread of its own.

    Parameters
    ----------
    name : str
    most_waiting : int
        Pieces that are not done yet when another one is taken; whoever brings it waits for those before them.
    """

    def __init__(self, name: str, most_waiting: int) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._most_waiting = most_waiting
        self._waiting: deque[Future[object]] = deque()

    def take(self, work: Callable[..., object], *arguments: Any) -> None:  # noqa: ANN401 -- whatever `work` takes
        """Have a piece of work done soon; what failed before is raised, and nothing is taken then."""
        self.wait(self._most_waiting)
        self._waiting.append(self._executor.submit(work, *arguments))

    def wait(self, most_waiting: int = 0) -> None:
        """Wait until all is done, but for some pieces; what failed is raised."""
        while len(self._waiting) > most_waiting:
            self._waiting.popleft().result()

    def close(self) -> None:
        """Wait until all is done, whatever came of it, and end the thread."""
        self._executor.shutdown()

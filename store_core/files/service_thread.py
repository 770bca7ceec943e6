# SPDX-License-Identifier: Apache-2.0
"""Threads of a running store."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.files.machine import Clock


class WorkerThread:
    """Does pieces of work in order, in a thread of its own.

    * `most_waiting`: Most unfinished pieces when another one is accepted; its caller waits until there are no more.
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


_LOG: Final = logging.getLogger("store_core")
_JOIN_SECONDS: Final = 90.0
"""How long a shutdown waits for a running step (RocketMQ: ``ServiceThread.JOIN_TIME``)."""


class ServiceThread(ABC):
    """Repeats `run_once`, with a pause that `wakeup` cuts short (RocketMQ: ``ServiceThread``).

    A step is complete in itself, so that tests drive a service by `run_once` without thread or pause. An `OSError` is
    logged, kept in `error` and passed to `on_error`, and the next step tries again; any other exception is a bug and
    ends the thread.

    Parameters
    ----------
    clock : Clock
        Clock for pauses and durations.
    on_error : callable, optional
        Receives each `OSError`, in the service's thread.
    """

    def __init__(self, clock: Clock, on_error: Callable[[OSError], None] | None = None) -> None:
        self._clock = clock
        self._on_error = on_error
        self._thread: Thread | None = None
        self._notified = Event()
        self._stopped = Event()
        self.error: OSError | None = None

    @property
    def service_name(self) -> str:
        """Name of the thread."""
        return type(self).__name__

    @property
    def is_running(self) -> bool:
        """Whether its thread is running."""
        return self._thread is not None and self._thread.is_alive()

    @abstractmethod
    def run_once(self) -> None:
        """Do one step."""

    @abstractmethod
    def pause(self) -> None:
        """Wait until the next step is due, usually by `wait_for_running`."""

    def finish(self) -> None:  # noqa: B027 -- most services have nothing left to do
        """Do what is left after the last step; called by `shutdown` once the thread has ended."""

    def wait_for_running(self, seconds: float | None) -> None:
        """Wait for a `wakeup`, at most `seconds` (None: forever)."""
        self._clock.wait(self._notified, seconds)
        self._notified.clear()

    def wait_until_stopped(self, seconds: float) -> None:
        """Wait for `seconds`, regardless of `wakeup`; only a shutdown cuts it short."""
        self._clock.wait(self._stopped, seconds)

    def wakeup(self) -> None:
        """End the pause."""
        self._notified.set()

    def start(self) -> None:
        """Start the thread, unless it is running."""
        if self.is_running:
            return
        self._stopped.clear()
        # A daemon, so that a program that forgets to shut a store down still ends; shutdown() waits for it.
        self._thread = Thread(target=self._run, name=self.service_name, daemon=True)
        self._thread.start()

    def shutdown(self) -> bool:
        """End the thread, then call `finish`; False, without `finish`, if a step hangs, as on a dead disk."""
        self._stopped.set()
        self.wakeup()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)
            if self._thread.is_alive():
                _LOG.error("%s is still busy %.0f s after its shutdown", self.service_name, _JOIN_SECONDS)
                return False
            self._thread = None
        self._guarded(self.finish)
        return True

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.pause()
            self.step()

    def step(self) -> None:
        """Do one step and report its `OSError`; the thread repeats this."""
        self._guarded(self.run_once)

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            self.report(error)

    def report(self, error: OSError) -> None:
        """Keep an error, log it if it differs from the last one, and call `on_error`."""
        if self.error is None or str(self.error) != str(error):
            _LOG.error("%s: %s", self.service_name, error)
        self.error = error
        if self._on_error is not None:
            self._on_error(error)

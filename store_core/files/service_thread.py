# SPDX-License-Identifier: Apache-2.0
"""A background service: one step, repeated in a thread until it is shut down."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.files.clock import Clock

__all__ = ["ServiceThread"]

_LOG: Final = logging.getLogger("store_core")
_JOIN_SECONDS: Final = 90.0
"""How long a shutdown waits for a step that is under way (RocketMQ: ``ServiceThread.JOIN_TIME``)."""


class ServiceThread(ABC):
    """Repeats `run_once`, with a pause that `wakeup` cuts short (RocketMQ: ``ServiceThread``).

    A step is a whole, so that tests drive a service by `run_once` and need neither thread nor pause. What the operating
    system refuses (`OSError`) is logged, kept in `error`, told to `on_error`, and the next step tries again; any other
    exception is a mistake of ours and ends the thread.

    Parameters
    ----------
    clock : Clock
        Pauses and durations.
    on_error : callable, optional
        Gets each `OSError`, in the service's thread.
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
        """Whether its thread is at work."""
        return self._thread is not None and self._thread.is_alive()

    @abstractmethod
    def run_once(self) -> None:
        """Do one step."""

    @abstractmethod
    def pause(self) -> None:
        """Wait until the next step is due: by `wait_for_running`, as a rule."""

    def finish(self) -> None:  # noqa: B027 -- most services have nothing left to do
        """Do what is left after the last step; called by `shutdown` once the thread has ended."""

    def wait_for_running(self, seconds: float | None) -> None:
        """Wait until somebody wakes the service up, at most `seconds` (None: for ever)."""
        self._clock.wait(self._notified, seconds)
        self._notified.clear()

    def wait_until_stopped(self, seconds: float) -> None:
        """Wait `seconds`, whoever calls `wakeup`; only a shutdown cuts it short."""
        self._clock.wait(self._stopped, seconds)

    def wakeup(self) -> None:
        """End the pause."""
        self._notified.set()

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self.is_running:
            return
        self._stopped.clear()
        # A daemon, so that a program that forgets to shut a store down still ends; shutdown() waits for it.
        self._thread = Thread(target=self._run, name=self.service_name, daemon=True)
        self._thread.start()

    def shutdown(self) -> bool:
        """End the thread, then do what is left; False if a step hangs, as on a dead disk: then the rest is not done."""
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
        """Do one step, and report what the system refuses: what the thread repeats."""
        self._guarded(self.run_once)

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            self.report(error)

    def report(self, error: OSError) -> None:
        """Keep an error, log it when it is another than before, and tell `on_error`."""
        if self.error is None or str(self.error) != str(error):
            _LOG.error("%s: %s", self.service_name, error)
        self.error = error
        if self._on_error is not None:
            self._on_error(error)

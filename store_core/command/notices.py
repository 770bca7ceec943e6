# SPDX-License-Identifier: Apache-2.0
"""What a command says beside its output: warnings, and how far it is."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from store_core.answers.shown_text import TerminalLine, clear_line, escape_text
from store_core.errors import LEFT_OUT
from store_core.store.parts import Step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self, TextIO

    from store_core.files.clock import Clock
    from store_core.store.parts import PartsDone

__all__ = ["Notices", "PartsProgress", "say", "warnings_shown"]


def say(text: str) -> None:
    """Write a paragraph to standard error, safe for a terminal."""
    clear_line()
    click.echo("\n".join(escape_text(line) for line in f"commitlog: {text}".split("\n")), err=True)


@contextmanager
def warnings_shown() -> Iterator[Notices]:
    """Show what the core warns of, for commands whose output does not have it."""
    log, notices = logging.getLogger("store_core"), Notices()
    log.addHandler(notices)
    try:
        yield notices
    finally:
        log.removeHandler(notices)


class Notices(logging.Handler):
    """Says each warning once: a log that is followed has the same ones at each look.

    * `has_left_out`: Whether one was that messages may be missing, as something is damaged, or gone.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.has_left_out = False
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Say a warning."""
        self.has_left_out |= LEFT_OUT.items() <= record.__dict__.items()
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
            say(f"warning: {text}")


_STEPS: Final = {Step.RUN: "reading", Step.GATHER: "comparing"}


class PartsProgress:
    """Shows how many parts are done, and the time left; a `store_core.store.parts.ProgressSink`.

    * `name`: Of the command.
    * `stream`: A terminal; None if nothing is to be shown.
    """

    def __init__(self, name: str, stream: TextIO | None, clock: Clock) -> None:
        self._name = name
        self._line = None if stream is None else TerminalLine(stream)
        self._clock = clock
        self._began = clock.monotonic()

    def __enter__(self) -> Self:
        self._show(f"{self._name}: {_STEPS[Step.RUN]}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Clear the line, after ^C as well."""
        if self._line is not None:
            self._line.close()

    def __call__(self, done: PartsDone) -> None:
        """Show the parts that are done."""
        now = self._clock.monotonic()
        left = (now - self._began) / done.done * (done.total - done.done)
        text = f"{self._name}: {_STEPS[done.step]}, {done.done} of {done.total} parts"
        self._show(f"{text}, {left:.0f} s left" if left >= 1 else text)
        if done.done == done.total:  # the next part belongs to another step
            self._began = now

    def _show(self, text: str) -> None:
        if self._line is not None:
            self._line.show(text)

# SPDX-License-Identifier: Apache-2.0
"""How far a command is that reads a whole store: a line on standard error, if that is a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.answers.text.terminal_line import TerminalLine
from store_core.store.parts import Step

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, TextIO

    from store_core.files.clock import Clock
    from store_core.store.parts import PartsDone

__all__ = ["PartsProgress"]

_STEPS: Final = {Step.RUN: "reading", Step.GATHER: "comparing"}


class PartsProgress:
    """Shows how many parts are done, and the time left; a `store_core.store.parts.ProgressSink`.

    Parameters
    ----------
    name : str
        Of the command.
    stream : TextIO or None
        A terminal; None if nothing is to be shown.
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

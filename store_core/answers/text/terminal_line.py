# SPDX-License-Identifier: Apache-2.0
"""A line on a terminal that is overwritten each time, and that leaves no trace."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["TerminalLine", "clear_line"]

_shown_lines: list[TerminalLine] = []
"""Those that are on the terminal now: at most one, except in tests."""


def clear_line() -> None:
    """Clear what is shown now, so that something else can be written to the same terminal."""
    for line in tuple(_shown_lines):
        line.close()


class TerminalLine:
    """A line of text on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = 0

    def show(self, text: str) -> None:
        """Write a line in place of the last one, cut to the width of the terminal."""
        if self not in _shown_lines:
            _shown_lines.append(self)
        self._write(text[: self._columns() - 1])

    def close(self) -> None:
        """Clear the line; one that is shown again is as new."""
        if self in _shown_lines:
            _shown_lines.remove(self)
        if self._shown:
            self._write("")
            self._write("")

    def _columns(self) -> int:
        """Return the columns of this terminal, which standard output need not be; a longer line can't be cleared."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or shutil.get_terminal_size().columns
        except (OSError, ValueError):  # no terminal, as in a test
            return shutil.get_terminal_size().columns

    def _write(self, text: str) -> None:
        self._stream.write(f"\r{text}{' ' * (self._shown - len(text))}" if text or self._shown else "\r")
        self._stream.flush()
        self._shown = len(text)

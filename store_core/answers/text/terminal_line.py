# SPDX-License-Identifier: Apache-2.0
"""A line on a terminal that is overwritten each time, and that leaves no trace."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["TerminalLine"]


class TerminalLine:
    """A line of text on a terminal.

    Parameters
    ----------
    stream : TextIO
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = 0

    def show(self, text: str) -> None:
        """Write a line in place of the last one, cut to the width of the terminal."""
        self._write(text[: shutil.get_terminal_size().columns - 1])

    def close(self) -> None:
        """Clear the line."""
        if self._shown:
            self._write("")
            self._write("")

    def _write(self, text: str) -> None:
        self._stream.write(f"\r{text}{' ' * (self._shown - len(text))}" if text or self._shown else "\r")
        self._stream.flush()
        self._shown = len(text)

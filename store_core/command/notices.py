# SPDX-License-Identifier: Apache-2.0
"""What a command says on standard error beside its output."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from store_core.answers.text.shown_text import escape_text
from store_core.answers.text.terminal_line import clear_line
from store_core.errors import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Notices", "say", "warnings_shown"]


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

    Attributes
    ----------
    has_left_out : bool
        Whether one was that messages may be missing, as something is damaged, or gone.
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

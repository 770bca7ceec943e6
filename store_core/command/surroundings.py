# SPDX-License-Identifier: Apache-2.0
"""What a command takes from the process around it, so that tests can replace it."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from store_core.files.clock import SystemClock

if TYPE_CHECKING:
    from datetime import tzinfo
    from typing import Self, TextIO

    import click

    from store_core.files.clock import Clock

__all__ = ["Surroundings", "shown_zone"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a command takes from the process around it."""

    width: int | None = None  # columns of the terminal that standard output is; None if it is a file or a pipe
    columns: int | None = None
    """Columns of what is no terminal, as the environment variable ``COLUMNS`` says; None if it is not set."""
    progress: TextIO | None = None  # where to show how far a command is: standard error, if it is a terminal
    clock: Clock = field(default_factory=SystemClock)  # what waits between two looks at a store that is followed
    is_on_spark: bool = False  # whether commands run on Spark without ``--spark``, as below ``spark-submit``

    @classmethod
    def of(cls, context: click.Context) -> Self:
        """Return those that the caller of the program gave, else those of this process."""
        return context.find_object(cls) or cls.here()

    @classmethod
    def here(cls) -> Self:
        """Return those of this process."""
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else None
        columns = None if is_terminal else shutil.get_terminal_size((0, 0)).columns or None
        has_terminal = sys.stderr is not None and sys.stderr.isatty()
        return cls(width, columns, sys.stderr if has_terminal else None)

    @property
    def table_width(self) -> int | None:
        """Columns of a table; None if it is not to be cut."""
        return self.columns if self.width is None else self.width


def shown_zone(name: str | None) -> tzinfo | None:
    """Return the zone that the times of an output are in; None is UTC."""
    if name is None:
        return None
    from store_core.store.read.store_time import parse_zone

    return parse_zone("time_zone", name)

# SPDX-License-Identifier: Apache-2.0
"""The surroundings of a command: terminal, clock, progress, Spark; and notes on standard error."""

from __future__ import annotations

import logging
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

import click

from store_core.answers.shown_text import TerminalLine, clear_line, escape_text
from store_core.command.main import LeanImports
from store_core.errors import LEFT_OUT, StoreError
from store_core.files.machine import Clock, SystemClock
from store_core.store.parts import Engine, PartsDone, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import tzinfo


@dataclass(frozen=True, slots=True)
class Console:
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
    from store_core.store.read.option_values import parse_zone

    return parse_zone("time_zone", name)


def say(text: str) -> None:
    """Write a paragraph to standard error, safe for a terminal."""
    clear_line()
    click.echo("\n".join(escape_text(line) for line in f"commitlog: {text}".split("\n")), err=True)


@contextmanager
def warnings_shown() -> Iterator[ShownWarnings]:
    """Show what the core warns of, for commands whose output does not have it."""
    log, notices = logging.getLogger("store_core"), ShownWarnings()
    log.addHandler(notices)
    try:
        yield notices
    finally:
        log.removeHandler(notices)


class ShownWarnings(logging.Handler):
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

    def __exit__(self, *_: object) -> None:
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


_HELP: Final = "Run on Spark: in the session that runs already, as under spark-submit, or in a new one on this machine."
_ASKED: Final = "store_core.spark"


def _keep(context: click.Context, _option: click.Parameter, value: bool) -> None:  # noqa: FBT001 -- click's signature
    context.meta[_ASKED] = value


with_spark: Final = click.option("--spark", is_flag=True, expose_value=False, callback=_keep, help=_HELP)
"""Gives a command the option that makes it run on Spark, of which `is_on_spark` knows."""


def is_on_spark() -> bool:
    """Return whether the command that is run was given ``--spark``, or is below ``spark-submit``."""
    context = click.get_current_context()
    return bool(context.meta.get(_ASKED)) or Console.of(context).is_on_spark


def connector(module: str) -> Any:  # noqa: ANN401 -- a module whose types this package can't know
    """Return a module of the connector, by its name there."""
    if find_spec("pyspark") is None:
        minimum = import_module("pyspark_commitlog").MINIMUM_PYSPARK
        raise StoreError(
            f"--spark: PySpark is not installed for {sys.executable}: pip install 'pyspark>={minimum}', or leave "
            f"--spark out"
        )
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, LeanImports)]
    return import_module(f"pyspark_commitlog.{module}")


def with_processes(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options for its engine, processes or Spark; it gets the argument `processes`."""
    help_text = "How many processes read the store.  [default: 1]"
    processes = click.option("--processes", type=click.IntRange(1), default=1, metavar="N", help=help_text)
    return processes(with_spark(command))


@contextmanager
def shown_engine(processes: int) -> Iterator[Engine]:
    """Provide the engine of a command; one of this machine shows on a terminal how many parts are done."""
    from store_core.answers.answer import processes as engine_of

    context = click.get_current_context()
    around, name = Console.of(context), context.info_name or ""
    if is_on_spark():
        with connector("answers").job_engine(f"commitlog-{name}") as engine:  # a session made for it ends with it
            yield engine
        return
    progress = PartsProgress(name, around.progress, around.clock)
    with progress, engine_of(processes, progress) as engine:
        yield engine

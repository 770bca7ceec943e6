# SPDX-License-Identifier: Apache-2.0
"""Displays of progress: a tqdm bar, a line on a terminal, or the output of a notebook cell."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

from store_core.answers.shown_text import TerminalLine

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CellDisplay", "Display", "LineDisplay", "StageView", "TqdmDisplay", "choose_display", "progress_line"]

_BAR: Final = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} tasks [{elapsed}<{remaining}{postfix}]"


@dataclass(frozen=True, slots=True)
class StageView:
    """What is shown of a stage.

    * `done`, `total`: Tasks.
    """

    stage: int  # its number
    label: str  # what it is called
    done: int
    total: int
    pace: float  # tasks per second; 0 if not known yet
    notes: tuple[str, ...] = ()  # rates and the like


class Display(Protocol):
    """Shows one stage at a time. All methods may come from any thread, one at a time."""

    def show(self, view: StageView) -> None:
        """Show a stage in place of what was shown before."""

    def close(self) -> None:
        """Remove all traces of the display."""


def progress_line(view: StageView) -> str:
    """Return a line of text: what is running, how much is done, how fast, and the time left.

    Examples
    --------
    >>> progress_line(StageView(4, "reading", 3, 12, 0.5, ("512 MiB/s",)))
    'reading: 3 of 12 tasks, 512 MiB/s, 18 s left'
    """
    parts = [f"{view.label}: {view.done} of {view.total} tasks", *view.notes]
    if view.pace:
        parts.append(f"{(view.total - view.done) / view.pace:.0f} s left")
    return ", ".join(parts)


def choose_display(stream: TextIO | None = None, is_taken: Callable[[], bool] = bool) -> Display | None:
    """Choose how to show progress.

    * `stream`: Standard error by default.
    * `is_taken`: Returns whether something else draws on the terminal; called only if there is one.

    Returns: In Jupyter a tqdm bar if ``tqdm`` and ``ipywidgets`` are installed, else a line in the cell's output. On a
    terminal a tqdm bar, or a line without ``tqdm``. None elsewhere: a bar does not belong in a file.
    """
    if stream is None and _is_jupyter():
        return _notebook_display()
    stream = stream if stream is not None else sys.stderr
    if stream is None or stream.closed or not stream.isatty() or is_taken():
        return None
    try:
        from tqdm.std import tqdm  # noqa: PLC0415 -- an extra
    except ImportError:
        return LineDisplay(stream)
    return TqdmDisplay(tqdm, file=stream, delay=1e-9)


def _is_jupyter() -> bool:
    """Return whether this is a notebook kernel, not IPython in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _notebook_display() -> Display:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tqdm warns without ipywidgets; we show a line then
            from tqdm.auto import tqdm  # noqa: PLC0415 -- an extra
            from tqdm.notebook import tqdm as notebook_tqdm  # noqa: PLC0415
    except ImportError:
        return CellDisplay()
    return TqdmDisplay(tqdm) if issubclass(tqdm, notebook_tqdm) else CellDisplay()


class TqdmDisplay:
    """A tqdm bar.

    * `make`: The tqdm class.
    * `options`: Arguments for the class. Environment variables such as ``TQDM_DISABLE`` apply as well.
    """

    def __init__(self, make: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401 -- tqdm's own
        # Drawn exactly when `show` is called: no monitor thread, no minimum interval.
        quiet = type("QuietBar", (make,), {"monitor_interval": 0})  # type: ignore[arg-type]  # a class
        self._bar = quiet(
            desc="Spark", bar_format=_BAR, leave=False, dynamic_ncols=True, mininterval=0, miniters=0, smoothing=0,
            **options,
        )  # fmt: skip
        self._stage = -1

    def show(self, view: StageView) -> None:
        """Draw the bar, started again if this is another stage."""
        if view.stage != self._stage:
            self._stage = view.stage
            self._bar.set_description_str(view.label, refresh=False)
            self._bar.initial = view.done  # tasks whose time tqdm does not count
            self._bar.reset(view.total)
        self._bar.set_postfix_str(", ".join(view.notes), refresh=False)
        self._bar.update(view.done - self._bar.n)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


class LineDisplay:
    """A line on a terminal that is overwritten each time."""

    def __init__(self, stream: TextIO) -> None:
        self._line = TerminalLine(stream)

    def show(self, view: StageView) -> None:
        """Write the line, cut to the width of the terminal."""
        self._line.show(progress_line(view))

    def close(self) -> None:
        """Clear the line."""
        self._line.close()


class CellDisplay:
    """A line in the output of a notebook cell, which is empty at the end, also in the saved file."""

    def __init__(self) -> None:
        from IPython.display import DisplayHandle  # noqa: PLC0415 -- only a kernel has it

        handle: Any = DisplayHandle  # has no types
        self._handle = handle()
        self._handle.display({"text/plain": ""}, raw=True)

    def show(self, view: StageView) -> None:
        """Replace the last line by a new one."""
        self._handle.update({"text/plain": progress_line(view)}, raw=True)

    def close(self) -> None:
        """Replace the last line by nothing."""
        self._handle.update({"text/plain": ""}, raw=True)

# SPDX-License-Identifier: Apache-2.0
"""The labels of a rebuild's progress: its stages read the log and write files in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_commitlog.progress.display import StageView

if TYPE_CHECKING:
    from pyspark_commitlog.progress.stages import StageTasks

__all__ = ["RebuildStages"]

_NAMES: Final = ("reading", "writing")
_MEBIBYTE: Final = 1 << 20


class RebuildStages:
    """Describes the stages of a rebuild, for `spark_progress`.

    Parameters
    ----------
    size : int
        Bytes of the log to be read in total.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._first = -1

    def __call__(self, tasks: StageTasks, others: int, pace: float) -> StageView:
        """Describe a stage: which half of the work it is and, for reading, the log's bytes per second."""
        del others
        self._first = tasks.stage if self._first < 0 else self._first
        half = (tasks.stage - self._first) % len(_NAMES)
        rate = f"{self._size / tasks.total * pace / _MEBIBYTE:.0f} MiB/s" if half == 0 and pace else ""
        notes = [rate] * bool(rate) + [f"{tasks.failed} failed"] * bool(tasks.failed)
        return StageView(tasks.stage, _NAMES[half], tasks.done, tasks.total, pace, tuple(notes))

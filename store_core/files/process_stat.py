# SPDX-License-Identifier: Apache-2.0
"""What Linux says of a process in ``/proc/PID/stat``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from typing import Self

__all__ = ["ProcessStat"]

_PROCESSES: Final = Path("/proc")
_START_TIME: Final = 19
"""Index of the start time among the fields after the program's name."""
_ENDED: Final = ("Z", "X")


class ProcessStat(NamedTuple):
    """A process at one moment."""

    name: str  # of its program, cut after 15 bytes
    parent: int  # number of its parent
    started: str  # when it began, in ticks of the system's clock
    has_ended: bool  # whether it has ended, and nobody has asked for its exit code yet

    @classmethod
    def of(cls, process: int) -> Self | None:
        """Return what is known of a process by its number; None if there is none."""
        try:
            text = (_PROCESSES / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        head, _, rest = text.rpartition(")")  # the program's name may contain anything
        fields = rest.split()
        if len(fields) <= _START_TIME:
            return None
        return cls(head.partition("(")[2], int(fields[1]), fields[_START_TIME], fields[0] in _ENDED)

# SPDX-License-Identifier: Apache-2.0
"""Finds the child processes of a process, to kill them."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

_PROCESSES = Path("/proc")


def descendants(process: int) -> list[int]:
    """Return all processes below one, parents first."""
    children: dict[int, list[int]] = {}
    for path in _PROCESSES.iterdir():
        if path.name.isdecimal():
            with suppress(OSError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(path.name))
    found = [process]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def kill(processes: list[int]) -> None:
    """Kill processes; some may have ended already."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def wait_for_end(processes: list[int]) -> None:
    """Wait until processes have ended; they need not be children of this one."""
    for process in processes:
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(process)
            select.select([handle], [], [])
            os.close(handle)

# SPDX-License-Identifier: Apache-2.0
"""Describes the process that runs an append job, so that a later job can tell whether it is still running."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from store_core.files.clock import Clock

__all__ = ["is_alive", "owner_text"]

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES: Final = Path("/proc")
_ENDED: Final = ("Z", "X")
"""States in ``/proc/PID/stat`` of a process that has ended: nobody has asked for its exit code yet."""
_START_TIME: Final = 19
"""Index of the start time in ``/proc/PID/stat``, after the program's name."""
_TRUSTED_SECONDS: Final = 7 * 24 * 3600
"""How long a job on another machine, which can't be checked, is assumed to be running."""


def owner_text(clock: Clock, process: int | None = None) -> str:
    """Describe who runs a job: a process on this machine.

    Parameters
    ----------
    clock : Clock
    process : int, optional
        Its number; by default that of this process.
    """
    process = os.getpid() if process is None else process
    owner = {
        "host": os.uname().nodename,
        "boot": _read(_BOOT),
        "namespace": _namespace(),
        "process": process,
        "started": _start_time(process),
        "created": clock.now_ms() // 1000,
    }
    return json.dumps(owner)


def is_alive(clock: Clock, owner: str) -> bool:
    """Return whether the process that `owner_text` described may still be running.

    On this machine that is known; on another one it is assumed for a week.
    """
    try:
        told = json.loads(owner)
        host, boot, namespace = told["host"], told["boot"], told["namespace"]
        process, started, created = int(told["process"]), told["started"], int(told["created"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    if host != os.uname().nodename or (boot == _read(_BOOT) and namespace != _namespace()):
        return clock.now_ms() // 1000 - created < _TRUSTED_SECONDS
    return bool(boot == _read(_BOOT) and started and started == _start_time(process))


def _start_time(process: int) -> str:
    """Return when a process began, by the system's clock; empty if it has ended, even if no parent has noticed."""
    fields = _read(_PROCESSES / str(process) / "stat").rpartition(")")[2].split()  # the program's name has anything
    has_ended = len(fields) <= _START_TIME or fields[0] in _ENDED
    return "" if has_ended else fields[_START_TIME]


def _namespace() -> str:
    try:
        return str((_PROCESSES / "self" / "ns" / "pid").readlink())
    except OSError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""

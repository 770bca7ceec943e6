# SPDX-License-Identifier: Apache-2.0
"""Describes the driver that runs a write, so that a later job can tell whether it is still running."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Final

__all__ = ["is_alive", "owner_text"]

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES: Final = Path("/proc")
_START_TIME: Final = 19
"""Index of the start time in ``/proc/PID/stat``, after the program's name."""
_JVM: Final = "java"
_TRUSTED_SECONDS: Final = 7 * 24 * 3600
"""How long a job on another machine, which can't be checked, is assumed to be running."""


def owner_text(process: int | None = None) -> str:
    """Describe who runs a write: a process on this machine, by default the JVM above this process.

    Called beside the driver when a write is planned.

    Parameters
    ----------
    process : int, optional
        Number of the process, if it is not the driver's.
    """
    process = _jvm() if process is None else process
    owner = {
        "host": socket.gethostname(),
        "boot": _read(_BOOT),
        "namespace": _namespace(),
        "process": process,
        "started": _start_time(process),
        "created": int(time.time()),
    }
    return json.dumps(owner)


def is_alive(owner: str) -> bool:
    """Return whether the driver that `owner_text` described may still be running.

    On this machine that is known; on another one it is assumed for a week.
    """
    try:
        told = json.loads(owner)
        host, boot, namespace = told["host"], told["boot"], told["namespace"]
        process, started, created = int(told["process"]), told["started"], int(told["created"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    if host != socket.gethostname() or (boot == _read(_BOOT) and namespace != _namespace()):
        return time.time() - created < _TRUSTED_SECONDS
    return bool(boot == _read(_BOOT) and started == _start_time(process))


def _jvm() -> int:
    """Find the driver: the nearest Java process above this one, else this process's parent."""
    process = os.getppid()
    while process > 1:
        if _read(_PROCESSES / str(process) / "comm").strip() == _JVM:
            return process
        fields = _stat(process)
        process = int(fields[1]) if fields else 0
    return os.getppid()


def _stat(process: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` after the program's name, which may contain anything."""
    return _read(_PROCESSES / str(process) / "stat").rpartition(")")[2].split()


def _start_time(process: int) -> str:
    fields = _stat(process)
    return fields[_START_TIME] if len(fields) > _START_TIME else ""


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

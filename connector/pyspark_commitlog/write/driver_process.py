# SPDX-License-Identifier: Apache-2.0
"""Finds the driver that runs a write, from a worker beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["driver_process"]

_PROCESSES: Final = Path("/proc")
_JVM: Final = "java"


def driver_process() -> int:
    """Return the number of the driver: the nearest Java process above this one, else this process's parent.

    Called beside the driver when a write is planned.
    """
    process = os.getppid()
    while process > 1:
        if _read(_PROCESSES / str(process) / "comm").strip() == _JVM:
            return process
        fields = _read(_PROCESSES / str(process) / "stat").rpartition(")")[2].split()  # the name may contain anything
        process = int(fields[1]) if fields else 0
    return os.getppid()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

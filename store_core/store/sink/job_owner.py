# SPDX-License-Identifier: Apache-2.0
"""Describes the process that runs an append job, so that a later job can tell whether it is still running."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.files.process_stat import ProcessStat

if TYPE_CHECKING:
    from store_core.files.clock import Clock

__all__ = ["is_alive", "owner_text"]

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")
_TRUSTED_SECONDS: Final = 7 * 24 * 3600
"""How long a job on another machine, which can't be checked, is assumed to be running."""


def owner_text(clock: Clock, process: int | None = None) -> str:
    """Describe who runs a job: a process on this machine.

    Parameters
    ----------
    process : int, optional
        Its number; by default that of this process.
    """
    process = os.getpid() if process is None else process
    owner = {
        "host": os.uname().nodename,
        "boot": _boot(),
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
    if host != os.uname().nodename or (boot == _boot() and namespace != _namespace()):
        return clock.now_ms() // 1000 - created < _TRUSTED_SECONDS
    return bool(boot == _boot() and started and started == _start_time(process))


def _start_time(process: int) -> str:
    """Return when a process began; empty if it has ended, even if no parent has noticed."""
    found = ProcessStat.of(process)
    return "" if found is None or found.has_ended else found.started


def _namespace() -> str:
    try:
        return str(_NAMESPACE.readlink())
    except OSError:
        return ""


def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""

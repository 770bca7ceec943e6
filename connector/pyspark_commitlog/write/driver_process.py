# SPDX-License-Identifier: Apache-2.0
"""Finds the driver that runs a write, from a worker beside it."""

from __future__ import annotations

import os
from typing import Final

from store_core.files.process_stat import ProcessStat

__all__ = ["driver_process"]

_JVM: Final = "java"


def driver_process() -> int:
    """Return the number of the driver: the nearest Java process above this one, else this process's parent.

    Called beside the driver when a write is planned.
    """
    process = os.getppid()
    while process > 1:
        found = ProcessStat.of(process)
        if found is None:
            break
        if found.name == _JVM:
            return process
        process = found.parent
    return os.getppid()

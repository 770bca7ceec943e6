# SPDX-License-Identifier: Apache-2.0
"""What a process holds: memory of its own, open files, mappings."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

_PROCESS: Final = Path("/proc/self")
_KIBIBYTE: Final = 1024


class Usage(NamedTuple):
    """What this process holds.

    * `memory`: Anonymous resident bytes: without the pages of mapped files.
    """

    memory: int
    handles: int
    mappings: int

    @classmethod
    def now(cls) -> Usage:
        """Look."""
        lines = (_PROCESS / "status").read_text().splitlines()
        memory = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * _KIBIBYTE
        return cls(memory, len(list((_PROCESS / "fd").iterdir())), (_PROCESS / "maps").read_text().count("\n"))


def growth(samples: list[Usage]) -> Usage:
    """Return by how much each grew over the second half of the samples, by the straight line that fits best."""
    half = np.array(samples[len(samples) // 2 :], np.float64)
    at = np.arange(len(half))
    return Usage(*(int(np.polyfit(at, column, 1)[0] * (len(half) - 1)) for column in half.T))

# SPDX-License-Identifier: Apache-2.0
"""What the system says of a file or directory, by which it is recognised."""

from __future__ import annotations

import os
from typing import NamedTuple

__all__ = ["FileState"]


class FileState(NamedTuple):
    """What the system says of a file: device, inode, bytes, and the times of its last modification and last change."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        """Return the state in a status."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    @classmethod
    def at(cls, path: str) -> FileState | None:
        """Return the state of what is at a path now; None if there is nothing, or it can't be looked at."""
        try:
            return cls.of(os.stat(path))  # noqa: PTH116 -- one of many
        except OSError:
            return None

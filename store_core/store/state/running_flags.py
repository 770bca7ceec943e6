# SPDX-License-Identifier: Apache-2.0
"""Flags that say why a store currently can't be read or written."""

from __future__ import annotations

from enum import IntFlag
from threading import Lock
from typing import Final

__all__ = ["RunningFlag", "RunningFlags"]


class RunningFlag(IntFlag):
    """Reasons to refuse, with the bits of RocketMQ's ``RunningFlags``."""

    NOT_READABLE = 1 << 0
    NOT_WRITEABLE = 1 << 1
    WRITE_LOGICS_QUEUE_ERROR = 1 << 2
    WRITE_INDEX_FILE_ERROR = 1 << 3
    DISK_FULL = 1 << 4
    FENCED = 1 << 5
    LOGIC_DISK_FULL = 1 << 6


_FORBID_WRITING: Final = RunningFlag(~RunningFlag.NOT_READABLE & 0x7F)
_FORBID_QUEUES: Final = _FORBID_WRITING & ~(RunningFlag.DISK_FULL | RunningFlag.FENCED)


class RunningFlags:
    """Flags that services set and every put checks (RocketMQ: ``RunningFlags``).

    Setting and clearing is safe from any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._bits = RunningFlag(0)

    def has(self, flag: RunningFlag) -> bool:
        """Whether a flag is set."""
        return bool(self._bits & flag)

    def set(self, flag: RunningFlag) -> bool:
        """Set a flag; return whether it was clear before."""
        with self._lock:
            was_clear = not self._bits & flag
            self._bits |= flag
        return was_clear

    def clear(self, flag: RunningFlag) -> bool:
        """Clear a flag; return whether it was set before."""
        with self._lock:
            was_set = bool(self._bits & flag)
            self._bits &= ~flag
        return was_set

    @property
    def is_readable(self) -> bool:
        """Whether messages may be read."""
        return not self._bits & RunningFlag.NOT_READABLE

    @property
    def is_writeable(self) -> bool:
        """Whether messages may be put."""
        return not self._bits & _FORBID_WRITING

    @property
    def is_cq_writeable(self) -> bool:
        """Whether consume queues may be written, regardless of a full commit log disk or fencing."""
        return not self._bits & _FORBID_QUEUES

# SPDX-License-Identifier: Apache-2.0
"""Sync of a whole file system at once, by Linux's ``syncfs``, where that says whether anything could not be written."""

from __future__ import annotations

import ctypes
import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["WholeSync"]

_KINDS: Final = frozenset({"ext4", "xfs"})
"""File systems on disks of this machine that are known to report errors. Of others one can't tell: to some servers
``syncfs`` sends what was written, and does not ask for it to be kept."""

_FIRST_KERNEL: Final = (5, 8)
"""Linux reports errors of writing from this version on; earlier ones return success."""

_MOUNTS: Final = Path("/proc/self/mountinfo")


class WholeSync:
    """A moment from which on all that is written to a directory's file system can be synced at once.

    The file system reports an error to whoever had it open when the error came up. So use it in a ``with`` block, in
    which everything is written.

    Parameters
    ----------
    directory : Path
        Exists.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = -1

    def __enter__(self) -> Self:
        if _is_reporting(os.stat(self._directory).st_dev):  # noqa: PTH116 -- beside os.open
            self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def sync(self) -> bool:
        """Write all that was changed in the file system to disk, names of files included.

        Returns
        -------
        bool
            False if that would not be sure, so that nothing was done: each file has to be synced by itself.

        Raises
        ------
        OSError
            If anything could not be written since the block was entered, whoever wrote it.
        """
        call = _syncfs()
        if self._descriptor < 0 or call is None:
            return False
        if call(self._descriptor):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(self._directory))
        return True


@cache
def _syncfs() -> Callable[[int], int] | None:
    """Return the call, if this system has it, and it reports errors."""
    system = os.uname()
    kernel = re.match(r"(\d+)\.(\d+)", system.release)
    if system.sysname != "Linux" or kernel is None or (int(kernel[1]), int(kernel[2])) < _FIRST_KERNEL:
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        return None
    call.restype = ctypes.c_int
    call.argtypes = (ctypes.c_int,)
    return call  # type: ignore[no-any-return]  # a function of the C library


def _is_reporting(device: int) -> bool:
    """Return whether a device has a file system of a kind that reports errors."""
    named = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    kinds = {line.partition(" - ")[2].partition(" ")[0] for line in lines if line.split(" ", 3)[2:3] == [named]}
    return bool(kinds) and kinds <= _KINDS

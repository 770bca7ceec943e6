# SPDX-License-Identifier: Apache-2.0
"""What was read in queue and index files, kept for later questions as long as the files are sure to be the same.

A file is the same if its path leads to the same inode with the same size and the same times of its last modification
and of its last change. Three things may change a file and leave these as they are, and each is ruled out (ADR 0026):

- A change in the same tick of the clock, or by a process that has mapped the file: the first write to a page sets the
  times, and further ones do not, until the system has written the page to the disk. So a file has to be at rest.
- A broker that runs, in the files to which it appends. They are not kept while the store's lock is held.
- A broker that ran in between: it writes its lock file when it starts, so that the times of that file are compared.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import numpy as np

from store_core.files.clock import SystemClock
from store_core.files.store_lock import LOCK_FILE, is_lock_held

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.clock import Clock
    from store_core.store.read.read_options import ReadOptions

__all__ = ["PROOFS", "FileState", "Proofs", "ProofsOfStore", "proofs_of"]

_REST_NS: Final = 120 * 10**9
"""How long a file has to be unchanged. Linux writes changed pages to the disk after 35 seconds, by default."""

_LARGEST: Final = 2 << 20
"""Bytes of numbers that are kept at once."""

_NS_PER_MS: Final = 10**6
_MOST: Final = 64 << 20
_FILE_SIZE: Final = 2 << 10
"""Bytes that what is kept of a file takes, about, whatever is in the file."""


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


T = TypeVar("T")


class _Kept(NamedTuple, Generic[T]):
    """What was found, in which state file and lock file were, and about how many bytes it takes."""

    found: T
    state: FileState | None = None
    lock: FileState | None = None
    size: int = _FILE_SIZE


class Proofs:
    """What a process keeps of files; it may be used by several threads.

    Parameters
    ----------
    clock : Clock
    most : int
        How many bytes, about; when it has as many, it begins anew.
    """

    def __init__(self, clock: Clock, most: int = _MOST) -> None:
        self.clock = clock
        self._most = most
        self._size = 0
        self._kept: dict[Hashable, _Kept[object]] = {}

    def get(self, name: Hashable) -> _Kept[object] | None:
        """Return what is kept under a name."""
        return self._kept.get(name)

    def put(self, name: Hashable, kept: _Kept[object]) -> None:
        """Keep it, in place of what is kept under that name."""
        before = self._kept.get(name)
        self._size += kept.size - (0 if before is None else before.size)
        if self._size > self._most:
            self.forget()
            self._size = kept.size
        self._kept[name] = kept

    def forget(self) -> None:
        """Forget everything."""
        self._kept, self._size = {}, 0


PROOFS: Final = Proofs(SystemClock())
"""Those of this process."""


class ProofsOfStore:
    """What is kept of a store's files, as of one question: time and lock are looked at when it is made.

    Parameters
    ----------
    root : Path
    proofs : Proofs or None
        None to keep nothing.
    """

    def __init__(self, root: Path, proofs: Proofs | None) -> None:
        self._proofs = proofs
        if proofs is None:
            return
        self._lock = _state(root / LOCK_FILE)
        self._is_live = is_lock_held(root)
        self._latest = proofs.clock.now_ms() * _NS_PER_MS - _REST_NS

    def recall(self, kind: type[T], name: Hashable, state: FileState, *, is_last: bool) -> T | None:
        """Return what was found in a file; None if that is not known, or the file may have changed.

        Parameters
        ----------
        kind : type
            Of what was found.
        name : hashable
            The file's path, and on what else the finding depends.
        state : FileState
            Of the file, now.
        is_last : bool
            Whether a broker may append to it.
        """
        kept = None if self._proofs is None else self._proofs.get(name)
        if kept is None or not self._is_at_rest(state, is_last=is_last):
            return None
        is_same = kept.state == state and (not is_last or kept.lock == self._lock)
        return kept.found if is_same and isinstance(kept.found, kind) else None

    def keep(self, name: Hashable, state: FileState, found: object, *, is_last: bool) -> None:
        """Keep what was found in a file whose state was looked at before it was read; parameters as of `recall`."""
        if self._proofs is not None and self._is_at_rest(state, is_last=is_last):
            self._proofs.put(name, _Kept(found, state, self._lock))

    def following(
        self, sums: Hashable, find: Callable[[], npt.NDArray[np.int64] | None]
    ) -> npt.NDArray[np.int64] | None:
        """Return what follows from sets of numbers whose sums are known, and keep it unless it is None or large.

        It is the same wherever the sums are, so that the state of files does not matter.

        Parameters
        ----------
        sums : hashable
            What follows, and the sums over a mixing function of all that it depends on.
        find : callable
            Finds it.
        """
        kept = None if self._proofs is None else self._proofs.get(sums)
        if kept is not None and isinstance(kept.found, np.ndarray):
            return kept.found
        found = find()
        if self._proofs is not None and found is not None and found.nbytes <= _LARGEST:
            self._proofs.put(sums, _Kept(found, size=found.nbytes + _FILE_SIZE))
        return found

    def _is_at_rest(self, state: FileState, *, is_last: bool) -> bool:
        return max(state.modified_ns, state.changed_ns) <= self._latest and not (is_last and self._is_live)


def proofs_of(root: Path, options: ReadOptions) -> ProofsOfStore:
    """Return what this process keeps of a store, if the options want that."""
    return ProofsOfStore(root, None if options.remember_proofs == "never" else PROOFS)


def _state(path: Path) -> FileState | None:
    try:
        return FileState.of(os.stat(path))  # noqa: PTH116 -- one of many
    except OSError:
        return None

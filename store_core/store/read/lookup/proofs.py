# SPDX-License-Identifier: Apache-2.0
"""What was found out about a store, kept for later questions as long as its files are sure to be the same.

A file is the same if its path leads to the same inode with the same size and the same times of its last modification
and of its last change. Three things may change a file and leave these as they are, and each is ruled out (ADR 0026):

- A change in the same tick of the clock, or by a process that has mapped the file: the first write to a page sets the
  times, and further ones do not, until the system has written the page to the disk. So a file has to be at rest.
- A broker that runs, in the files to which it appends. They are not kept while the store's lock is held.
- A broker that ran in between: it writes its lock file when it starts, so that the times of that file are compared.

What follows from a single file is kept with the state of that file. What follows from all of them, the log included,
is a fact, and kept with a look at the whole store.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar, cast

import numpy as np

from store_core.files.clock import SystemClock
from store_core.files.store_lock import LOCK_FILE, is_lock_held
from store_core.store.read.lookup.file_state import FileState
from store_core.store.read.lookup.resting_store import RestingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from store_core.files.clock import Clock
    from store_core.files.segment_source import Segment

__all__ = ["PROOFS", "Kept", "Proofs", "ProofsOfStore"]

_REST_NS: Final = 120 * 10**9
"""How long a file has to be unchanged. Linux writes changed pages to the disk after 35 seconds, by default."""

_LARGEST: Final = 2 << 20
"""Bytes of numbers that are kept at once."""

_HEAVIEST: Final = 16 << 20
"""Bytes of memory of the largest fact that is kept."""

_NS_PER_MS: Final = 10**6
_MOST: Final = 64 << 20
_FILE_SIZE: Final = 2 << 10
"""Bytes that what is kept of a file takes, about, whatever is in the file."""


T = TypeVar("T")


class Kept(NamedTuple, Generic[T]):
    """What was found, in which state file, lock file or whole store were, and about how many bytes it takes."""

    found: T
    state: FileState | None = None
    lock: FileState | None = None
    size: int = _FILE_SIZE
    store: RestingStore | None = None


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
        self._kept: dict[Hashable, Kept[object]] = {}
        self._names: dict[str, dict[Hashable, None]] = {}
        self._changes: dict[str, int] = {}
        self._counter = count(1)

    def get(self, name: Hashable) -> Kept[object] | None:
        """Return what is kept under a name."""
        return self._kept.get(name)

    def put(self, name: Hashable, kept: Kept[object]) -> None:
        """Keep it, in place of what is kept under that name."""
        before = self._kept.get(name)
        self._size += kept.size - (0 if before is None else before.size)
        if self._size > self._most:
            self.forget()
            self._size = kept.size
        self._kept[name] = kept

    def note(self, root: str, name: Hashable, *, is_new: bool = True) -> None:
        """Take note that what is kept under a name is of a store; `is_new` unless a file has it."""
        self._names.setdefault(root, {})[name] = None
        if is_new:
            self._changes[root] = next(self._counter)

    def of_store(self, root: str) -> dict[Hashable, Kept[object]]:
        """Return what is kept of a store."""
        found = {name: self.get(name) for name in list(self._names.get(root, ()))}
        return {name: kept for name, kept in found.items() if kept is not None}

    def change_of(self, root: str) -> int:
        """Return a number that grows whenever something new is kept of a store; 0 if nothing was."""
        return self._changes.get(root, 0)

    def forget(self) -> None:
        """Forget everything."""
        self._kept, self._size, self._names, self._changes = {}, 0, {}, {}


PROOFS: Final = Proofs(SystemClock())
"""Those of this process."""


class ProofsOfStore:
    """What is kept of a store's files, as of one question: time and lock are looked at when it is made.

    Parameters
    ----------
    root : Path
    proofs : Proofs or None
        None to keep nothing.
    segments : sequence of Segment
        All of the log; without them no facts are kept.

    Attributes
    ----------
    paths : tuple of str
        Of the segments.
    """

    def __init__(self, root: Path, proofs: Proofs | None, segments: Sequence[Segment] = ()) -> None:
        self._root = root
        self._proofs = proofs
        self._store: RestingStore | None = None
        self.paths = tuple(segment.path for segment in segments)
        if proofs is None:
            return
        self._lock = FileState.at(str(root / LOCK_FILE))
        self._is_live = is_lock_held(root)
        self._latest = proofs.clock.now_ms() * _NS_PER_MS - _REST_NS
        if segments and not self._is_live:
            self._store = self._at_rest(proofs, segments)

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
            self._put(name, Kept(found, state, self._lock))

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
            self._put(sums, Kept(found, size=found.nbytes + _FILE_SIZE))
        return found

    def fact(self, name: Hashable, find: Callable[[], T], weigh: Callable[[T], int] | None = None) -> T:
        """Return what follows from the files of the store, the log included; keep it if all of them are at rest.

        Parameters
        ----------
        name : hashable
            What it is, and all on which it depends beside the files; what is found has always the same type.
        find : callable
            Finds it. What it raises is not kept.
        weigh : callable, optional
            Returns how many bytes of memory it takes, about, if they may be many.
        """
        proofs = self._proofs
        if proofs is None or self._store is None:
            return find()
        named = str(self._root), name
        kept = proofs.get(named)
        if kept is not None and kept.store is self._store:
            return cast("T", kept.found)
        found = find()
        size = _FILE_SIZE if weigh is None else _FILE_SIZE + weigh(found)
        if size <= _HEAVIEST:
            self._put(named, Kept(found, size=size, store=self._store))
        return found

    def knows(self, name: Hashable) -> bool:
        """Return whether a fact is kept."""
        kept = None if self._proofs is None or self._store is None else self._proofs.get((str(self._root), name))
        return kept is not None and kept.store is self._store

    def _put(self, name: Hashable, kept: Kept[object]) -> None:
        """Keep something new."""
        if self._proofs is not None:
            self._proofs.put(name, kept)
            self._proofs.note(str(self._root), name, is_new=self._is_lasting(name, kept))

    def _is_lasting(self, name: Hashable, kept: Kept[object]) -> bool:
        """Return whether another process can use what is kept under a name."""
        del name, kept
        return True

    def _at_rest(self, proofs: Proofs, segments: Sequence[Segment]) -> RestingStore | None:
        """Look at the store; None if anything in it may be changing."""
        name = "store", str(self._root), self.paths
        kept = proofs.get(name)
        found = kept.found if kept is not None and isinstance(kept.found, RestingStore) else None
        if found is None or not found.is_same():
            found = _look(self._root, segments)
            if found is not None:
                proofs.put(name, Kept(found, size=found.size))
        return found if found is not None and found.changed_ns <= self._latest else None

    def _is_at_rest(self, state: FileState, *, is_last: bool) -> bool:
        return max(state.modified_ns, state.changed_ns) <= self._latest and not (is_last and self._is_live)


def _look(root: Path, segments: Sequence[Segment]) -> RestingStore | None:
    try:
        return RestingStore.of(root, segments)
    except OSError:
        return None

# SPDX-License-Identifier: Apache-2.0
"""Proofs in a file, on request: what one process proved of a store at rest, for the next one (ADR 0032).

A file holds what a process keeps, with the states of the files that it follows from. A process that reads it keeps the
same: whether it still holds is found out for each question, as for what the process proved itself.

It has two lines of JSON. The second has what queue files say, which is most of it, and which few questions need to a
store whose files are all as they were: it is read when one does.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from store_core.files.remote.url_path import UrlPath
from store_core.store.read.lookup.file_state import FileState
from store_core.store.read.lookup.index_survey import IndexSurvey
from store_core.store.read.lookup.plain_proofs import (
    FACTS,
    NotPlainError,
    array_of,
    index_survey_of,
    is_name,
    name_of,
    plain_array,
    plain_index_survey,
    plain_survey,
    state_of,
    survey_of,
)
from store_core.store.read.lookup.proof_file import UnusableProofsError, read_proof_file, write_proof_file
from store_core.store.read.lookup.proofs import PROOFS, Kept, Proofs, ProofsOfStore
from store_core.store.read.lookup.resting_store import RestingStore
from store_core.store.read.lookup.survey import FileSurvey

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.store.read.lookup.plain_proofs import Plain
    from store_core.store.read.read_options import ReadOptions

__all__ = ["FiledProofs", "proofs_of"]

_READERS: Final[dict[str, Callable[[Plain], object]]] = {
    "queue": survey_of,
    "index": index_survey_of,
    "numbers": array_of,
}
_LATER: Final = frozenset({"queue", "numbers"})
"""What is in the second line."""

_NAME_LENGTH: Final = 32

T = TypeVar("T")


def proofs_of(root: Path, options: ReadOptions, segments: Sequence[Segment]) -> FiledProofs:
    """Return what this process, or a file that the options name, keeps of a store, if the options want that.

    Nothing is kept of a store on another machine, whose files can't be recognised as on this one. That the file is
    outside of the store was checked when the read was planned.
    """
    is_elsewhere = isinstance(root, UrlPath)
    proofs = None if options.remember_proofs == "never" or is_elsewhere else PROOFS
    return FiledProofs(root, proofs, segments, None if options.proofs is None else Path(options.proofs))


class FiledProofs(ProofsOfStore):
    """What is kept of a store's files, with a file of it in a directory.

    Parameters
    ----------
    root, proofs, segments
        As of `ProofsOfStore`.
    directory : Path or None
        None for no file.

    Attributes
    ----------
    notes : list of str
        Why the file is not used, or not written.
    """

    def __init__(
        self, root: Path, proofs: Proofs | None, segments: Sequence[Segment] = (), directory: Path | None = None
    ) -> None:
        self.notes: list[str] = []
        self._path: Path | None = None
        if directory is not None and proofs is not None:
            digest = hashlib.sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()
            self._path = directory / f"{digest[:_NAME_LENGTH]}.proofs"
            self._load(proofs, self._path, root)
        super().__init__(root, proofs, segments)

    def recall(self, kind: type[T], name: Hashable, state: FileState, *, is_last: bool) -> T | None:
        """Return what was found in a file, as `ProofsOfStore.recall` does."""
        known = super().recall(kind, name, state, is_last=is_last)
        return super().recall(kind, name, state, is_last=is_last) if known is None and self._load_rest() else known

    def keep(self, name: Hashable, state: FileState, found: object, *, is_last: bool) -> None:
        """Keep what was found in a file, as `ProofsOfStore.keep` does: what was filed earlier must not replace it."""
        self._load_rest()
        super().keep(name, state, found, is_last=is_last)

    def following(
        self, sums: Hashable, find: Callable[[], npt.NDArray[np.int64] | None]
    ) -> npt.NDArray[np.int64] | None:
        """Return what follows from sets of numbers, as `ProofsOfStore.following` does."""
        if self._proofs is not None and self._proofs.get(sums) is None:
            self._load_rest()
        return super().following(sums, find)

    def save(self) -> None:
        """Write the file, if there is to be one, and anything was found out that is not in it."""
        proofs, path, root = self._proofs, self._path, str(self._root)
        if path is None or proofs is None:
            return
        change, state = proofs.change_of(root), FileState.at(str(path))
        known = proofs.get(("file", path))
        if known is not None and known.state == state is not None and known.found == change:
            return
        self._load_rest()
        first, rest = self._plain(proofs.of_store(root))
        try:
            write_proof_file(path, b"%b\n%b" % (json.dumps(first).encode(), json.dumps(rest).encode()))
        except (OSError, UnusableProofsError) as error:
            self.notes.append(f"no proofs are written to {path}: {error}")
        else:
            proofs.put(("file", path), Kept(change, FileState.at(str(path))))

    # ---------------------------------------------------------------------------------------------------------- reading

    def _load(self, proofs: Proofs, path: Path, root: Path) -> None:
        """Keep what the file has, unless this process read or wrote it as it is."""
        known, state = proofs.get(("file", path)), FileState.at(str(path))
        if state is None or (known is not None and known.state == state):
            return
        own = proofs.change_of(str(root))
        try:
            body = read_proof_file(path)
        except UnusableProofsError as error:
            self.notes.append(f"the proofs in {path} are not used: {error}")
            return
        if body is None:
            return
        first, _, rest = body.partition(b"\n")
        if self._is_loaded(lambda: _load(proofs, json.loads(first), root)):
            proofs.put(_rest_of(root), Kept(rest, size=len(rest)))
            proofs.put(("file", path), Kept(-1 if own else 0, state))

    def _load_rest(self) -> bool:
        """Keep what the file has of queue files, unless this process has read that; return whether anything is new."""
        proofs, name = self._proofs, _rest_of(self._root)
        kept = None if proofs is None else proofs.get(name)
        if proofs is None or kept is None or not isinstance(kept.found, bytes):
            return False
        rest = kept.found
        proofs.put(name, Kept(None))
        return self._is_loaded(lambda: _load_files(proofs, json.loads(rest), self._root))

    def _is_loaded(self, load: Callable[[], None]) -> bool:
        """Keep what is in the file, and return whether it is what was written; add a note if not."""
        try:
            load()
        except (ValueError, TypeError, NotPlainError, RecursionError, OverflowError):
            self.notes.append(f"the proofs in {self._path} are not used: they are not what was written")
            return False
        return True

    # ---------------------------------------------------------------------------------------------------------- writing

    def _is_lasting(self, name: Hashable, kept: Kept[object]) -> bool:
        return kept.store is None or _fact_of(name) is not None

    def _plain(self, known: Mapping[Hashable, Kept[object]]) -> tuple[Plain, Plain]:
        """Return what is kept of the store as two values of JSON, without what belongs to an earlier look."""
        files: dict[bool, list[Plain]] = {False: [], True: []}
        facts = []
        for name, kept in known.items():
            if kept.store is not None:
                fact = _fact_of(name)
                if kept.store is self._store and fact is not None:
                    facts.append([fact, kept.found])
                continue
            kind, value = _plain_found(kept.found)
            if kind and is_name(name):
                files[kind in _LATER].append([kind, name, kept.state, kept.lock, kept.size, value])
        store = None if self._store is None else self._store.states
        paths = [] if self._store is None else self.paths
        first = {"root": str(self._root), "files": files[False], "store": store, "segments": paths, "facts": facts}
        return first, files[True]


def _rest_of(root: Path) -> Hashable:
    """Return the name under which the second line of a store's file is kept until something needs it."""
    return "rest", str(root)


def _plain_found(found: object) -> tuple[str, Plain]:
    if isinstance(found, FileSurvey):
        return "queue", plain_survey(found)
    if isinstance(found, IndexSurvey):
        return "index", plain_index_survey(found)
    return ("numbers", plain_array(found)) if isinstance(found, np.ndarray) else ("", None)


def _fact_of(name: Hashable) -> Hashable | None:
    """Return the name of a fact in its store, if it can be written; None if not."""
    fact = name[1] if isinstance(name, tuple) and len(name) == 2 else None  # noqa: PLR2004 -- as `ProofsOfStore.fact` names it
    return fact if isinstance(fact, tuple) and fact[0] in FACTS and is_name(fact) else None


def _load(proofs: Proofs, plain: Plain, root: Path) -> None:
    """Keep what the first line of a file has."""
    if not isinstance(plain, dict) or plain.get("root") != str(root):
        raise NotPlainError
    _load_files(proofs, plain.get("files"), root)
    if plain.get("store") is not None:
        _load_facts(proofs, plain, root)


def _load_files(proofs: Proofs, plain: Plain, root: Path) -> None:
    for kind, name, state, lock, size, value in _rows(plain, 6):
        reader = _READERS.get(kind) if isinstance(kind, str) else None
        if reader is None or not isinstance(size, int) or size < 0:
            raise NotPlainError
        kept = Kept(reader(value), state_of(state), state_of(lock), size)
        called = name_of(name)
        known = proofs.get(called)
        if known is None or known.state != kept.state:
            proofs.put(called, kept)
            proofs.note(str(root), called, is_new=False)


def _load_facts(proofs: Proofs, plain: dict[str, Plain], root: Path) -> None:
    states = tuple((str(path), state_of(state)) for path, state in _rows(plain["store"], 2))
    name = "store", str(root), name_of(plain.get("segments"))
    known = proofs.get(name)
    store = known.found if known is not None and isinstance(known.found, RestingStore) else None
    if store is None or store.states != states:
        store = RestingStore.of_states(states)
        proofs.put(name, Kept(store, size=store.size))
    for row in _rows(plain.get("facts"), 2):
        fact = name_of(row[0])
        if not isinstance(fact, tuple) or fact[0] not in FACTS:
            raise NotPlainError
        called = str(root), fact
        known = proofs.get(called)
        if known is None or known.store is not store:
            proofs.put(called, Kept(FACTS[fact[0]](row[1]), size=len(json.dumps(row)), store=store))
            proofs.note(str(root), called, is_new=False)


def _rows(value: Plain, count: int) -> list[list[Plain]]:
    if not isinstance(value, list) or any(not isinstance(row, list) or len(row) != count for row in value):
        raise NotPlainError
    return value

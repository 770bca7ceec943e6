# SPDX-License-Identifier: Apache-2.0
"""A RocksDB of a store, read without touching it, by a process of its own (ADR 0022)."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Final, Self

import numpy as np

from store_core.errors import CorruptDatabaseError, StoreAccessError, StoreNotFoundError, UnsupportedStoreError
from store_core.files.access import explained_access
from store_core.files.rocksdb_process import FRAME, read_frame, write_frame
from store_core.files.url_path import UrlPath

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt


_log: Final = logging.getLogger("store_core")

_LIBRARY: Final = "rocksdict"
_INSTALL: Final = f"pip install '{_LIBRARY}>=0.3.29'"

_CURRENT: Final = "CURRENT"
_NAMES_MANIFEST: Final = re.compile(rb"(MANIFEST-[0-9]+)\n")
_LINKED: Final = re.compile(r"MANIFEST-[0-9]+|OPTIONS-[0-9]+|IDENTITY|[0-9]+\.(sst|ldb|log|blob)")
"""Files that belong to a database; ``LOCK``, the library's own log, and directories of topics do not."""

_TABLE: Final = re.compile(r"[0-9]+\.(sst|ldb)")
_TRIES: Final = 5
"""How often a database that changes while it is being opened is opened again."""

_START: Final = (
    "import json, sys\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    "from store_core.files.rocksdb_process import serve\n"
    "serve(sys.argv[2])\n"
)
_MOST_SAID: Final = 500
_SILENCE: Final = 120.0
"""Seconds after which a process that says nothing is taken to hang: an answer is some mebibytes, and takes a second."""

_PIPE: Final = 1 << 20
_PATIENCE: Final = 10.0
"""Seconds that the process is given to end on its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Entries of a database, in order of their keys.

    * `key_sizes`, `value_sizes`: uint32, shape (n,).
    * `keys`, `values`: One after another.
    """

    key_sizes: npt.NDArray[np.uint32]
    value_sizes: npt.NDArray[np.uint32]
    keys: bytes
    values: bytes

    @classmethod
    def parse(cls, payload: bytes) -> Entries:
        """Take an answer of `store_core.files.rocksdb_process` apart."""
        count = int(np.frombuffer(payload, "<u4", 1)[0])
        sizes = np.frombuffer(payload, "<u4", 2 * count, 4)
        start = 4 + sizes.nbytes
        middle = start + int(sizes[:count].sum())
        return cls(sizes[:count], sizes[count:], payload[start:middle], payload[middle:])

    @property
    def count(self) -> int:
        """Number of entries."""
        return len(self.key_sizes)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of each entry."""
        at = to = 0
        for key_size, value_size in zip(self.key_sizes.tolist(), self.value_sizes.tolist(), strict=True):
            yield self.keys[at : at + key_size], self.values[to : to + value_size]
            at, to = at + key_size, to + value_size

    @property
    def last_key(self) -> bytes:
        """The key of the last entry."""
        return self.keys[len(self.keys) - int(self.key_sizes[-1]) :]


class RocksdbReader:
    """An open RocksDB; made by `open`.

    What its broker has not flushed is seen as far as it is in the database's own log. What a broker writes later is not
    seen, and what it deletes later stays readable.

    * `links`: A directory of links to the database's files, which is needed only until the database is open.

    * `tables`: Names of the table files that the database consists of.
    """

    def __init__(self, directory: Path, links: Path) -> None:
        self.directory = directory
        self._links = links
        self._lock = Lock()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by `close`
        self._process = subprocess.Popen(  # noqa: S603 -- this interpreter, and a program of this package
            [sys.executable, "-I", "-c", _START, json.dumps(sys.path), str(links)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError("both are pipes")
        self._requests, self._answers = self._process.stdin, _Answers(self._process.stdout)
        try:
            description = json.loads(self._answer())
        except BaseException:
            self.close()
            raise
        self.families = tuple(description["families"])
        self.tables = frozenset(description["tables"])

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Open a database; nothing in its directory is changed, and no lock is taken."""
        if isinstance(directory, UrlPath):
            raise UnsupportedStoreError(
                f"{directory} is a RocksDB, which is read from a local disk. Copy the store there, or mount it, and "
                f"give that path; its messages are read by their URL"
            )
        if find_spec(_LIBRARY) is None:
            raise UnsupportedStoreError(
                f"{directory} is a RocksDB: expected the package {_LIBRARY}, which reads it, found none. Nothing was "
                f"changed. Install it: {_INSTALL}, on the workers as well"
            )
        for _ in range(_TRIES - 1):
            names = _names(directory)
            try:
                return cls._open(directory)
            except CorruptDatabaseError:
                if names == _names(directory):
                    raise
        return cls._open(directory)

    @classmethod
    def _open(cls, directory: Path) -> Self:
        with explained_access(directory), tempfile.TemporaryDirectory(prefix="commitlog-rocksdb-") as links:
            _link_files(directory, Path(links))
            opened = cls(directory, Path(links))
        tables = {name for name in _names(directory) if _TABLE.fullmatch(name)}
        if tables and not opened.tables:
            opened.close()
            raise _damaged(directory, f"a manifest that names its tables, found {min(tables)} and none that is named")
        if tables - opened.tables:
            _log.warning(
                "the manifest of the RocksDB %s does not name %s: obsolete or just being written, or the copy of the "
                "manifest is not whole",
                directory,
                ", ".join(sorted(tables - opened.tables)),
            )
        return opened

    def close(self) -> None:
        """End the process."""
        with suppress(BrokenPipeError):
            self._requests.close()
        self._answers.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- reading

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key; None if there is none."""
        found = self._scan(family, key, key + b"\0", 1)
        return found.values if found.count else None

    def entries(self, family: str, lower: bytes = b"", upper: bytes = b"", limit: int = 2**31) -> Iterator[Entries]:
        """Yield the entries from a key on, up to but not including another, in pieces of at most some mebibytes.

        * `lower`, `upper`: An empty `upper` stands for the end.
        """
        while limit > 0:
            found = self._scan(family, lower, upper, limit)
            if not found.count:
                return
            yield found
            lower, limit = found.last_key + b"\0", limit - found.count

    def _scan(self, family: str, lower: bytes, upper: bytes, limit: int) -> Entries:
        if family not in self.families:
            raise _damaged(self.directory, f"a column family {family!r}, found {', '.join(self.families)}")
        request = {"family": family, "lower": lower.hex(), "upper": upper.hex(), "limit": limit}
        with self._lock:
            with suppress(BrokenPipeError):  # it has ended, as `_answer` finds out
                write_frame(self._requests, FRAME["request"], json.dumps(request).encode())
            return Entries.parse(self._answer())

    def _answer(self) -> bytes:
        try:
            answer = read_frame(self._answers)
        except TimeoutError:
            self._process.kill()
            found = f"its process silent for {_SILENCE:g} seconds"
            raise _damaged(self.directory, f"files that {_LIBRARY} can read, found {found}") from None
        if answer is None:
            raise self._ended()
        kind, payload = answer
        if kind == FRAME["found"]:
            return payload
        text = " ".join(payload.decode("utf-8", "replace").replace(str(self._links), str(self.directory)).split())
        if "Permission denied" in text:
            raise StoreAccessError(f"{self.directory}: expected permission to read its files, found: {text}")
        raise _damaged(self.directory, f"files that belong together, found: {text}")

    def _ended(self) -> CorruptDatabaseError:
        """Return the error that the process has ended, as when the library aborts."""
        code = self._process.wait()
        self._said.seek(0)
        said = self._said.read(_MOST_SAID).decode("utf-8", "replace").strip()
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        return _damaged(
            self.directory, f"files that {_LIBRARY} can read, found some at which its process ended {how}: {said}"
        )


class _Answers:
    """What a process writes, as long as it does not fall silent."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._poll = select.poll()
        self._poll.register(stream, select.POLLIN)

    def read(self, size: int) -> bytes:
        """Return so many bytes, or fewer where the stream ends; raise TimeoutError if nothing comes for long."""
        pieces: list[bytes] = []
        while size > 0:
            if not self._poll.poll(_SILENCE * 1000):
                raise TimeoutError
            piece = os.read(self._stream.fileno(), min(size, _PIPE))
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def close(self) -> None:
        self._stream.close()


def _names(directory: Path) -> list[str]:
    with explained_access(directory):
        return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def _link_files(directory: Path, links: Path) -> None:
    """Fill a directory with links to a database's files, and check that there is what names the others."""
    current = directory / _CURRENT
    try:
        with os.scandir(directory) as entries:
            # A named pipe with the name of a file would be waited for, forever.
            names = [entry.name for entry in entries if _LINKED.fullmatch(entry.name) and entry.is_file()]
        named = current.read_bytes()[:_MOST_SAID] if current.is_file() else None
    except (FileNotFoundError, NotADirectoryError):
        names, named = [], None
    if named is None and not names:
        raise StoreNotFoundError(f"there is no RocksDB in {directory}: expected {_CURRENT}, and the files it names")
    manifest = _NAMES_MANIFEST.fullmatch(named or b"")
    if manifest is None:
        found = "none" if named is None else f"one with {named[:60]!r}"
        raise _damaged(directory, f"a file {_CURRENT} that names a manifest, found {found}")
    if manifest[1].decode() not in names:
        raise _damaged(directory, f"the file {manifest[1].decode()}, which {_CURRENT} names, found none")
    (links / _CURRENT).write_bytes(named or b"")
    for name in names:
        (links / name).symlink_to(os.path.abspath(directory / name))  # noqa: PTH100 -- resolve() would follow links


def _damaged(directory: Path, expected_and_found: str) -> CorruptDatabaseError:
    return CorruptDatabaseError(
        f"the RocksDB {directory} is damaged, or not all of it was copied: expected {expected_and_found}. Nothing was "
        f"changed. Copy all of its files again while no broker writes it; or do without it: the log alone can be read, "
        f"and queues can be made from it (commitlog rebuild queues STORE --output DIRECTORY)"
    )

# SPDX-License-Identifier: Apache-2.0
"""The ledger of an export: its entries, and its steps.

An export becomes visible in these steps, each on disk before the next one begins:

1. Files are staged and synced, under names of their own.
2. The entry is written as ``NUMBER.pending``: from here on the export will be there, whatever happens.
3. Each file is renamed to its partition.
4. The entry is renamed to ``NUMBER.json``.

An export into a table (`store_core.store.export.lake_table`) becomes visible by one append to it in place of step 3;
then the staged files are deleted.

A run that finds a pending entry finishes steps 3 and 4 before anything else; one that finds staged files without it
deletes them. So after a crash at any moment each message is exported once, or will be by the next run.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from store_core.errors import CorruptRecordError, InvalidOptionError, StoreError
from store_core.files.file_system import FileSystem, write_file
from store_core.store.export.lake_files import LakeFile, SegmentTotals
from store_core.store.export.lake_table import LakeTable, TableCommit, TableRows
from store_core.store.read.follow.log_segments import LogPosition

if TYPE_CHECKING:
    from pathlib import Path


LEDGER: Final = "_ledger"
STAGED: Final = "_staged"
"""Directories below the target; readers of a lake ignore names that begin with an underscore."""

_SCHEMA: Final = "commitlog-export-entry/1"
_ENTRY: Final = re.compile(r"(\d{8})\.json")
_PENDING: Final = ".pending"
_LARGEST: Final = 1 << 30
_SAFE_PATH: Final = re.compile(r"topic=[^/]*/day=[^/]+/[0-9-]+\.parquet")
_SAFE_NAME: Final = re.compile(r"[0-9a-f]{32}\.parquet")


@dataclass(frozen=True, slots=True)
class ExportEntry:
    """One export.

    * `begin`, `end`: What was exported.
    * `damaged_ranges`, `damaged_bytes`: What is no message, and so is in no file.
    """

    number: int  # 1 for the first one
    begin: LogPosition
    end: LogPosition
    topics: tuple[str, ...]  # the only topics that are exported; empty for all
    segments: tuple[SegmentTotals, ...]
    files: tuple[LakeFile, ...]
    damaged_ranges: int = 0
    damaged_bytes: int = 0
    lost_bytes: int = 0  # bytes of the log between the export before and this one that were gone
    previous: str = ""  # SHA-256 of the entry before, in hexadecimal digits; empty for the first
    table: str = ""  # format and name of the table that has the messages; empty for Parquet files below the target

    @property
    def text(self) -> str:
        """The entry as JSON."""
        values = {
            "schema": _SCHEMA,
            "number": self.number,
            "begin": self.begin.as_json(),
            "end": self.end.as_json(),
            "topics": list(self.topics),
            "segments": [each.as_json() for each in self.segments],
            "files": [each.as_json() for each in self.files],
            "damaged_ranges": self.damaged_ranges,
            "damaged_bytes": self.damaged_bytes,
            "lost_bytes": self.lost_bytes,
            "previous": self.previous,
            **({"table": self.table} if self.table else {}),
        }
        return json.dumps(values, indent=1) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 of the text, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @classmethod
    def parse(cls, text: str, path: Path) -> Self:
        """Return the entry of a text."""
        try:
            return cls._of(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, StoreError) as error:
            raise _error(path, f"an entry of {_SCHEMA}", f"{type(error).__name__}: {error}") from error

    @classmethod
    def _of(cls, values: dict[str, Any]) -> Self:
        if values.pop("schema") != _SCHEMA:
            raise ValueError("another schema")
        files = tuple(LakeFile(**each) for each in values.pop("files"))
        for each in files:
            if not (_SAFE_PATH.fullmatch(each.path) and _SAFE_NAME.fullmatch(each.staged)):
                raise ValueError(f"a file that no export makes: {each.path!r}")
        return cls(
            begin=LogPosition.from_json(values.pop("begin")),
            end=LogPosition.from_json(values.pop("end")),
            topics=tuple(map(str, values.pop("topics"))),
            segments=tuple(SegmentTotals.from_json(each) for each in values.pop("segments")),
            files=files,
            **values,
        )


class ExportLedger:
    """The entries of a target.

    * `table`: Where exports go; by default they are Parquet files below the target.
    """

    def __init__(self, target: Path, file_system: FileSystem, table: LakeTable | None = None) -> None:
        self.target = target
        self.file_system = file_system
        self.table = table
        self.directory = target / LEDGER
        self.staged = target / STAGED

    def check_lake(self) -> None:
        """Refuse a ledger whose exports went elsewhere."""
        given = "" if self.table is None else self.table.name
        for entry in [*self.entries(), *self.pending()][:1]:
            if entry.table != given:
                kept, asked = (name or "Parquet files" for name in (entry.table, given))
                advice = "The format is given by --format; in a session by kind"
                raise InvalidOptionError(
                    f"into: expected {kept}, as in earlier exports into this directory, found {asked}. {advice}"
                )

    def is_begun(self) -> bool:
        """Return whether an export was begun: there is an entry, be it whole or not."""
        return any(_ENTRY.fullmatch(name) or name.endswith(_PENDING) for name in self.file_system.names(self.directory))

    def entries(self) -> tuple[ExportEntry, ...]:
        """Return all entries, in order."""
        found: list[ExportEntry] = []
        for name in self.file_system.names(self.directory):
            if _ENTRY.fullmatch(name):
                path = self.directory / name
                entry = ExportEntry.parse(self._read(path), path)
                expected = len(found) + 1, found[-1].digest if found else ""
                if (entry.number, entry.previous) != expected:
                    raise _error(path, f"entry {expected[0]} after {expected[1] or 'none'}", f"entry {entry.number}")
                found.append(entry)
        return tuple(found)

    def pending(self) -> tuple[ExportEntry, ...]:
        """Return what a run is making visible, or was when it died."""
        paths = [self.directory / name for name in self.file_system.names(self.directory) if name.endswith(_PENDING)]
        return tuple(ExportEntry.parse(self._read(path), path) for path in paths)

    def finish(self) -> None:
        """Finish the export that was pending when a run died, and delete what no export needs."""
        for entry in self.pending():
            self._publish(entry)
        self._remove_unneeded()

    def give_up(self) -> None:
        """Delete what a failed export staged, unless the next run can finish it; errors are left to that run."""
        with suppress(OSError):
            if not self.pending():
                self._remove_unneeded()

    def commit(self, entry: ExportEntry) -> None:
        """Make an export visible, whose files are staged and synced."""
        self.file_system.sync_directory(self.staged)
        pending = self._pending(entry.number)
        new = pending.with_suffix(".new")
        write_file(new, entry.text.encode(), self.file_system)
        self.file_system.rename(new, pending)
        self.file_system.sync_directory(self.directory)
        self._publish(entry)
        self._remove_staged()

    def _pending(self, number: int) -> Path:
        return self.directory / f"{number:08d}{_PENDING}"

    def _publish(self, entry: ExportEntry) -> None:
        """Make the messages visible, then the entry."""
        if self.table is None:
            self._rename(entry)
        elif entry.files:
            self.table.append(self._commit_of(entry))
        self.file_system.rename(self._pending(entry.number), self.directory / f"{entry.number:08d}.json")
        self.file_system.sync_directory(self.directory)

    def _rename(self, entry: ExportEntry) -> None:
        """Rename files to their partitions."""
        for each in entry.files:
            staged, path = self.staged / each.staged, self.target / each.path
            if self.file_system.status(staged) is not None:
                self.file_system.make_directories(path.parent)
                self.file_system.rename(staged, path)
            elif self.file_system.status(path) is None:
                raise _error(path, f"the file here, or {staged}", "neither")
        for directory in dict.fromkeys((self.target / each.path).parent for each in entry.files):
            self.file_system.sync_directory(directory)

    def _commit_of(self, entry: ExportEntry) -> TableCommit:
        first, rows = next(iter(self.entries()), entry), []
        for each in entry.files:
            staged = self.staged / each.staged
            if self.file_system.status(staged) is None:
                raise _error(staged, "the staged file of an export that is pending", "none")
            rows.append(TableRows(staged, *each.partition))
        begin, end = entry.begin.physical_offset, entry.end.physical_offset
        return TableCommit(first.digest, entry.number, begin, end, tuple(rows))

    def _remove_unneeded(self) -> None:
        self._remove_staged()
        for name in self.file_system.names(self.directory):
            if name.endswith(".new"):
                self.file_system.remove(self.directory / name)

    def _remove_staged(self) -> None:
        for name in self.file_system.names(self.staged):
            self.file_system.remove(self.staged / name)

    def _read(self, path: Path) -> str:
        file = self.file_system.open(path, writable=False)
        try:
            if file.size() > _LARGEST:
                raise _error(path, f"at most {_LARGEST} bytes", f"{file.size()} bytes")
            return file.read(file.size(), 0).decode()
        except UnicodeDecodeError as error:
            raise _error(path, "UTF-8", str(error)) from error
        finally:
            file.close()


def _error(path: Path, expected: str, found: str) -> CorruptRecordError:
    return CorruptRecordError(
        "the ledger of an export is damaged", str(path), 0, expected, found, b"",
        "Restore it from a backup, or export into another directory.",
    )  # fmt: skip

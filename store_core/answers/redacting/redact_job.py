# SPDX-License-Identifier: Apache-2.0
"""The parts of a redaction: ranges of the copy's log, whose records are rewritten in their places; and its files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from store_core.answers.redacting.redaction import RedactionError, redacted_record
from store_core.answers.scanning.message_scan import ScanCounts, told_apart
from store_core.files.file_system import OsFileSystem, write_all
from store_core.store.read.message_reader import read_range
from store_core.store.store_copy import digest_of_file, matches_in_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from store_core.answers.redacting.redaction import Redaction
    from store_core.files.file_system import OpenFile
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions

__all__ = ["MOST_ROWS", "REDACT_COLUMNS", "FileJob", "RedactJob", "Redacted", "SearchedFile"]

REDACT_COLUMNS: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "keys",
    "unique_key",
    "properties_string",
    "body",
    "sys_flag",
    "magic_code",
)
"""Columns that are read."""

MOST_ROWS: Final = 1000
"""Rows of a table of the report; all messages are counted."""

_NAMES: Final = ("topic", "queue_id", "queue_offset", "physical_offset")
_COMPRESSED: Final = 1

Row = dict[str, Any]


@dataclass(slots=True)
class Redacted:
    """What was done in a range, or would have to be done.

    Attributes
    ----------
    counts : ScanCounts
    messages, bytes, expanded : int
        Messages that were redacted, bytes of their bodies that were replaced, and how many of them were compressed.
    refused : int
        Messages that can't be redacted.
    chosen : set of str
        Topics of the redaction that have messages here, or its key if one has it.
    rows, refused_rows : list of dict
        The first of both.
    """

    counts: ScanCounts = field(default_factory=ScanCounts)
    messages: int = 0
    bytes: int = 0
    expanded: int = 0
    refused: int = 0
    chosen: set[str] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    refused_rows: list[Row] = field(default_factory=list)

    def join(self, other: Redacted) -> None:
        """Add what was done in a later range."""
        self.counts += other.counts
        for name in ("messages", "bytes", "expanded", "refused"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.chosen |= other.chosen
        self.rows = [*self.rows, *other.rows][:MOST_ROWS]
        self.refused_rows = [*self.refused_rows, *other.refused_rows][:MOST_ROWS]


@dataclass(frozen=True, slots=True)
class RedactJob:
    """Redacts the messages of each range of a copy; see `store_core.store.parts.Job`. Twice is as good as once.

    Attributes
    ----------
    ranges : tuple of ReadRange
        Of the copy.
    options : ReadOptions
    redaction : Redaction
    """

    ranges: tuple[ReadRange, ...]
    options: ReadOptions
    redaction: Redaction

    def plan(self) -> Sequence[ReadRange]:
        """Return the ranges."""
        return self.ranges

    def run(self, part: ReadRange) -> Redacted:
        """Redact the messages of a range."""
        done, file = Redacted(), OsFileSystem().open(Path(part.segment.path))
        try:
            for batch in read_range(part, self.options):
                messages, damage = told_apart(batch, part)
                done.counts += ScanCounts.of_messages(messages) + ScanCounts.of_damage(damage)
                for row in _rows(messages):
                    self._redact(row, file, part.segment.start_offset, done)
        finally:
            file.close()
        return done

    def merge(self, partials: Iterable[Redacted]) -> Redacted:
        """Add up what was done."""
        done = Redacted()
        for each in partials:
            done.join(each)
        return done

    def _redact(self, row: Row, file: OpenFile, start_offset: int, done: Redacted) -> None:
        place = {name: row[name] for name in _NAMES}
        chosen = self.redaction.chosen_by(row)
        if chosen is not None:
            done.chosen.add(chosen)
        position = row["physical_offset"] - start_offset
        try:
            body = self.redaction.body_of(row)
            if body is None:
                return
            record = redacted_record(file.read(row["store_size"], position), body)
        except RedactionError as error:
            done.join(Redacted(refused=1, refused_rows=[{**place, "reason": str(error)}]))
            return
        write_all(file, memoryview(record), position)
        replaced = sum(old != new for old, new in zip(row["body"], body, strict=True))
        was_compressed = bool(row["sys_flag"] & _COMPRESSED)
        shown = {**place, "bytes": replaced, "was_compressed": was_compressed}
        shown["digest"] = hashlib.sha256(record).hexdigest()
        done.join(Redacted(messages=1, bytes=replaced, expanded=was_compressed, rows=[shown]))


def _rows(messages: pa.RecordBatch) -> Iterator[Row]:
    columns = {name: messages.column(name).to_pylist() for name in REDACT_COLUMNS}
    columns["body"] = pc.fill_null(messages.column("body"), b"").to_pylist()
    return (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))


@dataclass(frozen=True, slots=True)
class SearchedFile:
    """A file of the copy.

    Attributes
    ----------
    path : str
        Below the root.
    size : int
    digest : str
        SHA-256, in hexadecimal digits.
    found : int or None
        Where in it the pattern was found.
    is_name : bool
        Whether it was found in its path.
    """

    path: str
    size: int
    digest: str
    found: int | None
    is_name: bool


@dataclass(frozen=True, slots=True)
class FileJob:
    """Searches and digests each file of a copy; see `store_core.store.parts.Job`.

    Attributes
    ----------
    root : Path
    names : tuple of str
        Paths below it.
    redaction : Redaction
    """

    root: Path
    names: tuple[str, ...]
    redaction: Redaction

    def plan(self) -> Sequence[str]:
        """Return the files."""
        return self.names

    def run(self, part: str) -> SearchedFile:
        """Search a file."""
        path, expression = self.root / part, self.redaction.expression
        found = matches_in_file(path, expression)
        is_name = expression.search(part.encode(errors="surrogateescape")) is not None
        return SearchedFile(part, path.stat().st_size, digest_of_file(path), found, is_name)

    def merge(self, files: Iterable[SearchedFile]) -> list[SearchedFile]:
        """Return the files."""
        return list(files)

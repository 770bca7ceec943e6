# SPDX-License-Identifier: Apache-2.0
"""Builds DLedger logs with plain `struct`, only from the format's description, as `tests.builders` does ordinary ones.

An entry is a head of 48 bytes and an ordinary record, whose physical offset is its own position.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.builders import FIRST_STORE_TIMESTAMP, Record

if TYPE_CHECKING:
    from pathlib import Path


HEAD_SIZE = 48

# Positions of fields in an entry, for tests that break them.
MAGIC_AT = 0
SIZE_AT = 4
INDEX_AT = 8
TERM_AT = 16
POSITION_AT = 24
BODY_LENGTH_AT = 44


class DLedgerLog:
    """A DLedger log in memory, of one or more files.

    * `start_offset`: Name of the first file; in a mixed store the end of the ordinary log.
    """

    def __init__(self, file_size: int = 4096, start_offset: int = 0) -> None:
        self.file_size = file_size
        self.start_offset = start_offset
        self.records: list[Record] = []
        self.entries: list[int] = []
        """Physical offsets of the entries."""
        self.indexes: list[tuple[int, int]] = []
        """Index and term of each entry."""
        self.data = bytearray()

    @property
    def end(self) -> int:
        """The write position, as a physical offset."""
        return self.start_offset + len(self.data)

    def append(self, body: bytes = b"", *, term: int = 0, index: int | None = None, **fields: Any) -> Record:  # noqa: ANN401 -- those of Record
        """Append a record in an entry: in the next file if a blank of 8 bytes does not fit behind it."""
        index = len(self.entries) if index is None else index
        size = HEAD_SIZE + Record(body, **fields).size
        if size + 8 > self.room:
            self.roll()
        time = FIRST_STORE_TIMESTAMP + len(self.entries)
        record = replace(Record(body, **{"store_timestamp": time, **fields}), physical_offset=self.end + HEAD_SIZE)
        self.entries.append(self.end)
        self.records.append(record)
        self.indexes.append((index, term))
        head = struct.pack(">iiqqqiiii", 1, size, index, term, self.end, 0, 0, 0, size - HEAD_SIZE)
        self.data += head + record.encode()
        return record

    @property
    def room(self) -> int:
        """Bytes left in the current file."""
        return self.file_size - len(self.data) % self.file_size

    def roll(self) -> None:
        """Close the file with a blank entry."""
        self.data += struct.pack(">ii", -1, self.room).ljust(self.room, b"\0")

    def put(self, number: int, at: int, layout: str, *values: int) -> DLedgerLog:
        """Overwrite bytes of an entry, counted from its start."""
        struct.pack_into(layout, self.data, self.entries[number] - self.start_offset + at, *values)
        return self

    def files(self) -> dict[str, bytes]:
        """Return file names and contents; the last file is filled up with zeros."""
        size = self.file_size
        cuts = range(0, max(len(self.data), 1), size)
        return {
            f"{self.start_offset + cut:020d}": bytes(self.data[cut : cut + size]).ljust(size, b"\0") for cut in cuts
        }

    def write(self, root: Path, *, member: str = "n0", committed: int | None = -2) -> Path:
        """Write ``dledger-MEMBER`` below a root; all entries are committed if nothing else is said. Return `root`."""
        directory = root / f"dledger-{member}" / "data"
        directory.mkdir(parents=True)
        for name, data in self.files().items():
            (directory / name).write_bytes(data)
        if committed is not None:
            index = len(self.entries) - 1 if committed == -2 else committed
            text = f"committedIndex={index}\nendIndex={len(self.entries) - 1}\n"
            (directory.parent / "checkpoint").write_text(text)
        return root

# SPDX-License-Identifier: Apache-2.0
"""What append jobs note durably: the last append of each sender, and which records are not in the index."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from store_core.errors import AppendConflictError, CorruptRecordError, UnsupportedStoreError
from store_core.files.file_system import FileSystem, read_file, write_file
from store_core.format.crc32 import crc32
from store_core.format.words import counted
from store_core.store.sink.staged_append import Appended

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.store.message_store import DefaultMessageStore


_LOG: Final = logging.getLogger("store_core")

_LARGEST_ENTRY: Final = 1 << 16
_NAME_LENGTH: Final = 40


@dataclass(frozen=True, slots=True)
class AppendTransaction:
    """Identifies an append of a sender: a repeated one does nothing."""

    sender: str  # A streaming query's id, or a user's name for a job
    number: int = 0  # number of the append among those of its sender: 0 or more, ascending
    is_batch: bool = False
    """Whether it is a batch of a stream: one of the same number has as many rows whenever it is tried, and numbers
    never go back."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The last append of a sender."""

    transaction: AppendTransaction
    appended: Appended
    is_committed: bool  # if false, it was about to be made; the log shows whether it was
    left_out: int = 0  # number of rows refused and not appended
    body_sum: int | None = None
    """As `StagedFile.body_sum`, of all files; None if an earlier version of this package wrote the entry."""


class CommitLedger:
    """One file per sender, with its last append.

    An entry is written twice: before the records become visible in the log, and after. If a crash falls in between,
    the log decides: it has the first record, byte for byte, or not.
    """

    def __init__(self, directory: Path, file_system: FileSystem) -> None:
        self._directory = directory
        self._file_system = file_system

    def path_of(self, sender: str) -> Path:
        """Return the file of a sender."""
        return self._directory / f"{hashlib.sha256(sender.encode()).hexdigest()[:_NAME_LENGTH]}.json"

    def entry(self, sender: str) -> LedgerEntry | None:
        """Read the last append of a sender; None if there was none."""
        path = self.path_of(sender)
        content = read_file(path, _LARGEST_ENTRY, self._file_system)
        if content is None:
            return None
        try:
            values = json.loads(content)
            return LedgerEntry(
                AppendTransaction(str(values["transaction"]["sender"]), int(values["transaction"]["number"])),
                Appended(**{name: int(value) for name, value in values["appended"].items()}),
                bool(values["is_committed"]),
                int(values["left_out"]),
                None if values.get("body_sum") is None else int(values["body_sum"]),
            )
        except (ValueError, ArithmeticError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptRecordError(
                "no ledger entry",
                str(path),
                0,
                "the JSON object that a commit left",
                repr(error),
                content,
                f"Find out whether the last append of {sender!r} is in the log; delete the file to have it made again",
            ) from error

    def has(self, transaction: AppendTransaction) -> bool:
        """Return whether an append, or a later one of its sender, is known to be made; errors as of `entry`."""
        entry = self.entry(transaction.sender)
        if entry is None or entry.transaction.number < transaction.number:
            return False
        return entry.is_committed or entry.transaction.number > transaction.number

    def write(self, entry: LedgerEntry) -> None:
        """Replace the sender's last entry, durably."""
        _replace(self.path_of(entry.transaction.sender), json.dumps(asdict(entry), indent=1), self._file_system)

    def settle(
        self, transaction: AppendTransaction, store: DefaultMessageStore, rows: int, body_sum: int | None = None
    ) -> LedgerEntry | None:
        """Return the entry of an append already made; None if the append is still to be made.

        * `store`: Open, hence recovered.
        * `rows`: How many there are to append, with those that are refused.
        * `body_sum`: What the entry would have. If it has another one, a warning says so: the rows are others, as of a
          checkpoint that went back, or of a query that is not deterministic.
        """
        entry = self.entry(transaction.sender)
        if entry is None and transaction.is_batch and transaction.number:
            _LOG.warning(
                "%s has no batch of the query %s, which goes on with batch %d: what it appended before is in another "
                "store, or was deleted. To copy all of it, begin a new query with a new checkpoint",
                *(self._directory, transaction.sender, transaction.number),
            )
        if entry is None or entry.transaction.number < transaction.number:
            return None
        is_older = entry.transaction.number > transaction.number
        if transaction.is_batch and is_older:
            raise self._conflict(entry, f"the query now delivers batch {transaction.number}")
        if not (entry.is_committed or is_older or self._is_in(entry, store)):
            return None
        if transaction.is_batch and rows != entry.appended.records + entry.left_out:
            advice = (
                f" If the query is not deterministic, so that its rows differ from run to run, set records to "
                f"{rows - entry.left_out} in the ledger"
            )
            raise self._conflict(entry, f"this batch {transaction.number} has {counted(rows, 'row')}", advice)
        if transaction.is_batch and body_sum is not None and entry.body_sum not in (None, body_sum):
            _LOG.warning(
                "%s has batch %d of the query %s with other bodies than those that it has now, and nothing is "
                "appended: if an older checkpoint took the place of the newest one, their messages are missing from "
                "the store",
                *(self._directory, transaction.number, transaction.sender),
            )
        return entry if is_older else replace(entry, is_committed=True)

    def _conflict(self, entry: LedgerEntry, found: str, advice: str = "") -> AppendConflictError:
        appended = entry.appended
        return AppendConflictError(
            f"the checkpoint of the query {entry.transaction.sender} does not fit the store, as if it went back: "
            f"by the ledger {self.path_of(entry.transaction.sender)} the last batch was {entry.transaction.number}, "
            f"with {counted(appended.records + entry.left_out, 'row')}, from offset {appended.begin_offset} to "
            f"{appended.end_offset}, and {found}. Nothing was appended. Restore the checkpoint as it was, or begin a "
            f"new query with a new checkpoint that starts after what the store already has.{advice}"
        )

    def _is_in(self, entry: LedgerEntry, store: DefaultMessageStore) -> bool:
        appended = entry.appended
        if not appended.records:
            return True
        if appended.begin_offset < store.min_physical_offset:
            raise UnsupportedStoreError(
                f"append {entry.transaction.number} of {entry.transaction.sender!r} was interrupted, and the part of "
                f"the log that could tell whether it was made, at {appended.begin_offset}, has been deleted. Set "
                f"is_committed to true in {self.path_of(entry.transaction.sender)} if it was, or delete the file"
            )
        record = store.select_one_message_by_offset(appended.begin_offset, appended.first_size)
        return record is not None and crc32(record) == appended.first_crc


_NAME: Final = "unindexed.json"


@dataclass(frozen=True, slots=True)
class Unindexed:
    """A file below a store's directory of append jobs: from where on records may not be in the index.

    It is written before such an append is published, and removed when an append with an index has added their keys.
    """

    directory: Path
    file_system: FileSystem

    def begin(self) -> int | None:
        """Return the physical offset of the first such record; None if all may be in the index.

        A note that can't be read stands for the whole log.
        """
        content = read_file(self.directory / _NAME, _LARGEST_ENTRY, self.file_system)
        if content is None:
            return None
        try:
            found = json.loads(content)["begin"]
        except (ValueError, RecursionError, KeyError, TypeError):
            return 0
        return found if isinstance(found, int) and found >= 0 else 0

    def note(self, begin: int) -> None:
        """Note durably that records from an offset on may not be in the index, unless earlier ones are noted."""
        if self.begin() is not None:
            return
        _replace(self.directory / _NAME, json.dumps({"begin": begin}), self.file_system)

    def remove(self) -> None:
        """Remove the note."""
        self.file_system.remove(self.directory / _NAME)


def _replace(path: Path, text: str, file_system: FileSystem) -> None:
    """Replace a file by one with a text, durably."""
    partial = path.with_suffix(".partial")
    file_system.make_directories(path.parent)
    file_system.remove(partial)  # what a crash left there, or a link, which would not be written
    write_file(partial, text.encode(), file_system)
    file_system.rename(partial, path)
    file_system.sync_directory(path.parent)

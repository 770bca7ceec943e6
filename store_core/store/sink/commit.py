# SPDX-License-Identifier: Apache-2.0
"""Commits the staged records of a job: all of them, or none.

What jobs note durably: the last append of each sender, and the records that an append left out of the index.
"""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from store_core.errors import (
    AppendConflictError,
    CorruptRecordError,
    InvalidOptionError,
    SegmentLayoutError,
    StoreLockedError,
    UnsupportedStoreError,
)
from store_core.files.file_system import FileSystem, names_in, read_file, write_file
from store_core.files.names import (
    BATCH_CONSUME_QUEUE,
    COMMIT_LOG,
    INDEX_DIRECTORY,
    compressed_error,
    is_compressed_segment,
)
from store_core.files.store_lock import ABORT_FILE, StoreLock
from store_core.format.crc32 import crc32
from store_core.format.words import counted
from store_core.queue.index_format import index_file_size
from store_core.queue.index_service import check_index_sizes
from store_core.store.message_store import DefaultMessageStore
from store_core.store.message_store_config import DefaultSize, MessageStoreConfig
from store_core.store.sink.staged_append import Appended, append_staged
from store_core.store.sink.staged_batch import (
    OLD,
    SinkDirectory,
    heal,
    is_alive,
    new_store_path,
    remove_store,
    stores_beside,
    swap,
)
from store_core.store.store_layout import check_root, files_in, lock_of, log_paths, with_sizes_of_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from store_core.files.machine import Clock
    from store_core.store.sink.staged_batch import StagedFile


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
        """Return the physical offset of the first such record; 0 if the note can't be read, None without a note."""
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


def with_sizes_of(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> MessageStoreConfig:
    """Return a configuration with the sizes of a store's files, all of which then count as explicit.

    So a commit is refused if another job meanwhile created the store with different sizes.
    """
    for path in log_paths(root, config, file_system).all_paths:
        packed = [name for name in names_in(path, file_system) if is_compressed_segment(name)]
        if packed:
            raise compressed_error(str(path / packed[0]), more=len(packed) - 1)
        sizes = {size for _, _, size in files_in([path], file_system)}
        if len(sizes) > 1:
            raise SegmentLayoutError(
                f"the segments of {path} are of {' and '.join(map(str, sorted(sizes)))} bytes: expected one size. "
                f"Nothing is appended; commitlog ls tells which file is cut or foreign: copy it again, or move it away"
            )
    sized = with_sizes_of_files(root, config, file_system)
    values = {each.name: getattr(sized, each.name) for each in fields(sized)}
    fixed: dict[str, Any] = {name: int(value) for name, value in values.items() if isinstance(value, DefaultSize)}
    sized = replace(sized, **fixed)
    _check_index(root, sized, file_system)
    return sized


def _check_index(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> None:
    if not config.message_index_enable:
        return
    expected = index_file_size(config.queue_rules())
    for _, _, size in files_in([root / INDEX_DIRECTORY], file_system):
        if size != expected:
            raise InvalidOptionError(
                f"the index files of {root} have {size} bytes: expected {expected}, for maxHashSlotNum="
                f"{config.max_hash_slot_num} and maxIndexNum={config.max_index_num}. Give both as its broker has them "
                f"(a file has 40 + 4 * slots + 20 * indexes bytes), or rebuild=queues to leave the index as it is"
            )


Rebuild: TypeAlias = Literal["all", "queues", "none"]

_ALL_FILES: Final = 2**31 - 1
"""Above any number of segments, and still an ``int`` of Java, as the configuration has it."""


@dataclass(frozen=True, slots=True)
class CommitReport:
    """Result of a commit."""

    appended: Appended
    is_repeat: bool  # whether the records were already in the store, so that nothing was done
    left_out: int  # number of rows refused
    cleaned: tuple[str, ...] = ()  # leftovers of dead jobs that were deleted


@dataclass(frozen=True)
class SinkCommit:
    """A commit of staged records; `run` carries it out."""

    root: Path  # the store's root
    job: str  # ``job-`` and 32 hexadecimal digits
    config: MessageStoreConfig
    clock: Clock
    file_system: FileSystem
    rebuild: Rebuild = "all"
    """``all``, ``queues`` (no index), or ``none``: the store is left as after a crash, with the file ``abort``, so that
    opening it next brings queues and index up to date with the log. With ``queues`` a warning says which records are
    not in the index; the next append with ``all`` adds them."""
    staging: Path | None = None  # where records are staged; by default in the store
    overwrite: bool = False  # make a new store of the records, and replace this one by it
    transaction: AppendTransaction | None = None  # ensures that the append is made once, however often it is tried
    left_out: int = 0  # number of rows refused
    refused: tuple[Path, ...] = ()  # files that list them; they are merged into one below `SinkDirectory.refused`
    is_alive: Callable[[str], bool] | None = None
    """Called with a job's note about its owner; returns whether the job may still be running. By default
    `store_core.store.sink.staged_batch.is_alive`."""

    def run(self, staged: Sequence[StagedFile]) -> CommitReport:
        """Append, and delete what this job and dead jobs have staged."""
        heal(self.root, self.file_system)
        check_root(self.root, self.config, self.file_system)
        if self.overwrite and self.file_system.status(self.root) is not None:
            return self._replace(staged)
        report = self._append(self.root, staged)
        return replace(report, cleaned=self.clean())

    def _append(self, root: Path, staged: Sequence[StagedFile]) -> CommitReport:
        sink = SinkDirectory(root, self.file_system)
        ledger = CommitLedger(sink.ledger, self.file_system)
        unindexed, leaves_index = Unindexed(sink.path, self.file_system), self._leaves_index(root)
        has_index = any(files_in([root / INDEX_DIRECTORY], self.file_system))  # else it would begin amid the log
        is_completed = self.config.message_index_enable and not leaves_index
        left_before = (unindexed.begin() if has_index else 0) if is_completed else None
        with self._open(root) as store:
            rows = sum(file.records for file in staged) + self.left_out
            bodies = sum(file.body_sum for file in staged)
            done = ledger.settle(self.transaction, store, rows, bodies) if self.transaction is not None else None
            if done is not None:
                if done.is_committed:
                    ledger.write(done)
                return CommitReport(done.appended, is_repeat=True, left_out=done.left_out)
            is_whole = left_before is None or store.prepare_adoption().complete_index(left_before)
            appended = append_staged(
                store,
                staged,
                sink.segments / self.job,
                self.file_system,
                lambda planned: self._prepare(ledger, planned, bodies, unindexed if leaves_index else None),
                dispatches=self.rebuild != "none",
                on_read=self._drop,
            )
            self._note(ledger, appended, bodies, is_committed=True)
        if leaves_index and appended.records:
            _LOG.warning(
                "%s: the keys of the %d records from offset %d to %d are not in the index, as rebuild=queues says. The "
                "next append with rebuild=all adds them, or commitlog rebuild index %s --replace",
                *(root, appended.records, appended.begin_offset, appended.end_offset, root),
            )
        if left_before is not None and is_whole:
            unindexed.remove()
        elif left_before is not None:
            _LOG.warning(
                "%s: keys of records from offset %d on are not in the index: an append with rebuild=queues left them "
                "out, or its files were deleted, and another writer has indexed later ones since. "
                "commitlog rebuild index %s --replace adds them",
                *(root, left_before, root),
            )
        self.file_system.remove_directory(sink.segments / self.job)
        if self.refused:
            sink.keep_refused(self.job, self.refused)
        return CommitReport(appended, is_repeat=False, left_out=self.left_out)

    def _drop(self, staged: StagedFile) -> None:
        """Delete a staged file that has been read: a failed commit is never retried with it.

        The log can then reuse its memory in the page cache and its space on disk.
        """
        with suppress(OSError):  # it is deleted later, with its directory
            self.file_system.remove(staged.path)

    def _note(self, ledger: CommitLedger, appended: Appended, body_sum: int, *, is_committed: bool) -> None:
        if self.transaction is not None:
            ledger.write(LedgerEntry(self.transaction, appended, is_committed, self.left_out, body_sum))

    def _prepare(self, ledger: CommitLedger, planned: Appended, body_sum: int, unindexed: Unindexed | None) -> None:
        """Note what is about to be published, and whether the index will lack it."""
        if unindexed is not None:
            unindexed.note(planned.begin_offset)
        self._note(ledger, planned, body_sum, is_committed=False)

    def _open(self, root: Path) -> DefaultMessageStore:
        # A job that died amid its renames may have left any number of segments after a hole (`staged_append`).
        # A recovery that deletes the last index file leaves no key out if it begins where the index is safe.
        config = replace(self.config, commit_log_recover_max_num=_ALL_FILES, message_index_safe=True)
        if self._leaves_index(root):
            config = replace(config, message_index_enable=False)
        topics = tuple(names_in(root / BATCH_CONSUME_QUEUE, self.file_system))
        return DefaultMessageStore.open(
            root, config, batch_topics=topics, clock=self.clock, file_system=self.file_system, cuts_messages=False
        )

    def _leaves_index(self, root: Path) -> bool:
        """Return whether the index stays as it is: after a crash, or ``none``, a recovery has to complete it.

        A recovery deletes its last file, and without an index in its configuration would not make it again.
        """
        return self.rebuild == "queues" and self.file_system.status(root / ABORT_FILE) is None

    def _replace(self, staged: Sequence[StagedFile]) -> CommitReport:
        """Make a new store beside the old one, then swap them; the old one must not be open anywhere."""
        new = new_store_path(self.root, self.job)
        log = log_paths(self.root, self.config, self.file_system).all_paths
        if log != (self.root / COMMIT_LOG,):
            raise InvalidOptionError(
                f"the log of {self.root} is in {', '.join(map(str, log))}, so a new store can't be put in its place: "
                f"expected {self.root / COMMIT_LOG}. Nothing was changed. Write a store at another path"
            )
        with lock_of(self.root, self.config, self.file_system):
            try:
                report = self._append(new, staged)
                swap(self.root, new, self.file_system)
            finally:
                remove_store(new)
        return replace(report, cleaned=self.clean())

    def clean(self) -> tuple[str, ...]:
        """Delete what this job staged and what dead jobs left; return descriptions of what was deleted.

        What can't be deleted now is left to the next job.
        """
        self._delete_staged()
        sink, cleaned = SinkDirectory(self.root, self.file_system, self.staging), []
        with suppress(StoreLockedError), StoreLock(self.root, self.file_system):
            for path, leftover in sink.leftovers(self.job, self.is_alive or partial(is_alive, self.clock)):
                try:
                    sink.remove(path)
                except OSError as error:
                    _LOG.warning("%s can't be deleted: %s", leftover, error)
                    continue
                cleaned.append(leftover)
            beside = stores_beside(self.root, self.file_system)
            for path in beside:
                new = path.with_name(path.name.removesuffix(OLD))
                if {new, new.with_name(new.name + OLD)} <= set(beside):  # of an interrupted swap: neither is waste
                    told = "%s is left: %s was being replaced, and was made again by something else meanwhile"
                    _LOG.warning(f"{told}. Find out which of them is the store, and move it there", path, self.root)
                elif remove_store(path):
                    cleaned.append(f"{path}: a store that was to replace this one, or was replaced")
                else:
                    _LOG.warning("%s, a store that was to replace this one, or was replaced, can't be deleted", path)
        for text in cleaned:
            _LOG.warning("deleted %s", text)
        return tuple(cleaned)

    def discard(self) -> None:
        """Delete the staged files of this job, and their directories where there is no store."""
        self._delete_staged()
        if self.file_system.status(self.root / COMMIT_LOG) is None:
            made = SinkDirectory(self.root, self.file_system)
            for path in (made.staging, made.segments, made.path):
                with suppress(OSError):
                    self.file_system.remove_directory(path)

    def _delete_staged(self) -> None:
        sink = SinkDirectory(self.root, self.file_system, self.staging)
        for path in (sink.job_path(self.job), sink.segments / self.job):
            try:
                sink.remove(path)
            except OSError as error:
                _LOG.warning("%s can't be deleted: %s", path, error)


def check_target(root: Path, config: MessageStoreConfig, file_system: FileSystem, *, is_dry: bool) -> None:
    """Refuse a store that can't be written, or whose log a broker or another writer has open; one may open it later."""
    if not is_dry:
        heal(root, file_system)  # before the sizes of its files are read
    check_index_sizes(config.queue_rules())
    check_root(root, config, file_system)
    for path in lock_of(root, config, file_system).paths:
        if file_system.status(path) is not None:
            StoreLock(path.parent, file_system).acquire().release()

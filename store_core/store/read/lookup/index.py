# SPDX-License-Identifier: Apache-2.0
"""Finding the records of a key by the chains of index files, which are trusted as a broker trusts them.

An index file has the entries of all records between the first and the last that its header names. What lies before the
first file, between files and after the last is scanned; so is what a file covers whose chain of the key is broken. A
reader verifies each record that an entry leads to, and takes those that have the key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.files.file_system import OsFileSystem
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.format.columnar.records import Records
from store_core.format.java import hash_code, positive_hash
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_header import INDEX_HEADER_SIZE, IndexHeader
from store_core.queue.index.index_slots import SLOT_SIZE
from store_core.queue.queue_rules import QueueRules
from store_core.store.config.index_listing import ListedIndexFile, index_paths
from store_core.store.read.lookup.looked_up import LookedUp, Unsuitable, size_at
from store_core.store.read.lookup.remote_costs import is_far, price_of_picks
from store_core.store.read.picks import NO_QUEUE, Picks
from store_core.store.read.row_filter import has_message_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from store_core.files.file_system import OpenFile
    from store_core.store.read.lookup.looked_up import Proven, Question
    from store_core.store.read.read_options import ReadOptions

__all__ = ["index_refusal", "last_entry_record", "look_up_index"]

_FILES: Final = OsFileSystem()
_USUAL: Final = QueueRules().max_hash_slot_num, QueueRules().max_index_num
_USUAL_SIZE: Final = INDEX_HEADER_SIZE + SLOT_SIZE * _USUAL[0] + INDEX_DTYPE.itemsize * _USUAL[1]
_WHY: Final = "the index leads to the records; `commitlog check` proves an index"
_MOST_LINKS: Final = 1 << 16
"""Entries of one slot that are followed; a slot of a full file has four on average."""

_REQUESTS: Final = 8
"""Requests that an index file on another machine takes about: its header, a slot, and the chain from there."""

_CLIENT_ID: Final = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
"""An id as RocketMQ's clients make it (``MessageClientIDSetter``), with an IPv4 or an IPv6 address."""

_READ_IN_ANOTHER_WAY: Final = re.compile("[\x01\x02\ufffd\ud800-\udfff]")
"""Characters of a key that releases read differently, or that stand for malformed bytes."""


class _BrokenChainError(Exception):
    """A chain of entries leads in circles, or to no entry."""


@dataclass(frozen=True, slots=True)
class _IndexFile:
    """An index file with entries, open."""

    path: Path
    opened: OpenFile
    header: IndexHeader
    slots: int
    most_entries: int

    def chain(self, key_hash: int) -> Iterator[int]:
        """Yield the physical offsets of the entries of a hash, newest first.

        An entry that the header does not count yet is followed, too: a broker writes the header after the slot.

        Raises
        ------
        _BrokenChainError
        """
        slot = key_hash % self.slots
        number, before = self._int_at(INDEX_HEADER_SIZE + SLOT_SIZE * slot), self.most_entries
        for _ in range(_MOST_LINKS):
            if number <= 0:
                return
            if number >= before:
                raise _BrokenChainError(f"entry {before} leads to entry {number}, which is not before it")
            at = INDEX_HEADER_SIZE + SLOT_SIZE * self.slots + INDEX_DTYPE.itemsize * number
            (entry,) = np.frombuffer(self._bytes(at, INDEX_DTYPE.itemsize), INDEX_DTYPE)
            found = int(entry["key_hash"])
            if found < 0 or found % self.slots != slot:
                raise _BrokenChainError(f"entry {number} is of another slot than the one that leads to it")
            if found == key_hash:
                yield int(entry["physical_offset"])
            before, number = number, int(entry["previous_index"])
        raise _BrokenChainError(f"a slot leads to more than {_MOST_LINKS} entries")

    def _int_at(self, at: int) -> int:
        return int.from_bytes(self._bytes(at, SLOT_SIZE), "big", signed=True)

    def _bytes(self, at: int, size: int) -> bytes:
        found = self.opened.read(size, at)
        if len(found) < size:
            raise _BrokenChainError(f"it ends at byte {at + len(found)}, before the entries that its slots lead to")
        return found


def index_refusal(options: ReadOptions) -> str | None:
    """Return why options have no use for an index; None if they have."""
    named = _named(options)
    if named is None:
        return "no option names a key"
    if options.use_index_files == "never":
        return "option use_index_files is never"
    if any(_READ_IN_ANOTHER_WAY.search(text) for text in (named, *options.topic)):
        return "releases read such a key or topic in different ways"
    return None


def _named(options: ReadOptions) -> str | None:
    return options.key if options.unique_key is None else options.unique_key


def last_entry_record(question: Question) -> Proven | None:
    """Return the last record that the newest index file has an entry of, by its header; None if none is there."""
    paths = index_paths(question.root / INDEX_DIRECTORY)
    if not paths:
        return None
    header = IndexHeader.from_bytes(_FILES.open(paths[-1], writable=False).read(INDEX_HEADER_SIZE, 0))
    return question.record_at(header.end_physical_offset) if header.index_count > 1 else None


def look_up_index(question: Question, topics: Sequence[str]) -> LookedUp | Unsuitable:
    """Find the records of the key that options name, which may be of any of some topics."""
    paths = index_paths(question.root / INDEX_DIRECTORY)
    if not paths:
        return Unsuitable("there is no index beside the log")
    hashes = sorted({positive_hash(hash_code(f"{topic}#{_named(question.options)}")) for topic in topics})
    if _price(len(paths), len(hashes), question) > question.room:
        return Unsuitable("reading the index would cost too much")
    notes: list[str] = []
    covered: list[tuple[IndexHeader, Proven]] = []
    starts: set[int] = set()
    hits: list[int] = []
    for file in _files(paths, notes):
        last = question.record_at(file.header.end_physical_offset)
        if last is None:
            notes.append(
                f"index file {file.path} is not used: the log has no record where its header says that it ends"
            )
            continue
        try:
            found = [offset for each in hashes for offset in file.chain(each)]
        except _BrokenChainError as error:
            notes.append(f"index file {file.path} is not used: {error}")
            continue
        hits += found
        # Of the first and the last record other entries may be in other files.
        starts.update((*found, file.header.begin_physical_offset, last.start))
        covered.append((file.header, last))
    if not covered:
        return Unsuitable("no index file can be used", tuple(notes))
    if _may_be_of_batch(question.options) and not any(_is_named(offset, question) for offset in hits):
        why = "no entry leads to a message of this id, and of a client's batch the index has only the last ids"
        return Unsuitable(why, tuple(notes))
    picked = _picks(sorted(starts), question)
    if picked is not None and price_of_picks([picked], question.segments, question.costs) > question.room:
        return Unsuitable("the answer is a large part of the log", tuple(notes))
    trusted = _joined(
        (header.begin_physical_offset, min(last.end + last.segment.framing.lead, question.doubt))
        for header, last in covered
    )
    edges = frozenset(last.end for _, last in covered)
    furthest = max((last for _, last in covered), key=lambda record: record.start)
    return LookedUp("index", _WHY, picked, trusted, edges, furthest, entries=len(hits), notes=tuple(notes))


def _may_be_of_batch(options: ReadOptions) -> bool:
    """Return whether a message of a client's batch may be asked for by the id that its producer got.

    Such a message has two properties UNIQ_KEY: its own, and the batch's, which is the last one, and in the index. Ids
    are unique: if an entry leads to a message of this id, there is no other. A key that clients do not make is none.
    """
    return options.unique_key is not None or (options.key is not None and _CLIENT_ID.fullmatch(options.key) is not None)


def _is_named(start: int, question: Question) -> bool:
    """Return whether the record at a physical offset has the key that is asked for: hashes are equal by chance, too."""
    found = question.record_at(start)
    if found is None:
        return False
    segment, parser = found.segment, question.options.property_parser
    with question.opened.opened(segment) as pages:
        at = np.array([start - segment.start_offset])
        pages.load(start - segment.start_offset, found.end - segment.start_offset)
        return has_message_named(Records(pages.raw, at, segment.name, segment.start_offset, parser), question.options)


def _price(files: int, hashes: int, question: Question) -> int:
    """Return what following the chains costs, in bytes of a scan."""
    costs = question.costs
    requests = (1 + hashes) * _REQUESTS if is_far(question.segments) else 0
    return files * (costs.per_file + hashes * costs.per_record + requests * costs.per_request)


def _files(paths: Sequence[Path], notes: list[str]) -> Iterator[_IndexFile]:
    """Open the index files that have entries, and note which are not used."""
    expected = _USUAL
    for path in paths:
        try:
            opened = _FILES.open(path, writable=False)
            header = IndexHeader.from_bytes(opened.read(INDEX_HEADER_SIZE, 0))
            if opened.size() == _USUAL_SIZE and header.index_count <= _USUAL[1]:
                slots, most = _USUAL
            else:
                listed = ListedIndexFile.read(path, expected, is_full=path != paths[-1])
                if not listed.is_sound and not listed.is_empty:
                    notes.append(f"index file {path} is not used: its slots do not lead to the entries that it counts")
                slots, most = listed.slots, listed.most_entries
        except FileNotFoundError:
            continue
        if header.index_count > 1 and slots:
            expected = slots, most
            yield _IndexFile(path, opened, header, slots, most)


def _picks(starts: Sequence[int], question: Question) -> Picks | None:
    """Return the records at some physical offsets, ascending; where none can be, one of a size that is found wrong."""
    found = [
        (start, size_at(segment, start, question.opened) or 1)
        for segment in question.segments
        for start in starts
        if segment.start_offset <= start < segment.end_offset
    ]
    if not found:
        return None
    places = np.array(found, np.int64)
    nowhere = np.full(len(found), NO_QUEUE, np.int32), np.zeros(len(found), np.int64)
    return Picks(places[:, 0], places[:, 1], *nowhere)


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return ranges ascending, those that overlap or touch as one."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif begin < end:
            found.append((begin, end))
    return tuple(found)

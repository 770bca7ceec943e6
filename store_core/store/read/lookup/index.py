# SPDX-License-Identifier: Apache-2.0
"""Finding the records of a key by the chains of index files, which are trusted as a broker trusts them.

An index file has the entries of all records between the first and the last that its header names. What lies before the
first file, between files and after the last is scanned; so is what a file covers whose chain of the key is broken. A
reader verifies each record that an entry leads to, and takes those that have the key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import SegmentVanishedError
from store_core.format.columnar.records import Records
from store_core.format.java import hash_code, positive_hash
from store_core.snapshot.index import BrokenChainError, Index, KeyFile
from store_core.store.read.chunk_rows import has_message_named
from store_core.store.read.lookup.explanation import (
    LookedUp,
    Proven,
    Question,
    ReadExplanation,
    is_far,
    price_of_picks,
    size_in,
)
from store_core.store.read.picks import Picks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from store_core.queue.index_format import IndexHeader
    from store_core.store.read.read_options import ReadOptions


_WHY: Final = "the index leads to the records; `commitlog check` proves an index"
_REQUESTS: Final = 8
"""Requests that an index file on another machine takes about: its header, a slot, and the chain from there."""

_CLIENT_ID: Final = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56}")
"""An id as RocketMQ's clients make it (``MessageClientIDSetter``), with an IPv4 or an IPv6 address."""


def last_entry_record(question: Question) -> Proven | None:
    """Return the last record that the newest index file has an entry of, by its header; None if none is there."""
    last = Index(question.root).last()
    if last is None or last.header.index_count <= 1:
        return None
    return question.record_at(last.header.end_physical_offset)


def look_up_index(question: Question, topics: Sequence[str]) -> LookedUp:
    """Find the records of the key that options name, which may be of any of some topics."""
    index = Index(question.root)
    if not index.paths:
        return LookedUp.scan("there is no index beside the log")
    hashes = sorted({positive_hash(hash_code(f"{topic}#{question.options.named_key}")) for topic in topics})
    if _price(len(index.paths), len(hashes), question) > question.room:
        return LookedUp.scan("reading the index would cost too much")
    notes: list[str] = []
    covered: list[tuple[IndexHeader, Proven]] = []
    starts: set[int] = set()
    hits: list[int] = []
    for file in _files(index, notes):
        last = question.record_at(file.header.end_physical_offset)
        if last is None:
            notes.append(
                f"index file {file.path} is not used: the log has no record where its header says that it ends"
            )
            continue
        try:
            found = [offset for each in hashes for offset in file.chain(each)]
        except (BrokenChainError, SegmentVanishedError) as error:
            notes.append(f"index file {file.path} is not used: {error}")
            continue
        hits += found
        # Of the first and the last record other entries may be in other files.
        starts.update((*found, file.header.begin_physical_offset, last.start))
        covered.append((file.header, last))
    if not covered:
        return LookedUp.scan("no index file can be used", tuple(notes))
    if _may_be_of_batch(question.options) and not any(_is_named(offset, question) for offset in hits):
        why = "no entry leads to a message of this id, and of a client's batch the index has only the last ids"
        return LookedUp.scan(why, tuple(notes))
    picked = _picks(sorted(starts), question)
    if picked is not None and price_of_picks([picked], question.segments, question.costs) > question.room:
        return LookedUp.scan("the answer is a large part of the log", tuple(notes))
    trusted = _joined(
        (header.begin_physical_offset, min(last.end + last.segment.framing.lead, question.doubt))
        for header, last in covered
    )
    edges = frozenset(last.end for _, last in covered)
    furthest = max((last for _, last in covered), key=lambda record: record.start)
    reach = trusted[-1][1] if trusted else 0
    explained = ReadExplanation("index", _WHY, entries=len(hits), reach=reach, notes=tuple(notes))
    return LookedUp(explained, picked, trusted, edges, furthest)


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
    with question.opened(segment) as source:
        raw = segment.record(source, start)
        return has_message_named(Records(raw, np.zeros(1, np.int64), segment.name, start, parser), question.options)


def _price(files: int, hashes: int, question: Question) -> int:
    """Return what following the chains costs, in bytes of a scan."""
    costs = question.costs
    requests = (1 + hashes) * _REQUESTS if is_far(question.segments) else 0
    return files * (costs.per_file + hashes * costs.per_record + requests * costs.per_request)


def _files(index: Index, notes: list[str]) -> Iterator[KeyFile]:
    """Yield the index files that have entries, and note which are not used."""
    for file in index.files(trusts_size=True):
        if file.slots and file.stop > 1:
            yield file
        elif not file.slots and not file.is_empty:
            notes.append(f"index file {file.path} is not used: its slots do not lead to the entries that it counts")


def _picks(starts: Sequence[int], question: Question) -> Picks | None:
    """Return the records at some physical offsets, ascending; where none can be, one of a size that is found wrong."""
    found: list[tuple[int, int]] = []
    for segment in question.segments:
        inside = [start for start in starts if segment.start_offset <= start < segment.end_offset]
        if inside:
            with question.opened(segment) as source:
                found += [(start, size_in(segment, source, start) or 1) for start in inside]
    return Picks.of(*zip(*found, strict=True)) if found else None


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return ranges ascending, those that overlap or touch as one."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif begin < end:
            found.append((begin, end))
    return tuple(found)

# SPDX-License-Identifier: Apache-2.0
"""Entries of records that are gone: RocketMQ cuts the log at a torn record, and leaves the index as it is.

Such an entry is whole, but the record that it was put for is not there: nothing sound begins where it leads, or the
record there is another one. From then on RocketMQ puts no entry of a record that starts before the index's end, so keys
of the records that took the place lack their entries (``IndexService.buildIndex``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.format.java import hash_code, positive_hash
from store_core.format.properties import decode_text
from store_core.queue.index.index_format import time_diff

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.snapshot.index import LoadedIndex
    from store_core.snapshot.log import Log
    from store_core.store.rebuild.index_compare import IndexDifference

__all__ = ["JudgedEntries", "judge_entries"]

_MOST: Final = int(np.iinfo(np.int64).max)
_BETWEEN_WORDS: Final = re.compile(rb"[\x00-\x20]+")


class _Entry(NamedTuple):
    """An entry in question.

    Attributes
    ----------
    difference : IndexDifference
    begin_timestamp, seconds : int
        Its file's begin, ms, and its own seconds since then.
    before, after : int
        Greatest physical offset of the entries put before it, and least of those put after it, without entries in
        question.
    """

    difference: IndexDifference
    begin_timestamp: int
    seconds: int
    before: int
    after: int

    @property
    def offset(self) -> int:
        return self.difference.physical_offset


class JudgedEntries(NamedTuple):
    """What entries without a key in the log are, and keys without an entry.

    Attributes
    ----------
    left : tuple of IndexDifference
        Entries of records that were cut off.
    unput : frozenset of IndexDifference
        Missing ones that RocketMQ did not put because of these.
    moved : tuple of (IndexDifference, IndexDifference)
        A missing entry, and the one that leads to another place instead.
    """

    left: tuple[IndexDifference, ...] = ()
    unput: frozenset[IndexDifference] = frozenset()
    moved: tuple[tuple[IndexDifference, IndexDifference], ...] = ()


def judge_entries(
    index: LoadedIndex,
    missing: Iterable[IndexDifference],
    extra: Sequence[IndexDifference],
    log: Log,
) -> JudgedEntries:
    """Judge whether entries without a key in the log were left there, or changed.

    Parameters
    ----------
    index : LoadedIndex
    missing : iterable of IndexDifference
    extra : sequence of IndexDifference
        With those of kind ``"hash"``, each of which stands for a missing one that is not among `missing`.
    log : Log
    """
    if not extra:
        return JudgedEntries()
    lacking = list(missing)
    left: list[_Entry] = []
    moved: list[tuple[IndexDifference, IndexDifference]] = []
    for entry in reversed(list(_entries(index, extra))):
        match = None if entry.difference.kind == "hash" else _match(entry, lacking, log)
        if match is not None:
            lacking.remove(match)
            moved.append((match, entry.difference))
        elif _is_left(entry, log) or (left and left[-1].before == entry.before < entry.offset < left[-1].offset):
            left.append(entry)  # what was put right before entries that were left was cut off with them
    unput = (each for each in lacking if any(e.before < each.physical_offset < e.offset for e in left))
    return JudgedEntries(tuple(each.difference for each in left), frozenset(unput), tuple(moved))


def _has_time(entry: _Entry, store_timestamp: int) -> bool:
    return entry.seconds == time_diff(store_timestamp, entry.begin_timestamp)


def _match(entry: _Entry, lacking: list[IndexDifference], log: Log) -> IndexDifference | None:
    """Return the missing entry that this one is, if only its physical offset was changed."""
    for each in lacking:
        if each.key_hash == entry.difference.key_hash:
            time = log.time_at(each.physical_offset)
            if time is None or _has_time(entry, time):
                return each
    return None


def _is_left(entry: _Entry, log: Log) -> bool:
    """Return whether the record that an entry was put for is gone.

    Nothing sound begins there now; or entries that were put later lead to before it; or the record there has another
    time; or it has all entries of its own, after this one, and no word with its hash, as it would have if a name or a
    separator in its properties were damaged.
    """
    record = log.record_at(entry.offset)
    if record is None or entry.after < entry.offset or not _has_time(entry, record.store_timestamp):
        return True
    if entry.difference.kind == "hash" or entry.after != entry.offset:
        return False
    words = (decode_text(each) for each in _BETWEEN_WORDS.split(record.properties))
    hashes = {positive_hash(hash_code(f"{record.topic}#{word}")) for word in words}
    return entry.difference.key_hash not in hashes


# ---- the entries in question, in the order in which they were put


def _entries(index: LoadedIndex, extra: Iterable[IndexDifference]) -> Iterator[_Entry]:
    asked = {(each.physical_offset, each.key_hash): each for each in extra}
    offsets_asked = np.unique([offset for offset, _ in asked])
    found: list[_Entry] = []
    after = np.empty(0, np.int64)
    before = -1
    for begin_timestamp, some in _blocks(index):
        offsets = some["physical_offset"].astype(np.int64)
        rows = [
            row
            for row in np.flatnonzero(np.isin(offsets, offsets_asked)).tolist()
            if (int(offsets[row]), int(some["key_hash"][row])) in asked
        ]
        others = np.ones(len(offsets), np.bool_)
        others[rows] = False
        least = np.minimum.accumulate(np.append(np.where(others, offsets, _MOST), _MOST)[::-1])[::-1]
        most = np.maximum.accumulate(np.append(before, np.where(others, offsets, -1)))
        after = np.append(np.minimum(after, least[0]), least[1:][rows])
        before = int(most[-1])
        for row in rows:
            difference = asked[int(offsets[row]), int(some["key_hash"][row])]
            found.append(_Entry(difference, begin_timestamp, int(some["time_diff"][row]), int(most[row]), 0))
    return (entry._replace(after=least) for entry, least in zip(found, after.tolist(), strict=True))


def _blocks(index: LoadedIndex) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
    """Yield all entries, with the begin of their file, ms."""
    for file in index.used:
        yield from ((file.header.begin_timestamp, entries) for _, entries in file.windows())

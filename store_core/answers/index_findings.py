# SPDX-License-Identifier: Apache-2.0
"""The findings in a key index, and what of it a crash explains."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.files.names import INDEX_DIRECTORY
from store_core.format.java import hash_code, positive_hash
from store_core.format.properties import decode_text
from store_core.format.words import agreeing, counted
from store_core.queue.index_format import time_diff
from store_core.store.rebuild.findings import Finding, FindingKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from store_core.answers.checked_store import CheckedStore
    from store_core.answers.index_chains import ChainCheck
    from store_core.snapshot.index import LoadedIndex
    from store_core.snapshot.log import Log
    from store_core.store.rebuild.index_files import IndexDifference


_KINDS: Final = {
    "missing": FindingKind.INDEX_MISSING,
    "extra": FindingKind.INDEX_EXTRA,
    "hash": FindingKind.INDEX_WRONG_HASH,
}
"""The kind of a difference -> that of its finding."""


def add_index(checked: CheckedStore) -> None:
    """Add what is wrong with the entries of an index, and with its files."""
    left = _add_entries(checked)
    for path in checked.index.unloaded:
        unloaded = "the release does not load this file"
        checked.tally.add_all([Finding(FindingKind.INDEX_UNREADABLE, str(path), found=unloaded)])
    for check in checked.chains:
        _add_file(checked, check, left)
    used = [check for check in checked.chains if check.begin >= 0]
    for before, check in pairwise(used):
        if check.begin < before.end and before.end not in left:
            expected, found = f"an offset from {before.end} on", f"its first entry is of the record at {check.begin}"
            checked.tally.add_all([Finding(FindingKind.INDEX_ORDER, check.path, expected=expected, found=found)])


# ---- entries


def _add_entries(checked: CheckedStore) -> set[int]:
    """Add what is wrong with entries; return the offsets of entries left over from records that were cut off."""
    found, tally, where = checked.compared.index_differences, checked.tally, str(checked.plan.store / INDEX_DIRECTORY)
    if found.repeated:
        tally.notes.append(f"the index has {found.repeated} entries twice, as after a crash; they do no harm")
    strays, far = _strays(checked)
    missing, extra, wrong = ([each for each in found.first if each.kind == kind] for kind in _KINDS)
    extra += strays
    judged = judge_entries(checked.index, missing, [*extra, *wrong, *far], checked.log)
    left = [each for each in judged.left if each not in far]
    if left or judged.unput:
        tally.notes.append(_of_left(len(judged.left), len(judged.unput)))
    wrong = [each for each in wrong if each not in judged.left]
    left_wrong = sum(each.kind == "hash" for each in left)
    tally.add(FindingKind.INDEX_WRONG_HASH, found.wrong_hash - left_wrong, (_entry(each, where) for each in wrong))
    tally.add_all(_wrong_place(*pair, where) for pair in judged.moved)
    known = {each for pair in judged.moved for each in pair} | judged.unput | set(judged.left)
    missing, extra = ([each for each in some if each not in known] for some in (missing, extra))
    lacking = found.missing - found.unread - found.wrong_hash - len(judged.moved) - len(judged.unput)
    end = max((file.reach[1] for file in checked.index.used), default=-1)
    is_behind = -1 < end < min((each.physical_offset for each in missing), default=-1)
    if checked.bounds.has_crashed and is_behind:
        tally.notes.append(f"{lacking} keys at the log's end have no entry yet; a restart adds them")
    else:
        tally.add(FindingKind.INDEX_MISSING, lacking, (_entry(each, where) for each in missing))
    explained = found.repeated + found.wrong_hash + found.lost
    surplus = found.extra + len(strays) - explained - len(judged.moved) - len(left) + left_wrong
    tally.add(FindingKind.INDEX_EXTRA, surplus, (_entry(each, where) for each in extra))
    return {each.physical_offset for each in judged.left}


def _strays(checked: CheckedStore) -> tuple[list[IndexDifference], list[IndexDifference]]:
    """Return the first entries that lead out of their files' bounds, and those after the log's end.

    The others are told with their files, see `_add_far_file`. Those to bytes that are gone are in neither.
    """
    bounds = checked.bounds
    begin, end = bounds.torn
    strays: list[IndexDifference] = []
    far: list[IndexDifference] = []
    for check in checked.chains:
        is_known = bounds.is_open or check.end >= checked.compared.end_offset
        for each in check.strays:
            offset = each.physical_offset
            is_gone = offset < bounds.min_offset or begin <= offset < end
            if not is_gone:
                is_far = is_known and _is_after(checked, offset)
                (far if is_far else strays).append(each)
    return strays, far


def _is_after(checked: CheckedStore, offset: int) -> bool:
    """Return whether an entry may lead to what comes after the log's end, in a store that was not closed."""
    moment = checked.bounds.moment
    return offset >= checked.compared.end_offset if moment is None else not moment.judges(np.array([offset]))[0]


def _entry(difference: IndexDifference, where: str) -> Finding:
    kind = _KINDS[difference.kind]
    found = f"{'no' if kind is FindingKind.INDEX_MISSING else 'an'} entry of hash {difference.key_hash}"
    return Finding(kind, where, begin=difference.physical_offset, found=found)


def _wrong_place(missing: IndexDifference, extra: IndexDifference, where: str) -> Finding:
    expected = f"the entry of hash {missing.key_hash} at {missing.physical_offset}"
    found = f"it is at {extra.physical_offset}"
    return Finding(FindingKind.INDEX_WRONG_PLACE, where, begin=missing.physical_offset, expected=expected, found=found)


# ---- files


def _add_file(checked: CheckedStore, check: ChainCheck, left: set[int]) -> None:
    tally, bounds = checked.tally, checked.bounds
    tally.add(FindingKind.INDEX_CHAIN, check.broken, _links(check))
    if check.problem:
        tally.add_all([Finding(FindingKind.INDEX_UNREADABLE, check.path, found=check.problem)])
    times = [(check.begin, check.begin_time), (check.end, check.end_time)]
    header = "; ".join(filter(None, [check.header, *(text for offset, text in times if offset not in left)]))
    if header and not (bounds.is_open and check is checked.chains[-1]):
        tally.add_all([Finding(FindingKind.INDEX_HEADER, check.path, found=header)])
    if checked.bounds.has_crashed and check.ahead:
        lead = agreeing(check.ahead, "leads", "lead")
        tally.notes.append(
            f"{check.path}: {counted(check.ahead, 'slot')} {lead} to entries that the header does not count: it "
            f"is older than the slots, as memory is written to the disk in any order. RocketMQ loads the file, and "
            f"finds no key through these slots until it has put new ones there, or made the file anew"
        )
    if bounds.moment is not None:
        return  # whose log goes on where it was read to
    ends = [file.reach[1] for file in checked.index.used if str(file.path) == check.path]
    begin, end = bounds.torn
    if any(each >= bounds.log_end and not begin <= each < end for each in ends):
        _add_far_file(checked, check, ends[0])


def _add_far_file(checked: CheckedStore, check: ChainCheck, end: int) -> None:
    text = f"it ends at {end}, and the log at {checked.bounds.log_end}"
    # RocketMQ cuts queues with the log, so later units say that it did not.
    has_later_units = any(
        kind is FindingKind.UNIT_AFTER_END for each in checked.compared.judged for kind, _ in each.counts
    )
    if checked.bounds.is_open:
        checked.tally.notes.append(f"{check.path}: {text}, as a crash, or copying an open store, leaves it")
    elif check.end == end and not check.broken and not has_later_units:
        checked.tally.notes.append(f"{check.path}: {text}, as RocketMQ leaves it when it cuts the log at a torn record")
    else:
        checked.tally.add_all([Finding(FindingKind.INDEX_AFTER_END, check.path, begin=end, found=text)])


def _of_left(left: int, unput: int) -> str:
    """Return the note on entries of records that were cut off, and on keys that are missing because of them."""
    entries = f"{left:,} {'entry' if left == 1 else 'entries'} of records that are gone"
    lacks = f", and none of {unput:,} {'key' if unput == 1 else 'keys'} of the records in their place" if unput else ""
    return f"the index has {entries}{lacks}: RocketMQ cut the log at a torn record, and leaves the index as it is"


def _links(check: ChainCheck) -> Iterator[Finding]:
    for link in check.first:
        place = f"entry {link.number}" if link.number else f"slot {link.slot}"
        expected, found = f"entry {link.expected} after {place}", f"entry {link.found}"
        yield Finding(FindingKind.INDEX_CHAIN, check.path, expected=expected, found=found)


_MOST: Final = int(np.iinfo(np.int64).max)
_BETWEEN_WORDS: Final = re.compile(rb"[\x00-\x20]+")


class _ExtraEntry(NamedTuple):
    """An entry in question.

    * `begin_timestamp`, `seconds`: Its file's begin, ms, and its own seconds since then.
    * `before`, `after`: Greatest physical offset of the entries put before it, and least of those put after it, without
      entries in question.
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
    """What entries without a key in the log are, and keys without an entry."""

    left: tuple[IndexDifference, ...] = ()  # entries of records that were cut off
    unput: frozenset[IndexDifference] = frozenset()  # missing ones that RocketMQ did not put because of these
    moved: tuple[tuple[IndexDifference, IndexDifference], ...] = ()
    """A missing entry, and the one that leads to another place instead."""


def judge_entries(
    index: LoadedIndex,
    missing: Iterable[IndexDifference],
    extra: Sequence[IndexDifference],
    log: Log,
) -> JudgedEntries:
    """Judge whether entries without a key in the log were left there, or changed.

    * `extra`: With those of kind ``"hash"``, each of which stands for a missing one that is not among `missing`.
    """
    if not extra:
        return JudgedEntries()
    lacking = list(missing)
    left: list[_ExtraEntry] = []
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


def _has_time(entry: _ExtraEntry, store_timestamp: int) -> bool:
    return entry.seconds == time_diff(store_timestamp, entry.begin_timestamp)


def _match(entry: _ExtraEntry, lacking: list[IndexDifference], log: Log) -> IndexDifference | None:
    """Return the missing entry that this one is, if only its physical offset was changed."""
    for each in lacking:
        if each.key_hash == entry.difference.key_hash:
            time = log.time_at(each.physical_offset)
            if time is None or _has_time(entry, time):
                return each
    return None


def _is_left(entry: _ExtraEntry, log: Log) -> bool:
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
    hashes = {positive_hash(hash_code(f"{decode_text(record.topic)}#{word}")) for word in words}
    return entry.difference.key_hash not in hashes


# ---- the entries in question, in the order in which they were put


def _entries(index: LoadedIndex, extra: Iterable[IndexDifference]) -> Iterator[_ExtraEntry]:
    asked = {(each.physical_offset, each.key_hash): each for each in extra}
    offsets_asked = np.unique([offset for offset, _ in asked])
    found: list[_ExtraEntry] = []
    after = np.empty(0, np.int64)
    before = -1
    blocks = ((file.header.begin_timestamp, entries) for file in index.used for _, entries in file.windows())
    for begin_timestamp, some in blocks:
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
            found.append(_ExtraEntry(difference, begin_timestamp, int(some["time_diff"][row]), int(most[row]), 0))
    return (entry._replace(after=least) for entry, least in zip(found, after.tolist(), strict=True))

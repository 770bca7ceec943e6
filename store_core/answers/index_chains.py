# SPDX-License-Identifier: Apache-2.0
"""Checks of the chains in index files: from a slot to its newest entry, and from each entry to the one before it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.format.columnar.java_hashes import positive_hashes
from store_core.queue.index_format import IndexHeader, IndexSlots
from store_core.store.memory import keep_freed_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.snapshot.index import KeyFile
    from store_core.snapshot.log import Log

    Longs = npt.NDArray[np.int64]
    Slots = npt.NDArray[np.int32]  # in stored byte order


_KEPT: Final = 20


class BrokenChain(NamedTuple):
    """A link of a chain that leads elsewhere.

    * `expected`, `found`: Numbers of the entries that it should lead to, and does.
    """

    number: int  # number of the entry whose link is wrong; 0 if it is the slot's
    slot: int
    expected: int
    found: int


class StrayEntry(NamedTuple):
    """An entry that leads out of the bounds of its file, as `KeyFile.reach` has them, or after the log's end."""

    physical_offset: int
    key_hash: int


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """How one index file is.

    * `begin`, `end`: Physical offsets of the first and the last entry; -1 without entries.
    * `begin_time`, `end_time`: How its times differ from those of the records there now; empty if they do not.
    """

    path: str
    entries: int = 0
    broken: int = 0  # number of links that lead elsewhere
    first: tuple[BrokenChain, ...] = ()
    problem: str = ""  # why the file can't be checked; empty if it can
    begin: int = -1
    end: int = -1
    header: str = ""  # how the header differs from these; empty if it does not
    begin_time: str = ""
    end_time: str = ""
    stray_count: int = 0  # number of entries that lead out of the file's bounds, or to or after the log's end
    strays: tuple[StrayEntry, ...] = ()  # the first of these
    ahead: int = 0  # in a store that was not closed: how many slots lead to entries that the header does not count


@dataclass(frozen=True, slots=True)
class ChainJob:
    """Checks index files, each as a part; see `store_core.store.parts.Job`."""

    files: tuple[KeyFile, ...]
    log: Log  # as it was listed before
    log_end: int  # physical offset where the log ends
    is_open: bool = False
    """Whether the store was not closed: header, slots and entries of a file may be of different moments."""

    def plan(self) -> Sequence[KeyFile]:
        """Return the files."""
        return self.files

    def run(self, part: KeyFile) -> ChainCheck:
        """Check one file."""
        keep_freed_memory()
        if not part.size:
            return ChainCheck(str(part.path))
        count = part.header.index_count
        if part.size < part.position(part.most_entries) or count > part.most_entries:
            problem = f"{part.size} bytes, and a header that counts {count - 1} entries"
            return ChainCheck(str(part.path), problem=problem)
        if self.is_open:
            return self._with_bounds(_checked_as_of(part), part)
        following = part.entries(count, min(count + 1, part.most_entries))["previous_index"]
        return self._with_bounds(_checked(part, part.table(), count, int(following.sum())), part)

    def _with_bounds(self, check: ChainCheck, file: KeyFile) -> ChainCheck:
        """Add what the entries' physical offsets show."""
        header = file.header
        if header.index_count <= 1:
            return check
        ends = (file.entries(number, number + 1)["physical_offset"][0] for number in (1, header.index_count - 1))
        begin, end = map(int, ends)
        least, most = min(header.begin_physical_offset, begin, end), max(header.end_physical_offset, begin, end)
        count, first = 0, list[StrayEntry]()
        for _, entries in file.windows(1, header.index_count):
            stray = entries[_outside(entries["physical_offset"], least, min(most, self.log_end - 1))]
            count += len(stray)
            first += [StrayEntry(int(each["physical_offset"]), int(each["key_hash"])) for each in stray[:_KEPT]]
        check = self._with_header(check, header, begin, end)
        return replace(check, begin=begin, end=end, stray_count=count, strays=tuple(first[:_KEPT]))

    def _with_header(self, check: ChainCheck, header: IndexHeader, begin: int, end: int) -> ChainCheck:
        """Add how a header differs from its first and last entry, by the record of each if that can be read."""
        times, problems = self.log, []
        if header.begin_physical_offset != begin:
            problems.append(
                f"it begins at {header.begin_physical_offset}, and its first entry is of the record at {begin}"
            )
        elif times.time_at(begin) not in (None, header.begin_timestamp):
            text = f"it begins at the time {header.begin_timestamp}, and the record of its first entry is another's"
            check = replace(check, begin_time=text)
        if header.end_physical_offset >= self.log_end:
            pass  # which is reported as such
        elif header.end_physical_offset != end:
            problems.append(f"it ends at {header.end_physical_offset}, and its last entry is of the record at {end}")
        elif times.time_at(end) not in (None, header.end_timestamp):
            text = f"it ends at the time {header.end_timestamp}, and the record of its last entry is another's"
            check = replace(check, end_time=text)
        return replace(check, header="; ".join(problems))

    def merge(self, partials: Iterable[ChainCheck]) -> tuple[ChainCheck, ...]:
        """Return the results of all files."""
        return tuple(partials)


def _outside(offsets: Longs, least: int, most: int) -> npt.NDArray[np.bool_] | slice:
    """Return which offsets are not in a range."""
    if int(offsets.min()) >= least and int(offsets.max()) <= most:
        return slice(0)
    is_outside: npt.NDArray[np.bool_] = (offsets < least) | (offsets > most)
    return is_outside


def _checked(file: KeyFile, table: Slots, count: int, following: int = 0) -> ChainCheck:
    """Check each link, of the entries with lower numbers than `count`.

    A slot may lead to the entry after those that the header counts, if that one leads on to `following`: a put writes
    the entry, the slot and the header in this order, and a crash may come before the last. The next put takes the place
    over.
    """
    path = str(file.path)
    if is_sound(_slots_and_links(file, count), table):
        return ChainCheck(path, max(count - 1, 0))
    slots, links = (np.concatenate(pieces) for pieces in zip(*_slots_and_links(file, count, 0), strict=True))
    links = links.astype(np.int64)
    slots = linked_slots(slots, links, table.astype(np.int64))
    previous, newest = expected_links(slots, len(table))
    wrong = np.flatnonzero(links != previous)
    wrong = wrong[wrong > 0]
    leads_on = (table == count) & (newest == following)
    lost = np.flatnonzero((newest != table) & ~leads_on)
    first = [
        *(BrokenChain(n, int(slots[n]), int(previous[n]), int(links[n])) for n in wrong[:_KEPT].tolist()),
        *(BrokenChain(0, slot, int(newest[slot]), int(table[slot])) for slot in lost[:_KEPT].tolist()),
    ]
    return ChainCheck(path, max(count - 1, 0), len(wrong) + len(lost), tuple(first))


def _checked_as_of(file: KeyFile) -> ChainCheck:
    """Check the links of a file that is being written, or that was copied then, as of its header.

    Where an entry leads never changes, and a slot leads to an entry only when that is written. So what the slots led to
    when the header was read is found from what they lead to later: through the entries that the header does not count.
    The header's end is written last, so entries after it may not be in their slots yet. Of a copy, later entries may
    never have reached the disk; what their slots led to is not known then.
    """
    count = 1
    for number, entries in file.windows(1, file.header.index_count):
        is_put = np.flatnonzero(entries["physical_offset"] <= file.header.end_physical_offset)
        count = number + int(is_put[-1]) + 1 if len(is_put) else count
    slots, unknown = file.table().astype(np.int64), [np.empty(0, np.int64)]
    ahead = at = np.flatnonzero((slots >= count) & (slots < file.most_entries))
    while len(at):
        later = file.entries_at(slots[at])
        is_written = (later["physical_offset"] != 0) | (later["key_hash"] != 0)
        unknown.append(at[~is_written])
        links = later["previous_index"].astype(np.int64)
        slots[at] = np.where(links < slots[at], links, -1)  # one that leads to a later entry is wrong
        at = at[slots[at] >= count]
    lost = np.concatenate(unknown)
    if len(lost):
        known = np.concatenate([own for own, _ in _slots_and_links(file, count, 0)])
        _, newest = expected_links(known, len(slots))
        slots[lost] = newest[lost]
    return replace(_checked(file, slots.astype(">i4"), count), ahead=len(ahead))


def linked_slots(slots: Longs, links: Longs, table: Longs) -> Longs:
    """Return the slot of each entry: of an entry with a wrong hash, that of the chain that leads to it and on from it.

    Such an entry is a finding of its own, and its chain is not broken.
    """
    count = len(slots)
    leading = np.flatnonzero((links > 0) & (links < count))
    used = np.flatnonzero((table > 0) & (table < count))
    led = np.concatenate((links[leading], table[used]))
    leader = np.full(count, -1, np.int64)
    leader[led] = np.concatenate((slots[leading], used))
    is_led_once = np.bincount(led, minlength=count) == 1
    goes_on = (links == 0) | (slots.take(np.clip(links, 0, count - 1)) == leader)
    is_wrong = is_led_once & goes_on & (leader != slots)
    is_wrong[:1] = False
    by = np.zeros(count, np.int64)
    by[links[leading]] = leading
    is_wrong &= ~is_wrong[by]  # else the first entry of a chain would seem wrong because the one after it is
    return np.where(is_wrong, leader, slots)


def expected_links(slots: Longs, slot_count: int) -> tuple[Longs, Longs]:
    """Return where each entry leads, and each slot: to the newest entry before it that has the same slot.

    * `slots`: Slot of each entry; entry 0 is unused.
    """
    count = len(slots)
    order = np.argsort(slots[1:], kind="stable") + 1 if count > 1 else np.empty(0, np.int64)
    previous = np.zeros(count, np.int64)
    is_same = slots[order[1:]] == slots[order[:-1]]
    previous[order[1:][is_same]] = order[:-1][is_same]
    newest = np.zeros(slot_count, np.int64)
    newest[slots[order]] = order  # the last one of equal slots stays
    return previous, newest


def is_sound(chains: Iterable[tuple[Longs, Longs]], table: Slots) -> bool:
    """Return whether links and slots are those of `expected_links`, without sorting.

    * `chains`: Slots and links of the entries from entry 1 on, in pieces.
    * `table`: The slots of the file.

    Notes
    -----
    The entries are put into empty slots again, as when the file was written; each link is what was in the slot.
    """
    made, number = IndexSlots(len(table)), 1
    for slots, links in chains:
        if not np.array_equal(made.link(slots, number), links):
            return False
        number += len(slots)
    return made.equals(table)


def _slots_and_links(file: KeyFile, count: int, first: int = 1) -> Iterator[tuple[Longs, Longs]]:
    """Yield slots and links of the entries below a number in pieces; entry 0 is unused."""
    for _, entries in file.windows(first, count):
        yield _slots_of(entries["key_hash"], file.slots), entries["previous_index"]


def _slots_of(hashes: npt.NDArray[np.int32], slot_count: int) -> Longs:
    """Return the slots of hashes as they are stored."""
    slots: Longs = (positive_hashes(hashes.astype(np.int32)) % np.int32(slot_count)).astype(np.int64)
    return slots

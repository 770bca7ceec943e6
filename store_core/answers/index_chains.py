# SPDX-License-Identifier: Apache-2.0
"""Checks of the chains in index files: from a slot to its newest entry, and from each entry to the one before it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.files.machine import keep_freed_memory
from store_core.format.columnar.java_hashes import positive_hashes
from store_core.queue.index_format import IndexHeader, IndexSlots
from store_core.store.parts import EachPart
from store_core.store.rebuild.index_files import IndexDifference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from store_core.snapshot.index import KeyFile
    from store_core.snapshot.log import Log

    Longs = npt.NDArray[np.int64]
    Slots = npt.NDArray[np.int32]  # in stored byte order
    Windows = Iterator[tuple[int, npt.NDArray[np.void]]]  # as of `KeyFile.windows`


_KEPT: Final = 20


class BrokenChain(NamedTuple):
    """A link of a chain that leads elsewhere.

    * `expected`, `found`: Numbers of the entries that it should lead to, and does.
    """

    number: int  # number of the entry whose link is wrong; 0 if it is the slot's
    slot: int
    expected: int
    found: int


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """How one index file is.

    * `begin`, `end`: Physical offsets of the first and the last entry; -1 without entries.
    * `begin_time`, `end_time`: How its times differ from those of the records there now; empty if they do not.
    """

    path: str
    broken: int = 0  # number of links that lead elsewhere
    first: tuple[BrokenChain, ...] = ()
    problem: str = ""  # why the file can't be checked; empty if it can
    begin: int = -1
    end: int = -1
    header: str = ""  # how the header differs from these; empty if it does not
    begin_time: str = ""
    end_time: str = ""
    strays: tuple[IndexDifference, ...] = ()
    """The first entries that lead out of the file's bounds, as `KeyFile.reach` has them, or after the log's end."""
    reaches: tuple[tuple[int, int], ...] = ()  # as of `KeyFile`; not of the last window, which may get more entries
    ahead: int = 0  # in a store that was not closed: how many slots lead to entries that the header does not count


@dataclass(frozen=True)
class ChainJob(EachPart["KeyFile", ChainCheck]):
    """Checks index files, each as a part."""

    log: Log  # as it was listed before
    log_end: int  # physical offset where the log ends
    is_open: bool = False
    """Whether the store was not closed: header, slots and entries of a file may be of different moments."""

    def run(self, part: KeyFile) -> ChainCheck:
        """Check one file."""
        keep_freed_memory()
        if not part.size:
            return ChainCheck(str(part.path))
        count = part.header.index_count
        if part.size < part.position(part.most_entries) or count > part.most_entries:
            problem = f"{part.size} bytes, and a header that counts {count - 1} entries"
            return ChainCheck(str(part.path), problem=problem)
        ends = [part.entries(number, number + 1)["physical_offset"] for number in (1, count - 1) if count > 1]
        begin, end = (int(each[0]) for each in ends) if ends else (-1, -1)
        least = min(part.header.begin_physical_offset, begin, end)
        most = min(max(part.header.end_physical_offset, begin, end), self.log_end - 1)
        strays, reaches = list[IndexDifference](), list[tuple[int, int]]()
        windows = _watched(part.windows(1, count), (least, most), strays, reaches)
        if self.is_open:
            check = _checked_as_of(part, windows)
        else:
            following = part.entries(count, min(count + 1, part.most_entries))["previous_index"]
            check = _checked(part, windows, part.table(), count, int(following.sum()))
        check = replace(check, begin=begin, end=end, strays=tuple(strays[:_KEPT]), reaches=tuple(reaches[:-1]))
        return self._with_header(check, part.header) if ends else check

    def _with_header(self, check: ChainCheck, header: IndexHeader) -> ChainCheck:
        """Add how a header differs from its first and last entry, by the record of each if that can be read."""
        begin, end, times, problems = check.begin, check.end, self.log, []
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


def _watched(
    windows: Windows, bounds: tuple[int, int], strays: list[IndexDifference], reaches: list[tuple[int, int]]
) -> Windows:
    """Yield entries again; note those out of bounds, and how far each window reaches."""
    for number, entries in windows:
        offsets = entries["physical_offset"].astype(np.int64)
        reaches.append((int(offsets.min()), int(offsets.max())))
        if reaches[-1][0] < bounds[0] or reaches[-1][1] > bounds[1]:
            stray = entries[(offsets < bounds[0]) | (offsets > bounds[1])][:_KEPT]
            strays += [IndexDifference("extra", int(each["physical_offset"]), int(each["key_hash"])) for each in stray]
        yield number, entries


def _checked(file: KeyFile, windows: Windows, table: Slots, count: int, following: int = 0) -> ChainCheck:
    """Check each link, of the entries with lower numbers than `count`, which come in windows.

    A slot may lead to the entry after those that the header counts, if that one leads on to `following`: a put writes
    the entry, the slot and the header in this order, and a crash may come before the last. The next put takes the place
    over.
    """
    if is_sound(_slots_and_links(windows, file.slots), table):
        return ChainCheck(str(file.path))
    pieces = zip(*_slots_and_links(file.windows(0, count), file.slots), strict=True)
    slots, links = (np.concatenate(some) for some in pieces)
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
    return ChainCheck(str(file.path), len(wrong) + len(lost), tuple(first))


def _checked_as_of(file: KeyFile, windows: Windows) -> ChainCheck:
    """Check the links of a file that is being written, or that was copied then, as of its header.

    Where an entry leads never changes, and a slot leads to an entry only when that is written. So what the slots led to
    when the header was read is found from what they lead to later: through the entries that the header does not count.
    The header's end is written last, so entries after it may not be in their slots yet. Of a copy, later entries may
    never have reached the disk; what their slots led to is not known then.
    """
    count = 1
    for number, entries in windows:
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
        known = np.concatenate([own for own, _ in _slots_and_links(file.windows(0, count), file.slots)])
        _, newest = expected_links(known, len(slots))
        slots[lost] = newest[lost]
    return replace(_checked(file, file.windows(1, count), slots.astype(">i4"), count), ahead=len(ahead))


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

    * `chains`: Slots and links of the entries from entry 1 on, in pieces; all are taken, whatever they show.
    * `table`: The slots of the file.

    The entries are put into empty slots again, as when the file was written; each link is what was in the slot.
    """
    made, number, is_equal = IndexSlots(len(table)), 1, True
    for slots, links in chains:
        is_equal = is_equal and np.array_equal(made.link(slots, number), links)
        number += len(slots)
    return is_equal and made.equals(table)


def _slots_and_links(windows: Windows, slot_count: int) -> Iterator[tuple[Longs, Longs]]:
    """Yield slots and links of entries; entry 0 is unused."""
    for _, entries in windows:
        hashes = positive_hashes(entries["key_hash"].astype(np.int32))
        yield (hashes % np.int32(slot_count)).astype(np.int64), entries["previous_index"]

# SPDX-License-Identifier: Apache-2.0
"""Checks of the chains in index files: from a slot to its newest entry, and from each entry to the one before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from store_core.files.segment_source import Segment, open_segment
from store_core.format.columnar.java_hashes import positive_hashes
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_header import INDEX_HEADER_SIZE, IndexHeader
from store_core.queue.index.index_slots import SLOT_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from store_core.queue.queue_rules import QueueRules

__all__ = ["BrokenChain", "ChainCheck", "ChainJob"]

_KEPT: Final = 20


class BrokenChain(NamedTuple):
    """A link of a chain that leads elsewhere.

    Attributes
    ----------
    number : int
        Number of the entry whose link is wrong; 0 if it is the slot's.
    slot : int
    expected, found : int
        Numbers of the entries that it should lead to, and does.
    """

    number: int
    slot: int
    expected: int
    found: int


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """How the chains of one file are.

    Attributes
    ----------
    path : str
    entries : int
    broken : int
        Number of links that lead elsewhere.
    first : tuple of BrokenChain
    problem : str
        Why the file can't be checked; empty if it can.
    """

    path: str
    entries: int = 0
    broken: int = 0
    first: tuple[BrokenChain, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ChainJob:
    """Checks index files, each as a part; see `store_core.store.parts.Job`.

    Attributes
    ----------
    files : tuple of Path
    rules : QueueRules
        With the numbers of slots and entries of a file.
    """

    files: tuple[Path, ...]
    rules: QueueRules

    def plan(self) -> Sequence[Path]:
        """Return the files."""
        return self.files

    def run(self, part: Path) -> ChainCheck:
        """Check one file."""
        segment = Segment(str(part), 0, part.stat().st_size)
        slots = self.rules.max_hash_slot_num
        begin = INDEX_HEADER_SIZE + SLOT_SIZE * slots
        expected = begin + INDEX_DTYPE.itemsize * self.rules.max_index_num
        if not segment.size:
            return ChainCheck(str(part))
        with open_segment(segment) as opened:
            header = IndexHeader.from_bytes(opened.raw[:INDEX_HEADER_SIZE].tobytes())
            if segment.size < expected or header.index_count > self.rules.max_index_num:
                problem = f"{segment.size} bytes, and a header that counts {header.index_count - 1} entries"
                return ChainCheck(str(part), problem=problem)
            table = opened.raw[INDEX_HEADER_SIZE:begin].view(">i4").astype(np.int64)
            entries = opened.raw[begin:expected].view(INDEX_DTYPE)[: header.index_count + 1]
            return _checked(str(part), table, entries, header.index_count)

    def merge(self, partials: Iterable[ChainCheck]) -> tuple[ChainCheck, ...]:
        """Return the results of all files."""
        return tuple(partials)


def _checked(path: str, table: npt.NDArray[np.int64], entries: npt.NDArray[np.void], count: int) -> ChainCheck:
    """Compare each link with the newest entry before it that has the same slot.

    A slot may lead to the entry after those that the header counts, if that one leads on: a put writes the entry, the
    slot and the header in this order, and a crash may come before the last. The next put takes the place over.
    """
    following = entries["previous_index"][count:].astype(np.int64)
    entries = entries[:count]
    slots = positive_hashes(entries["key_hash"].astype(np.int32)).astype(np.int64) % len(table)
    order = np.argsort(slots[1:], kind="stable") + 1 if count > 1 else np.empty(0, np.int64)
    previous = np.zeros(count, np.int64)
    is_same = slots[order[1:]] == slots[order[:-1]]
    previous[order[1:][is_same]] = order[:-1][is_same]
    newest = np.zeros(len(table), np.int64)
    newest[slots[order]] = order  # the last one of equal slots stays
    links = entries["previous_index"].astype(np.int64)
    wrong = np.flatnonzero(links != previous)
    wrong = wrong[wrong > 0]
    leads_on = (table == count) & (newest == (following[0] if len(following) else 0))
    lost = np.flatnonzero((newest != table) & ~leads_on)
    first = [
        *(BrokenChain(n, int(slots[n]), int(previous[n]), int(links[n])) for n in wrong[:_KEPT].tolist()),
        *(BrokenChain(0, slot, int(newest[slot]), int(table[slot])) for slot in lost[:_KEPT].tolist()),
    ]
    return ChainCheck(path, max(count - 1, 0), len(wrong) + len(lost), tuple(first))

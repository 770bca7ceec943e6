# SPDX-License-Identifier: Apache-2.0
"""The findings in a key index, and what of it a crash explains."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np

from store_core.answers.checking.finding import Finding, FindingKind
from store_core.format.counted import agreeing, counted
from store_core.store.rebuild.index_compare import IndexDifference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from store_core.answers.checking.index_chains import ChainCheck
    from store_core.answers.checking.tally import Tally
    from store_core.store.rebuild.compare import LogBounds
    from store_core.store.rebuild.report import RebuildReport
    from store_core.store.rebuild.stored_index import StoredIndex

__all__ = ["IndexFindings"]


@dataclass(frozen=True, slots=True)
class IndexFindings:
    """Judges the files of an index, and their entries.

    Attributes
    ----------
    report : RebuildReport
        Of the comparison with the log.
    index : StoredIndex
    checks : sequence of ChainCheck
        Of the loaded files, oldest first.
    bounds : LogBounds
    directory : Path
        The index's.
    """

    report: RebuildReport
    index: StoredIndex
    checks: Sequence[ChainCheck]
    bounds: LogBounds
    directory: Path

    def add_to(self, tally: Tally) -> None:
        """Add all findings and notes."""
        self._add_entries(tally)
        for path in self.index.unloaded:
            unloaded = "the release does not load this file"
            tally.add_all([Finding(FindingKind.INDEX_UNREADABLE, str(path), found=unloaded)])
        for check in self.checks:
            self._add_file(check, tally)
        used = [check for check in self.checks if check.begin >= 0]
        for before, check in pairwise(used):
            if check.begin < before.end:
                expected, found = (
                    f"an offset from {before.end} on",
                    f"its first entry is of the record at {check.begin}",
                )
                tally.add_all([Finding(FindingKind.INDEX_ORDER, check.path, expected=expected, found=found)])

    # ---- entries

    def _add_entries(self, tally: Tally) -> None:
        outcomes = self.report.outcomes
        repeated = sum(outcome.repeated_entries for outcome in outcomes)
        if repeated:
            tally.notes.append(f"the index has {repeated} entries twice, as after a crash; they do no harm")
        wrong = sum(outcome.wrong_hashes for outcome in outcomes)
        tally.add(FindingKind.INDEX_WRONG_HASH, wrong, (self._entry(each) for each in self._first("hash")))
        missing, extra, strays = self._first("missing"), self._first("extra"), list(self._strays())
        inside = list(_paired(missing, extra))
        places = [*inside, *_paired(missing, strays)]
        tally.add_all(self._wrong_place(*pair) for pair in places)
        lacking = self.report.missing_entries - sum(each.unread_entries for each in outcomes) - wrong - len(places)
        is_behind = -1 < self._end < min((each.physical_offset for each in missing), default=-1)
        if self._has_crashed and is_behind:
            tally.notes.append(f"{lacking} keys at the log's end have no entry yet; a restart adds them")
        else:
            tally.add(FindingKind.INDEX_MISSING, lacking, map(self._entry, missing))
        explained = repeated + wrong + sum(outcome.lost_entries for outcome in outcomes)
        surplus = self.report.extra_entries - explained - len(inside) + len(strays)
        tally.add(FindingKind.INDEX_EXTRA, surplus, map(self._entry, [*extra, *strays]))

    def _first(self, kind: str) -> list[IndexDifference]:
        found = chain.from_iterable(outcome.index_first for outcome in self.report.outcomes)
        return [each for each in found if each.kind == kind]

    def _strays(self) -> Iterator[IndexDifference]:
        """Yield the first entries that lead out of their files' bounds, if that is not reported of the file.

        Those to bytes that are gone are no findings.
        """
        begin, end = self.bounds.torn
        for check in self.checks:
            is_known = self.bounds.is_open or check.end >= self.report.end_offset
            for each in check.strays:
                offset = each.physical_offset
                is_gone = offset < self.bounds.min_offset or begin <= offset < end
                if not is_gone and not (is_known and self._is_after(offset)):
                    yield IndexDifference("extra", *each)

    def _is_after(self, offset: int) -> bool:
        """Return whether an entry may lead to what comes after the log's end, in a store that was not closed."""
        moment = self.bounds.moment
        return offset >= self.report.end_offset if moment is None else not moment.judges(np.array([offset]))[0]

    @property
    def _has_crashed(self) -> bool:
        """Whether the store was not closed, and no broker has it."""
        return self.bounds.is_open and self.bounds.moment is None

    @property
    def _end(self) -> int:
        """Greatest physical offset in the index; -1 if there is no entry."""
        return max((file.end for file in self.index.files), default=-1)

    def _entry(self, difference: IndexDifference) -> Finding:
        kinds = {"missing": FindingKind.INDEX_MISSING, "extra": FindingKind.INDEX_EXTRA}
        kind = kinds.get(difference.kind, FindingKind.INDEX_WRONG_HASH)
        found = f"{'no' if kind is FindingKind.INDEX_MISSING else 'an'} entry of hash {difference.key_hash}"
        return Finding(kind, str(self.directory), begin=difference.physical_offset, found=found)

    def _wrong_place(self, missing: IndexDifference, extra: IndexDifference) -> Finding:
        where, hashed = str(self.directory), f"the entry of hash {missing.key_hash}"
        expected, found = f"{hashed} at {missing.physical_offset}", f"it is at {extra.physical_offset}"
        return Finding(
            FindingKind.INDEX_WRONG_PLACE, where, begin=missing.physical_offset, expected=expected, found=found
        )

    # ---- files

    def _add_file(self, check: ChainCheck, tally: Tally) -> None:
        tally.add(FindingKind.INDEX_CHAIN, check.broken, _links(check))
        if check.problem:
            tally.add_all([Finding(FindingKind.INDEX_UNREADABLE, check.path, found=check.problem)])
        if check.header and not (self.bounds.is_open and check is self.checks[-1]):
            tally.add_all([Finding(FindingKind.INDEX_HEADER, check.path, found=check.header)])
        if self._has_crashed and check.ahead:
            lead = agreeing(check.ahead, "leads", "lead")
            tally.notes.append(
                f"{check.path}: {counted(check.ahead, 'slot')} {lead} to entries that the header does not count: it "
                f"is older than the slots, as memory is written to the disk in any order. RocketMQ loads the file, and "
                f"finds no key through these slots until it has put new ones there, or made the file anew"
            )
        if self.bounds.moment is not None:
            return  # whose log goes on where it was read to
        ends = [file.end for file in self.index.files if str(file.path) == check.path]
        begin, end = self.bounds.torn
        if any(each >= (self.bounds.log_end or 0) and not begin <= each < end for each in ends):
            self._add_far_file(check, ends[0], tally)

    def _add_far_file(self, check: ChainCheck, end: int, tally: Tally) -> None:
        text = f"it ends at {end}, and the log at {self.bounds.log_end}"
        if self.bounds.is_open:
            tally.notes.append(f"{check.path}: {text}, as a crash, or copying an open store, leaves it")
        else:
            tally.add_all([Finding(FindingKind.INDEX_AFTER_END, check.path, begin=end, found=text)])


def _paired(
    missing: list[IndexDifference], extra: list[IndexDifference]
) -> Iterator[tuple[IndexDifference, IndexDifference]]:
    """Yield missing and extra entries of the same hash: those that lead elsewhere; they are taken out of both lists."""
    for each in list(extra):
        match = next((other for other in missing if other.key_hash == each.key_hash), None)
        if match is not None:
            missing.remove(match)
            extra.remove(each)
            yield match, each


def _links(check: ChainCheck) -> Iterator[Finding]:
    for link in check.first:
        place = f"entry {link.number}" if link.number else f"slot {link.slot}"
        expected, found = f"entry {link.expected} after {place}", f"entry {link.found}"
        yield Finding(FindingKind.INDEX_CHAIN, check.path, expected=expected, found=found)

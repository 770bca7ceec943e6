# SPDX-License-Identifier: Apache-2.0
"""Reading few columns of some messages in parts: several reads of one log at once, which share a scan of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from store_core.answers.life.message_survey import can_survey, surveyed
from store_core.files.file_system import OsFileSystem
from store_core.files.store_kind import queue_database
from store_core.files.store_parts import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from store_core.files.store_path import store_roots
from store_core.store.read.read_plan import plan_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from store_core.answers.life.message_read import MessageRead
    from store_core.files.store_path import StorePaths
    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_plan import ReadPlan

__all__ = ["FoundRows", "ReadJob", "ReadPart"]


@dataclass(frozen=True, slots=True)
class ReadPart:
    """A piece of the log, and the ranges of it that reads need: several if one scan chooses the records of all."""

    ranges: tuple[tuple[str, ReadRange], ...]


@dataclass(frozen=True, slots=True)
class FoundRows:
    """What the reads found.

    Attributes
    ----------
    tables : dict of str to pyarrow.Table
        By the name of the read, in log order.
    notes : tuple of str
        What an operator should know of the log.
    """

    tables: dict[str, pa.Table]
    notes: tuple[str, ...]


class ReadJob:
    """Reads a log for several reads at once, in parts; see `store_core.store.parts.Job`.

    A read that queues give a look-up for reads what that picked. The others share one scan of the log where they can,
    which chooses the records of each: see `surveyed`.

    Parameters
    ----------
    paths : path or sequence of paths
    reads : mapping of str to MessageRead
        Planned in this order: a later one sees all that an earlier one does.
    """

    def __init__(self, paths: StorePaths, reads: Mapping[str, MessageRead]) -> None:
        self.paths = paths
        self.reads = dict(reads)
        self.notes: tuple[str, ...] = ()

    def plan(self) -> Sequence[ReadPart]:
        """Return the parts: what each read needs of each segment."""
        plans = self._plans()
        self.notes = tuple(dict.fromkeys(note for plan in plans.values() for note in plan.notes))
        found = [(name, _without_tail(part)) for name, plan in plans.items() for part in plan.ranges]
        shared: dict[tuple[str, int], list[tuple[str, ReadRange]]] = {}
        parts = []
        for name, part in found:
            if part.picks is None and part.segment.is_mapped and can_survey(self.reads[name]):
                shared.setdefault((part.segment.path, part.begin), []).append((name, part))
            else:
                parts.append(ReadPart(((name, part),)))
        parts += [ReadPart(tuple(ranges)) for ranges in shared.values()]
        return sorted(parts, key=lambda each: each.ranges[0][1].begin)  # of each read, in log order

    def _plans(self) -> dict[str, ReadPlan]:
        """Plan each read; where no queue can look anything up, reads that share a scan share its plan, too."""
        plans: dict[str, ReadPlan] = {}
        shared: ReadPlan | None = None
        has_queues = _has_queue_files(self.paths)
        for name, read in self.reads.items():
            can_share = not has_queues and can_survey(read)
            plans[name] = shared if can_share and shared is not None else self._plan(read)
            shared = plans[name] if can_share else shared
        return plans

    def _plan(self, read: MessageRead) -> ReadPlan:
        """Plan a read; the last bodies tell where the log ends, whether the others are checked or not."""
        return plan_ranges(self.paths, replace(read.options, verify_crc=True))

    def run(self, part: ReadPart) -> list[tuple[str, pa.Table]]:
        """Read one part."""
        if len(part.ranges) == 1 and not self._wins_alone(*part.ranges[0]):
            return [(name, self.reads[name].rows_of(each)) for name, each in part.ranges]
        return surveyed({name: (self.reads[name], each) for name, each in part.ranges})

    def _wins_alone(self, name: str, part: ReadRange) -> bool:
        """Return whether even one read by flags is faster if a scan chooses its few records: it has no filter."""
        read = self.reads[name]
        return bool(read.flag_bits) and part.picks is None and part.segment.is_mapped and can_survey(read)

    def merge(self, partials: Iterable[list[tuple[str, pa.Table]]]) -> FoundRows:
        """Put the rows of each read together."""
        found: dict[str, list[pa.Table]] = {name: [] for name in self.reads}
        for name, table in (each for partial in partials for each in partial):
            found[name].append(table)
        return FoundRows({name: self.reads[name].whole(tables) for name, tables in found.items()}, self.notes)


def _has_queue_files(paths: StorePaths) -> bool:
    """Return whether a store has queues, of whatever kind, that may look records up."""
    kinds = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)
    return any(
        any((root / kind).is_dir() for kind in kinds) or queue_database(root, OsFileSystem()) is not None
        for root in store_roots(paths)
    )


def _without_tail(part: ReadRange) -> ReadRange:
    """Return a range without what a dead writer left after the log's end: that is no damage in it."""
    return replace(part, end=min(part.end, part.data_end), torn_end=0)

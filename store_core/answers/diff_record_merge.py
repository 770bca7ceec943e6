# SPDX-License-Identifier: Apache-2.0
"""Merging what a comparison record by record found into one report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.answers.diff_merge import AheadRecords, ahead_rows, extent_facts, log_rows, topic_rows
from store_core.answers.diff_report import DiffFacts, DiffReport
from store_core.files.segment_source import open_segment
from store_core.format.columnar.records import Records
from store_core.store.diff.diff_options import DiffBy
from store_core.store.diff.record_rows import TopicCount, count_topics, record_rows
from store_core.store.diff.segment_diff import CHANGED, ONLY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.store.diff.diff_options import DiffOptions
    from store_core.store.diff.log_pair import LogPair
    from store_core.store.diff.log_side import LogSide
    from store_core.store.diff.record_digests import Unmatched

__all__ = ["merge_records"]


@dataclass(frozen=True, slots=True, eq=False)
class _Own:
    """Records of one log that the other does not have: before, among and after those that both have."""

    before: npt.NDArray[np.int64]
    inside: npt.NDArray[np.int64]
    after: npt.NDArray[np.int64]

    @classmethod
    def of(cls, offsets: npt.NDArray[np.int64], first: int, last: int) -> _Own:
        ordered = np.sort(offsets)
        if first < 0:
            return cls(ordered[:0], ordered, ordered[:0])
        cuts = np.searchsorted(ordered, (first, last)).tolist()
        return cls(ordered[: cuts[0]], ordered[cuts[0] : cuts[1]], ordered[cuts[1] :])


def merge_records(pair: LogPair, options: DiffOptions, partials: Iterable[Unmatched]) -> DiffReport:
    """Make the report of a comparison record by record.

    What only one log has before the first or after the last record that both have, is what retention deleted in the
    other, or what that does not have yet. Where both have records of their own there, these are differences.
    """
    found = list(partials)
    own = {
        "a": _own([each.a for each in found], [(each.first_a, each.last_a) for each in found]),
        "b": _own([each.b for each in found], [(each.first_b, each.last_b) for each in found]),
    }
    only = {side: _differing(own[side], own[other]) for side, other in (("a", "b"), ("b", "a"))}
    sides = {"a": pair.a, "b": pair.b}
    rows = [row for side in sides for row in _rows(sides[side], only[side][: options.most_rows])]
    _name_kinds(rows)
    ahead = {side: _ahead(sides[side], own[side].after) for side in sides if _is_alone(own, side, "after")}
    changed = sum(row["kind"] == CHANGED and row["side"] == "a" for row in rows)
    starts = [int(offsets[0]) for offsets in only.values() if offsets.size]
    facts = DiffFacts(
        by=DiffBy.RECORDS.value,
        begin=pair.begin,
        end=pair.begin,
        first_difference=min(starts, default=None),
        changed_records=changed,
        only_a_records=int(only["a"].size) - changed,
        only_b_records=int(only["b"].size) - changed,
        **_extent(pair, options, own, ahead),
    )
    topics = {(side, topic): count for side in sides for topic, count in _topics(sides[side], only[side]).items()}
    tables = {
        "logs": log_rows(pair),
        "records": sorted(rows, key=lambda row: (row["topic"], row["queue_id"], row["queue_offset"], row["side"])),
        "topics": topic_rows(topics),
        "ahead": ahead_rows(ahead, facts.stale_side),
    }
    return DiffReport.of(facts, tables)


def _own(offsets: Sequence[npt.NDArray[np.int64]], matched: Sequence[tuple[int, int]]) -> _Own:
    bounds = [each for each in matched if each[0] >= 0]
    first, last = min((each[0] for each in bounds), default=-1), max((each[1] for each in bounds), default=-1)
    return _Own.of(np.concatenate([np.empty(0, np.int64), *offsets]), first, last)


def _differing(own: _Own, others: _Own) -> npt.NDArray[np.int64]:
    """Return the records that are differences, and not just before or after what the other log has."""
    before = own.before if others.before.size else own.before[:0]
    after = own.after if others.after.size else own.after[:0]
    return np.concatenate([before, own.inside, after])


def _is_alone(own: dict[str, _Own], side: str, place: str) -> bool:
    """Return whether only this log has records of its own before, or after, those that both have."""
    sizes = {name: getattr(each, place).size for name, each in own.items()}
    return bool(sizes.pop(side)) and not any(sizes.values())


def _extent(pair: LogPair, options: DiffOptions, own: dict[str, _Own], ahead: AheadRecords) -> dict[str, Any]:
    """Return the facts about the extents; offsets of the two logs say nothing about each other here."""
    sides = {"a": pair.a, "b": pair.b}
    earlier = {
        f"earlier_bytes_{side}": sum(
            count.size for count in _topics(sides[side], own[side].before).values()
        ) if _is_alone(own, side, "before") else 0
        for side in sides
    }  # fmt: skip
    notes = ["records were compared wherever in the log they are, not the bytes at each offset"]
    facts = extent_facts(pair, options, ahead)
    return facts | earlier | {"notes": (*pair.a.notes, *pair.b.notes, *notes)}


# ---- reading the records


def _pieces(side: LogSide, offsets: npt.NDArray[np.int64]) -> Iterator[Records]:
    """Yield the records at some ascending offsets, segment by segment."""
    for segment in side.segments:
        mine = offsets[slice(*np.searchsorted(offsets, (segment.start_offset, segment.end_offset)).tolist())]
        if mine.size:
            with open_segment(segment) as opened:
                yield Records(opened.raw, mine - segment.start_offset, segment.name, segment.start_offset)


def _rows(side: LogSide, offsets: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    return [{"side": side.name, **row} for records in _pieces(side, offsets) for row in record_rows(records)]


def _name_kinds(rows: list[dict[str, Any]]) -> None:
    """Call a record changed if the other log's list has one at its place in its queue."""
    places = {side: {_place(row) for row in rows if row["side"] == side} for side in ("a", "b")}
    both = places["a"] & places["b"]
    for row in rows:
        row["kind"] = CHANGED if _place(row) in both else ONLY


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["queue_id"], row["queue_offset"]


def _topics(side: LogSide, offsets: npt.NDArray[np.int64]) -> dict[str, TopicCount]:
    topics: dict[str, TopicCount] = {}
    for records in _pieces(side, offsets):
        for topic, count in count_topics(records).items():
            topics[topic] = count.plus(topics.get(topic, TopicCount(0, 0)))
    return topics


def _ahead(side: LogSide, offsets: npt.NDArray[np.int64]) -> tuple[TopicCount, tuple[int, int]]:
    total, times = TopicCount(0, 0), (0, 0)
    for number, records in enumerate(_pieces(side, offsets)):
        stored = records.heads.column("store_timestamp")
        total = total.plus(TopicCount(len(records), int((records.spans.stops - records.spans.starts).sum())))
        times = (int(stored[0]) if not number else times[0]), int(stored[-1])
    return total, times

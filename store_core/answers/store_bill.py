# SPDX-License-Identifier: Apache-2.0
"""The answer `bill`: who uses the disk, and what would be gained without them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from store_core.answers.billing.bill_report import BillFacts, BillReport
from store_core.answers.billing.bill_sums import BillSums
from store_core.answers.limits import TOP
from store_core.answers.local_engine import local_engine
from store_core.answers.scanning.message_scan import MessageScan
from store_core.answers.scanning.top_rows import top_rows, uncertain_note
from store_core.broker.topic_kind import TopicKind, kind_of_topic
from store_core.files.store_path import store_roots
from store_core.format.utc_day import iso_day
from store_core.snapshot.config import TOPICS, Config
from store_core.snapshot.log import Log
from store_core.store.configured_store import configured_paths
from store_core.store.least_value import check_least

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from store_core.answers.scanning.group_table import GroupTable
    from store_core.answers.scanning.message_scan import ScanCounts
    from store_core.files.store_path import StorePaths
    from store_core.store.parts import Engine, ProgressSink

__all__ = ["BillJob", "bill", "bill_by"]

_SUMMED: Final = ("messages", "bytes")
_TABLES: Final = {
    "topics": "topics",
    "queues": "queues",
    "tags": "pairs of topic and tags",
    "producers": "producers",
    "days": "days",
    "places": "pairs of topic and segment",
}
"""Groups -> what they are, in words."""


class BillJob(MessageScan[BillSums, BillReport]):
    """Totals a log range by range.

    Parameters
    ----------
    store : path or sequence of paths
    top : int
        Rows of each table, without the one for all others.
    """

    COLUMNS: ClassVar = ("topic", "queue_id", "tags", "born_host", "store_timestamp")

    def __init__(self, store: StorePaths, top: int = TOP) -> None:
        check_least(1, top=top)
        super().__init__(store)
        self._paths = store
        self._top = top

    def nothing(self) -> BillSums:
        """Return empty totals."""
        return BillSums()

    def report(self, found: BillSums, counts: ScanCounts) -> BillReport:
        """Make the report."""
        log = Log.for_reading(self._paths)
        configured, notes = _configured_topics(self._paths)
        topics = _Topics(found, counts.bytes, log.usual_size, configured)
        tables = {name: top_rows(getattr(found, name), self._top, _SUMMED) for name in ("queues", "tags", "producers")}
        tables |= {"topics": topics.rows(self._top), "kinds": topics.kinds(), "days": _days(found.days, self._top)}
        for row in (row for rows in tables.values() for row in rows):
            row["percent"] = round(100 * row["bytes"] / counts.bytes, 2) if counts.bytes else 0.0
        facts = BillFacts(
            store=self.store,
            messages=counts.messages,
            bytes=counts.bytes,
            dead_bytes=sum(row["bytes"] for row in tables["kinds"] if row["is_dead"]),
            segments=len(log.segments),
            segment_size=log.usual_size,
            file_bytes=sum(each.size for each in log.segments),
            damaged_ranges=counts.damaged_ranges,
            damaged_bytes=counts.damaged_bytes,
            notes=(*self.notes, *notes, *_uncertain(found)),
        )
        return BillReport.of(facts, tables)


def bill_by(engine: Engine, store: StorePaths, top: int = TOP) -> BillReport:
    """Make a bill on an engine; see `bill`."""
    return engine.run(BillJob(store, top))


def bill(
    store: StorePaths,
    top: int = TOP,
    *,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
) -> BillReport:
    """Total bytes and messages by topic, queue, tags, producer and day, and say which of them are dead.

    A segment file is deleted as a whole, so what a topic costs is counted in segments, too: those that have nothing
    else, and those that the same records would fill less without it. Memory does not grow with the store: with more
    than 65,536 groups of a kind, the smallest are totalled as one, and a note says so. Nothing is written or locked.

    Parameters
    ----------
    store : path or sequence of paths
        As of `store_core.read_messages`.
    top : int
        Rows of each table, the largest; one more has the totals of all others.
    config : path, optional
        The broker's configuration, as of option `config` of `store_core.read_messages`.
    processes : int
        1 is this process alone. More are started by ``spawn``, so a script has to call this below
        ``if __name__ == "__main__":``.
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part.

    Raises
    ------
    StoreError
        If there is nothing to read, or `top` is less than 1.

    Examples
    --------
    >>> from store_core.answers import bill
    >>> report = bill("/data/store")  # doctest: +SKIP
    >>> report.tables["topics"].to_pylist()[0]["bytes"]  # doctest: +SKIP
    """
    store = configured_paths(store, config)
    with local_engine(processes, on_progress) as engine:
        return bill_by(engine, store, top)


# ---- the report


@dataclass(frozen=True, slots=True)
class _Topics:
    """What there is to say of topics: totals, the size of segments, and the topics that the broker knows, if any."""

    sums: BillSums
    bytes: int
    segment_size: int
    configured: frozenset[str] | None

    def rows(self, top: int) -> list[dict[str, Any]]:
        """Return the rows of the largest topics."""
        rows = top_rows(self.sums.topics, top, _SUMMED)
        some, own = _segments_of(self.sums)
        for row in rows:
            row["segments_saved"] = self._filled(self.bytes) - self._filled(self.bytes - row["bytes"])
            if "topic" in row:
                name = row["topic"]
                row |= {"kind": self._kind(name), "is_dead": self._is_dead(name)}
                row |= {"segments": some[name], "own_segments": own[name]}
        return rows

    def kinds(self) -> list[dict[str, Any]]:
        """Return a row for each kind of topic."""
        found: dict[str, dict[str, Any]] = {}
        for row in self.sums.topics.table().select(["topic", *_SUMMED]).to_pylist():
            name = row["topic"]
            meaning = kind_of_topic(name).value if self._is_known(name) else "topics that topics.json does not have"
            empty = {"is_dead": self._is_dead(name), "meaning": meaning, "topics": 0, "messages": 0, "bytes": 0}
            total = found.setdefault(self._kind(name), empty)
            total["topics"] += 1
            for each in _SUMMED:
                total[each] += row[each]
        rows = [{"kind": kind, **total} for kind, total in found.items()]
        return sorted(rows, key=lambda row: (-row["bytes"], row["kind"]))

    def _filled(self, size: int) -> int:
        """Return how many segments records of this size fill."""
        return -(-size // max(self.segment_size, 1))

    def _is_known(self, topic: str) -> bool:
        is_application = kind_of_topic(topic) is TopicKind.APPLICATION
        return not is_application or self.configured is None or topic in self.configured

    def _is_dead(self, topic: str) -> bool:
        return kind_of_topic(topic) is not TopicKind.APPLICATION or not self._is_known(topic)

    def _kind(self, topic: str) -> str:
        return kind_of_topic(topic).name.lower() if self._is_known(topic) else "unconfigured"


def _segments_of(sums: BillSums) -> tuple[Counter[str], Counter[str]]:
    """Return for each topic in how many segments it is, and in how many it is alone."""
    sizes = dict(zip(*(sums.segments.table()[name].to_pylist() for name in ("segment", "bytes")), strict=True))
    some: Counter[str] = Counter()
    own: Counter[str] = Counter()
    for row in sums.places.table().select(["topic", "segment", "bytes"]).to_pylist():
        some[row["topic"]] += 1
        own[row["topic"]] += row["bytes"] == sizes.get(row["segment"])
    return some, own


def _days(days: GroupTable, top: int) -> list[dict[str, Any]]:
    *rows, last = [*top_rows(days, top, _SUMMED), {}]
    if rows and "others" in rows[-1]:
        last = rows.pop()
    rows.sort(key=lambda row: row["day"])
    named = [row | {"day": iso_day(row["day"])} for row in rows]
    return [*named, last] if last else named


def _uncertain(sums: BillSums) -> Iterable[str]:
    return (note for name, what in _TABLES.items() for note in uncertain_note(getattr(sums, name), what))


def _configured_topics(paths: StorePaths) -> tuple[frozenset[str] | None, tuple[str, ...]]:
    """Return the topics that the broker has configured, and what is to be said of that."""
    root = store_roots(paths)[0]
    found, notes = Config(root).known(TOPICS, "which topics the broker has")
    if found is None and not notes:
        return None, (f"which topics the broker has is not known: {root} has no config/{TOPICS.name}",)
    return None if found is None else frozenset(found), notes

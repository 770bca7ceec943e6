# SPDX-License-Identifier: Apache-2.0
"""The report of a check: findings, and a certificate of continuity for each queue."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

import pyarrow as pa

from store_core.answers.checking.finding import FindingKind
from store_core.answers.plots import Bar, Bars, Strip, Tone, lanes_of
from store_core.answers.report import Fact, Report, ReportColumn, ReportSchema, ReportTable
from store_core.answers.text_table import message_name
from store_core.answers.verdict import Verdict
from store_core.format.words import counted
from store_core.store.read.ranges import Check, Coverage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from store_core.answers.checking.finding import Tally
    from store_core.answers.plots import Plot

__all__ = [
    "ASKED_FOR",
    "CHECK_SCHEMA",
    "Certificate",
    "CheckFacts",
    "CheckReport",
    "check_plots",
    "digest_of",
    "text_of_findings",
]

ASKED_FOR: Final = "it was asked for"
"""Why a release's rules were followed."""

_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_TOPIC: Final = ReportColumn("topic", _TEXT, "name of the topic")
_QUEUE: Final = ReportColumn("queue_id", _LONG, "queue of the topic")

CHECK_SCHEMA: Final = ReportSchema(
    "check",
    1,
    (
        Fact("store", "the store root"),
        Fact("release", "the RocketMQ release whose rules were followed"),
        Fact("release_why", "why of that release: asked for, or told from the store's files"),
        Fact("was_closed", "whether the store was closed: no broker holds it, and there is no file `abort`"),
        Fact("is_live", "whether a broker holds the store's lock: it is compared as of one moment"),
        Fact("segments", "segment files that were read"),
        Fact("records", "records in them"),
        Fact("min_offset", "physical offset at which the log begins"),
        Fact("end_offset", "physical offset one past the last sound record"),
        Fact("queues", "queues of which the log has records"),
        Fact("complete_queues", "how many of them are complete, as the table `certificates` explains it"),
        Fact("digest", "SHA-256 of the table `certificates`, as JSON with sorted keys"),
        Fact("notes", "what is no finding, such as what a crash leaves, and what an operator should know"),
        Fact("checked", "which checks were made"),
        Fact("not_checked", "which checks were not made"),
    ),
    (
        ReportTable(
            "counts",
            "Findings",
            (
                ReportColumn("kind", _TEXT, "what is wrong"),
                ReportColumn("count", _LONG, "how many there are"),
                ReportColumn("meaning", _TEXT, "the kind in words"),
            ),
        ),
        ReportTable(
            "findings",
            "The first of each kind",
            (
                ReportColumn("kind", _TEXT, "what is wrong"),
                ReportColumn("where", _TEXT, "the file or directory", in_text=False),
                _TOPIC,
                _QUEUE,
                ReportColumn("queue_offset", _LONG, "place in the queue"),
                ReportColumn("begin", _LONG, "physical offset of the bytes of the log that it is about"),
                ReportColumn("end", _LONG, "physical offset one past them, for a damaged range"),
                ReportColumn("expected", _TEXT, "what the log says"),
                ReportColumn("found", _TEXT, "what is there"),
            ),
        ),
        ReportTable(
            "certificates",
            "What is certain of each queue",
            (
                _TOPIC,
                _QUEUE,
                ReportColumn("first_offset", _LONG, "first queue offset"),
                ReportColumn("next_offset", _LONG, "queue offset after the last one"),
                ReportColumn("records", _LONG, "records of the queue in the log"),
                ReportColumn(
                    "is_complete",
                    pa.bool_(),
                    "whether the log has a record for each of these queue offsets, none twice, and the queue a right "
                    "unit of each",
                ),
                ReportColumn(
                    "digest",
                    _TEXT,
                    "SHA-256 of the queue as the log has it: of the queue offsets of its units (8 bytes each, least "
                    "byte first), then of physical offset, size, tags code and number of messages of each",
                    in_text=False,
                ),
            ),
        ),
    ),
)


class Certificate(NamedTuple):
    """What is certain of one queue: a row of the table ``certificates``."""

    topic: str
    queue_id: int
    first_offset: int
    next_offset: int
    records: int
    is_complete: bool
    digest: str


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """The facts of a check, as `CHECK_SCHEMA` explains them."""

    store: str
    release: str
    release_why: str
    was_closed: bool
    is_live: bool
    segments: int
    records: int
    min_offset: int
    end_offset: int
    queues: int
    complete_queues: int
    digest: str
    notes: tuple[str, ...]
    coverage: Coverage

    @property
    def checked(self) -> list[str]:
        """Which checks were made."""
        return self.coverage.as_json()["checked"]

    @property
    def not_checked(self) -> list[str]:
        """Which checks were not made."""
        return self.coverage.as_json()["not_checked"]


class CheckReport(Report[CheckFacts]):
    """The report of a check, as `CHECK_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = CHECK_SCHEMA

    @classmethod
    def of_tally(cls, found: CheckFacts, tally: Tally, certificates: Sequence[Certificate]) -> Self:
        """Make the report of facts, findings and certificates."""
        rows = {
            "counts": [{"kind": kind, "count": count, "meaning": kind.meaning} for kind, count in tally.counts],
            "findings": [finding._asdict() | {"expected": finding.expected or None} for finding in tally.first],
            "certificates": [each._asdict() for each in certificates],
        }
        return cls.of(found, rows)

    @property
    def counts(self) -> dict[str, int]:
        """How many findings of each kind there are."""
        table = self.tables["counts"]
        return dict(zip(table["kind"].to_pylist(), table["count"].to_pylist(), strict=True))

    @property
    def verdict(self) -> Verdict:
        """Findings if there is any; what a crash or a running broker leaves is none."""
        return Verdict.FINDINGS if self.counts else Verdict.CLEAN

    @property
    def plots(self) -> tuple[Plot, ...]:
        """Where in the log findings are, and how complete queues are."""
        return tuple(check_plots(self.found.min_offset, self.found.end_offset, self.tables))

    def _in_text(self, table: ReportTable) -> pa.Table:
        return text_of_findings(self.tables[table.name]) if table.name == "findings" else super()._in_text(table)

    def _lines(self) -> Iterator[str]:
        found = self.found
        not_closed = "open" if found.is_live else "not closed: it crashed, or was copied while it was open"
        state = "closed" if found.was_closed else not_closed
        yield found.store
        yield f"by the rules of RocketMQ {found.release}; the store was {state}"
        if found.release_why != ASKED_FOR:
            yield f"the release is told by the store: {found.release_why}"
        bounds = f"from offset {found.min_offset} to {found.end_offset}"
        yield f"{counted(found.records, 'record')} {bounds}, in {counted(found.segments, 'segment')}"
        if Check.QUEUES in found.coverage.checked:
            queues = f"{found.complete_queues} of {counted(found.queues, 'queue')}"
            yield f"complete, without gaps, duplicates or misplaced records: {queues}"
        count = sum(self.counts.values())
        yield counted(count, "finding") if count else "no findings"
        yield from (f"note: {text}" for text in found.notes)
        yield from found.coverage.lines


def digest_of(certificates: Iterable[Certificate]) -> str:
    """Return the SHA-256 of certificates, as JSON with sorted keys, in hexadecimal digits."""
    return sha256(json.dumps([each._asdict() for each in certificates], sort_keys=True).encode()).hexdigest()


_MOST_QUEUES: Final = 40
_TONES: Final = {kind.value: Tone.BAD for kind in FindingKind}


def check_plots(begin: int, end: int, tables: Mapping[str, pa.Table]) -> Iterator[Plot]:
    """Yield the plots that have something to show.

    * `begin`, `end`: Physical offsets of the log.
    * `tables`: Those of the report.
    """
    rows = tables["findings"].select(["kind", "begin", "end"]).to_pylist()
    placed = ((row["kind"], row["begin"], row["end"] or row["begin"] + 1) for row in rows if row["begin"] is not None)
    lanes = lanes_of((each for each in placed if begin <= each[1] < end), _TONES, "place")
    if lanes:
        yield Strip("Where in the log the first of each kind are", begin, end, lanes)
    queues = list(map(_queue_bar, tables["certificates"].to_pylist()))
    if queues:
        yield _queues(queues)


def _queue_bar(row: Mapping[str, Any]) -> Bar:
    span = row["next_offset"] - row["first_offset"]
    state = "complete" if row["is_complete"] else "not complete"
    label = f"{state}, {counted(row['records'], 'record')}"
    name = f"{row['topic']}/{row['queue_id']}"
    return Bar(name, row["records"], Tone.GOOD if row["is_complete"] else Tone.BAD, label, span)


def _queues(bars: list[Bar]) -> Bars:
    """Show incomplete queues first, then those with the most records."""
    bars.sort(key=lambda bar: (bar.tone is Tone.GOOD, -bar.value))
    more = counted(len(bars) - _MOST_QUEUES, "more queue") if len(bars) > _MOST_QUEUES else ""
    return Bars("Queues, and the records that the log has of them", tuple(bars[:_MOST_QUEUES]), more)


_MOST_OF_A_KIND: Final = 3
_SCHEMA: Final = pa.schema({"kind": pa.string(), "message": pa.string(), "offset": pa.int64(), "what": pa.string()})


def text_of_findings(findings: pa.Table) -> pa.Table:
    """Return the first findings of each kind: the message as ``TOPIC/QUEUE/OFFSET``, its place in the log, and what."""
    shown: Counter[str] = Counter()
    rows = []
    for row in findings.to_pylist():
        shown[row["kind"]] += 1
        if shown[row["kind"]] <= _MOST_OF_A_KIND:
            message = message_name(row["topic"], row["queue_id"], row["queue_offset"])
            rows.append({"kind": row["kind"], "message": message, "offset": row["begin"], "what": _what(row)})
    return pa.Table.from_pylist(rows, _SCHEMA)


def _what(row: Mapping[str, Any]) -> str:
    end = "" if row["end"] is None else f"to {row['end']}: "
    expected = "" if row["expected"] is None else f"; expected {row['expected']}"
    return f"{end}{row['found']}{expected}"

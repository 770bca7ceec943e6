# SPDX-License-Identifier: Apache-2.0
"""The answer `check`: is a store whole? Commit log, consume queues and key index against each other."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import pyarrow as pa

from store_core.answers.answer import Answer, AnyReport, Kind, function_of, one_root, opt
from store_core.answers.plots import Bar, Bars, Plot, Strip, Tone, lanes_of
from store_core.answers.report import (
    Report,
    ReportSchema,
    ReportTable,
    Verdict,
    command_words,
    fact,
    number,
    shared,
    table,
    text,
    truth,
)
from store_core.answers.text_table import message_name
from store_core.format.release import RELEASES, release_hint
from store_core.format.words import counted
from store_core.store.rebuild.findings import FindingKind

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from store_core.answers.checked_store import CheckedStore
    from store_core.snapshot.store import Store
    from store_core.store.parts import Engine
    from store_core.store.read.ranges import Coverage
    from store_core.store.rebuild.plan import RebuildOptions


@dataclass(frozen=True)
class Compared(Answer[AnyReport]):
    """What is asked by comparing queues and index with the log."""

    release: str | None = opt(
        None,
        "RocketMQ that serves the store.",
        choices=RELEASES,
        hint=release_hint,
        shown_default="the one that served it last, as far as its files tell",
    )
    check_crc: bool = opt(
        True,  # noqa: FBT003 -- the default
        "Check each body's checksum.",
        flag="--bodies/--no-bodies",
        shown_default="bodies",
    )
    batch_topic: tuple[str, ...] = opt(
        (), "A topic whose queues are batch queues, besides those that are known to; can be repeated.", metavar="TOPIC"
    )
    hash_slot_num: int | None = opt(
        None,
        "Slots of an index file (maxHashSlotNum).",
        metavar="N",
        least=1,
        most=2**31 - 1,
        shown_default="as its files have, or 5000000",
    )
    index_num: int | None = opt(
        None,
        "Entries of an index file (maxIndexNum).",
        metavar="N",
        least=1,
        most=2**31 - 1,
        shown_default="as its files have, or 20000000",
    )
    max_queues: int | None = opt(
        None,
        "Refuse a log that names more queues than this.",
        metavar="N",
        least=1,
        most=2**31 - 1,
        shown_default="1,000,000",
    )
    config: str | os.PathLike[str] | None = opt(None, "", kind=Kind.FROM_CONFIG)
    store_path_commit_log: str | os.PathLike[str] | None = None

    def comparison(self, topic: tuple[str, ...] = ()) -> RebuildOptions:
        """Return the options of the comparison of queues, of all topics or of some, and of the index with the log."""
        from store_core.store.message_store_config import MessageStoreConfig
        from store_core.store.rebuild.plan import RebuildOptions

        has_index = True
        if self.config is not None:
            has_index = MessageStoreConfig.from_properties(self.config).message_index_enable
        given = {each.name: getattr(self, each.name) for each in fields(Compared) if each.name != "release"}
        return RebuildOptions(verify=True, with_index=has_index, topic=topic or None, **given)


@dataclass(frozen=True)
class Check(Compared["CheckReport"]):
    """Check that a store is whole: commit log, consume queues and key index against each other.

    Each record is compared with its units and index entries, and each unit and entry with its record. What a crash
    leaves at the log's end is noted, and is no finding. A store that a broker is writing is compared as of one moment.
    The exit code is 1 if there are findings.
    """

    NAME: ClassVar = "check"
    CONFIG_WORDS: ClassVar = "sizes that no file shows"
    JSON_FILE: ClassVar = ("certificate", "Write the report to a new file as well, as JSON for a ticket.")
    EXAMPLES: ClassVar = (
        "commitlog check /data/store",
        "commitlog check /data/store --topic orders --processes 4",
        "commitlog check /data/store --json > check.json",
        "commitlog check /data/store --html check.html",
        "commitlog check /data/store --certificate ticket-4711.json",
    )

    topic: tuple[str, ...] = opt((), "Only queues of this topic; can be repeated.", metavar="TOPIC")

    def on(self, engine: Engine, store: Store) -> CheckReport:
        """Check a store; scratch files are in the system's directory for temporary files."""
        from store_core.answers.check_job import checked_by

        return CheckReport.of_checked(
            checked_by(engine, one_root(store.paths), self.comparison(self.topic), self.release)
        )


check = function_of(Check)


# ---- the report

_QUEUE: Final = shared("topic", "queue_id")
RELEASE_GIVEN: Final = "it was asked for"


@dataclass(frozen=True, slots=True)
class CheckFacts:
    """The facts of a check."""

    coverage: Coverage  # the last two facts in words
    store: str = fact("the store root")
    release: str = fact("the RocketMQ release whose rules were followed")
    release_why: str = fact("why of that release: asked for, or told from the store's files")
    was_closed: bool = fact("whether the store was closed: no broker holds it, and there is no file `abort`")
    is_live: bool = fact("whether a broker holds the store's lock: it is compared as of one moment")
    segments: int = fact("segment files that were read")
    records: int = fact("records in them")
    min_offset: int = fact("physical offset at which the log begins")
    end_offset: int = fact("physical offset one past the last sound record")
    queues: int = fact("queues of which the log has records")
    complete_queues: int = fact("how many of them are complete, as the table `certificates` explains it")
    digest: str = fact("SHA-256 of the table `certificates`, as JSON with sorted keys")
    notes: tuple[str, ...] = fact("what is no finding, such as what a crash leaves, and what an operator should know")
    checked: tuple[str, ...] = fact("which checks were made")
    not_checked: tuple[str, ...] = fact("which checks were not made")


_TABLES: Final = (
    table("counts", "Findings", *shared("kind", "count", "meaning")),
    table(
        "findings",
        "The first of each kind",
        *shared("kind"),
        text("where", "the file or directory", in_text=False),
        *_QUEUE,
        *shared("queue_offset"),
        number("begin", "physical offset of the bytes of the log that it is about"),
        number("end", "physical offset one past them, for a damaged range"),
        text("expected", "what the log says"),
        text("found", "what is there"),
    ),
    table(
        "certificates",
        "What is certain of each queue",
        *_QUEUE,
        number("first_offset", "first queue offset"),
        number("next_offset", "queue offset after the last one"),
        number("records", "records of the queue in the log"),
        truth(
            "is_complete",
            "whether the log has a record for each of these queue offsets, none twice, and the queue a right "
            "unit of each",
        ),
        text(
            "digest",
            "SHA-256 of the queue as the log has it: of the queue offsets of its units (8 bytes each, least "
            "byte first), then of physical offset, size, tags code and number of messages of each",
            in_text=False,
        ),
    ),
)


class CheckReport(Report[CheckFacts]):
    """Whether a store is whole."""

    SCHEMA: ClassVar = ReportSchema.of("check", 1, CheckFacts, *_TABLES)

    @classmethod
    def of_checked(cls, checked: CheckedStore) -> Self:
        """Make the report of a check."""
        plan, compared, tally = checked.plan, checked.compared, checked.tally
        certificates = list(checked.certificates())
        found = CheckFacts(
            coverage=compared.coverage,
            store=str(plan.store),
            release=plan.rules.queue_rules.release,
            release_why=checked.release_why or RELEASE_GIVEN,
            was_closed=not checked.bounds.is_open,
            is_live=checked.is_live,
            segments=len(checked.compared.outcomes),
            records=compared.records,
            min_offset=plan.min_offset,
            end_offset=compared.end_offset,
            queues=len(certificates),
            complete_queues=sum(each["is_complete"] for each in certificates),
            digest=sha256(json.dumps(certificates, sort_keys=True).encode()).hexdigest(),
            notes=checked.notes,
            **{name: tuple(some) for name, some in compared.coverage.as_json().items()},
        )
        rows = {
            "counts": [{"kind": kind, "count": count, "meaning": kind.meaning} for kind, count in tally.counts],
            "findings": [finding._asdict() | {"expected": finding.expected or None} for finding in tally.first],
            "certificates": certificates,
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
        """Where in the log findings are, and what queues lack."""
        begin, end, plots = self.found.min_offset, self.found.end_offset, list[Plot]()
        rows = self.tables["findings"].select(["kind", "begin", "end"]).to_pylist()
        ranges = ((row["kind"], row["begin"], row["end"] or (row["begin"] or 0) + 1) for row in rows)
        lanes = lanes_of((each for each in ranges if each[1] is not None and begin <= each[1] < end), _TONES, "place")
        if lanes:
            plots.append(Strip("Where the first findings of each kind are in the log", begin, end, lanes))
        bars = sorted(filter(None, map(_lacking, self.tables["certificates"].to_pylist())), key=lambda bar: -bar.value)
        if bars:
            more = counted(len(bars) - _MOST_QUEUES, "more queue") if len(bars) > _MOST_QUEUES else ""
            title = "Queues that are not complete, and the records that they lack"
            plots.append(Bars(title, tuple(bars[:_MOST_QUEUES]), more))
        return tuple(plots)

    def _in_text(self, table: ReportTable) -> pa.Table:
        return _text_of_findings(self.tables[table.name]) if table.name == "findings" else super()._in_text(table)

    @property
    def next(self) -> Iterator[tuple[str, str]]:
        """What to do about the findings."""
        kinds, store = [kind for kind in FindingKind if kind in self.counts], self.found.store
        if any(kind.is_of_log for kind in kinds):
            yield command_words("salvage", store), "which records are sound, also behind damage; writes nothing"
        if FindingKind.CONFIG_OFFSET in kinds:
            yield command_words("lag", store), "whose offsets are wrong, and where each group is"
        if set(kinds) - {FindingKind.CONFIG_OFFSET} or not (self.found.was_closed or self.found.is_live):
            yield command_words("recover", store, "--dry-run"), "what a broker's start would cut off or rebuild"
        if any(kind.is_of_queues or kind.is_of_index for kind in kinds):
            yield command_words("repair", store), "what would make queues and index right; writes nothing"

    def _verdict_words(self) -> str:
        kinds = [kind for kind in FindingKind if kind in self.counts]
        parts = {
            "the log": any(kind.is_of_log for kind in kinds),
            "queues": any(kind.is_of_queues for kind in kinds),
            "the key index": any(kind.is_of_index for kind in kinds),
            "the checkpoint": FindingKind.CHECKPOINT in kinds,
            "configuration files": FindingKind.CONFIG_UNREADABLE in kinds,
            "stored offsets": FindingKind.CONFIG_OFFSET in kinds,
            "timers": FindingKind.TIMER_UNIT in kinds,
        }
        wrong = [name for name, is_wrong in parts.items() if is_wrong]
        named = " and ".join([", ".join(wrong[:-1]), *wrong[-1:]] if wrong[1:] else wrong)
        return f"something is wrong with {named}" if wrong else "nothing is wrong"

    def _lines(self) -> Iterator[str]:
        found = self.found
        not_closed = "open" if found.is_live else "not closed: it crashed, or was copied while it was open"
        state = "closed" if found.was_closed else not_closed
        yield self._verdict_words()
        yield found.store
        yield f"by the rules of RocketMQ {found.release}; the store was {state}"
        if found.release_why != RELEASE_GIVEN:
            yield f"the release is told by the store: {found.release_why}"
        bounds = f"from offset {found.min_offset} to {found.end_offset}"
        yield f"{counted(found.records, 'record')} {bounds}, in {counted(found.segments, 'segment')}"
        if "queues" in found.checked:
            queues = f"{found.complete_queues} of {counted(found.queues, 'queue')}"
            yield f"complete, without gaps, duplicates or misplaced records: {queues}"
        count = sum(self.counts.values())
        yield counted(count, "finding") if count else "no findings"
        yield from (f"note: {text}" for text in found.notes)
        yield from found.coverage.lines


_MOST_QUEUES: Final = 40
_TONES: Final = {kind.value: Tone.BAD for kind in FindingKind}


def _lacking(row: Mapping[str, Any]) -> Bar | None:
    """Return what a queue lacks of its records; None if it is complete."""
    if row["is_complete"]:
        return None
    whole = row["next_offset"] - row["first_offset"]
    lost = max(whole - row["records"], 0)
    label = f"{lost:,} of {counted(whole, 'record')}" if lost else f"not certain, {counted(whole, 'record')}"
    return Bar(f"{row['topic']}/{row['queue_id']}", lost, Tone.BAD, label, whole)


_MOST_OF_A_KIND: Final = 3
_SCHEMA: Final = pa.schema({"kind": pa.string(), "message": pa.string(), "offset": pa.int64(), "what": pa.string()})


def _text_of_findings(findings: pa.Table) -> pa.Table:
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

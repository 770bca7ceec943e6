# SPDX-License-Identifier: Apache-2.0
"""The report of a comparison of two logs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.plots import Plot, Strip, Tone, lanes_of
from store_core.answers.report import (
    Report,
    ReportColumn,
    ReportSchema,
    Verdict,
    fact,
    moment,
    number,
    shared,
    table,
    text,
    truth,
)
from store_core.format.words import agreeing, counted
from store_core.store.segment_diff import DiffBy

if TYPE_CHECKING:
    from collections.abc import Iterator


_SIDE: Final = text("side", "`a` or `b`: which log has it")


@dataclass(frozen=True, slots=True)
class DiffFacts:
    """The facts of a comparison."""

    by: str = fact("`bytes` if the bytes at each physical offset were compared, `records` if the records, wherever")
    begin: int = fact("physical offset from which on both logs have bytes")
    end: int = fact("physical offset up to which bytes were compared; equal to `begin` if none were")
    first_difference: int | None = fact(
        "physical offset of the first byte that differs or that one log lacks, or null", default=None
    )
    differing_bytes: int = fact("bytes that differ", default=0)
    differing_ranges: int = fact("ranges of them; with fewer than 64 equal bytes between two, they are one", default=0)
    missing_bytes_a: int = fact("bytes within what was compared of which only b has a file", default=0)
    missing_bytes_b: int = fact("the same, the other way round", default=0)
    filler_bytes: int = fact(
        "differing bytes after a blank record that both have, which nobody reads: no difference", default=0
    )
    changed_records: int = fact("records that differ in bytes and are at the same place in both logs", default=0)
    only_a_records: int = fact("records that only a has, within what both logs should have", default=0)
    only_b_records: int = fact("records that only b has, within what both logs should have", default=0)
    earlier_bytes_a: int = fact("bytes of a before b begins", default=0)
    earlier_bytes_b: int = fact("bytes of b before a begins", default=0)
    ahead_records_a: int = fact("records of a after b ends", default=0)
    ahead_records_b: int = fact("records of b after a ends", default=0)
    stale_side: str | None = fact(
        "`a` or `b`: this log goes on after the other's end with older records; or null", default=None
    )
    is_same_extent_required: bool = fact("whether it is a finding that one log begins or ends elsewhere", default=False)
    notes: tuple[str, ...] = fact("what else an operator should know", default=())

    @property
    def has_differences(self) -> bool:
        """Whether anything differs in what both logs should have, or a log goes on with older records."""
        counts = (
            self.differing_bytes, self.missing_bytes_a, self.missing_bytes_b, self.changed_records,
            self.only_a_records, self.only_b_records,
        )  # fmt: skip
        return any(counts) or self.stale_side is not None

    @property
    def has_other_extent(self) -> bool:
        """Whether one log begins or ends elsewhere than the other."""
        return any((self.earlier_bytes_a, self.earlier_bytes_b, self.ahead_records_a, self.ahead_records_b))


_REPORT_TABLES: Final = (
    table(
        "logs",
        "The logs",
        _SIDE,
        text("path", "its store root", in_text=False),
        number("begin", "physical offset of its first byte"),
        number("end", "physical offset one past its last sound record"),
        number("segments", "segment files up to its end"),
        truth("is_live", "whether a broker holds its lock"),
        moment("last_store_timestamp", "store time of its last record"),
        number("torn_end", "end of the bytes of a dead writer after `end`, or null", in_text=False),
        number("stale_begin", "offset of older records after `end`, or null", in_text=False),
    ),
    table(
        "ranges",
        "Where bytes differ",
        *shared("begin", "end"),
        number("differing_bytes", "how many of them differ"),
        text("missing_in", "`a` or `b` if that log has no file there, else null"),
        text("segment", "file name, of a if it has one there"),
    ),
    table(
        "records",
        "Records that differ",
        _SIDE,
        text("kind", "`changed` if the other log has a record there, else `only`"),
        *shared("physical_offset"),
        *shared("store_size", in_text=False),
        *shared("topic", "queue_id", "queue_offset"),
        *shared("msg_id", in_text=False),
        *shared("keys"),
        *shared("unique_key", "store_timestamp", in_text=False),
        truth("is_sound", "whether its body matches its checksum"),
        names_messages=True,
    ),
    table(
        "topics",
        "Topics of the records that differ",
        *shared("topic"),
        _SIDE,
        number("records", "how many"),
        *shared("bytes"),
    ),
    table(
        "ahead",
        "Records after the other log's end",
        _SIDE,
        text("kind", "`ahead`, or `stale` if all are older than the other log's last"),
        number("records", "how many"),
        *shared("bytes"),
        moment("first_store_timestamp", "store time of the first"),
        moment("last_store_timestamp", "store time of the last"),
    ),
    table(
        "digests",
        "What was compared",
        *shared("begin"),
        number("end", "physical offset"),
        truth("is_equal", "whether all bytes that are read are equal"),
        ReportColumn("digest_a", pa.binary(), "BLAKE2b, 16 bytes, of these bytes of a; null without a file"),
        ReportColumn("digest_b", pa.binary(), "the same of b"),
    ),
)


_TONES: Final = {"log a": Tone.PLAIN, "log b": Tone.PLAIN, "differs": Tone.BAD}
"""Lanes of the plot, from top to bottom."""


class DiffReport(Report[DiffFacts]):
    """The result of comparing two logs."""

    SCHEMA: ClassVar = ReportSchema.of("diff", 1, DiffFacts, *_REPORT_TABLES)

    @property
    def verdict(self) -> Verdict:
        """Findings if anything differs within what both logs should have; a different extent only if asked for."""
        found = self.found
        is_finding = found.has_differences or (found.is_same_extent_required and found.has_other_extent)
        return Verdict.FINDINGS if is_finding else Verdict.CLEAN

    @property
    def subject(self) -> str:
        """The roots of both stores."""
        return " and ".join(self.tables["logs"]["path"].to_pylist())

    @property
    def plots(self) -> tuple[Plot, ...]:
        """Where each log is, and where they differ."""
        logs = [(f"log {row['side']}", row["begin"], row["end"]) for row in self.tables["logs"].to_pylist()]
        names = ("begin", "end")
        ranges = zip(*(self.tables["ranges"][name].to_pylist() for name in names), strict=True)
        records = self.tables["records"]["physical_offset"].to_pylist() if self.found.by == DiffBy.RECORDS.value else ()
        rows = [*logs, *(("differs", *each) for each in ranges), *(("differs", each, each + 1) for each in records)]
        begin, end = min(row[1] for row in logs), max(row[2] for row in logs)
        return (Strip("Where the logs are, and where they differ", begin, end, lanes_of(rows, _TONES)),)

    def _lines(self) -> Iterator[str]:
        found = self.found
        if found.has_differences:
            yield "the logs differ"
        else:
            yield "no differences" if not found.has_other_extent else "no differences in what both logs have"
        yield from _difference_lines(found)
        for side, other in (("a", "b"), ("b", "a")):
            values = asdict(found)
            if values[f"earlier_bytes_{side}"]:
                yield f"{side} begins {counted(values[f'earlier_bytes_{side}'], 'byte')} before {other}"
            if values[f"ahead_records_{side}"]:
                ahead = values[f"ahead_records_{side}"]
                is_older = agreeing(ahead, "that is older", "that are older")
                stale = agreeing(ahead, "it is stale", "they are stale")
                why = f" {is_older} than its last one: {stale}" if found.stale_side == side else ""
                yield f"{side} has {counted(ahead, 'record')} after the end of {other}{why}"
        if found.filler_bytes:
            differ = agreeing(found.filler_bytes, "differs", "differ")
            yield f"{counted(found.filler_bytes, 'byte')} that nobody reads {differ}, in the rest of closed files"
        yield from found.notes
        yield from (f"{row['side']}: {row['path']}" for row in self.tables["logs"].to_pylist())


def _difference_lines(found: DiffFacts) -> Iterator[str]:
    if found.first_difference is not None:
        yield f"the first difference is at offset {found.first_difference}"
    if found.differing_bytes:
        differ = agreeing(found.differing_bytes, "differs", "differ")
        yield f"{counted(found.differing_bytes, 'byte')} {differ}, in {counted(found.differing_ranges, 'range')}"
    for side, missing in (("a", found.missing_bytes_a), ("b", found.missing_bytes_b)):
        if missing:
            yield f"{side} lacks files with {counted(missing, 'byte')}"
    counts = (
        (found.changed_records, "changed"),
        (found.only_a_records, "only in a"),
        (found.only_b_records, "only in b"),
    )
    shown = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    if shown:
        yield f"records: {shown}"

# SPDX-License-Identifier: Apache-2.0
"""The report of a salvage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.report import Report
from store_core.answers.report_plots import Strip, Tone, lanes_of
from store_core.answers.report_schema import Fact, ReportColumn, ReportSchema, ReportTable
from store_core.answers.verdict import Verdict
from store_core.format.counted import agreeing, counted
from store_core.store.salvage.tile import TileKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.answers.report_plots import Plot

__all__ = ["SALVAGE_SCHEMA", "SalvageFacts", "SalvageReport"]

SALVAGE_SCHEMA: Final = ReportSchema(
    "salvage",
    1,
    (
        Fact("source", "the store root"),
        Fact("begin", "physical offset of the log's first byte"),
        Fact("end", "physical offset one past the last byte of its last segment"),
        Fact("into", "where the records went; null if nothing was written"),
        Fact("format", "`store` or `parquet`; null if nothing was written"),
        Fact("records", "records that were verified"),
        Fact("record_bytes", "their bytes"),
        Fact("after_damage", "how many of them are behind damage in their segment"),
        Fact("mismatched_property_crc", "how many of them differ from the checksum over the whole record"),
        Fact("covered_records", "sound records, not salvaged, in the rest of files that a blank record closes"),
        Fact("lost_ranges", "ranges without a record that proved itself"),
        Fact("lost_bytes", "bytes in them"),
        Fact("missing_bytes", "bytes of segments that are not there, between the first and the last"),
        Fact("notes", "what else an operator should know"),
    ),
    (
        ReportTable(
            "lost",
            "What was lost",
            (
                ReportColumn("begin", pa.int64(), "physical offset"),
                ReportColumn("end", pa.int64(), "physical offset one past the last"),
                ReportColumn("bytes", pa.int64(), "how many"),
                ReportColumn("reason", pa.string(), "why there is no record at `begin`"),
            ),
        ),
        ReportTable(
            "grades",
            "Evidence for the records",
            (
                ReportColumn("found_by", pa.string(), "`chain`, or `after_damage` in their segment"),
                ReportColumn("property_crc", pa.string(), "the checksum over the record: `none`, `match`, `mismatch`"),
                ReportColumn("records", pa.int64(), "how many; all match the checksum of their body, if they have one"),
            ),
        ),
        ReportTable(
            "ranges",
            "Every byte of the log",
            (
                ReportColumn("begin", pa.int64(), "physical offset"),
                ReportColumn("end", pa.int64(), "physical offset; where the next range begins"),
                ReportColumn(
                    "kind",
                    pa.string(),
                    "`records`, `lost`, `missing` (no file), `filler` (the rest of a closed file), `unwritten`, "
                    "`in progress` (a broker may be writing it) or `stale` (older records after the end)",
                ),
                ReportColumn("records", pa.int64(), "records in it"),
            ),
        ),
    ),
)


_TONES: Final = {
    TileKind.RECORDS.value: Tone.GOOD,
    TileKind.LOST.value: Tone.BAD,
    TileKind.MISSING.value: Tone.BAD,
    TileKind.STALE.value: Tone.WARNING,
    TileKind.IN_PROGRESS.value: Tone.WARNING,
    TileKind.FILLER.value: Tone.PLAIN,
    TileKind.UNWRITTEN.value: Tone.PLAIN,
}
"""Lanes of the plot, from top to bottom."""


@dataclass(frozen=True, slots=True)
class SalvageFacts:
    """The facts of a salvage, as `SALVAGE_SCHEMA` explains them."""

    source: str
    begin: int
    end: int
    into: str | None
    format: str | None
    records: int
    record_bytes: int
    after_damage: int
    mismatched_property_crc: int
    covered_records: int
    lost_ranges: int
    lost_bytes: int
    missing_bytes: int
    notes: tuple[str, ...] = ()


class SalvageReport(Report[SalvageFacts]):
    """The result of a salvage, as `SALVAGE_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = SALVAGE_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """Damaged if anything was lost or is missing, or is covered by a blank record."""
        is_damaged = self.found.lost_ranges or self.found.missing_bytes or self.found.covered_records
        return Verdict.DAMAGED if is_damaged else Verdict.CLEAN

    @property
    def subject(self) -> str:
        """The store root."""
        return self.found.source

    @property
    def plots(self) -> tuple[Plot, ...]:
        """What every byte of the log is, up to its end: beside a preallocated file a small log would not be seen."""
        names = ("kind", "begin", "end")
        rows = list(zip(*(self.tables["ranges"][name].to_pylist() for name in names), strict=True))
        end = self.found.end
        if len(rows) > 1 and rows[-1][0] == TileKind.UNWRITTEN.value:
            _, end, _ = rows.pop()
        return (Strip("What every byte of the log is, up to its end", self.found.begin, end, lanes_of(rows, _TONES)),)

    def _lines(self) -> Iterator[str]:
        return _lines(self.found)


def _lines(found: SalvageFacts) -> Iterator[str]:
    where = f", now in {found.into}" if found.into else "; nothing was written"
    verified = agreeing(found.records, "was verified", "were verified")
    yield f"{counted(found.records, 'record')} of {found.record_bytes:,} bytes {verified}{where}"
    if found.after_damage:
        yield f"{found.after_damage:,} of them {agreeing(found.after_damage, 'is', 'are')} behind damage"
    if found.mismatched_property_crc:
        match = agreeing(found.mismatched_property_crc, "does not match", "do not match")
        yield f"{found.mismatched_property_crc:,} of them {match} the checksum over the whole record"
    if found.covered_records:
        are, were = agreeing(found.covered_records, "is", "are"), agreeing(found.covered_records, "was", "were")
        yield (
            f"{counted(found.covered_records, 'sound record')} {are} behind a blank record that closes the file, and "
            f"{were} not salvaged: if damage put it there, overwrite its 8 bytes with zeros in a copy, and salvage that"
        )
    if found.lost_ranges:
        yield f"lost: {found.lost_bytes:,} bytes in {counted(found.lost_ranges, 'place')}"
    if found.missing_bytes:
        yield f"missing: {found.missing_bytes:,} bytes of segments that are not there"
    if not (found.lost_ranges or found.missing_bytes or found.covered_records):
        yield "nothing is lost"
    yield from found.notes

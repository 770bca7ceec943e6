# SPDX-License-Identifier: Apache-2.0
"""The report of an export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.plots import Bar, Bars, Tone
from store_core.answers.report import Fact, Report, ReportColumn, ReportSchema, ReportTable
from store_core.answers.verdict import Verdict
from store_core.format.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.answers.plots import Plot

__all__ = ["EXPORT_SCHEMA", "ExportFacts", "ExportReport"]

_LONG: Final = pa.int64()

EXPORT_SCHEMA: Final = ReportSchema(
    "export",
    1,
    (
        Fact("store", "the store root"),
        Fact("into", "the directory of the lake"),
        Fact("table", "format and name of the table that has the messages; null if they are Parquet files there"),
        Fact("number", "number of this export in the ledger; null if there was nothing new"),
        Fact("begin", "physical offset from which on the log was exported"),
        Fact("end", "physical offset one past it"),
        Fact("messages", "messages exported"),
        Fact("bytes", "bytes of their records"),
        Fact("files", "files written"),
        Fact("all_messages", "messages of all exports into the directory"),
        Fact("digest", "SHA-256 of the ledger's last entry, which names the one before, and so on; null if none"),
        Fact("lost_bytes", "bytes of the log that were gone before they were exported"),
        Fact("damaged_ranges", "ranges that are no message, and so are not exported, in pieces of 16 MiB at most"),
        Fact("damaged_bytes", "bytes in them"),
        Fact("notes", "what else an operator should know"),
    ),
    (
        ReportTable(
            "segments",
            "Segments",
            (
                ReportColumn("segment", _LONG, "physical offset at which it begins"),
                ReportColumn("messages", _LONG, "messages of it in this export"),
                ReportColumn("bytes", _LONG, "bytes of their records"),
                ReportColumn("crc_total", _LONG, "sum of the checksums of their bodies"),
            ),
        ),
        ReportTable(
            "files",
            "Files",
            (
                ReportColumn("path", pa.string(), "below the directory"),
                ReportColumn("messages", _LONG, "rows"),
                ReportColumn("size", _LONG, "bytes of the file"),
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class ExportFacts:
    """The facts of an export, as `EXPORT_SCHEMA` explains them."""

    store: str
    into: str
    table: str | None
    number: int | None
    begin: int
    end: int
    messages: int
    bytes: int
    files: int
    all_messages: int
    digest: str | None
    lost_bytes: int
    damaged_ranges: int
    damaged_bytes: int
    notes: tuple[str, ...] = ()


class ExportReport(Report[ExportFacts]):
    """The report of an export, as `EXPORT_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = EXPORT_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """Damaged if something is not exported because it is damaged or gone."""
        is_less = self.found.damaged_ranges or self.found.lost_bytes
        return Verdict.DAMAGED if is_less else Verdict.CLEAN

    @property
    def plots(self) -> tuple[Plot, ...]:
        """Bytes by segment."""
        rows = self.tables["segments"].to_pylist()
        bars = (Bar(f"{row['segment']:020d}", row["bytes"], Tone.GOOD, f"{row['bytes']:,} bytes") for row in rows)
        return (Bars("Bytes exported by segment", tuple(bars)),) if rows else ()

    def _lines(self) -> Iterator[str]:
        found = self.found
        all_messages = counted(found.all_messages, "message")
        if found.number is None:
            yield f"nothing new after offset {found.end}: the directory has {all_messages}"
        else:
            place = f"in {counted(found.files, 'file')}" if found.table is None else f"into {found.table}"
            yield f"export {found.number}: {counted(found.messages, 'message')} of {found.bytes:,} bytes, {place}"
            yield f"from offset {found.begin} to {found.end}; the directory now has {all_messages}"
        if found.lost_bytes:
            yield f"{found.lost_bytes:,} bytes of the log were gone before they were exported"
        if found.damaged_ranges:
            yield f"not exported: {found.damaged_bytes:,} bytes in {counted(found.damaged_ranges, 'damaged range')}"
        yield from found.notes

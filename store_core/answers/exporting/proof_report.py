# SPDX-License-Identifier: Apache-2.0
"""The report of a proof: whether a lake has what the log has."""

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

__all__ = ["PROOF_SCHEMA", "ProofFacts", "ProofReport"]

_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_SIDES: Final = ("ledger", "lake", "store")

PROOF_SCHEMA: Final = ReportSchema(
    "export-proof",
    1,
    (
        Fact("store", "the store root"),
        Fact("into", "the directory of the lake"),
        Fact("table", "format and name of the table that has the messages; null if they are Parquet files there"),
        Fact("exports", "entries of the ledger"),
        Fact("begin", "physical offset from which on the log was exported"),
        Fact("end", "physical offset one past it"),
        Fact("messages", "messages that the ledger has"),
        Fact("segments", "segments that they are of"),
        Fact("proved_segments", "segments of which ledger, lake and log have equal totals"),
        Fact("expired_segments", "segments that the store no longer has: there the lake equals the ledger, or differs"),
        Fact("differences", "rows of the table `findings`"),
        Fact("digest", "SHA-256 of the ledger's last entry, which names the one before, and so on; null if none"),
    ),
    (
        ReportTable(
            "findings",
            "What differs",
            (
                ReportColumn("what", _TEXT, "`segment`, `file` or `unknown_file`"),
                ReportColumn("where", _TEXT, "the segment's physical offset, or the file below the directory"),
                ReportColumn("expected", _TEXT, "what the ledger has"),
                ReportColumn("found", _TEXT, "what is there"),
            ),
        ),
        ReportTable(
            "segments",
            "Segments",
            (
                ReportColumn("segment", _LONG, "physical offset at which it begins"),
                ReportColumn("state", _TEXT, "`proved`, `expired` or `differs`"),
                *(ReportColumn(f"{side}_messages", _LONG, f"messages that the {side} has") for side in _SIDES),
                *(
                    ReportColumn(
                        f"{side}_crc_total", _LONG, f"sum of the checksums of the {side}'s bodies", in_text=False
                    )
                    for side in _SIDES
                ),
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class ProofFacts:
    """The facts of a proof, as `PROOF_SCHEMA` explains them."""

    store: str
    into: str
    table: str | None
    exports: int
    begin: int
    end: int
    messages: int
    segments: int
    proved_segments: int
    expired_segments: int
    differences: int
    digest: str | None


class ProofReport(Report[ProofFacts]):
    """The report of a proof, as `PROOF_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = PROOF_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """Findings if anything differs."""
        return Verdict.FINDINGS if self.found.differences else Verdict.CLEAN

    @property
    def subject(self) -> str:
        """The directory of the lake."""
        return self.found.into

    @property
    def plots(self) -> tuple[Plot, ...]:
        """Messages by segment: what the lake has, before what the ledger has."""
        tones = {"proved": Tone.GOOD, "expired": Tone.PLAIN, "differs": Tone.BAD}
        rows = self.tables["segments"].to_pylist()
        bars = (
            Bar(
                f"{row['segment']:020d}",
                row["lake_messages"],
                tones[row["state"]],
                f"{row['state']}, {counted(row['lake_messages'], 'message')}",
                row["ledger_messages"],
            )
            for row in rows
        )
        return (Bars("Messages that the lake has, by segment", tuple(bars)),) if rows else ()

    def _lines(self) -> Iterator[str]:
        found = self.found
        bounds = f"from offset {found.begin} to {found.end}"
        yield f"{counted(found.exports, 'export')}: {counted(found.messages, 'message')} {bounds}"
        yield f"{found.proved_segments} of {counted(found.segments, 'segment')}: ledger, lake and log have equal totals"
        if found.expired_segments:
            yield f"{counted(found.expired_segments, 'segment')} no longer in the store: compared with the ledger alone"
        yield counted(found.differences, "difference") if found.differences else "nothing differs"

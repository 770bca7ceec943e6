# SPDX-License-Identifier: Apache-2.0
"""The report of a repair."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.report import Report
from store_core.answers.report_plots import counted
from store_core.answers.report_schema import Fact, ReportColumn, ReportSchema, ReportTable
from store_core.answers.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["REPAIR_SCHEMA", "RepairFacts", "RepairReport"]

REPAIR_SCHEMA: Final = ReportSchema(
    "repair",
    1,
    (
        Fact("store", "the store root"),
        Fact("plan", "digest of the plan that was carried out"),
        Fact("kept", "directory with what was replaced; null if nothing was"),
        Fact("resumed", "directory of a replacement that an earlier run began, and this one finished; null if none"),
        Fact("is_checkpoint_written", "whether the checkpoint was written"),
        Fact("left", "findings that no repair of queues and index mends"),
    ),
    (
        ReportTable(
            "places",
            "What was replaced",
            (
                ReportColumn("place", pa.string(), "path in the store, and of the old files below `kept`"),
                ReportColumn("is_new", pa.bool_(), "whether there are new files in its place"),
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class RepairFacts:
    """The facts of a repair, as `REPAIR_SCHEMA` explains them."""

    store: str
    plan: str
    kept: str | None
    resumed: str | None
    is_checkpoint_written: bool
    left: int


class RepairReport(Report[RepairFacts]):
    """The result of a repair, as `REPAIR_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = REPAIR_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """Findings if the store still has some, of other kinds."""
        return Verdict.FINDINGS if self.found.left else Verdict.CLEAN

    @property
    def subject(self) -> str:
        """The store root."""
        return self.found.store

    def _lines(self) -> Iterator[str]:
        found = self.found
        yield found.store
        if found.resumed:
            kept = Path(found.resumed).name
            yield f"finished the replacement that an earlier run began; the old files are in {kept}"
        if found.kept:
            replaced = counted(self.tables["places"].num_rows, "place")
            yield f"replaced {replaced}; the old files are in {Path(found.kept).name}"
        else:
            yield "queues and index are right: nothing was replaced"
        if found.is_checkpoint_written:
            yield "the checkpoint is written: no time in it is later than the last record"
        if found.left:
            yield f"{found.left:,} findings are left that no repair of queues and index mends: see commitlog check"

# SPDX-License-Identifier: Apache-2.0
"""The report of a repair."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.report import Fact, Report, ReportColumn, ReportSchema, ReportTable
from store_core.answers.verdict import Verdict
from store_core.format.words import agreeing, counted

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
        Fact("is_resumed", "whether this run finished a replacement that an earlier one began"),
        Fact("resumed", "directory with what that one replaced; null if nothing was"),
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
    is_resumed: bool
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

    def _lines(self) -> Iterator[str]:
        found, places = self.found, self.tables["places"].num_rows
        yield found.store
        if found.is_resumed:
            yield f"finished the replacement that an earlier run began{_old_files(found.resumed)}"
        if found.kept:
            yield f"replaced {counted(places, 'place')}{_old_files(found.kept)}"
        elif places:
            yield f"made what was missing in {counted(places, 'place')}: there are no old files to keep"
        else:
            yield "queues and index are right: nothing was replaced"
        if found.is_checkpoint_written:
            yield "the checkpoint is written: nothing in it is after the last record"
        if found.left:
            left = f"{counted(found.left, 'finding')} {agreeing(found.left, 'is', 'are')} left"
            yield f"{left} that no repair of queues and index mends: see commitlog check"


def _old_files(kept: str | None) -> str:
    return "" if kept is None else f"; the old files are in {Path(kept).name}"

# SPDX-License-Identifier: Apache-2.0
"""An answer about several stores: one report over all where sums have a meaning, else a report for each."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from store_core.answers.report import OfStore, Report, ReportSchema, ReportTable, Verdict, fact
from store_core.format.columns import STORE
from store_core.format.words import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import tzinfo


# ---- sums


def summed(stores: Sequence[OfStore]) -> Report[Any]:
    """Return one report over all: facts are added up, and the rows of tables say of which store they are."""
    reports = {each.name: each.report for each in stores if each.report is not None}
    first = next(iter(reports.values()))
    notes = [f"{name}: {note}" for name, report in reports.items() for note in report.found.notes]
    notes += [f"{each.name} is not answered for: {each.error}" for each in stores if each.error and not each.is_miss]
    facts = {
        each.name: _added(each.metadata.get("over"), [getattr(report.found, each.name) for report in reports.values()])
        for each in fields(first.found)
    }
    facts |= {STORE: ", ".join(report.found.store for report in reports.values()), "notes": tuple(notes)}
    tables = {table.name: _joined(table, {name: each.tables[table.name] for name, each in reports.items()})
              for table in first.SCHEMA.tables}  # fmt: skip
    return replace(first, found=replace(first.found, **facts), tables=tables, stores=tuple(stores)).over_stores()


def _added(over: str | None, values: Sequence[Any]) -> Any:  # noqa: ANN401 -- of any fact
    """Return a fact over all stores: numbers are added; others are the one that all have, or the last."""
    known = [value for value in values if value is not None]
    if not known or is_dataclass(known[0]):
        return known[0] if known else None
    if over is None and isinstance(known[0], bool):
        return all(known)
    if isinstance(known[0], tuple):
        return tuple(dict.fromkeys(each for value in known for each in value))
    is_sum = over is None and isinstance(known[0], int)
    return sum(known) if is_sum else min(known) if over == "min" else max(known)


def _joined(table: ReportTable, parts: Mapping[str, pa.Table]) -> pa.Table:
    if table.by:
        return table.summed(pa.concat_tables(parts.values()))
    named = [rows.add_column(0, STORE, pa.array([name] * rows.num_rows, pa.string())) for name, rows in parts.items()]
    return pa.concat_tables(named)


# ---- one after the other


@dataclass(frozen=True, slots=True)
class StoresFacts:
    """The facts of reports about several stores."""

    answer: str = fact("the command whose reports these are")
    store: str = fact("names of the stores")


@dataclass(frozen=True)
class StoreReports(Report[StoresFacts]):
    """Reports of several stores, one after the other: `stores` has them."""

    SCHEMA: ClassVar = ReportSchema.of("stores", 1, StoresFacts)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    @classmethod
    def of_stores(cls, answer: str, stores: Sequence[OfStore]) -> StoreReports:
        """Put reports of stores together."""
        return cls(StoresFacts(answer, ", ".join(each.name for each in stores)), stores=tuple(stores))

    @property
    def verdict(self) -> Verdict:
        """What is to act on first."""
        return Verdict.first(each.report.verdict.value for each in self.stores if each.report is not None)

    def _lines(self) -> Iterator[str]:
        failed = [each for each in self.stores if each.error is not None]
        yield f"{self.found.answer} of {counted(len(self.stores), 'store')}: {self.found.store}"
        if failed:
            yield f"{counted(len(failed), 'store')} {agreeing(len(failed), 'is', 'are')} not answered for"

    def to_text(self, width: int | None = 80, zone: tzinfo | None = None) -> str:
        """Return each report under its store's name."""
        texts = (
            f"== {each.name} ==\n{f'error: {each.error}' if each.report is None else each.report.to_text(width, zone)}"
            for each in self.stores
        )
        return "\n\n".join(texts)

    def _content(self, origin: Sequence[tuple[str, str]], most: int) -> dict[str, object]:
        content = super()._content(origin, most)
        parts = [(each.name, each.report._content([], most)) for each in self.stores if each.report is not None]  # noqa: SLF001 -- of the base
        tables = [{**table, "title": f"{name}: {table['title']}"} for name, part in parts for table in part["tables"]]  # type: ignore[attr-defined]
        lines = [f"{name}: {line}" for name, part in parts for line in part["report"]["lines"]]  # type: ignore[index]
        lines += [f"{each.name}: {each.error}" for each in self.stores if each.error is not None]
        report = {**content["report"], "lines": [*self.lines, *lines]}  # type: ignore[dict-item]
        return {"report": report, "plots": [plot for _, part in parts for plot in part["plots"]], "tables": tables}  # type: ignore[attr-defined]

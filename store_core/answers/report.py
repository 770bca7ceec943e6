# SPDX-License-Identifier: Apache-2.0
"""What every answer about a store returns: facts and tables, which become JSON, text for a terminal, or HTML."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from store_core.answers.report_page import PageContent, report_page, report_part
from store_core.answers.text.text_table import MOST_ROWS, in_zone, report_text, rows_of, zoned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import tzinfo

    import pyarrow as pa

    from store_core.answers.report_plots import Plot
    from store_core.answers.report_schema import ReportSchema, ReportTable
    from store_core.answers.verdict import Verdict

__all__ = ["Report", "json_value"]

Facts = TypeVar("Facts")


@dataclass(frozen=True)
class Report(ABC, Generic[Facts]):
    """The result of an answer: facts and Arrow tables.

    Attributes
    ----------
    SCHEMA : ReportSchema
        Names every fact and table.
    found : frozen dataclass
        Has each fact of the schema, as a field or a property.
    tables : mapping of str to pyarrow.Table
        The tables of the schema.
    """

    SCHEMA: ClassVar[ReportSchema]

    found: Facts
    tables: Mapping[str, pa.Table]

    @classmethod
    def of(cls, found: Facts, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Self:
        """Make a report of facts and the rows of each table; a table that is not named has none."""
        return cls(found, {table.name: table.of(rows.get(table.name, ())) for table in cls.SCHEMA.tables})

    @property
    @abstractmethod
    def verdict(self) -> Verdict:
        """What was found."""

    @property
    def subject(self) -> str:
        """What was looked at: the fact `store`, unless a report says otherwise."""
        return str(self.facts["store"])

    @property
    def plots(self) -> Sequence[Plot]:
        """What a person would look at rather than read."""
        return ()

    @abstractmethod
    def _lines(self) -> Iterator[str]:
        """Yield the result in words, a sentence a line, without escapes."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The result in words, a sentence a line, without escapes."""
        return tuple(self._lines())

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the schema, as values for JSON."""
        values = ((fact.name, getattr(self.found, fact.name)) for fact in self.SCHEMA.facts)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values}

    def to_json(self, **more: object) -> dict[str, Any]:
        """Return the report as values for JSON, with `more` between the verdict and the facts.

        Times are in ISO 8601, bytes in hexadecimal digits.
        """
        return {
            "schema": self.SCHEMA.name,
            "verdict": self.verdict.value,
            **more,
            **self.facts,
            "tables": {name: _rows(table) for name, table in self.tables.items()},
        }

    def to_text(self, width: int | None = 80, zone: tzinfo | None = None) -> str:
        """Return the report for a terminal of some columns; long tables are cut, and text from stores is escaped.

        Parameters
        ----------
        width : int or None
            Columns; with None, as for a file, tables are as wide as their rows need.
        zone : tzinfo, optional
            Of the times; by default UTC.
        """
        shown = [
            (table.doc, zoned(self._in_text(table), zone), self.tables[table.name].num_rows)
            for table in self.SCHEMA.tables
        ]
        return report_text((in_zone(line, zone) for line in self.lines), shown, width)

    def _in_text(self, table: ReportTable) -> pa.Table:
        """Return what the text for a terminal shows of a table; nothing if that has no rows."""
        return self._shown_columns(table).slice(0, MOST_ROWS)

    def _shown_columns(self, table: ReportTable) -> pa.Table:
        """Return a table with the columns that the text shows."""
        return self.tables[table.name].select([each.name for each in table.columns if each.in_text])

    def to_html(self) -> str:
        """Return the report as one HTML file: style and plots are inside, and it refers to nothing elsewhere."""
        return report_page(self._content())

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return report_part(self._content())

    def _content(self) -> PageContent:
        lines = tuple(self.lines)
        return PageContent(self.SCHEMA, self.subject, self.verdict, lines, self.plots, self.tables)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    names = table.column_names
    rows = (row for batch in table.to_batches() for row in rows_of(batch))
    return [dict(zip(names, map(json_value, row), strict=True)) for row in rows]


def json_value(value: object) -> object:
    """Return a value of a table as one for JSON."""
    return value.hex() if isinstance(value, bytes) else value

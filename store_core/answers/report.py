# SPDX-License-Identifier: Apache-2.0
"""What every answer about a store returns: facts and tables, which become JSON, or text for a terminal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import pyarrow as pa

from store_core.answers.text.report_text import report_text
from store_core.answers.text.row_values import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from store_core.answers.verdict import Verdict

__all__ = ["Fact", "Report", "ReportColumn", "ReportSchema", "ReportTable", "json_value"]

Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True)
class Fact:
    """A single value of a report: its name, and what it means."""

    name: str
    doc: str


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column of a report's table.

    Attributes
    ----------
    name : str
    type : pyarrow.DataType
    doc : str
        Its content, in one line.
    in_text : bool
        Whether the text for a terminal shows it.
    """

    name: str
    type: pa.DataType
    doc: str
    in_text: bool = True


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of a report: its name, what a row is, and its columns."""

    name: str
    doc: str
    columns: tuple[ReportColumn, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema; every column can be null."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    def of(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Return the table with these rows; what a row does not have is null."""
        return pa.Table.from_pylist([dict(row) for row in rows], self.schema)


@dataclass(frozen=True, slots=True)
class ReportSchema:
    """What the JSON of a kind of report has.

    Attributes
    ----------
    answer : str
        Name of the answer, as of its command.
    version : int
        Grows when a fact, a table or a column is removed or gets another meaning; additions leave it.
    facts : tuple of Fact
    tables : tuple of ReportTable
    """

    answer: str
    version: int
    facts: tuple[Fact, ...]
    tables: tuple[ReportTable, ...]

    @property
    def name(self) -> str:
        """The name that a report in JSON gives, such as ``commitlog-diff/1``."""
        return f"commitlog-{self.answer}/{self.version}"

    def table(self, name: str) -> ReportTable:
        """Return the table of a name."""
        return next(table for table in self.tables if table.name == name)

    def markdown_lines(self) -> list[str]:
        """Return the schema as a section of a document."""
        lines = [f"## {self.answer}", "", f"`schema` is `{self.name}`.", "", "| fact | meaning |", "|---|---|"]
        lines += [f"| `{fact.name}` | {fact.doc} |" for fact in self.facts]
        for table in self.tables:
            lines += ["", f"Table `{table.name}`: {table.doc}.", "", "| column | type | meaning |", "|---|---|---|"]
            lines += [f"| `{column.name}` | {column.type} | {column.doc} |" for column in table.columns]
        return [*lines, ""]


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

    def to_text(self, width: int = 80) -> str:
        """Return the report for a terminal of some columns; long tables are cut, and text from stores is escaped."""
        shown = [
            (table.doc, self.tables[table.name].select([each.name for each in table.columns if each.in_text]))
            for table in self.SCHEMA.tables
        ]
        return report_text(self.lines, shown, width)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    names = table.column_names
    rows = (row for batch in table.to_batches() for row in rows_of(batch))
    return [dict(zip(names, map(json_value, row), strict=True)) for row in rows]


def json_value(value: object) -> object:
    """Return a value of a table as one for JSON."""
    return value.hex() if isinstance(value, bytes) else value

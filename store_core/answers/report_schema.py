# SPDX-License-Identifier: Apache-2.0
"""What a kind of report has: the names, types and meanings of its facts, and of the columns of its tables."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from _typeshed import DataclassInstance

__all__ = ["Fact", "ReportColumn", "ReportSchema", "ReportTable", "fact"]


@dataclass(frozen=True, slots=True)
class Fact:
    """A single value of a report: its name, and what it means."""

    name: str
    doc: str


def fact(doc: str, *, default: Any = MISSING) -> Any:  # noqa: ANN401 -- whatever the field has
    """Return the field of a fact; `ReportSchema.of` takes its words from there."""
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column of a report's table.

    Attributes
    ----------
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
    """A table of a report: its name, what its rows are, as a heading, and its columns."""

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
    """

    answer: str
    version: int
    facts: tuple[Fact, ...]
    tables: tuple[ReportTable, ...]

    @classmethod
    def of(cls, answer: str, version: int, facts: type[DataclassInstance], *tables: ReportTable) -> Self:
        """Return the schema of a report whose facts are a dataclass with fields made by `fact`."""
        told = (each for each in fields(facts) if "doc" in each.metadata)
        return cls(answer, version, tuple(Fact(each.name, each.metadata["doc"]) for each in told), tables)

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

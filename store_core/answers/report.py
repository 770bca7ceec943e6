# SPDX-License-Identifier: Apache-2.0
"""What every answer about a store returns: facts and tables, which become JSON, text for a terminal, or HTML."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar

import pyarrow as pa

from store_core import __version__
from store_core.answers.plots import ROOT_CLASS, STYLE, Markup, Tone, element, joined, plot_markup, shown
from store_core.answers.shown_text import BytesStyle
from store_core.answers.text_table import MOST_ROWS, cell_of, filled_columns, in_zone, report_text, rows_of, zoned
from store_core.answers.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import tzinfo

    from _typeshed import DataclassInstance

    from store_core.answers.plots import Plot

__all__ = ["Fact", "Report", "ReportColumn", "ReportSchema", "ReportTable", "fact", "json_value"]


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
    """A column of a report's table."""

    name: str
    type: pa.DataType
    doc: str  # its content, in one line
    in_text: bool = True  # whether the text for a terminal shows it


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
    """What the JSON of a kind of report has."""

    answer: str  # name of the answer, as of its command
    version: int  # grows when a fact, a table or a column is removed or gets another meaning; additions leave it
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


_MOST_ROWS: Final = 1000
_MOST_ROWS_OF_PART: Final = 20
_OPEN_ROWS: Final = 20
"""A longer table is folded."""

_SHORT: Final = 24
_LONG: Final = 40
"""Characters up to which a value stays on one line, and from which its column is wide."""

_TONES: Final = {
    Verdict.CLEAN: Tone.GOOD,
    Verdict.FINDINGS: Tone.WARNING,
    Verdict.DAMAGED: Tone.BAD,
    Verdict.REFUSED: Tone.BAD,
}
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""A browser loads and runs nothing for this page, whatever a store's text may say."""


@dataclass(frozen=True, slots=True)
class PageContent:
    """What a page shows of a report, as of `store_core.answers.report.Report`."""

    schema: ReportSchema
    subject: str
    verdict: Verdict
    lines: Sequence[str]
    plots: Sequence[Plot]
    tables: Mapping[str, pa.Table]


def report_page(report: PageContent) -> str:
    """Return a report as one HTML file."""
    title = f"{report.schema.answer}: {report.subject}"
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        element("title", shown(title)),
        element("style", Markup(_PAGE_STYLE + STYLE)),
    )
    body = element("body", element("main", *_content(report, _MOST_ROWS), class_=ROOT_CLASS))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


_PAGE_STYLE: Final = (
    "body {margin:0;background:#ffffff}\n@media (prefers-color-scheme:dark) {body {background:#14181e}}\n"
)


def report_part(report: PageContent) -> str:
    """Return a report as a part of a page, as notebooks show it; tables are cut."""
    content = _content(report, _MOST_ROWS_OF_PART)
    return element("div", element("style", Markup(STYLE)), *content, class_=ROOT_CLASS)


def _content(report: PageContent, most: int) -> Iterator[Markup]:
    yield element(
        "header",
        element("p", shown(report.schema.answer), class_="kind"),
        element("h1", shown(report.subject)),
        element("span", shown(report.verdict.value), class_=f"verdict {_TONES[report.verdict]}"),
    )
    lines = [line for line in report.lines if line != report.subject]
    yield element("ul", *(element("li", shown(line)) for line in lines), class_="words")
    yield from map(plot_markup, report.plots)
    for table in report.schema.tables:
        if report.tables[table.name].num_rows:
            yield _section(table, report.tables[table.name], most)
    yield element("footer", shown(f"{report.schema.name}, by pyspark-commitlog {__version__}"))


def _section(about: ReportTable, rows: pa.Table, most: int) -> Markup:
    count = f" {rows.num_rows:,} row{'s' if rows.num_rows > 1 else ''}"
    summary = element("summary", shown(about.doc), element("small", shown(count)))
    parts = [summary, element("div", _table(filled_columns(rows.slice(0, most))), class_="scroll")]
    if rows.num_rows > most:
        parts.append(element("p", shown(f"and {rows.num_rows - most:,} more, which the JSON has"), class_="more"))
    is_open = {"open": ""} if min(rows.num_rows, most) <= _OPEN_ROWS else {}
    return element("details", *parts, **is_open)


def _table(rows: pa.Table) -> Markup:
    is_number = [pa.types.is_integer(kind) for kind in rows.schema.types]
    names = zip(rows.column_names, is_number, strict=True)
    head = element("tr", *(element("th", shown(name), class_="number" if right else "text") for name, right in names))
    lines = [_row(row, is_number) for batch in rows.to_batches() for row in rows_of(batch)]
    return element("table", element("thead", head), element("tbody", joined(*lines)))


def _row(row: tuple[Any, ...], is_number: list[bool]) -> Markup:
    cells = ((cell_of(value, BytesStyle.HEX), right) for value, right in zip(row, is_number, strict=True))
    return element("tr", *(element("td", shown(text), class_=_kind(text, right)) for text, right in cells))


def _kind(text: str, is_number: bool) -> str:  # noqa: FBT001 -- what its column is
    if is_number:
        return "number"
    return "short" if len(text) <= _SHORT else "long" if len(text) > _LONG else "text"

# SPDX-License-Identifier: Apache-2.0
"""What every answer about a store returns: facts and tables, which become JSON, text for a terminal, or HTML."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.plots import Plot, Tone
from store_core.answers.shown_text import BytesStyle
from store_core.answers.text_table import (
    MOST_ROWS,
    cell_of,
    filled_columns,
    is_number,
    report_text,
    rows_of,
    with_message_column,
)
from store_core.format.columns import STORE, STRINGS_TYPE, TIMESTAMP_TYPE, iso_time
from store_core.format.words import age_words, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import tzinfo

    from _typeshed import DataclassInstance

    from store_core.errors import StoreError
    from store_core.files.store_path import StorePaths


class Verdict(Enum):
    """What an answer found; `store_core.command.exit_code.ExitCode.of` is the code of a command.

    Attributes
    ----------
    CLEAN
        Nothing was found; or the work is done, and nothing was lost.
    FINDINGS
        Something differs or is wrong; the tables list it.
    DAMAGED
        The work is done, but the log is damaged.
    REFUSED
        Nothing is done: a broker would refuse the store.
    """

    CLEAN = "clean"
    FINDINGS = "findings"
    DAMAGED = "damaged"
    REFUSED = "refused"

    @classmethod
    def first(cls, found: Iterable[str | None]) -> Verdict:
        """Return what is to act on first of the verdicts with these values; clean without any."""
        values = set(found)
        return next((each for each in (cls.REFUSED, cls.FINDINGS, cls.DAMAGED) if each.value in values), cls.CLEAN)


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column of a report's table."""

    name: str
    type: pa.DataType
    doc: str  # its content, in one line
    in_text: bool = True  # whether the text for a terminal shows it
    is_age: bool = False  # whether it is a duration in ms, which people are shown as `256d 13h`

    @property
    def way(self) -> str:
        """How values of rows become one where they are added up: of times, the first; of ages, the longest."""
        return _OTHER_WAY.get(self.name, "sum" if is_number(self.type) else "min")


_OTHER_WAY: Final = {"age_ms": "max", "is_unknown": "all"}
"""Columns of rows that are added up, which are no sums themselves."""


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of a report: its name, what its rows are, as a heading, and its columns."""

    name: str
    doc: str
    columns: tuple[ReportColumn, ...]
    by: tuple[str, ...] = ()
    """Over several stores its rows are added up by these columns; without any, each says of which store it is."""
    names_messages: bool = False  # whether topic, queue and queue offset are shown as one column in a text

    @property
    def is_shown(self) -> bool:
        """Whether people see it: one without a column for them is for programs."""
        return any(column.in_text for column in self.columns)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema; every column can be null."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    def of(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Return the table with these rows; what a row does not have is null, and what else it has is left out."""
        return pa.Table.from_pylist(rows, self.schema)

    def summed(self, rows: pa.Table) -> pa.Table:
        """Return totals of rows by the columns `by`, the most messages first."""
        added = [(each.name, each.way) for each in self.columns if each.name not in self.by]
        found = rows.group_by(list(self.by), use_threads=False).aggregate(added)
        columns = {name: found[name] for name in self.by} | {name: found[f"{name}_{way}"] for name, way in added}
        ordered = pa.table({each.name: columns[each.name] for each in self.columns}, self.schema)
        keys = [("messages", "descending"), *((name, "ascending") for name in self.by)]
        return ordered.take(pc.sort_indices(ordered, keys))

    def for_people(self, rows: pa.Table) -> pa.Table:
        """Return rows with ages in words."""
        for column in self.columns:
            if column.is_age and column.name in rows.column_names:
                ages = [None if each is None else age_words(each) for each in rows[column.name].to_pylist()]
                place, name = rows.column_names.index(column.name), column.name.removesuffix("_ms")
                rows = rows.set_column(place, name, pa.array(ages, pa.string()))
        return rows


def text(name: str, doc: str, **shown: bool) -> ReportColumn:
    """Return a column of text; `shown` is as of `ReportColumn`, here and below."""
    return ReportColumn(name, pa.string(), doc, **shown)


def number(name: str, doc: str, **shown: bool) -> ReportColumn:
    """Return a column of integers."""
    return ReportColumn(name, pa.int64(), doc, **shown)


def moment(name: str, doc: str, **shown: bool) -> ReportColumn:
    """Return a column of times."""
    return ReportColumn(name, TIMESTAMP_TYPE, doc, **shown)


def truth(name: str, doc: str, **shown: bool) -> ReportColumn:
    """Return a column of what holds or not."""
    return ReportColumn(name, pa.bool_(), doc, **shown)


_SHARED: Final = {
    column.name: column
    for column in (
        text("topic", "name of the topic"),
        ReportColumn("queue_id", pa.int32(), "queue of the topic"),
        number("queue_offset", "place in the queue"),
        number("physical_offset", "place of the record in the log"),
        ReportColumn("store_size", pa.int32(), "bytes of the record"),
        ReportColumn("keys", STRINGS_TYPE, "keys of the message"),
        text("msg_id", "offset message id"),
        text("unique_key", "the id that its producer gave the message"),
        moment("store_timestamp", "when the message was stored"),
        number("begin", "physical offset"),
        number("end", "physical offset one past the last"),
        number("bytes", "bytes of the records"),
        text("kind", "what is wrong"),
        number("count", "how many there are"),
        text("meaning", "the kind in words"),
    )
}
"""Columns that tables of several answers have."""


def shared(*names: str, in_text: bool = True) -> tuple[ReportColumn, ...]:
    """Return columns that tables of several answers have."""
    return tuple(replace(_SHARED[name], in_text=in_text) for name in names)


def table(
    name: str, doc: str, *columns: ReportColumn, by: tuple[str, ...] = (), names_messages: bool = False
) -> ReportTable:
    """Return a table of a report: its name, what its rows are, and its columns; the rest is as of `ReportTable`."""
    return ReportTable(name, doc, columns, by, names_messages)


@dataclass(frozen=True, slots=True)
class Fact:
    """A single value of a report: its name, and what it means."""

    name: str
    doc: str


def fact(
    doc: str,
    *,
    default: Any = MISSING,  # noqa: ANN401 -- whatever the field has
    over: Literal["min", "max"] | None = None,
    tells: Literal["findings", "damaged", "refused"] | None = None,
) -> Any:  # noqa: ANN401 -- as above
    """Return the field of a fact; `ReportSchema.of` takes its words from there.

    * `over`: What it is over several stores, if it is neither a sum nor what all have.
    * `tells`: The verdict where it is neither 0 nor null.
    """
    return field(default=default, metadata={"doc": doc, "over": over, "tells": tells})


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


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a report comes from: the command line that makes it, and the store that was asked about."""

    command: str
    store: StorePaths

    def last_message(self) -> str:
        """Return the store time of the log's last message, in words."""
        from store_core.errors import StoreError
        from store_core.snapshot.store import stores_of

        try:
            found = max((store.last_store_time or 0 for store in stores_of(self.store)), default=0) or None
        except StoreError:  # which the report has told
            return "not known"
        return "none" if found is None else iso_time(found)


def command_words(*words: str) -> str:
    """Return a command line that a shell takes as it is."""
    return shlex.join(["commitlog", *words])


Facts = TypeVar("Facts", bound="DataclassInstance")

_BADGES: Final = {
    Verdict.CLEAN: ("nothing is wrong", Tone.GOOD),
    Verdict.FINDINGS: ("needs attention", Tone.WARNING),
    Verdict.DAMAGED: ("the log is damaged", Tone.BAD),
    Verdict.REFUSED: ("refused: nothing is done", Tone.BAD),
}
_STORE: Final = text(STORE, "name of the store")
_NEUTRAL: Final = ("for information", Tone.PLAIN)

_MOST_ROWS_OF_PAGE: Final = 1000
_MOST_ROWS_OF_PART: Final = 20


@dataclass(frozen=True)
class OfStore:
    """What was answered for one of several stores: a report, or why there is none.

    * `is_miss`: Whether it only has nothing of what was asked for.
    """

    name: str
    report: Report[Any] | None = None
    error: StoreError | OSError | None = None
    is_miss: bool = False

    def to_json(self, *, is_whole: bool) -> dict[str, Any]:
        """Return it as values for JSON: the report, or of one that is summed the facts."""
        if self.report is None:
            return {"name": self.name, "error": str(self.error)}
        if is_whole:
            return {"name": self.name, **self.report.to_json()}
        return {"name": self.name, "verdict": self.report.verdict.value, **self.report.facts}


@dataclass(frozen=True)
class Report(ABC, Generic[Facts]):
    """The result of an answer: facts and Arrow tables.

    Attributes
    ----------
    SCHEMA : ReportSchema
        Names every fact and table.
    IS_JUDGEMENT : bool
        Whether a clean verdict says that something is as it should be, rather than that nothing was in the way.
    found : frozen dataclass
        Has each fact of the schema, as a field or a property.
    tables : mapping of str to pyarrow.Table
        The tables of the schema.
    origin : Origin, optional
        Where it comes from, for its page.
    stores : sequence of OfStore
        If it is over several stores: what was answered for each.
    """

    SCHEMA: ClassVar[ReportSchema]
    IS_JUDGEMENT: ClassVar[bool] = True

    found: Facts
    tables: Mapping[str, pa.Table]
    origin: Origin | None = field(default=None, compare=False, repr=False, kw_only=True)
    stores: tuple[OfStore, ...] = field(default=(), repr=False, kw_only=True)

    @classmethod
    def of(cls, found: Facts, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Self:
        """Make a report of facts and the rows of each table; a table that is not named has none."""
        return cls(found, {table.name: table.of(rows.get(table.name, ())) for table in cls.SCHEMA.tables})

    def over_stores(self) -> Self:
        """Return the report with what is no sum over several stores; see `store_core.answers.answer`."""
        return self

    @property
    def _tables(self) -> tuple[ReportTable, ...]:
        """The tables of the schema; over several stores with a column that tells their rows apart."""
        if not self.stores:
            return self.SCHEMA.tables
        return tuple(each if each.by else replace(each, columns=(_STORE, *each.columns)) for each in self.SCHEMA.tables)

    @property
    def verdict(self) -> Verdict:
        """What was found: what is to act on first of what facts tell that are neither 0 nor null."""
        return Verdict.first(
            each.metadata.get("tells") for each in fields(self.found) if getattr(self.found, each.name)
        )

    @property
    def subject(self) -> str:
        """What was looked at: the fact `store`, unless a report says otherwise."""
        return str(self.facts["store"])

    @property
    def plots(self) -> Sequence[Plot]:
        """What a person would look at rather than read."""
        return ()

    @property
    def next(self) -> Iterable[tuple[str, str]]:
        """Command lines for what to do or to ask next, and what each is for."""
        return ()

    @abstractmethod
    def _lines(self) -> Iterator[str]:
        """Yield the result in words, a sentence a line, without escapes; the first is the verdict."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The result in words, a sentence a line, without escapes; the first is the verdict."""
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
            **({"stores": [each.to_json(is_whole=not self.tables) for each in self.stores]} if self.stores else {}),
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
        shown = [(table.doc, self._in_text(table), self.tables[table.name].num_rows) for table in self._tables]
        return report_text(self.lines, shown, self.next, width, zone)

    def _in_text(self, table: ReportTable) -> pa.Table:
        """Return what the text for a terminal shows of a table; nothing if that has no rows."""
        rows = self.tables[table.name].select([each.name for each in table.columns if each.in_text])
        shown = table.for_people(rows if self._is_listed_whole(table) else rows.slice(0, MOST_ROWS))
        return with_message_column(shown) if table.names_messages else shown

    def _is_listed_whole(self, table: ReportTable) -> bool:  # noqa: ARG002 -- most cut all
        """Return whether the text shows all rows of a table, as those that were asked for."""
        return False

    def to_html(self, made: int | None = None) -> str:
        """Return the report as one HTML file: style and plots are inside, and it refers to nothing elsewhere.

        Parameters
        ----------
        made : int, optional
            What time it is, in ms since 1970; the page then says when it was made, and the store's last message.

        Raises
        ------
        UnsupportedStoreError
            If jinja2 is not installed.
        """
        from store_core.answers.plots import page

        origin = []
        if made is not None:
            origin.append(("made", iso_time(made)))
        if self.origin is not None:
            origin += [("by", self.origin.command), ("last message stored", self.origin.last_message())]
        return page(f"{self.SCHEMA.answer}: {self.subject}", **self._content(origin, _MOST_ROWS_OF_PAGE))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from store_core.answers.plots import part

        return part(**self._content([], _MOST_ROWS_OF_PART))

    def _content(self, origin: Sequence[tuple[str, str]], most: int) -> dict[str, object]:
        """Return what the template of pages gets."""
        is_neutral = self.verdict is Verdict.CLEAN and not self.IS_JUDGEMENT
        words, tone = _NEUTRAL if is_neutral else _BADGES[self.verdict]
        report = {
            "answer": self.SCHEMA.answer,
            "schema": self.SCHEMA.name,
            "subject": self.subject,
            "verdict": words,
            "tone": tone,
            "lines": self.lines,
            "origin": origin,
            "next": list(self.next),
        }
        tables = (_page_table(table, self.tables[table.name], most) for table in self._tables if table.is_shown)
        return {"report": report, "plots": self.plots, "tables": [each for each in tables if each["rows"]]}


def _page_table(table: ReportTable, rows: pa.Table, most: int) -> dict[str, Any]:
    """Return what the template of pages gets of a table."""
    shown = filled_columns(table.for_people(rows.slice(0, most)))
    return {
        "title": table.doc,
        "count": counted(rows.num_rows, "row"),
        "columns": [(each.name, is_number(each.type)) for each in shown.schema],
        "rows": [
            [cell_of(value, BytesStyle.HEX) for value in row] for batch in shown.to_batches() for row in rows_of(batch)
        ],
        "more": f"and {rows.num_rows - most:,} more, which the JSON has" if rows.num_rows > most else "",
    }


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    names = table.column_names
    rows = (row for batch in table.to_batches() for row in rows_of(batch))
    values = ((each.hex() if isinstance(each, bytes) else each for each in row) for row in rows)
    return [dict(zip(names, row, strict=True)) for row in values]

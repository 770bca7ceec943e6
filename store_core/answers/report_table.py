# SPDX-License-Identifier: Apache-2.0
"""The tables of reports: their columns, of which several answers have the same ones, with their words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from store_core.format.columns import STRINGS_TYPE, TIMESTAMP_TYPE
from store_core.format.words import age_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column of a report's table."""

    name: str
    type: pa.DataType
    doc: str  # its content, in one line
    in_text: bool = True  # whether the text for a terminal shows it
    is_age: bool = False  # whether it is a duration in ms, which people are shown as `256d 13h`


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of a report: its name, what its rows are, as a heading, and its columns."""

    name: str
    doc: str
    columns: tuple[ReportColumn, ...]
    by: tuple[str, ...] = ()
    """Over several stores its rows are added up by these columns; without any, each says of which store it is."""

    @property
    def is_shown(self) -> bool:
        """Whether people see it: one without a column for them is for programs."""
        return any(column.in_text for column in self.columns)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema; every column can be null."""
        return pa.schema([pa.field(column.name, column.type) for column in self.columns])

    def of(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Return the table with these rows; what a row does not have is null."""
        return pa.Table.from_pylist([dict(row) for row in rows], self.schema)

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


def table(name: str, doc: str, *columns: ReportColumn, by: tuple[str, ...] = ()) -> ReportTable:
    """Return a table of a report: its name, what its rows are, and its columns; `by` is as of `ReportTable`."""
    return ReportTable(name, doc, columns, by)

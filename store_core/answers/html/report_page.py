# SPDX-License-Identifier: Apache-2.0
"""A report as a page, or as a part of one that a notebook shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from store_core import __version__
from store_core.answers.html.markup import Markup, element, joined, shown
from store_core.answers.html.plot_markup import plot_markup
from store_core.answers.html.style import ROOT_CLASS, STYLE
from store_core.answers.report_plots import Tone
from store_core.answers.text.report_text import filled_columns
from store_core.answers.text.row_values import rows_of
from store_core.answers.text.shown_text import BytesStyle
from store_core.answers.text.text_table import cell_of
from store_core.answers.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from store_core.answers.report_plots import Plot
    from store_core.answers.report_schema import ReportSchema, ReportTable

__all__ = ["PageContent", "report_page", "report_part"]

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

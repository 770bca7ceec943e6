# SPDX-License-Identifier: Apache-2.0
"""The text of ``docs/reports.md``: what the JSON of each report has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.answers.answer import StoreReports
from store_core.answers.export_job import ExportReport
from store_core.answers.export_proof import ProofReport
from store_core.answers.info import InfoReport
from store_core.answers.log_diff import DiffReport
from store_core.answers.log_salvage import SalvageReport
from store_core.answers.message_trace import TraceReport
from store_core.answers.repair_plan import RepairPlan, RepairReport
from store_core.answers.store_bill import BillReport
from store_core.answers.store_check import CheckReport
from store_core.answers.store_dead_letters import DeadLettersReport
from store_core.answers.store_delays import DelaysReport
from store_core.answers.store_lag import LagReport
from store_core.answers.store_producers import ProducersReport
from store_core.answers.store_recover import RecoverReport
from store_core.answers.store_redact import RedactReport
from store_core.answers.store_replay import ReplayReport
from store_core.answers.store_retention import RetentionReport
from store_core.answers.store_transactions import TransactionsReport

if TYPE_CHECKING:
    from store_core.answers.report import ReportSchema

_SCHEMAS: Final = (
    InfoReport.SCHEMA,
    BillReport.SCHEMA,
    CheckReport.SCHEMA,
    DiffReport.SCHEMA,
    ExportReport.SCHEMA,
    ProofReport.SCHEMA,
    ProducersReport.SCHEMA,
    LagReport.SCHEMA,
    RecoverReport.SCHEMA,
    RedactReport.SCHEMA,
    RepairPlan.SCHEMA,
    RepairReport.SCHEMA,
    RetentionReport.SCHEMA,
    SalvageReport.SCHEMA,
    TransactionsReport.SCHEMA,
    DelaysReport.SCHEMA,
    TraceReport.SCHEMA,
    DeadLettersReport.SCHEMA,
    ReplayReport.SCHEMA,
    StoreReports.SCHEMA,
)
_INTRODUCTION: Final = (
    "<!-- Generated from the schemas of the reports by `make docs`; do not edit. -->",
    "# Reports as JSON",
    "",
    "`commitlog NAME --json` prints a report as one object, and `to_json()` returns it as Python values:",
    "",
    "- `schema`: the name and the version below. A version grows when something is removed or gets another meaning;",
    "  additions leave it, so ignore what you don't know.",
    "- `verdict`: `clean`, `findings`, `refused` or `damaged`; the [exit codes](command.md#exit-codes) 0, 1, 4 and 5.",
    "- The facts, by name.",
    "- `tables`: a list of objects for each table. Any value can be null. Times are in ISO 8601, bytes in hexadecimal",
    "  digits. In Python, `report.tables` has the same as Arrow tables.",
    "",
    "Asked about several stores, `bill`, `deadletters`, `delays`, `lag`, `producers`, `trace` and `transactions`",
    "have one report over all. Its facts are sums, or the least or latest of times; its rows have the column `store`,",
    "but those of `groups` and `topics` of `lag` and `kinds` of `bill`, which are summed. `stores` is a list with",
    "`name`, `verdict` and the facts of each store, or its `error`. Limits of rows, such as `--rows`, are those of",
    "each store. Other answers have the schema [`commitlog-stores`](#stores): its `stores` are their reports, each",
    "with its `name`, or its `error`.",
    "",
)


def markdown_document() -> str:
    """Return the text of ``docs/reports.md``."""
    sections = [line for schema in _SCHEMAS for line in _section(schema)]
    return "\n".join([*_INTRODUCTION, *sections])


def _section(schema: ReportSchema) -> list[str]:
    lines = [f"## {schema.answer}", "", f"`schema` is `{schema.name}`.", "", "| fact | meaning |", "|---|---|"]
    lines += [f"| `{fact.name}` | {fact.doc} |" for fact in schema.facts]
    for table in schema.tables:
        lines += ["", f"Table `{table.name}`: {table.doc}.", "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{column.name}` | {column.type} | {column.doc} |" for column in table.columns]
    return [*lines, ""]

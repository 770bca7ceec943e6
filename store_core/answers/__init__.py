# SPDX-License-Identifier: Apache-2.0
"""Calls that answer a question about a whole store or rebuild it, each as a job in parts (`store_core.store.parts`).

The names are imported when they are first looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from store_core.answers.answer import Answer, processes
    from store_core.answers.export_job import ExportReport
    from store_core.answers.export_proof import ProofReport
    from store_core.answers.info import Info, InfoReport
    from store_core.answers.log_diff import Diff, DiffReport, diff
    from store_core.answers.log_salvage import Salvage, SalvageReport, salvage
    from store_core.answers.message_trace import Trace, TraceReport, trace
    from store_core.answers.repair_plan import RepairPlan, RepairReport
    from store_core.answers.store_bill import Bill, BillReport, bill
    from store_core.answers.store_check import Check, CheckReport, check
    from store_core.answers.store_dead_letters import DeadLetters, DeadLettersReport, dead_letters
    from store_core.answers.store_delays import Delays, DelaysReport, delays
    from store_core.answers.store_export import Export, export, prove
    from store_core.answers.store_lag import Lag, LagReport, lag
    from store_core.answers.store_producers import Producers, ProducersReport, producers
    from store_core.answers.store_recover import Recover, RecoverReport, recover
    from store_core.answers.store_redact import Redact, RedactReport, redact
    from store_core.answers.store_repair import RepairCommand, plan_repair, repair
    from store_core.answers.store_replay import Replay, ReplayReport, replay
    from store_core.answers.store_retention import Retention, RetentionReport, retention
    from store_core.answers.store_transactions import Transactions, TransactionsReport, transactions
    from store_core.store.segment_diff import DiffBy

__all__ = [
    "Answer",
    "Bill",
    "BillReport",
    "Check",
    "CheckReport",
    "DeadLetters",
    "DeadLettersReport",
    "Delays",
    "DelaysReport",
    "Diff",
    "DiffBy",
    "DiffReport",
    "Export",
    "ExportReport",
    "Info",
    "InfoReport",
    "Lag",
    "LagReport",
    "Producers",
    "ProducersReport",
    "ProofReport",
    "Recover",
    "RecoverReport",
    "Redact",
    "RedactReport",
    "RepairCommand",
    "RepairPlan",
    "RepairReport",
    "Replay",
    "ReplayReport",
    "Retention",
    "RetentionReport",
    "Salvage",
    "SalvageReport",
    "Trace",
    "TraceReport",
    "Transactions",
    "TransactionsReport",
    "bill",
    "check",
    "dead_letters",
    "delays",
    "diff",
    "export",
    "lag",
    "plan_repair",
    "processes",
    "producers",
    "prove",
    "recover",
    "redact",
    "repair",
    "replay",
    "retention",
    "salvage",
    "trace",
    "transactions",
]

if not TYPE_CHECKING:  # type checkers look at the imports above, and know what is not there
    __getattr__ = lazy_names(__name__)

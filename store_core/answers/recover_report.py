# SPDX-License-Identifier: Apache-2.0
"""The report of dry runs of a recovery: what each release would truncate, rebuild or refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.plots import Bar, Bars, Tone
from store_core.answers.report import Fact, Report, ReportColumn, ReportSchema, ReportTable
from store_core.answers.text_table import with_message_column
from store_core.answers.verdict import Verdict
from store_core.format.columns import STRINGS_TYPE, TIMESTAMP_TYPE
from store_core.format.words import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.answers.plots import Plot

__all__ = ["RECOVER_SCHEMA", "URGENCY", "RecoverFacts", "RecoverReport"]

_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_RELEASE: Final = ReportColumn("release", _TEXT, "the RocketMQ release that would open the store")

RECOVER_SCHEMA: Final = ReportSchema(
    "recover",
    2,
    (
        Fact("store", "the store root"),
        Fact("was_closed", "whether there is no file `abort`"),
        Fact("is_live", "whether a broker holds the store's lock: it would crash at a moment of this run"),
        Fact("end_offset", "physical offset one past the last sound record, before anything is truncated"),
        Fact("truncated_messages", "sound messages that at least one of the releases would truncate"),
        Fact("are_all_messages_listed", "whether the table `messages` has all of them"),
        Fact("checked", "by release: which checks it makes"),
        Fact("not_checked", "by release: which checks it does not make"),
    ),
    (
        ReportTable(
            "releases",
            "What each release would do",
            (
                _RELEASE,
                ReportColumn("verdict", _TEXT, "`clean`, `findings` if something would change, `damaged` or `refused`"),
                ReportColumn("log_end", _LONG, "physical offset at which it would end the log; null if refused"),
                ReportColumn("truncated_messages", _LONG, "sound messages that it would truncate"),
                ReportColumn("truncated_files", _LONG, "segments after the log's end, which it would delete"),
                ReportColumn("changes", _LONG, "files and directories that it would change"),
                ReportColumn("min_offset", _LONG, "physical offset of the log's first record", in_text=False),
                ReportColumn("max_offset", _LONG, "physical offset to which the next record goes", in_text=False),
                ReportColumn("records", _LONG, "records checked", in_text=False),
                ReportColumn("refusal", _TEXT, "why it would not open the store, else null"),
            ),
        ),
        ReportTable(
            "messages",
            "Sound messages that would be truncated",
            (
                ReportColumn("physical_offset", _LONG, "where it is"),
                ReportColumn("topic", _TEXT, "its topic"),
                ReportColumn("queue_id", pa.int32(), "its queue"),
                ReportColumn("queue_offset", _LONG, "its place in the queue"),
                ReportColumn("keys", STRINGS_TYPE, "its keys"),
                ReportColumn("store_size", pa.int32(), "its bytes", in_text=False),
                ReportColumn("msg_id", _TEXT, "its id", in_text=False),
                ReportColumn("unique_key", _TEXT, "the id that its producer gave it", in_text=False),
                ReportColumn("store_timestamp", TIMESTAMP_TYPE, "when it was stored", in_text=False),
                ReportColumn("truncated_by", STRINGS_TYPE, "the releases that would truncate it"),
            ),
        ),
        ReportTable(
            "decisions",
            "Decisions",
            (
                _RELEASE,
                ReportColumn("what", _TEXT, "what would be done"),
                ReportColumn("where", _TEXT, "the file, directory or queue"),
                ReportColumn("why", _TEXT, "the rule, and the facts it was applied to"),
            ),
        ),
        ReportTable(
            "notes",
            "Notes",
            (_RELEASE, ReportColumn("note", _TEXT, "what an operator should know besides")),
        ),
        ReportTable(
            "changes",
            "Files that would change",
            (
                _RELEASE,
                ReportColumn("path", _TEXT, "the file or directory"),
                ReportColumn("kind", _TEXT, "`created`, `removed`, `written` or `truncated`"),
                ReportColumn("first_changed", _LONG, "the first byte that would differ"),
                ReportColumn("size", _LONG, "its size after that"),
                ReportColumn("is_directory", pa.bool_(), "whether it is a directory"),
            ),
        ),
    ),
)

URGENCY: Final = (Verdict.REFUSED, Verdict.FINDINGS, Verdict.DAMAGED, Verdict.CLEAN)
"""What to act on first, if a store ends differently with different releases."""


@dataclass(frozen=True, slots=True)
class RecoverFacts:
    """The facts of dry runs, as `RECOVER_SCHEMA` explains them."""

    store: str
    was_closed: bool
    is_live: bool
    end_offset: int
    truncated_messages: int
    are_all_messages_listed: bool
    checked: dict[str, list[str]]
    not_checked: dict[str, list[str]]
    words: str = ""  # the report of the recovery, if only one release was asked for; else empty


class RecoverReport(Report[RecoverFacts]):
    """The result of dry runs, as `RECOVER_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = RECOVER_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """The most urgent one of all releases."""
        verdicts = set(self.tables["releases"]["verdict"].to_pylist())
        return next(each for each in URGENCY if each.value in verdicts)

    @property
    def plots(self) -> tuple[Plot, ...]:
        """How many messages each release would truncate, if one would."""
        if not self.found.truncated_messages:
            return ()
        names = ("release", "truncated_messages")
        rows = zip(*(self.tables["releases"][name].to_pylist() for name in names), strict=True)
        bars = [
            Bar(f"RocketMQ {name}", count, Tone.BAD, counted(count, "message"))
            for name, count in rows
            if count is not None
        ]
        return (Bars("Sound messages that each release would truncate", tuple(bars)),)

    def _in_text(self, table: ReportTable) -> pa.Table:
        """Return the releases side by side, and messages; the words have the rest, for one release."""
        if table.name == "messages":
            is_whole = self.found.are_all_messages_listed
            return with_message_column(self._shown_columns(table) if is_whole else super()._in_text(table))
        is_shown = table.name == "releases" and not self.found.words
        return super()._in_text(table) if is_shown else table.of([])

    def _lines(self) -> Iterator[str]:
        found = self.found
        yield from found.words.split("\n") if found.words else self._of_several()
        if found.truncated_messages:
            yield f"{counted(found.truncated_messages, 'sound message')} would be truncated"
            if not found.are_all_messages_listed:
                first = self.tables["messages"].num_rows
                are = agreeing(first, "the first of them is", f"the first {first:,} of them are")
                yield f"{are} listed; --messages lists all"

    def _of_several(self) -> Iterator[str]:
        """Yield what several releases find alike, and why those that can't open the store refuse it."""
        found, refusals = self.found, self.tables["releases"]["refusal"].to_pylist()
        yield found.store
        not_closed = "is open" if found.is_live else "was not closed (there is an abort file)"
        yield "the store was closed" if found.was_closed else f"the store {not_closed}"
        if not all(refusals):
            yield f"the last sound record ends at {found.end_offset}"
        yield from (f"refused: {refusal}" for refusal in dict.fromkeys(filter(None, refusals)))

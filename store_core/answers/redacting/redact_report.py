# SPDX-License-Identifier: Apache-2.0
"""The report of a redaction; it does not quote what was redacted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.report import Report
from store_core.answers.report_plots import Bar, Bars, Tone
from store_core.answers.report_schema import Fact, ReportColumn, ReportSchema, ReportTable
from store_core.answers.verdict import Verdict
from store_core.format.counted import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.answers.report_plots import Plot

__all__ = ["REDACT_SCHEMA", "RedactFacts", "RedactReport"]

_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_PLACE: Final = (
    ReportColumn("topic", _TEXT, "name of the topic"),
    ReportColumn("queue_id", _LONG, "queue of the topic"),
    ReportColumn("queue_offset", _LONG, "place in the queue"),
    ReportColumn("physical_offset", _LONG, "place in the log"),
)

REDACT_SCHEMA: Final = ReportSchema(
    "redact",
    1,
    (
        Fact("store", "the store root; nothing in it is changed"),
        Fact("into", "the redacted copy; null if there is none"),
        Fact("by", "`pattern`, `key` or `topic`"),
        Fact("searched_messages", "messages that were looked at"),
        Fact("messages", "messages that were redacted, or would have been"),
        Fact("bytes", "bytes of their bodies that were replaced"),
        Fact("expanded", "how many of them were compressed: their bodies are filler as a whole, and not compressed"),
        Fact("refused", "rows of the table `refused`, and those that are too many for it"),
        Fact("files", "files of the copy; with a pattern, every byte and name was searched, and nothing of it is left"),
        Fact("digest", "SHA-256 of the tables `messages` and `files`, as JSON with sorted keys: what to sign; or null"),
        Fact("notes", "what else an operator should know"),
    ),
    (
        ReportTable(
            "refused", "Why there is no copy", (*_PLACE, ReportColumn("reason", _TEXT, "what can't be redacted"))
        ),
        ReportTable(
            "messages",
            "Redacted messages",
            (
                *_PLACE,
                ReportColumn("bytes", _LONG, "bytes of the body that were replaced"),
                ReportColumn("was_compressed", pa.bool_(), "whether the body was compressed"),
                ReportColumn("digest", _TEXT, "SHA-256 of the record in the copy", in_text=False),
            ),
        ),
        ReportTable(
            "files",
            "Files of the copy",
            (
                ReportColumn("path", _TEXT, "below the root"),
                ReportColumn("size", _LONG, "bytes"),
                ReportColumn("is_changed", pa.bool_(), "whether it differs from the store's"),
                ReportColumn("digest", _TEXT, "SHA-256", in_text=False),
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class RedactFacts:
    """The facts of a redaction, as `REDACT_SCHEMA` explains them."""

    store: str
    into: str | None
    by: str
    searched_messages: int
    messages: int
    bytes: int
    expanded: int
    refused: int
    files: int
    digest: str | None
    notes: tuple[str, ...] = ()


class RedactReport(Report[RedactFacts]):
    """The report of a redaction, as `REDACT_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = REDACT_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """Refused if something can't be redacted: then there is no copy."""
        return Verdict.REFUSED if self.found.refused else Verdict.CLEAN

    @property
    def plots(self) -> tuple[Plot, ...]:
        """Messages that were redacted, and that can't be."""
        found = self.found
        bars = (("redacted", found.messages, Tone.GOOD), ("refused", found.refused, Tone.BAD))
        shown = (Bar(name, value, tone, counted(value, "message")) for name, value, tone in bars)
        return (Bars("What was looked for", tuple(shown)),)

    def _lines(self) -> Iterator[str]:
        found = self.found
        yield f"{counted(found.searched_messages, 'message')} looked at, by {found.by}"
        if found.refused:
            yield f"refused, no copy was made: {counted(found.refused, 'place')} can't be redacted"
        elif found.into is None:
            yield "nothing found, no copy was made"
        else:
            yield f"{counted(found.messages, 'message')} redacted, {found.bytes:,} bytes replaced"
            if found.expanded:
                were = agreeing(found.expanded, "was compressed, and is", "were compressed, and are")
                yield f"{found.expanded:,} of them {were} filler as a whole"
            yield f"the copy has {counted(found.files, 'file')}; to sign: {found.digest}"
        yield from found.notes

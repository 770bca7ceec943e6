# SPDX-License-Identifier: Apache-2.0
"""The report of a replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

from store_core.answers.report import Report
from store_core.answers.report_schema import Fact, ReportColumn, ReportSchema, ReportTable
from store_core.answers.verdict import Verdict
from store_core.format.counted import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["REPLAY_SCHEMA", "ReplayFacts", "ReplayReport"]

REPLAY_SCHEMA: Final = ReportSchema(
    "replay",
    1,
    (
        Fact("source", "root of the store that messages were taken from"),
        Fact("into", "root of the store that they were appended to"),
        Fact("replay_id", "name of the replay: under one name, messages are appended once"),
        Fact("messages", "messages that were appended, or would be"),
        Fact("bytes", "bytes of their records"),
        Fact("is_repeat", "whether a replay of this name was already in the store, so that nothing is done"),
        Fact("is_dry_run", "whether nothing was to be appended"),
        Fact("begin_offset", "physical offset of the first record; null in a dry run"),
        Fact("end_offset", "physical offset one past the last record; null in a dry run"),
    ),
    (
        ReportTable(
            "topics",
            "Where messages went",
            (
                ReportColumn("origin_topic", pa.string(), "topic that they were taken from"),
                ReportColumn("topic", pa.string(), "topic that they were appended to"),
                ReportColumn("messages", pa.int64(), "how many were chosen"),
            ),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class ReplayFacts:
    """The facts of a replay, as `REPLAY_SCHEMA` explains them."""

    source: str
    into: str
    replay_id: str
    messages: int
    bytes: int
    is_repeat: bool = False
    is_dry_run: bool = False
    begin_offset: int | None = None
    end_offset: int | None = None


class ReplayReport(Report[ReplayFacts]):
    """What a replay did, as `REPLAY_SCHEMA` explains it."""

    SCHEMA: ClassVar[ReportSchema] = REPLAY_SCHEMA

    @property
    def verdict(self) -> Verdict:
        """Always clean: a replay that can't be made is an error."""
        return Verdict.CLEAN

    @property
    def subject(self) -> str:
        """Both stores."""
        return f"{self.found.source} into {self.found.into}"

    def _lines(self) -> Iterator[str]:
        found = self.found
        if found.is_repeat:
            was = "would be" if found.is_dry_run else "was"
            yield f"a replay named {found.replay_id} is in the store already: nothing {was} appended"
            return
        would = "would be appended" if found.is_dry_run else "appended"
        yield f"{counted(found.messages, 'message')} of {found.bytes:,} bytes {would}, as replay {found.replay_id}"

# SPDX-License-Identifier: Apache-2.0
"""The answer `info`: what a person wants to know of a store first, at once. Nothing is scanned.

Read are names and sizes of files, the heads of index files, the configuration, the ends of queues, a few single
records, and the end of the log from the last record on that a queue leads to.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from store_core.answers.answer import Answer
from store_core.answers.report import Report, ReportSchema, Verdict, fact, number, shared, table, text
from store_core.files.store_lock import ABORT_FILE
from store_core.format.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from store_core.answers.store_description import Description
    from store_core.snapshot.store import Store
    from store_core.store.parts import Engine


_TOP: Final = 5

_STATES: Final = {
    "open": "a process has it open for writing",
    "crashed": f"not closed: {ABORT_FILE} is there, as after a crash, or in a copy of a store that was open",
    "closed": "closed",
    "unknown": "nothing tells whether it was closed",
}


@dataclass(frozen=True)
class Info(Answer["InfoReport"]):
    """Say what a store is: kind, release, state, log, messages, topics, groups, what is missing, and what to ask next.

    Nothing is scanned, so messages are counted as the queues have them, and the answer takes a moment. A store that is
    damaged is described as far as it can be read; `commitlog check` says what is wrong with it.
    """

    NAME: ClassVar = "info"
    EXAMPLES: ClassVar = (
        "commitlog info /data/store",
        "commitlog info /data/store --json | jq .log_end",
        "commitlog info s3://bucket/store --storage region=eu-west-1",
    )
    HAS_PARTS: ClassVar = False

    def on(self, engine: Engine, store: Store) -> InfoReport:
        """Look at a store; there are no parts for an engine."""
        del engine
        from store_core.answers.store_description import Description

        with store:
            return _report(Description(store))


def _report(store: Description) -> InfoReport:
    facts = InfoFacts(**store.facts())
    largest = sorted(
        store.topics, key=lambda row: (row["kind"] != "application", -(row["messages"] or 0), row["topic"])
    )
    behind = sorted(store.groups, key=lambda row: (-(row["behind"] or 0), row["group"]))
    tables = {
        "topics": [row for row in largest if row["messages"]][:_TOP],
        "groups": behind[:_TOP],
        "next": list(_next(facts, largest)),
    }
    return InfoReport.of(facts, tables)


def _next(found: InfoFacts, topics: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield what to ask next, the most urgent first."""
    from store_core.answers.store_description import MADE

    store = shlex.quote(found.store)
    is_checked = found.release is not None and bool(found.segments)  # only a root on this machine is
    is_doubtful = bool(found.notes) or found.state == "crashed"
    if is_checked and found.state == "crashed":
        yield _command("recover", f"{store} --dry-run", "what a broker's start would truncate, rebuild or refuse")
    if is_checked and is_doubtful:
        yield _command("check", store, "what is wrong, and where")
    made = [what for what in MADE if what in found.missing]
    if made and is_checked:
        what = "both" if len(made) == len(MADE) else MADE[made[0]]
        yield _command("rebuild", f"{what} {store} --dry-run", f"how to make {' and '.join(made)} from the log")
    if found.groups:
        yield _command("lag", store, "how far each group is behind, and since when")
    if topics and topics[0]["messages"]:
        topic = shlex.quote(topics[0]["topic"])
        yield _command("head", f"{store} --topic {topic}", "its first messages; tail has the last ones")
    if found.segments:
        yield _command("count", f"{store} --by topic", "messages and bytes of each topic, by a scan")
    if is_checked and not is_doubtful:
        yield _command("check", store, "whether log, queues and index agree")


def _command(name: str, words: str, why: str) -> dict[str, str]:
    return {"command": f"commitlog {name} {words}", "tells": why}


# ---- the report


@dataclass(frozen=True, slots=True)
class InfoFacts:
    """The facts of a store."""

    store: str = fact("the store root, or what was given if there is none")
    kinds: tuple[str, ...] = fact("how it is laid out: `ordinary`, or what is special")
    release: str | None = fact("the release of RocketMQ that served it last, as far as its files tell")
    release_why: str = fact("what tells it")
    state: str = fact("`open`, `crashed` (not closed), `closed`, or `unknown`")
    log_begin: int = fact("physical offset of the first byte of the log")
    log_end: int | None = fact("one past its last record; null if only reading more would tell")
    first_time: str | None = fact("store time of the first record")
    last_time: str | None = fact("store time of the last record that is known without a scan")
    segments: int = fact("segment files of the log")
    segment_size: int = fact("bytes of each")
    file_bytes: int = fact("bytes of all of them")
    messages: int | None = fact("messages in the queues, without light queues, which have them again")
    queues: int = fact("how many consume queues")
    counted_queues: int = fact("how many of these queues were looked at, for `messages` and the tables")
    topics: int = fact("topics that have queues, or are configured")
    groups: int = fact("consumer groups that have committed offsets")
    index_files: int = fact("files of the key index")
    index_entries: int | None = fact("entries that their heads count")
    missing: tuple[str, ...] = fact("what of a store is missing: `the log`, or something beside it")
    notes: tuple[str, ...] = fact("what else an operator should know", default=())


_TABLES: Final = (
    table(
        "topics",
        "The largest topics",
        *shared("topic"),
        text("kind", "what it is for, as `commitlog bill` names it"),
        number("queues", "how many"),
        number("messages", "messages in its queues; null if none was looked at"),
    ),
    table(
        "groups",
        "The groups that are most behind",
        text("group", "name of the group"),
        number("topics", "topics of which it has committed offsets"),
        number("behind", "messages after its offsets; null if none of its queues was looked at"),
    ),
    table(
        "next",
        "What to ask next",
        text("command", "what to type", in_text=False),
        text("tells", "what it tells", in_text=False),
    ),
)


class InfoReport(Report[InfoFacts]):
    """What a store is."""

    SCHEMA: ClassVar = ReportSchema.of("info", 1, InfoFacts, *_TABLES)
    IS_JUDGEMENT: ClassVar = False

    @property
    def verdict(self) -> Verdict:
        """Always clean: a description is no judgement."""
        return Verdict.CLEAN

    def _lines(self) -> Iterator[str]:
        found = self.found
        yield f"{found.store}: {', '.join(found.kinds)}; {_STATES[found.state]}"
        yield f"release: {'not told' if found.release is None else found.release} ({found.release_why})"
        end = "an end that is not known" if found.log_end is None else f"{found.log_end:,}"
        times = f"from {found.first_time or 'an unknown time'}"
        times += f" to {found.last_time}" if found.last_time is not None else ""
        files = f"{counted(found.segments, 'segment')} of {found.segment_size:,} bytes"
        if found.segments:
            yield f"log: offsets {found.log_begin:,} to {end}, {times}, in {files}"
        messages = "not known" if found.messages is None else f"{found.messages:,}"
        first = "" if found.counted_queues == found.queues else f"the first {found.counted_queues:,} of "
        yield f"messages: {messages}, in {first}{counted(found.queues, 'queue')} of {counted(found.topics, 'topic')}"
        entries = "" if found.index_entries is None else f" with {found.index_entries:,} entries"
        yield f"key index: {counted(found.index_files, 'file')}{entries}; {counted(found.groups, 'consumer group')}"
        if found.missing:
            yield f"missing: {', '.join(found.missing)}"
        yield from found.notes

    @property
    def next(self) -> Sequence[tuple[str, str]]:
        """The rows of the table that programs get."""
        return [(row["command"], row["tells"]) for row in self.tables["next"].to_pylist()]

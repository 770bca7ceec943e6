# SPDX-License-Identifier: Apache-2.0
"""The answer `lag`: how far consumer groups are behind, in messages, bytes and time, and which messages these are."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from store_core.answers.answer import TIME_WORDS, Answer, Kind, flag, function_of, opt
from store_core.answers.plots import Bar, Bars, Plot, Tone
from store_core.answers.report import (
    Report,
    ReportSchema,
    ReportTable,
    fact,
    moment,
    number,
    shared,
    table,
    text,
    truth,
)
from store_core.files.machine import SystemClock
from store_core.format.columns import iso_time, known_time, table_time
from store_core.format.words import age_words, agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import tzinfo

    from store_core.answers.lag_queues import FoundLag, LagJob, QueueLag
    from store_core.snapshot.store import Store
    from store_core.store.parts import Engine


@dataclass(frozen=True)
class Lag(Answer["LagReport"]):
    """Say how far consumer groups are behind: messages, bytes and age, by group, topic and queue.

    What groups have committed is compared with the queues, which end where the log ends. Of the log only single
    messages are read: the first one that a group has not consumed, last ones of queues, and those that --messages
    lists. The exit code is 1 if an offset is below its queue's minimum, beyond its end, or of no queue: how far the
    group is behind is then unknown.
    """

    NAME: ClassVar = "lag"
    IS_SUMMED: ClassVar = True
    SHOWS_WARNINGS: ClassVar = True
    EXAMPLES: ClassVar = (
        "commitlog lag /data/store",
        "commitlog lag /data/store --group billing --messages --rows 20",
        "commitlog lag /data/store --as-of 2024-05-01T14:05:00Z",
        "commitlog lag /data/store --json | jq .tables.queues",
    )

    group: tuple[str, ...] = opt((), "Only this group; can be repeated.", metavar="GROUP")
    topic: tuple[str, ...] = opt((), "Only this topic; can be repeated.", metavar="TOPIC")
    messages: bool = flag("List the messages that are not consumed, with tags and keys.")
    rows: int = opt(1000, "Messages that are listed; all are counted.", metavar="N", least=1)
    as_of: int | None = opt(None, f"Queues as they were at this time: {TIME_WORDS}.", kind=Kind.TIME, metavar="TIME")
    now: int | None = opt(
        None,
        "Time from which ages are counted.",
        kind=Kind.TIME,
        metavar="TIME",
        shown_default="the clock; of a store that no broker has open, its last message; with --as-of that time",
    )
    time_zone: str | tzinfo | None = opt(
        None, "Time zone of options that name none, and of the times in the text, such as +08:00.", metavar="ZONE"
    )

    def on(self, engine: Engine, store: Store) -> LagReport:
        """Look at the queues that groups consume.

        Only if the record of a queue's last unit is not there the log's end is looked for, in its last file: what a
        queue has past it does not count.
        """
        from store_core.answers.lag_queues import LagJob

        job = LagJob(store, self.group, self.topic, self.as_of, self.rows if self.messages else 0)
        found = engine.run(job)
        given = self.as_of if self.now is None else self.now
        now, notes = _present(store) if given is None else (given, ())
        return _report(job, found, self.as_of, now, notes)


lag = function_of(Lag)


def _present(store: Store) -> tuple[int | None, tuple[str, ...]]:
    """Return from when ages are counted, and a note: the clock, or the last message of a copy."""
    if store.is_live:
        return SystemClock().now_ms(), ()
    last = store.last_store_time
    if last is None:
        return None, ()
    return last, (f"ages count from the store's last message, of {iso_time(last)}: no broker has the store open",)


def _report(job: LagJob, found: FoundLag, as_of: int | None, now: int | None, notes: tuple[str, ...]) -> LagReport:
    dead: defaultdict[str, int] = defaultdict(int)
    for topic, count in found.dead_letters:
        dead[topic.removeprefix("%DLQ%")] += count
    rows, unknown = [_queue_row(row, now) for row in found.rows], job.unknown_groups(found.rows)
    nothing = {"queues": 0, "wrong_offsets": 0, "is_unknown": True}
    groups = [row | {"dead_letters": dead[row["consumer_group"]]} for row in _summed_rows("groups", rows)]
    tables = {
        "groups": [*groups, *({"consumer_group": name, **nothing} for name in unknown)],
        "topics": _summed_rows("topics", rows),
        "queues": _largest_first(rows),
        "messages": found.messages,
    }
    states = [row.state for row in found.rows]
    facts = LagFacts(
        store=str(job.root),
        as_of=known_time(as_of),
        log_end=job.log_end,
        now=known_time(now),
        offsets_files=tuple(map(str, job.groups.files)),
        offsets_written=iso_time(job.written),
        groups=len(groups),
        queues=len(rows),
        messages=sum(row.messages or 0 for row in found.rows),
        bytes=sum(row.size or 0 for row in found.rows),
        newer_messages=sum(row.newer for row in found.rows),
        **{state: states.count(state) for state in (*_WRONG_STATES, "no_offset")},
        missing_bytes=job.missing_bytes,
        notes=(*notes, *job.groups.notes, *_notes({row.asked.kind.name for row in found.rows}, unknown)),
    )
    return LagReport.of(facts, tables)


_MOST_NAMES: Final = 5


def _notes(kinds: Iterable[str], unknown: Sequence[str]) -> Iterator[str]:
    if not {"POP", "REVIVE"}.isdisjoint(kinds):
        yield (
            "the offset of a group that pops counts what the broker has handed out: messages not acknowledged yet "
            "count as consumed, until the broker puts them into a retry topic (kind revive: what it has still to do)"
        )
    if "BROADCAST" in kinds:
        yield "the offset of a group of kind broadcast is that of its slowest consumer behind a proxy"
    if unknown:
        others = " and others" if len(unknown) > _MOST_NAMES else ""
        yield (
            f"no offsets of {', '.join(unknown[:_MOST_NAMES])}{others}: never consumed, or in broadcast mode, where "
            f"consumers keep their offsets themselves"
        )


# ---- the report

_MOST_BARS: Final = 40
_GROUP: Final = text("consumer_group", "name of the group")
_BEHIND: Final = (
    number("messages", "messages that are there and not consumed; null if unknown"),
    *shared("bytes"),
    number("newer_messages", "of these, those stored after the offsets were written", in_text=False),
)
_OLDEST: Final = (
    moment(
        "oldest_store_timestamp",
        "store time of the first of them; null without one, and if the log does not have its record",
        in_text=False,
    ),
    number("age_ms", "ms from then to `now`; negative if it was stored later", is_age=True),
)

_TABLES: Final = (
    table(
        "groups",
        "Consumer groups",
        _GROUP,
        number("queues", "queues that it consumes"),
        *_BEHIND,
        *_OLDEST,
        number("wrong_offsets", "offsets below the queue's minimum, beyond its end, or of none"),
        number("dead_letters", "messages in its %DLQ% topic"),
        truth(
            "is_unknown",
            "whether it is configured and has no offset: it never consumed, or its consumers keep their "
            "offsets themselves, as in broadcast mode",
            in_text=False,
        ),
        by=("consumer_group",),
    ),
    table(
        "topics",
        "Topics of groups",
        _GROUP,
        *shared("topic"),
        text(
            "kind", "`normal`, `pop`, `retry`, `pop_retry`, `dead_letter`, `light`, `broadcast`, `revive` or `system`"
        ),
        number("queues", "queues"),
        *_BEHIND,
        *_OLDEST,
        by=("consumer_group", "topic", "kind"),
    ),
    table(
        "queues",
        "Queues of groups",
        _GROUP,
        *shared("topic", "queue_id"),
        text("kind", "as in `topics`", in_text=False),
        text(
            "state",
            "`ok`; `below_min`: messages were deleted before they were consumed; `beyond_end`: the queue is "
            "shorter, as after a loss; `no_queue`; `no_offset`: nothing is committed; `empty`: no queue, and "
            "nothing of it was consumed",
        ),
        number("committed_offset", "queue offset of the next message to consume, or null"),
        number("min_offset", "queue offset of the first message that is there", in_text=False),
        number("max_offset", "queue offset after the last message, as of the time asked for"),
        _BEHIND[0],
        replace(_BEHIND[1], in_text=False),
        _BEHIND[2],
        number("oldest_offset", "queue offset of the first message not consumed", in_text=False),
        *_OLDEST,
    ),
    table(
        "messages",
        "Messages not consumed",
        _GROUP,
        *shared("topic", "queue_id"),
        *shared("queue_offset"),
        *shared("physical_offset", "store_size", in_text=False),
        moment("store_timestamp", "when it was stored; null if the log lacks the record"),
        text("tags", "its tags"),
        *shared("keys"),
        *shared("unique_key", in_text=False),
        text("born_host", "the producer's address", in_text=False),
        names_messages=True,
    ),
)


@dataclass(frozen=True, slots=True)
class LagFacts:
    """The facts of a lag."""

    store: str = fact("the store root")
    as_of: str | None = fact("time as of which queues were looked at, in ISO 8601; null for now")
    log_end: int | None = fact(
        "physical offset at which the log ended then; null for now, and if all records are older", over="max"
    )
    now: str | None = fact("time from which ages are counted, in ISO 8601, or null")
    offsets_files: tuple[str, ...] = fact("the files with committed offsets")
    offsets_written: str = fact("when the last of them was written, by its modification time, in ISO 8601")
    groups: int = fact("consumer groups")
    queues: int = fact("pairs of a group and a queue")
    messages: int = fact("messages that are there and not consumed; each counts once for each group")
    bytes: int = fact("bytes of their records, likewise")
    newer_messages: int = fact("of these messages, those stored after the offsets were written: they may be consumed")
    below_min: int = fact("committed offsets of messages that retention has deleted", tells="findings")
    beyond_end: int = fact("committed offsets after the end of their queue", tells="findings")
    no_queue: int = fact("committed offsets of queues that are not there", tells="findings")
    no_offset: int = fact("queues of a topic for which a group that consumes it has committed nothing")
    missing_bytes: int = fact(
        "bytes of segments that are missing from the log: messages there are counted, and lost",
        default=0,
        tells="damaged",
    )
    notes: tuple[str, ...] = fact("what else an operator should know", default=())


class LagReport(Report[LagFacts]):
    """How far groups are behind."""

    SCHEMA: ClassVar = ReportSchema.of("lag", 1, LagFacts, *_TABLES)
    IS_JUDGEMENT: ClassVar = False

    def over_stores(self) -> LagReport:
        """Count the groups of all stores once."""
        known = sum(not row for row in self.tables["groups"]["is_unknown"].to_pylist())
        facts: Any = replace(self.found, groups=known)
        return replace(self, found=facts)

    @property
    def plots(self) -> tuple[Plot, ...]:
        """Messages and ages by group."""
        rows = [row for row in self.tables["groups"].to_pylist() if row["messages"]]
        plots = [
            _bars("Messages not consumed, by group", rows, "messages", lambda row: counted(row["messages"], "message"))
        ]
        aged = [row for row in rows if (row["age_ms"] or 0) > 0]
        if aged:
            plots.append(_bars("Age of the oldest of them", aged, "age_ms", lambda row: age_words(row["age_ms"])))
        return tuple(plot for plot in plots if plot.bars)

    def _is_listed_whole(self, table: ReportTable) -> bool:
        return table.name == "messages"

    def _lines(self) -> Iterator[str]:
        found, names = self.found, ("consumer_group", "topic", "queue_id", "messages")
        behind = [row for row in self.tables["queues"].select(names).to_pylist() if row["messages"]]
        groups, queues = (
            len({tuple(row[name] for name in some) for row in behind}) for some in (names[:1], names[1:3])
        )
        when = f" as of {found.as_of}" if found.as_of else ""
        if found.messages:
            of_all = "" if groups == found.groups else f"{groups:,} of "
            whose = f"{of_all}{counted(found.groups, 'group')} in {counted(queues, 'queue')}"
            yield f"{counted(found.messages, 'message')} of {found.bytes:,} bytes not consumed{when}, by {whose}"
        elif not found.groups:
            yield "no consumer group has committed an offset"
        else:
            yield f"no message is known to be left to consume{when}, for {counted(found.groups, 'group')}"
        if found.newer_messages:
            stored = agreeing(found.newer_messages, "was stored since, and may be", "were stored since, and may be")
            yield (
                f"the offsets were last written at {found.offsets_written}, before the log's end: "
                f"{found.newer_messages:,} of these messages {stored} consumed, "
                f"{found.messages - found.newer_messages:,} were not consumed then"
            )
        for state, what in _WRONG_STATES.items():
            count: int = getattr(found, state)
            if count:
                yield f"{counted(count, 'offset')} {agreeing(count, *what)}"
        if found.no_offset:
            queue_has = agreeing(found.no_offset, "queue has no offset", "queues have no offsets")
            yield f"{found.no_offset:,} {queue_has} of a group that consumes the topic: all messages there count"
        if found.as_of:
            yield (
                "what was there then is compared with what is consumed now: offsets of the past are not on disk (they "
                f"were last written at {found.offsets_written})"
            )
        if found.missing_bytes:
            counts = "messages there count as their queues have them"
            yield f"{found.missing_bytes:,} bytes of the log are missing: {counts}"
        yield from found.notes


def _bars(title: str, rows: list[dict[str, Any]], value: str, label: Any) -> Bars:  # noqa: ANN401 -- of a row
    rows = sorted(rows, key=lambda row: (-row[value], row["consumer_group"]))
    bars = tuple(
        Bar(row["consumer_group"], row[value], Tone.WARNING if row["wrong_offsets"] else Tone.PLAIN, label(row))
        for row in rows[:_MOST_BARS]
    )
    more = counted(len(rows) - _MOST_BARS, "more group") if len(rows) > _MOST_BARS else ""
    return Bars(title, bars, more)


_WRONG_STATES: Final = {
    "below_min": (
        "is below the minimum of its queue: messages were deleted before they were consumed",
        "are below the minimum of their queues: messages were deleted before they were consumed",
    ),
    "beyond_end": (
        "is beyond the end of its queue: how far that group is behind is not known",
        "are beyond the end of their queues: how far those groups are behind is not known",
    ),
    "no_queue": ("is of a queue that is not there", "are of queues that are not there"),
}
"""States of committed offsets that are not within their queue -> what is said of one offset, and of several."""


# ---- rows


def _queue_row(row: QueueLag, now: int | None) -> dict[str, Any]:
    """Return the row of a group and a queue, and what it adds to the rows of both; ages count from `now`, ms."""
    oldest = table_time(row.oldest)
    return row._asdict() | {
        "consumer_group": row.asked.group,
        "kind": row.asked.kind.name.lower(),
        "committed_offset": row.asked.committed,
        "bytes": row.size,
        "newer_messages": row.newer,
        "oldest_offset": None if row.first is None else row.first[0],
        "oldest_store_timestamp": oldest,
        "age_ms": None if oldest is None or now is None else now - oldest // 1000,
        "queues": 1,
        "wrong_offsets": int(row.state in _WRONG_STATES),
        "is_unknown": False,
    }


def _summed_rows(name: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a table that has totals of queues; what is unknown of all of them is null."""
    table = LagReport.SCHEMA.table(name)
    return _largest_first(table.summed(table.of(rows)).to_pylist())


def _largest_first(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows by how many messages they have, then by name."""
    names = ("consumer_group", "topic", "queue_id", "kind")
    return sorted(rows, key=lambda row: (-(row["messages"] or 0), *(row[name] for name in names if name in row)))

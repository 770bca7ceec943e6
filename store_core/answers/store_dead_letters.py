# SPDX-License-Identifier: Apache-2.0
"""The answer `deadletters`: which messages consumers gave up, why, and what they were at first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.answer import Answer, function_of, opt, release_option
from store_core.answers.message_reads import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    MISSING_BYTES,
    ORIGIN_MESSAGE_ID,
    ReadJob,
    RecordLookUp,
    missing_line,
    read_of,
)
from store_core.answers.plots import Bar, Bars, Plot, Tone
from store_core.answers.report import Report, ReportColumn, ReportSchema, fact, moment, number, shared, table, text
from store_core.answers.text_table import message_name
from store_core.broker.topic_kind import DEAD_LETTER_PREFIX
from store_core.broker.transactions import with_ms
from store_core.errors import InvalidOptionError
from store_core.format.columns import MAP_TYPE, table_time
from store_core.format.properties import RETRY_TOPIC
from store_core.format.record.delayed import RETRY_PREFIX
from store_core.format.record.scan import is_message_id, position_of_message_id
from store_core.format.words import agreeing, counted, did_you_mean, known_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from store_core.format.release import Release
    from store_core.snapshot.store import Store
    from store_core.store.parts import Engine


@dataclass(frozen=True)
class DeadLetters(Answer["DeadLettersReport"]):
    """Tell which messages consumers gave up, by group and topic, why, and where their first messages are.

    Only the topics of dead letters are read, and the records that they name. The exit code is 1 if there are any.
    """

    NAME: ClassVar = "deadletters"
    IS_SUMMED: ClassVar = True
    EXAMPLES: ClassVar = (
        "commitlog deadletters /data/store",
        "commitlog deadletters /data/store --group billing --json",
        "commitlog deadletters /data/store --html report.html",
    )

    group: tuple[str, ...] = opt((), "Only dead letters of this consumer group; can be repeated.", metavar="GROUP")
    rows: int = opt(1000, "Rows that are listed; all are counted.", metavar="N", least=0)
    release: Release = release_option()

    def on(self, engine: Engine, store: Store) -> DeadLettersReport:
        """Read the topics of dead letters, and the records that they name."""
        from store_core.snapshot.config import SUBSCRIPTION_GROUPS

        root, extent = store.root, store.asked_log
        topics: dict[str, Any] = {"topics_pattern": DEAD_LETTER_PATTERN}
        if self.group:
            topics = {"topic": tuple(f"{DEAD_LETTER_PREFIX}{group}" for group in self.group)}
        read = read_of(DEAD_LETTER_COLUMNS, dead_letter_rows, release=self.release, **topics)
        job = ReadJob(store, read)
        rows = engine.run(job).to_pylist()
        _check_groups(store, self.group, {str(row["topic"]) for row in rows})
        offsets = (origin_offset(row) for row in rows)
        origins = engine.run(RecordLookUp(extent.segments, (at for at in offsets if at is not None), self.release))
        begin = extent.remaining().begin  # after the look-up: what was deleted meanwhile is not missing
        what = "after how many attempts groups give up"
        groups, notes = store.config.of_release(self.release).known(SUBSCRIPTION_GROUPS, what)
        limits = {
            name: group.retry_max_times for name, group in (groups or {}).items() if "retryMaxTimes" in group.given
        }
        letters = [_letter(row, origins, begin, limits) for row in rows]
        facts = replace(_facts(root, letters, (*job.notes, *notes)), missing_bytes=extent.missing_bytes)
        return DeadLettersReport.of(facts, {"groups": list(_groups(letters, limits)), "letters": letters[: self.rows]})


dead_letters = function_of(DeadLetters)


_Row = dict[str, Any]


def _check_groups(store: Store, asked: Sequence[str], found: Collection[str]) -> None:
    """Refuse groups without dead letters that nothing in the store knows, if it knows any: they are mistyped."""
    missing = [group for group in asked if f"{DEAD_LETTER_PREFIX}{group}" not in found]
    known = known_groups(store) if missing else frozenset[str]()
    for group in missing:
        if known and group not in known:
            hint = did_you_mean(group, known) or f"the groups are {known_names(known)}"
            raise InvalidOptionError(f"no consumer group {group!r} in {store.root}; {hint}")


def _letter(row: _Row, origins: Mapping[int, _Row], begin: int, limits: Mapping[str, int]) -> _Row:
    """Return a row of the report."""
    group = str(row["topic"]).removeprefix(DEAD_LETTER_PREFIX)
    limit = limits.get(group)
    state = origin_of(row, origins, begin)
    origin = origins[origin_offset(row) or 0] if state == "here" else None
    seconds = None if origin is None else row["store_timestamp"] / 1000 - origin["store_timestamp"] / 1_000_000
    names = ("topic", "queue_id", "queue_offset")
    return row | {
        "group": group,
        "failures": row["reconsume_times"],
        "why": "unknown" if limit is None else "exhausted" if row["reconsume_times"] > limit else "early",
        "origin": state,
        "origin_topic": row["origin_topic"] or (origin and origin["topic"]),
        "origin_offset": origin_offset(row),
        "origin_message": None if origin is None else message_name(*(origin[name] for name in names)),
        "store_timestamp": table_time(row["store_timestamp"]),
        "seconds": seconds,
    }


def _facts(root: Path, letters: Sequence[_Row], notes: tuple[str, ...]) -> DeadLettersFacts:
    origins = Counter(letter["origin"] for letter in letters)
    reasons = Counter(letter["why"] for letter in letters)
    return DeadLettersFacts(
        store=str(root),
        letters=len(letters),
        groups=len({letter["group"] for letter in letters}),
        bytes=sum(letter["store_size"] for letter in letters),
        exhausted=reasons["exhausted"],
        early=reasons["early"],
        notes=notes,
        **{name: origins[name] for name in ("here", "deleted", "elsewhere", "missing", "unknown")},
    )


def _groups(letters: Sequence[_Row], limits: Mapping[str, int]) -> Iterator[_Row]:
    """Yield totals by group and topic, the most letters first."""
    found: dict[tuple[str, str], list[_Row]] = {}
    for letter in letters:
        found.setdefault((letter["group"], letter["origin_topic"] or ""), []).append(letter)
    for (group, topic), those in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        failures = [letter["failures"] for letter in those]
        times = [letter["store_timestamp"] for letter in those if letter["store_timestamp"] is not None]
        yield {
            "group": group,
            "origin_topic": topic or None,
            "letters": len(those),
            "bytes": sum(letter["store_size"] for letter in those),
            "retry_max_times": limits.get(group),
            "least_failures": min(failures),
            "most_failures": max(failures),
            "here": sum(letter["origin"] == "here" for letter in those),
            "first_timestamp": min(times, default=None),
            "last_timestamp": max(times, default=None),
        }


def known_groups(store: Store) -> frozenset[str]:
    """Return the groups that are configured, have committed offsets, or have a topic of retries or dead letters.

    A file that is broken is left out.
    """
    from store_core.snapshot.config import CONSUMER_OFFSETS, SUBSCRIPTION_GROUPS
    from store_core.store.read.read_messages import stored_topics

    configured, _ = store.config.known(SUBSCRIPTION_GROUPS)
    offsets, _ = store.config.known(CONSUMER_OFFSETS)
    topics = stored_topics((store.root,))
    of_topics = {
        topic.removeprefix(prefix)
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX)
        for topic in topics
        if topic.startswith(prefix)
    }
    return frozenset({*(configured or ()), *(group for _, group in (offsets.by_group if offsets else ())), *of_topics})


DEAD_LETTER_PATTERN: Final = "%DLQ%.*"
DEAD_LETTER_COLUMNS: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_timestamp",
    "store_size",
    "reconsume_times",
    "msg_id",
    "unique_key",
    "keys",
    "properties",
)
_POSITION: Final = 16
"""Hexadecimal digits of the physical offset, at the end of an offset message id."""

_NAMES: Final = {
    "origin_id": (ORIGIN_MESSAGE_ID, DLQ_ORIGIN_MESSAGE_ID),
    "origin_topic": (RETRY_TOPIC, DLQ_ORIGIN_TOPIC),
}


def dead_letter_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return dead letters, read with `DEAD_LETTER_COLUMNS`, with what they say of their first messages."""
    for column, names in _NAMES.items():
        first, then = (pc.map_lookup(batch["properties"], pa.scalar(name), "last") for name in names)
        batch = batch.append_column(column, pc.coalesce(first, then))
    return with_ms(batch)


def origin_offset(row: Mapping[str, Any]) -> int | None:
    """Return where the first message of a dead letter was in the log; None if it does not say."""
    known: str | None = row["origin_id"]
    return None if known is None or not is_message_id(known) else position_of_message_id(known)


def origin_of(row: Mapping[str, Any], origins: Mapping[int, Mapping[str, Any]], log_begin: int) -> str:
    """Return in one word where the first message of a dead letter is.

    * `origins`: The records that were found, by their physical offsets.
    * `log_begin`: Physical offset.
    """
    offset = origin_offset(row)
    if offset is None:
        return "unknown"
    found = origins.get(offset)
    if found is not None and found["unique_key"] == row["unique_key"]:
        return "here"
    if str(row["origin_id"]).upper()[:-_POSITION] != str(row["msg_id"]).upper()[:-_POSITION]:
        return "elsewhere"
    return "deleted" if offset < log_begin else "missing"


_ORIGIN: Final = (
    "`here`; `deleted`, if the log begins after it; `elsewhere`, on another broker; `missing`, if its place has no "
    "such message; `unknown`, if the letter does not name it"
)
_WHY: Final = "`exhausted` if the group's retryMaxTimes were used up, `early` if not, `unknown` without a configuration"


@dataclass(frozen=True, slots=True)
class DeadLettersFacts:
    """The facts of the answer."""

    store: str = fact("the store's root")
    letters: int = fact("dead letters that were looked at", default=0, tells="findings")
    groups: int = fact("consumer groups that have any", default=0)
    bytes: int = fact("bytes of their records", default=0)
    exhausted: int = fact("letters of messages that were tried as often as their group allows", default=0)
    early: int = fact("letters of messages that were tried less often: the consumer gave up by itself", default=0)
    here: int = fact("letters whose first message is still in the log", default=0)
    deleted: int = fact("letters whose first message was deleted", default=0)
    elsewhere: int = fact("letters whose first message is on another broker", default=0)
    missing: int = fact("letters whose first message is not where they say it is", default=0)
    unknown: int = fact("letters that do not name their first message", default=0)
    missing_bytes: int = fact(MISSING_BYTES, default=0, tells="damaged")
    notes: tuple[str, ...] = fact("what else an operator should know", default=())


_REPORT_TABLES: Final = (
    table(
        "groups",
        "By consumer group and origin",
        text("group", "consumer group"),
        text("origin_topic", "topic of the first message"),
        number("letters", "dead letters"),
        *shared("bytes", in_text=False),
        number("retry_max_times", "the group's retryMaxTimes; null if not configured"),
        number("least_failures", "deliveries that failed, at least", in_text=False),
        number("most_failures", "deliveries that failed, at most"),
        number("here", "first messages that are still in the log"),
        moment("first_timestamp", "when the first letter was stored"),
        moment("last_timestamp", "when the last one was stored", in_text=False),
    ),
    table(
        "letters",
        "Dead letters",
        *shared("topic", "queue_id", "queue_offset"),
        text("group", "consumer group", in_text=False),
        *shared("keys"),
        number("failures", "deliveries that failed"),
        text("why", _WHY),
        text("origin", "where the first message is: " + _ORIGIN),
        text("origin_message", "the first message as `TOPIC/QUEUE/OFFSET`, if it is here"),
        moment("store_timestamp", "when it became a dead letter", in_text=False),
        ReportColumn("seconds", pa.float64(), "how long after its first message", in_text=False),
        *shared("unique_key", "physical_offset", "msg_id", in_text=False),
        text("origin_topic", "topic of the first message", in_text=False),
        text("origin_id", "offset message id of the first message", in_text=False),
        number("origin_offset", "its physical offset", in_text=False),
        ReportColumn("properties", MAP_TYPE, "its properties, as its last consumer left them", in_text=False),
        names_messages=True,
    ),
)


class DeadLettersReport(Report[DeadLettersFacts]):
    """The dead letters of a store."""

    SCHEMA: ClassVar = ReportSchema.of("deadletters", 1, DeadLettersFacts, *_REPORT_TABLES)

    def over_stores(self) -> DeadLettersReport:
        """Count the groups of all stores once."""
        facts: Any = replace(self.found, groups=len(self.tables["groups"]["group"].unique()))
        return replace(self, found=facts)

    @property
    def plots(self) -> tuple[Plot, ...]:
        """How many each group has, and whether their first messages are still there."""
        rows = self.tables["groups"].to_pylist()
        bars = tuple(
            Bar(
                f"{row['group']}, {row['origin_topic']}",
                row["here"],
                Tone.WARNING,
                f"{row['letters']:,}, of {row['here']:,} the first message is here",
                full=row["letters"],
            )
            for row in rows[:_MOST_BARS]
        )
        more = f"and {len(rows) - _MOST_BARS:,} more" if len(rows) > _MOST_BARS else ""
        return (Bars("Dead letters by group and topic", bars, more),) if bars else ()

    def _lines(self) -> Iterator[str]:
        found = self.found
        whose = f" of {counted(found.groups, 'group')}" if found.groups else ""
        yield f"{counted(found.letters, 'dead letter')}{whose}, in {found.store}"
        for name, words in _WORDS.items():
            count: int = getattr(found, name)
            if count:
                yield f"{count:,} {agreeing(count, *words)}"
        if found.missing_bytes:
            yield missing_line(found.missing_bytes)
        yield from found.notes


_MOST_BARS: Final = 20
_WORDS: Final = {
    "exhausted": ("was tried as often as its group allows", "were tried as often as their group allows"),
    "early": (
        "was tried less often: the consumer gave up by itself",
        "were tried less often: the consumer gave up by itself",
    ),
    "here": ("has its first message in the log", "have their first message in the log"),
    "deleted": ("had a first message that was deleted", "had a first message that was deleted"),
    "elsewhere": ("has its first message on another broker", "have their first message on another broker"),
    "missing": ("names a first message that is not there", "name a first message that is not there"),
    "unknown": ("does not name its first message", "do not name their first message"),
}
"""What is said of one, and of several."""

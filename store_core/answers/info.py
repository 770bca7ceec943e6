# SPDX-License-Identifier: Apache-2.0
"""The answer `info`: what a person wants to know of a store first, at once. Nothing is scanned.

Read are names and sizes of files, the heads of index files, the configuration, the ends of queues, a few single
records, and the end of the log from the last record on that a queue leads to.
"""

from __future__ import annotations

import shlex
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from store_core.answers.answer import Answer
from store_core.answers.report import Report, ReportSchema, fact, number, shared, table, text
from store_core.broker.topic_kind import kind_of_topic
from store_core.errors import StoreError
from store_core.files.access import in_words
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.names import CHECKPOINT_FILE, CONFIG_DIRECTORY
from store_core.files.store_kind import check_parts
from store_core.files.store_lock import ABORT_FILE
from store_core.files.store_path import nothing_at
from store_core.files.url_path import UrlPath
from store_core.format.columnar.chain import Place
from store_core.format.columns import known_time
from store_core.format.words import counted
from store_core.queue.queue_path import is_light
from store_core.snapshot.config import CONSUMER_OFFSETS, LIGHT_OFFSETS, TOPICS, checkpoint_time
from store_core.snapshot.index import KeyFile
from store_core.snapshot.log_end import segment_ends
from store_core.snapshot.queues import Queues
from store_core.snapshot.store import Store, StoreKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from store_core.files.segment_source import Segment
    from store_core.snapshot.log import Log
    from store_core.snapshot.units import QueueBounds
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
        with store:
            return _report(Description(store))


def _report(store: Description) -> InfoReport:
    facts = store.facts()
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
    store = shlex.quote(found.store)
    is_checked = found.release is not None and bool(found.segments)  # only a root on this machine is
    is_doubtful = bool(found.notes) or found.state == "crashed"
    if is_checked and found.state == "crashed":
        yield _command("recover", f"{store} --dry-run", "what a broker's start would truncate, rebuild or refuse")
    if is_checked and is_doubtful:
        yield _command("check", store, "what is wrong, and where")
    made = [what for what in _MADE if what in found.missing]
    if made and is_checked:
        what = "both" if len(made) == len(_MADE) else _MADE[made[0]]
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


# ---- what is read

_FILES: Final = OsFileSystem()
_MOST_QUEUES: Final = 1000
"""Queues whose ends are read: some 0.1 ms each, on a disk of this machine."""

_MOST_FAR_QUEUES: Final = 32
"""The same in another storage, where each takes a request or more."""

_MOST_INDEX_FILES: Final = 100
_QUEUES: Final = "consume queues"
_INDEX: Final = "the key index"
_MADE: Final = {_QUEUES: "queues", _INDEX: "index"}
"""What `commitlog rebuild` makes -> what it calls that."""

_LAST_FLUSHED: Final = "physic_msg_timestamp"
_KINDS: Final = {
    StoreKind.SEVERAL_DIRECTORIES: "log in several directories, or outside of the root",
    StoreKind.DLEDGER: "DLedger log",
    StoreKind.ROCKSDB: "queues in a RocksDB",
    StoreKind.PARTS: "copy of a part",
    StoreKind.ARCHIVE: "archive",
}


@dataclass
class Description:
    """Reads what a description of a store needs. A file that can't be read is a note, and no error."""

    store: Store
    log: Log = field(init=False)
    root: Path | None = None
    notes: list[str] = field(default_factory=list)
    bounds: dict[tuple[str, int], QueueBounds] = field(default_factory=dict)  # of the queues that were looked at
    queue_count: int = 0  # of all queues
    uncounted: Counter[str] = field(default_factory=Counter)
    """Topic -> its queues that were not looked at, as there are too many."""
    topics: list[dict[str, Any]] = field(default_factory=list)  # a row for each
    groups: list[dict[str, Any]] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)  # parts that can't be read
    furthest: tuple[int, int] | None = None  # physical offset and size of the last record that a queue leads to

    def __post_init__(self) -> None:
        self.log = self.store.log
        self.notes += map(str, self.log.problems)
        self.notes += (f"bytes from {begin} to {end} of the log are missing" for begin, end in self.log.missing)
        with self._noted():
            self.notes += self.store.notes
        with self._noted():
            self.root = self.store.root

    @contextmanager
    def _noted(self, part: str = "") -> Iterator[None]:
        """Make a note of an error; the part that was read may be there."""
        try:
            yield
        except (StoreError, OSError) as error:
            self.unread.add(part)
            self.notes.append(in_words(error, self.root) if self.root else str(error))

    def facts(self) -> InfoFacts:
        """Return the facts of the report; `topics` and `groups` are known then."""
        with self._noted(_QUEUES):
            self._look_at_queues()
        entries, index_files = self._index()
        self.topics, self.groups = self._topics(), self._groups()
        end, last_time = self._end()
        if end is not None and self.furthest is not None and self.furthest[0] >= end and self._state() == "closed":
            further = f"queues lead to the record at {self.furthest[0]}, after the log's end"
            self.notes.append(f"{further}: a part of the log is lost, or elsewhere, as the broker's --config may say")
        return InfoFacts(
            store=str(self.root or self.store.paths),
            kinds=self._kinds(),
            state=self._state(),
            log_begin=self.log.begin,
            log_end=end,
            first_time=self._time_at(self.log.begin + self.log.segments[0].framing.lead) if self.log.segments else None,
            last_time=last_time,
            segments=len(self.log.segments),
            segment_size=self.log.usual_size,
            file_bytes=sum(segment.size for segment in self.log.segments),
            messages=self._messages(),
            queues=None if _QUEUES in self.unread else self.queue_count,
            counted_queues=self.queue_count - self.uncounted.total(),
            topics=len(self.topics),
            groups=len(self.groups),
            index_files=index_files,
            index_entries=entries,
            missing=self._missing(index_files),
            notes=tuple(dict.fromkeys(self.notes)),
            **self._release(),
        )

    # ---- what it is

    def _kinds(self) -> tuple[str, ...]:
        with self._noted():
            kind = self.store.kind
            return tuple(words for each, words in _KINDS.items() if each in kind) or ("ordinary",)
        return ("unknown",)

    def _release(self) -> dict[str, Any]:
        if self.root is None or isinstance(self.root, UrlPath):
            place = "a root" if self.root is None else "the files of a store on this machine"
            return {"release": None, "release_why": f"only {place} can tell it"}
        told = self.store.release
        return {"release": told.releases[0], "release_why": told.why}

    def _state(self) -> str:
        if self.store.is_live:
            return "open"
        names = self._names()
        if ABORT_FILE in names:
            return "crashed"
        return "closed" if CHECKPOINT_FILE in names else "unknown"

    def _names(self) -> set[str]:
        with self._noted():
            return set() if self.root is None else set(names_in(self.root, _FILES))
        return set()

    def _missing(self, index_files: int) -> tuple[str, ...]:
        """Return what there is not beside the log, or no log."""
        if self.root is None:
            return ()
        configured = set(names_in(self.root / CONFIG_DIRECTORY, _FILES)) if CONFIG_DIRECTORY in self._names() else set()
        in_database = self.store.config.database(CONSUMER_OFFSETS) is not None
        parts = {
            "the log": bool(self.log.segments),
            **dict(zip(_MADE, (bool(self.queue_count), bool(index_files)), strict=True)),
            CHECKPOINT_FILE: CHECKPOINT_FILE in self._names(),
            f"{CONFIG_DIRECTORY}/{TOPICS.name}": in_database or TOPICS.name in configured,
            f"{CONFIG_DIRECTORY}/{CONSUMER_OFFSETS.name}": in_database
            or not configured.isdisjoint({CONSUMER_OFFSETS.name, LIGHT_OFFSETS.name}),
        }
        if not any(parts.values()):
            raise nothing_at([self.root], self.log.notes)
        return tuple(part for part, is_there in parts.items() if not is_there and part not in self.unread)

    # ---- its queues, topics and groups

    def _look_at_queues(self) -> None:
        if self.root is None:
            return
        most = _MOST_FAR_QUEUES if isinstance(self.root, UrlPath) else _MOST_QUEUES
        with Queues(self.root) as queues:
            found = queues.each()
            for queue in islice(found, most):
                self.queue_count += 1
                with self._noted():
                    bounds = queue.bounds(self.log.begin)
                    if self.store.end is not None:
                        bounds = queues.before(*queue.name, bounds, self.store.end) or bounds
                    self.bounds[queue.name] = bounds
                    self.furthest = max(filter(None, (self.furthest, bounds.last)), default=None)
            for queue in found:
                self.queue_count += 1
                self.uncounted[queue.name[0]] += 1
            self.notes += queues.notes
        if not self.queue_count:
            check_parts(self.root, _FILES)

    def _messages(self) -> int | None:
        own = [bounds for (topic, _), bounds in self.bounds.items() if not is_light(topic)]
        return sum(each.max_offset - each.min_offset for each in own) if own else None

    def _topics(self) -> list[dict[str, Any]]:
        """Return a row for each topic that has queues that were looked at, or is configured."""
        queues = Counter(topic for topic, _ in self.bounds) + self.uncounted
        counts: Counter[str] = Counter()
        for (topic, _), bounds in self.bounds.items():
            counts[topic] += bounds.max_offset - bounds.min_offset
        configured: Sequence[str] = ()
        if self.root is not None:
            known, notes = self.store.config.known(TOPICS)
            configured = tuple(known or ())
            self.notes += notes
        return [
            {
                "topic": topic,
                "kind": kind_of_topic(topic).name.lower(),
                "queues": queues[topic],
                "messages": counts.get(topic),
            }
            for topic in dict.fromkeys((*queues, *configured))
        ]

    def _groups(self) -> list[dict[str, Any]]:
        if self.root is None:
            return []
        found: dict[str, dict[str, Any]] = {}
        for kind in (CONSUMER_OFFSETS, LIGHT_OFFSETS):
            offsets, notes = self.store.config.known(kind)
            self.notes += notes
            for each in (*offsets.committed, *offsets.light) if offsets is not None else ():
                row = found.setdefault(each.group, {"group": each.group, "topics": set(), "behind": None})
                row["topics"].add(each.topic)
                bounds = self.bounds.get((each.topic, each.queue_id))
                if bounds is not None:
                    behind = max(bounds.max_offset - max(each.offset, bounds.min_offset), 0)
                    row["behind"] = (row["behind"] or 0) + behind
        return [row | {"topics": len(row["topics"])} for row in found.values()]

    def _index(self) -> tuple[int | None, int]:
        """Return how many entries the heads of index files count, and how many files there are."""
        if self.root is None:
            return None, 0
        with self._noted(_INDEX):
            paths = self.store.index.paths
            if not paths:
                check_parts(self.root, _FILES)
            if len(paths) > _MOST_INDEX_FILES or (isinstance(self.root, UrlPath) and len(paths) > 1):
                return None, len(paths)
            if self.store.end is not None:  # a broker goes on filling the last one
                counts = [file.stop - 1 for file in self.store.index.files(trusts_size=True) if file.stop > 1]
                return sum(counts), len(counts)
            return sum(max(KeyFile(path).header.index_count - 1, 0) for path in paths), len(paths)
        return None, 0

    # ---- its log

    def _end(self) -> tuple[int | None, str | None]:
        """Return where the log ends, and the store time of its last record; None if only reading more would tell."""
        if self.store.end is not None:
            return self.store.end, known_time(self.store.last_store_time)
        begin, end = self._last_queued()
        time = None if begin is None else self._time_at(begin)
        if self.log.segments and self.log.segments[-1].is_plain:
            with self._noted():
                found = segment_ends(self.log.segments, verify_crc=True, place_in=partial(_place, begin))[-1]
                end, time = found.end_offset, known_time(found.last_time)
        return end, time or (None if end == self.log.begin else self._newest_time())

    def _last_queued(self) -> tuple[int, int] | tuple[None, None]:
        """Return the physical offsets at which a queue's last record begins and ends; None without that record."""
        if self.furthest is None:
            return None, None
        offset, size = self.furthest
        with self._noted():
            record = self.log.record_at(offset)
            return (offset, offset + size) if record is not None and record.size == size else (None, None)
        return None, None

    def _time_at(self, offset: int) -> str | None:
        with self._noted():
            return known_time(self.log.time_at(offset))
        return None

    def _newest_time(self) -> str | None:
        """Return the newest store time that the checkpoint, or a record that a queue leads to, has."""
        if self.root is None:
            return None
        with self._noted():
            return checkpoint_time((self.store.checkpoint or {}).get(_LAST_FLUSHED, 0))
        return None


def _place(begin: int | None, segment: Segment) -> Place:
    """Return from where on the end is looked for in a segment: from a record on that is known to be there."""
    is_in = begin is not None and segment.start_offset <= begin < segment.end_offset
    return Place(begin - segment.framing.lead - segment.start_offset) if begin is not None and is_in else Place()


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
    queues: int | None = fact("how many consume queues; null if they can't be read")
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
        place = "as the queues can't be read"
        if found.queues is not None:
            place = f"in {first}{counted(found.queues, 'queue')} of {counted(found.topics, 'topic')}"
        yield f"messages: {messages}, {place}"
        entries = "" if found.index_entries is None else f" with {found.index_entries:,} entries"
        yield f"key index: {counted(found.index_files, 'file')}{entries}; {counted(found.groups, 'consumer group')}"
        if found.missing:
            yield f"missing: {', '.join(found.missing)}"
        yield from found.notes

    @property
    def next(self) -> Sequence[tuple[str, str]]:
        """The rows of the table that programs get."""
        return [(row["command"], row["tells"]) for row in self.tables["next"].to_pylist()]

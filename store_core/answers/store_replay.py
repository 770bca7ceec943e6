# SPDX-License-Identifier: Apache-2.0
"""The answer `replay`: messages that filters choose are appended again, once, and say where they come from."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, replace
from itertools import chain, count, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.answer import Answer, Kind, flag, function_of, opt, release_option
from store_core.answers.message_reads import REPLAY_ID, REPLAY_ORIGIN_MESSAGE_ID, REPLAY_ORIGIN_TOPIC
from store_core.answers.report import Report, ReportSchema, fact, number, table, text
from store_core.answers.verdict import Verdict
from store_core.broker.topic_kind import TopicKind, kind_of_topic, send_refusal
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files.clock import Clock, SystemClock
from store_core.format.columnar.property_columns import without_names
from store_core.format.properties import PROPERTY_CRC, REAL_TOPIC, RETRY_TOPIC
from store_core.format.record.delayed import OF_WAITING, SCHEDULE_TOPIC, TIMER_TOPIC
from store_core.format.sys_flag import TRANSACTION_MASK, MessageSysFlag
from store_core.format.words import counted
from store_core.queue.queue_path import refusal_of
from store_core.snapshot.config import TOPICS, Config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from store_core.files.store_path import StorePaths
    from store_core.format.release import Release
    from store_core.snapshot.store import Store
    from store_core.store.message_store_config import MessageStoreConfig
    from store_core.store.parts import Engine
    from store_core.store.sink.staged_batch import StagedBatch


_LONGEST_ID: Final = 100
_PLACES: Final = ("storage", "config", "store_path_commit_log")
"""Options of the reader that say where the source is."""


@dataclass(frozen=True)
class Replay(Answer["ReplayReport"]):
    """Append messages again, such as dead letters: all that filters choose, or none, and once.

    No broker may be running on the store that they go to. Each becomes a new message, without failures,
    delay or transaction. It keeps body, keys, tags, unique key and its other properties, and gets some that say where
    it comes from: REPLAY_ID, REPLAY_ORIGIN_MESSAGE_ID, REPLAY_ORIGIN_TOPIC. If no message is chosen, the name stays
    free.
    """

    NAME: ClassVar = "replay"
    TAKES_SEVERAL: ClassVar = False
    CONFIG_WORDS: ClassVar = "sizes of new files, if the messages go to STORE"
    HAS_PARTS: ClassVar = False
    HAS_SPARK: ClassVar = True
    EXAMPLES: ClassVar = (
        "commitlog replay /data/store --topic %DLQ%billing --id T-4711 --dry-run",
        "commitlog replay /data/store --topic %DLQ%billing --id T-4711",
        "commitlog replay /data/store --key order-1 --id T-4712 --into /data/new",
    )

    replay_id: str = opt(
        MISSING, "Name of this replay: messages are appended once under each name.", flag="--id", metavar="NAME"
    )
    into: str | os.PathLike[str] | None = opt(
        None,
        "Store to which messages are appended; it is made if there is none.",
        metavar="PATH",
        shown_default="STORE",
    )
    to_topic: str | None = opt(
        None, "Topic to which messages are appended.", metavar="TOPIC", shown_default="where each was sent at first"
    )
    queues: int | None = opt(
        None,
        "Queues of each topic, over which messages are spread in turn.",
        metavar="N",
        least=1,
        shown_default="as it has, or 4",
    )
    dry_run: bool = flag("Count and encode the messages, and append nothing.")
    release: Release = release_option()
    into_config: MessageStoreConfig | str | os.PathLike[str] | None = opt(
        None, "Configuration of the broker that is to serve PATH: the sizes of files.", metavar="FILE"
    )
    where: str | None = opt(None, "Replay only messages whose columns meet this condition. Needs Spark.", metavar="SQL")
    edit: tuple[str, ...] | Mapping[str, str] = opt(
        (),
        "Set topic, body, properties or flag of the new messages; can be repeated. Needs Spark.",
        metavar="COLUMN=SQL",
    )
    config: MessageStoreConfig | str | os.PathLike[str] | None = opt(None, "", kind=Kind.FROM_CONFIG)
    read: Mapping[str, Any] = opt(
        (), "Which messages: filters, and other options of `store_core.read_messages`.", kind=Kind.READ
    )

    def __post_init__(self) -> None:
        """Refuse what is invalid."""
        if isinstance(self.edit, Mapping):
            object.__setattr__(self, "edit", tuple(f"{name}={text}" for name, text in self.edit.items()))
        super().__post_init__()
        object.__setattr__(self, "read", dict(self.read))
        if not 0 < len(self.replay_id) <= _LONGEST_ID or not self.replay_id.isprintable():
            expected = f"a name of 1 to {_LONGEST_ID} printable characters"
            raise InvalidOptionError(f"replay_id: expected {expected}, found {self.replay_id[:_LONGEST_ID]!r}")
        if self.to_topic is not None:
            self._check_target(self.to_topic)
        _check_read(self.read)

    def _check_target(self, topic: str) -> None:
        from store_core.broker.topic_kind import send_refusal

        found = repr(topic[:_LONGEST_ID])
        if is_kept_by_broker(topic):
            kept = f"expected a topic of an application, found {found}, which a broker keeps for itself"
            raise InvalidOptionError(f"to_topic: {kept}")
        refusal = send_refusal(topic, self.release)
        if refusal is not None:
            expected = "a topic of 1 to 127 letters, digits and characters of _-%|, as producers can name it"
            raise InvalidOptionError(f"to_topic: expected {expected}, found {found}: {refusal}")

    def on(self, engine: Engine, store: Store) -> ReplayReport:
        """Stage records beside the log, which become visible together, as by ``df.write``.

        The target's ledger has the name, so that a replay which is repeated after a crash appends nothing twice. An
        engine with a method `replay`, of a session of Spark, does it by its own reader and writer.
        """
        from store_core.files.store_path import ConfiguredRoot
        from store_core.snapshot.store import Store, store_at
        from store_core.store.read.read_options import ReadOptions
        from store_core.store.store_layout import chosen_log, config_of

        chosen = self.read.get("store_path_commit_log")
        paths = store.paths
        if chosen is not None and isinstance(paths, ConfiguredRoot):
            paths = store_at(str(paths), None, self.config, chosen)
        places = {name: self.read[name] for name in _PLACES if name in self.read}
        paths = ReadOptions.parse(**places).store_of(paths).paths
        root = Path(os.fspath(Store(paths).root))
        into = root if self.into is None else Path(self.into)
        place = paths if isinstance(paths, str | os.PathLike) else root
        config, is_same = self.into_config, root.resolve() == into.resolve()
        if config is None and is_same:  # the configuration is the target's, too
            config = self.config or self.read.get("config")
        by_engine = getattr(engine, "replay", None)
        if by_engine is not None:
            done: ReplayReport = by_engine(self, paths, into)
            return done
        if self.where is not None or self.edit:
            raise InvalidOptionError("where, edit: these are SQL of Spark: give --spark, or ask in a session of Spark")
        target_log = (chosen or chosen_log(place, config)) if is_same else None
        of_target = config_of(config, target_log, self.release)
        return _Replay(root, paths, into, of_target, self, SystemClock()).run()

    def is_mistaken(self, store: StorePaths, report: ReplayReport) -> bool:
        """Return whether nothing was chosen, and the store knows none of the topics, or of the queues."""
        from store_core.store.read.read_messages import has_unknown_topic
        from store_core.store.read.read_options import ReadOptions

        return not report.found.messages and has_unknown_topic(store, ReadOptions.parse(**self.read))


replay = function_of(Replay)


def sender_of(replay_id: str) -> str:
    """Return the name of a replay in a store's ledger of appends."""
    return f"replay {replay_id}"


def _check_read(read: Mapping[str, Any]) -> None:
    """Refuse options of the reader that change messages, or add rows that are none.

    * `read`: Of the options by name, those that are given.
    """
    from store_core.store.read.read_options import ReadOptions

    parsed = ReadOptions.parse(**{name: read[name] for name in ("mode", "decompress") if name in read})
    is_given = {"columns": read.get("columns") is not None, "decompress": parsed.decompress}
    changing = next((name for name, is_set in is_given.items() if is_set), None)
    if changing is not None:
        raise InvalidOptionError(
            f"option {changing} is not one of a replay, which appends messages as they are stored: leave it out"
        )
    if parsed.is_permissive:
        raise InvalidOptionError("mode: expected FAILFAST or DROPMALFORMED, since damaged bytes can't be replayed")


@dataclass(frozen=True, slots=True)
class _Replay:
    root: Path
    source: StorePaths
    into: Path
    config: MessageStoreConfig
    asked: Replay
    clock: Clock
    topics: Counter[tuple[str, str]] = field(default_factory=Counter)

    def run(self) -> ReplayReport:
        from store_core.files.file_system import OsFileSystem
        from store_core.store.sink.commit import SinkCommit, check_lock, with_sizes_of
        from store_core.store.sink.commit_ledger import CommitLedger, Transaction
        from store_core.store.sink.directory import SinkDirectory, owner_text
        from store_core.store.sink.staged_batch import stage_batches
        from store_core.store.store_layout import check_root

        files, job = OsFileSystem(), f"job-{uuid.uuid4().hex}"
        check_root(self.into, self.config, files)
        check_lock(self.into, self.config, files)
        config = with_sizes_of(self.into, self.config, files)
        sink, transaction = SinkDirectory(self.into, files), Transaction(sender_of(self.asked.replay_id))
        if self.asked.dry_run:
            records = [batch.records for batch in self._encoded(config)]
            found = self._report(sum(map(len, records)), sum(int(each.starts[-1]) for each in records))
            is_repeat = CommitLedger(sink.ledger, files).has(transaction)
            return ReplayReport(replace(found.found, is_repeat=is_repeat), found.tables)
        commit = SinkCommit(self.into, job, config, self.clock, files, transaction=transaction)
        encoded = self._encoded(config)
        first = next(encoded, None)
        if first is None:  # the name stays free for a replay whose filters choose something
            return self._report(0, 0)
        try:
            directory = sink.claim(job, owner_text(self.clock), "0")
            paths = (directory / f"part-{number:05d}.arrow" for number in count())
            done = commit.run(list(stage_batches(chain([first], encoded), paths, files)))
        except BaseException:
            commit.discard()
            raise
        begin, end = done.appended.begin_offset, done.appended.end_offset
        found = self._report(done.appended.records, end - begin)
        facts = replace(found.found, is_repeat=done.is_repeat, begin_offset=begin, end_offset=end)
        return ReplayReport.of(facts, {}) if done.is_repeat else ReplayReport(facts, found.tables)

    def _encoded(self, config: MessageStoreConfig) -> Iterator[StagedBatch]:
        """Yield the messages as records."""
        from store_core.format.columnar.encode_batch import encode_batch
        from store_core.store.put.log_appender import fits
        from store_core.store.read.read_messages import read_messages
        from store_core.store.sink.staged_batch import StagedBatch

        asked, queues = self.asked, TargetQueues(self.into, self.asked.queues)
        wanted = {**asked.read, "release": asked.release, "columns": REPLAYED_COLUMNS}
        for batch in read_messages(self.source, **wanted):
            _check_kinds(batch)
            messages = replayed_batch(batch, asked.replay_id, asked.to_topic, queues.next_of)
            topics = messages["topic"].to_pylist()
            self.topics.update(zip(batch["topic"].to_pylist(), topics, strict=True))
            check_targets(set(topics), queues, asked.release)
            records = encode_batch(messages, config.encode_rules, born_timestamp=self.clock.now_ms())
            if not fits(records, config.mapped_file_size_commit_log):
                size = config.mapped_file_size_commit_log
                raise InvalidOptionError(f"a record is larger than a segment of {self.into}, which has {size} bytes")
            yield StagedBatch(records)

    def _report(self, messages: int, size: int) -> ReplayReport:
        asked = self.asked
        facts = ReplayFacts(str(self.root), str(self.into), asked.replay_id, messages, size, is_dry_run=asked.dry_run)
        rows = [
            {"origin_topic": origin, "topic": topic, "messages": number}
            for (origin, topic), number in sorted(self.topics.items())
        ]
        return ReplayReport.of(facts, {"topics": rows})


def _check_kinds(batch: pa.RecordBatch) -> None:
    """Refuse inner batches: the messages in one have properties of their own, and a queue of other units."""
    import pyarrow.compute as pc

    from store_core.format.sys_flag import MessageSysFlag

    is_inner = pc.not_equal(pc.bit_wise_and(batch["sys_flag"], int(MessageSysFlag.INNER_BATCH_FLAG)), 0)
    if pc.any(is_inner).as_py():
        row = batch.filter(is_inner).slice(0, 1).select(["topic", "msg_id"]).to_pylist()[0]
        raise UnsupportedStoreError(
            f"message {row['msg_id']} of topic {row['topic']} is an inner batch, several messages in one record of a "
            f"BatchCQ topic: it can't be replayed. Choose others, by topic, key, tag or time"
        )


# ---- the report


@dataclass(frozen=True, slots=True)
class ReplayFacts:
    """The facts of a replay."""

    source: str = fact("root of the store that messages were taken from")
    into: str = fact("root of the store that they were appended to")
    replay_id: str = fact("name of the replay: under one name, messages are appended once")
    messages: int = fact("messages that were appended, or would be")
    bytes: int = fact("bytes of their records")
    is_repeat: bool = fact(
        "whether a replay of this name was already in the store, so that nothing is done", default=False
    )
    is_dry_run: bool = fact("whether nothing was to be appended", default=False)
    begin_offset: int | None = fact("physical offset of the first record; null in a dry run", default=None)
    end_offset: int | None = fact("physical offset one past the last record; null in a dry run", default=None)


class ReplayReport(Report[ReplayFacts]):
    """What a replay did."""

    SCHEMA: ClassVar = ReportSchema.of(
        "replay",
        1,
        ReplayFacts,
        table(
            "topics",
            "Where messages went",
            text("origin_topic", "topic that they were taken from"),
            text("topic", "topic that they were appended to"),
            number("messages", "how many were chosen"),
        ),
    )

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


_QUEUES: Final = 4
"""Queues of a topic that is not configured: RocketMQ's default of producers (``defaultTopicQueueNums``)."""

_MOST_QUEUES: Final = 1 << 10
"""Queues of a topic that messages are spread over, however many are configured."""

_LONGEST_NAME: Final = 100
"""Characters of a topic that are shown."""

_OWN: Final = frozenset({TopicKind.HALF, TopicKind.OP, TopicKind.SCHEDULE, TopicKind.TIMER, TopicKind.SYSTEM})
"""Topics whose messages a broker acts on."""


class TargetQueues:
    """Spreads messages over the queues of their topics.

    * `into`: The store that they are appended to.
    * `count`: Queues of each topic; by default as many as ``config/topics.json`` of the store lets producers use, or 4
      of a topic that it does not have.
    """

    def __init__(self, into: Path, count: int | None) -> None:
        self._count = count
        self._configured = {} if count is not None else _configured_queues(into)
        self._cycles: dict[str, Iterator[int]] = {}

    def count_of(self, topic: str) -> int:
        """Return over how many queues messages to a topic are spread."""
        return self._count or self._configured.get(topic, _QUEUES)

    def least_of(self, topics: Iterable[str]) -> int:
        """Return the least of these counts: consumers of each of the topics see that many queues."""
        return min(map(self.count_of, topics), default=self._count or _QUEUES)

    def next_of(self, topic: str) -> int:
        """Return the queue of the next message to a topic."""
        if topic not in self._cycles:
            self._cycles[topic] = cycle(range(self.count_of(topic)))
        return next(self._cycles[topic])


def is_kept_by_broker(topic: str) -> bool:
    """Return whether a broker keeps a topic for itself, and acts on its messages."""
    return kind_of_topic(topic) in _OWN


def check_targets(topics: Iterable[str], queues: TargetQueues, release: Release) -> None:
    """Refuse topics that no broker accepts, or no directory can hold, or that a broker keeps for itself."""
    for topic in sorted(topics):
        if is_kept_by_broker(topic):
            raise InvalidOptionError(
                f"messages of topic {topic!r} can't be replayed to it: a broker keeps there "
                f"{kind_of_topic(topic).value}. Choose others by topic, or name another target: option to_topic"
            )
        reason = send_refusal(topic, release) or refusal_of(topic, queues.count_of(topic) - 1)
        if reason is not None:
            raise InvalidOptionError(f"topic {topic[:_LONGEST_NAME]!r}: {reason}")


def _configured_queues(root: Path) -> dict[str, int]:
    """Return how many queues producers use of each topic that a store's ``config/topics.json`` has."""
    found, _ = Config(root).known(TOPICS, "how many queues topics have")
    numbers = {name: topic.write_queue_nums for name, topic in (found or {}).items()}
    return {name: min(number, _MOST_QUEUES) for name, number in numbers.items() if number > 0}


OF_DELIVERY: Final = (*OF_WAITING, RETRY_TOPIC)
"""Properties by which a broker delivers a message elsewhere; a message that is sent again has none of them."""

WAITING_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)
"""Topics in which a broker keeps messages of others, which they name as ``REAL_TOPIC``, until their time."""

REPLAYED_COLUMNS: Final = (
    *("topic", "body", "flag", "sys_flag", "born_timestamp_ms", "born_host"),
    *("msg_id", "properties"),
)
OF_RECORD: Final = (
    TRANSACTION_MASK | int(MessageSysFlag.BORNHOST_V6_FLAG) | int(MessageSysFlag.STOREHOSTADDRESS_V6_FLAG)
)
"""Bits of ``sys_flag`` that say what a record was and how wide its hosts are, which the new record says for itself."""

_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("body", pa.binary()),
        ("flag", pa.int32()),
        ("sys_flag", pa.int32()),
        ("born_timestamp", pa.int64()),
        ("born_host", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


def undelivered(batch: pa.RecordBatch, left_out: tuple[str, ...] = OF_DELIVERY) -> pa.RecordBatch:
    """Return messages without properties and flags of their first delivery and their records.

    * `batch`: With `properties` and `sys_flag`; other columns stay as they are.
    * `left_out`: Names of properties.
    """
    names = batch.schema.names
    columns = dict(zip(names, batch.columns, strict=True))
    columns["properties"] = without_names(columns["properties"], (*left_out, PROPERTY_CRC))
    columns["sys_flag"] = pc.bit_wise_and(columns["sys_flag"], pa.scalar(~OF_RECORD, pa.int32()))
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names)


def copied_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return messages as new ones of the same topics and queues; those that wait go to their own topics, in turn.

    * `batch`: With `topic`, `queue_id`, `properties` and `sys_flag`; other columns stay as they are.
    """
    real = pc.map_lookup(batch["properties"], pa.scalar(REAL_TOPIC), "last")
    is_waiting = pc.and_(pc.is_in(batch["topic"], pa.array(WAITING_TOPICS)), pc.is_valid(real))
    changed = {
        "topic": pc.if_else(is_waiting, real, batch["topic"]),
        "queue_id": pc.if_else(is_waiting, pa.scalar(None, pa.int32()), batch["queue_id"]),
    }
    columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | changed
    return undelivered(pa.RecordBatch.from_pydict(columns), OF_WAITING)


def replayed_batch(
    batch: pa.RecordBatch, replay_id: str, to_topic: str | None, queue_of: Callable[[str], int]
) -> pa.RecordBatch:
    """Return messages, read with `REPLAYED_COLUMNS`, as new ones: never failed, and not part of a transaction.

    * `to_topic`: If None, they go to the topic that they were sent to at first.
    * `queue_of`: Returns the queue of the next message to a topic.
    """
    targets = [to_topic] * len(batch) if to_topic is not None else _first_topics(batch)
    batch = batch.rename_columns({"born_timestamp_ms": "born_timestamp"})
    rows = undelivered(batch).to_pylist()
    replayed = [_replayed(row, replay_id, topic, queue_of(topic)) for row, topic in zip(rows, targets, strict=True)]
    return pa.RecordBatch.from_pylist(replayed, _SCHEMA)


def _first_topics(batch: pa.RecordBatch) -> list[str]:
    """Return the topics that messages were sent to at first, as far as the records tell."""
    firsts, reals = (
        pc.map_lookup(batch["properties"], pa.scalar(name), "last").to_pylist() for name in (RETRY_TOPIC, REAL_TOPIC)
    )
    topics = batch["topic"].to_pylist()
    return [
        first or (real if topic in WAITING_TOPICS and real else topic)
        for first, real, topic in zip(firsts, reals, topics, strict=True)
    ]


def _replayed(row: dict[str, Any], replay_id: str, topic: str, queue_id: int) -> dict[str, Any]:
    origin = {REPLAY_ID: replay_id, REPLAY_ORIGIN_MESSAGE_ID: row["msg_id"], REPLAY_ORIGIN_TOPIC: row["topic"]}
    properties = dict(row["properties"] or ()) | origin
    return row | {"topic": topic, "queue_id": queue_id, "properties": list(properties.items())}

# SPDX-License-Identifier: Apache-2.0
"""The answer `replay`: messages that filters choose are appended again, once, and say where they come from."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from store_core.answers.answer import Answer, Kind, flag, function_of, opt, release_option
from store_core.answers.report import Report, ReportSchema, fact, number, table, text
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files.machine import Clock, SystemClock
from store_core.format.words import counted

if TYPE_CHECKING:
    import pyarrow as pa

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
        from store_core.answers.replayed_rows import is_kept_by_broker
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
        from store_core.snapshot.store import store_at
        from store_core.store.read.read_options import ReadOptions
        from store_core.store.store_layout import chosen_log, config_of

        chosen = self.read.get("store_path_commit_log")
        paths = store.paths
        if chosen is not None and isinstance(paths, ConfiguredRoot):
            paths = store_at(str(paths), None, self.config, chosen)
        places = {name: self.read[name] for name in _PLACES if name in self.read}
        source = ReadOptions.parse(**places).store_of(paths)
        paths, root = source.paths, Path(os.fspath(source.root))
        into = root if self.into is None else Path(self.into)
        config, is_same = self.into_config, root.resolve() == into.resolve()
        if config is None and is_same:  # the configuration is the target's, too
            config = self.config or self.read.get("config")
        by_engine = getattr(engine, "replay", None)
        if by_engine is not None:
            done: ReplayReport = by_engine(self, paths, into)
            return done
        if self.where is not None or self.edit:
            raise InvalidOptionError("where, edit: these are SQL of Spark: give --spark, or ask in a session of Spark")
        target_log = (chosen or chosen_log(paths, config)) if is_same else None
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
        from store_core.store.sink.commit import (
            AppendTransaction,
            CommitLedger,
            SinkCommit,
            check_target,
            with_sizes_of,
        )
        from store_core.store.sink.staged_batch import SinkDirectory, owner_text, stage_batches

        files, job = OsFileSystem(), f"job-{uuid.uuid4().hex}"
        check_target(self.into, self.config, files, is_dry=self.asked.dry_run)
        config = with_sizes_of(self.into, self.config, files)
        sink, transaction = SinkDirectory(self.into, files), AppendTransaction(sender_of(self.asked.replay_id))
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
        from store_core.answers.replayed_rows import REPLAYED_COLUMNS, TargetQueues, check_targets, replayed_batch
        from store_core.format.columnar.encode_batch import encode_batch
        from store_core.format.record.encode import misfit
        from store_core.store.read.read_messages import read_messages
        from store_core.store.sink.staged_batch import StagedBatch

        asked, queues = self.asked, TargetQueues(self.into, self.asked.queues)
        read = {**asked.read, "release": asked.release, "columns": REPLAYED_COLUMNS}
        for batch in read_messages(self.source, **read):
            _check_kinds(batch)
            messages = replayed_batch(batch, asked.replay_id, asked.to_topic, queues.next_of)
            topics = messages["topic"].to_pylist()
            self.topics.update(zip(batch["topic"].to_pylist(), topics, strict=True))
            check_targets(set(topics), queues, asked.release)
            records = encode_batch(messages, config.encode_rules, born_timestamp=self.clock.now_ms())
            reason = misfit(records.starts, config.mapped_file_size_commit_log)
            if reason is not None:
                raise InvalidOptionError(f"a message of {self.source}, as a record of {self.into}, {reason}")
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

    from store_core.format.layout import MessageSysFlag

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

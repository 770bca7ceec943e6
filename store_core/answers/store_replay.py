# SPDX-License-Identifier: Apache-2.0
"""Replaying messages: those that filters choose are appended to a store again, once, and say where they come from."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from store_core.answers.life.replay import (
    REPLAYED_COLUMNS,
    ReplayFacts,
    ReplayReport,
    TargetQueues,
    check_targets,
    is_kept_by_broker,
    replayed_batch,
)
from store_core.broker.topic_kind import send_refusal
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem
from store_core.format.columnar.encode_batch import encode_batch
from store_core.format.releases.release import DEFAULT_RELEASE
from store_core.format.sys_flag import MessageSysFlag
from store_core.snapshot.store import Store
from store_core.store.config.message_store_config import MessageStoreConfig
from store_core.store.configured_store import config_of
from store_core.store.parts import check_least
from store_core.store.put.log_appender import fits
from store_core.store.read.read_messages import read_messages
from store_core.store.read.read_options import ReadOptions
from store_core.store.sink.commit import SinkCommit, check_lock, owner_text, with_sizes_of
from store_core.store.sink.commit_ledger import CommitLedger, Transaction
from store_core.store.sink.directory import SinkDirectory
from store_core.store.sink.staged_batch import StagedBatch, stage_batches
from store_core.store.store_layout import check_root

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from store_core.files.clock import Clock
    from store_core.files.store_path import StorePaths
    from store_core.format.releases.release import Release

__all__ = ["ReplayOptions", "check_read", "replay", "sender_of"]

_LONGEST_ID: Final = 100
_PLACES: Final = ("storage", "config", "store_path_commit_log")
"""Options of the reader that say where the source is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How messages are replayed.

    Attributes
    ----------
    replay_id : str
        Name of the replay: under one name, a store gets messages once. It is property ``REPLAY_ID`` of each.
    to_topic : str or None
        Where they go; by default the topic that each was sent to at first.
    queues : int or None
        Queues of each topic that they are spread over, in turn; None as for `TargetQueues`.
    dry_run : bool
        Whether nothing is appended.
    config : MessageStoreConfig or None
        Of the target; sizes of an existing one follow from its files. By default that of option ``config`` of the
        reader if it is the source, too.
    release : str
        RocketMQ release that serves both stores.
    """

    replay_id: str
    to_topic: str | None = None
    queues: int | None = None
    dry_run: bool = False
    config: MessageStoreConfig | None = None
    release: Release = DEFAULT_RELEASE

    def check(self) -> None:
        """Check the options.

        Raises
        ------
        InvalidOptionError
            If one is not as it should be.
        """
        if not 0 < len(self.replay_id) <= _LONGEST_ID or not self.replay_id.isprintable():
            expected = f"a name of 1 to {_LONGEST_ID} printable characters"
            raise InvalidOptionError(f"replay_id: expected {expected}, found {self.replay_id[:_LONGEST_ID]!r}")
        if self.queues is not None:
            check_least(1, queues=self.queues)
        if self.to_topic is None:
            return
        if is_kept_by_broker(self.to_topic):
            raise InvalidOptionError(
                f"to_topic: expected a topic of an application, found {self.to_topic[:_LONGEST_ID]!r}, which a broker "
                f"keeps for itself"
            )
        refusal = send_refusal(self.to_topic, self.release)
        if refusal is not None:
            expected = "a topic of 1 to 127 letters, digits and characters of _-%|, as producers can name it"
            raise InvalidOptionError(f"to_topic: expected {expected}, found {self.to_topic[:_LONGEST_ID]!r}: {refusal}")


def sender_of(replay_id: str) -> str:
    """Return the name of a replay in a store's ledger of appends."""
    return f"replay {replay_id}"


def check_read(read: Mapping[str, Any]) -> None:
    """Refuse options of the reader that change messages, or add rows that are none.

    * `read`: Of the options by name, those that are given.
    """
    parsed = ReadOptions.parse(**{name: read[name] for name in ("mode", "decompress") if name in read})
    is_given = {"columns": read.get("columns") is not None, "decompress": parsed.decompress}
    changing = next((name for name, is_set in is_given.items() if is_set), None)
    if changing is not None:
        raise InvalidOptionError(f"option {changing} is not one of a replay: messages are replayed as they are stored")
    if parsed.is_permissive:
        raise InvalidOptionError("mode: expected FAILFAST or DROPMALFORMED, since damaged bytes can't be replayed")


def replay(
    source: StorePaths,
    into: str | os.PathLike[str],
    options: ReplayOptions,
    *,
    clock: Clock | None = None,
    **read: Any,  # noqa: ANN401 -- options of the reader
) -> ReplayReport:
    """Append messages of a store again, to it or to another one: all of them, or none, and under one name only once.

    Each becomes a new message: it never failed, is delayed no more and is in no transaction. It keeps body, keys, tags,
    unique key and its other properties, and gets ``REPLAY_ID``, ``REPLAY_ORIGIN_MESSAGE_ID`` and
    ``REPLAY_ORIGIN_TOPIC``. Records are staged beside the log and become visible together, as by ``df.write``; the
    store's ledger has the name, so that a replay which is repeated after a crash appends nothing twice.

    If nothing was chosen, the name is not used up.

    Parameters
    ----------
    source : path or sequence of paths
        As of `store_core.read_messages`.
    into : path
        A store's root; it may be that of the source, and is made if there is none.
    options : ReplayOptions
    clock : Clock, optional
    **read
        Which messages: the filters of `store_core.read_messages`.

    Raises
    ------
    StoreError
        If an option is invalid, a message can't be appended, or a broker holds the store.
    OSError
        As raised by the system.

    Examples
    --------
    >>> from store_core.answers import ReplayOptions, replay
    >>> replay("/data/store", "/data/store", ReplayOptions(replay_id="T-1"), topic="%DLQ%billing")  # doctest: +SKIP
    """
    options.check()
    shared = {"release": options.release}
    if shared | read != read | shared:
        raise InvalidOptionError("release is an option of the replay, for both stores")
    check_read(read)
    given = ReadOptions.parse(**{name: read[name] for name in _PLACES if name in read})
    root = Store(given.located(source)).root
    if options.config is None and root.resolve() == Path(into).resolve():  # the configuration is the target's, too
        config = config_of(given.config, given.store_path_commit_log, options.release)
        options = replace(options, config=config)
    return _Replay(root, source, Path(into), options, read, clock or SystemClock()).run()


@dataclass(frozen=True, slots=True)
class _Replay:
    root: Path
    source: StorePaths
    into: Path
    options: ReplayOptions
    read: dict[str, Any]
    clock: Clock
    topics: Counter[tuple[str, str]] = field(default_factory=Counter)

    def run(self) -> ReplayReport:
        files, job = OsFileSystem(), f"job-{uuid.uuid4().hex}"
        config = self.options.config or MessageStoreConfig(release=self.options.release)
        check_root(self.into, config, files)
        check_lock(self.into, config, files)
        config = with_sizes_of(self.into, config, files)
        sink, transaction = SinkDirectory(self.into, files), Transaction(sender_of(self.options.replay_id))
        if self.options.dry_run:
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
        options, queues = self.options, TargetQueues(self.into, self.options.queues)
        wanted = {"release": options.release} | self.read | {"columns": REPLAYED_COLUMNS}
        for batch in read_messages(self.source, **wanted):
            _check_kinds(batch)
            messages = replayed_batch(batch, options.replay_id, options.to_topic, queues.next_of)
            topics = messages["topic"].to_pylist()
            self.topics.update(zip(batch["topic"].to_pylist(), topics, strict=True))
            check_targets(set(topics), queues, options.release)
            records = encode_batch(messages, config.encode_rules, born_timestamp=self.clock.now_ms())
            if not fits(records, config.mapped_file_size_commit_log):
                size = config.mapped_file_size_commit_log
                raise InvalidOptionError(f"a record is larger than a segment of {self.into}, which has {size} bytes")
            yield StagedBatch(records)

    def _report(self, messages: int, size: int) -> ReplayReport:
        options = self.options
        facts = ReplayFacts(
            str(self.root), str(self.into), options.replay_id, messages, size, is_dry_run=options.dry_run
        )
        rows = [
            {"origin_topic": origin, "topic": topic, "messages": number}
            for (origin, topic), number in sorted(self.topics.items())
        ]
        return ReplayReport.of(facts, {"topics": rows})


def _check_kinds(batch: pa.RecordBatch) -> None:
    """Refuse inner batches: the messages in one have properties of their own, and a queue of other units."""
    is_inner = pc.not_equal(pc.bit_wise_and(batch["sys_flag"], int(MessageSysFlag.INNER_BATCH_FLAG)), 0)
    if pc.any(is_inner).as_py():
        row = batch.filter(is_inner).slice(0, 1).select(["topic", "msg_id"]).to_pylist()[0]
        raise UnsupportedStoreError(
            f"message {row['msg_id']} of topic {row['topic']} is an inner batch, several messages in one record of a "
            f"BatchCQ topic: it can't be replayed. Choose others, by topic, key, tag or time"
        )

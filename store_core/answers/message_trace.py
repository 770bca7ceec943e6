# SPDX-License-Identifier: Apache-2.0
"""The answer `trace`: what happened to one message, from its send to its last copy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from store_core.answers.life.delay_states import delay_levels
from store_core.answers.life.message_read import read_of
from store_core.answers.life.message_reads import ReadJob
from store_core.answers.life.trace_report import TraceFacts, TraceReport
from store_core.answers.life.trace_rows import TRACE_COLUMNS, copies_of, operations_on, trace_rows
from store_core.answers.life.trace_steps import (
    BrokerState,
    StepKind,
    due_of,
    group_of,
    is_send,
    kind_of,
    note_of,
    outcome_of,
)
from store_core.answers.local_engine import local_engine
from store_core.broker.transaction_rows import HALF_TOPIC, OP_COLUMNS, OP_TOPICS
from store_core.errors import CorruptRecordError, SegmentLayoutError, StoreNotFoundError
from store_core.format.releases.release import DEFAULT_RELEASE
from store_core.format.table_time import table_time
from store_core.snapshot.config import CONSUMER_OFFSETS, DELAY_OFFSETS, Config
from store_core.snapshot.log import Log
from store_core.store.configured_store import configured_paths, told
from store_core.store.read.one_message import meanings_of
from store_core.store.read.option_values import ReadMode
from store_core.views.store_root import root_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from store_core.answers.life.message_read import MessageRead
    from store_core.files.store_path import StorePaths
    from store_core.format.releases.release import Release
    from store_core.store.parts import Engine, ProgressSink
    from store_core.store.read.word_kind import WordKind

__all__ = ["TraceOptions", "trace", "trace_by"]

_Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """How a message is traced.

    Attributes
    ----------
    kind : WordKind or None
        What the word is; by default what it looks like, then a key.
    broker_config : path, optional
        The broker's configuration file, if it sets ``messageDelayLevel``: by it, delayed messages are due.
    release : str
        RocketMQ release that serves the store.
    """

    kind: WordKind | None = None
    broker_config: str | os.PathLike[str] | None = None
    release: Release = DEFAULT_RELEASE


def trace(  # noqa: PLR0913 -- what is asked, of which store, and by how many processes
    paths: StorePaths,
    what: str,
    options: TraceOptions | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    processes: int = 1,
    on_progress: ProgressSink | None = None,
) -> TraceReport:
    """Tell what happened to a message: sends, delays, transaction, attempts, dead letter, replays, in order.

    Copies of a message keep its unique key (property UNIQ_KEY), by which they are found, through the key index where
    that proves complete. One without it is followed by its offset message id; that takes a scan. Nothing is written,
    and no lock is taken. Damage is left out.

    Parameters
    ----------
    paths : path or sequence of paths
        As of `store_core.read_messages`.
    what : str
        A key, a unique key, an offset message id, or ``TOPIC/QUEUE/OFFSET``.
    options : TraceOptions, optional
    config : path, optional
        The broker's configuration, as of option `config` of `store_core.read_messages`.
    processes : int
        1 is this process alone. More are started by ``spawn``, so a script has to call this below
        ``if __name__ == "__main__":``.
    on_progress : callable, optional
        Called with a `store_core.store.parts.PartsDone` after each part.

    Raises
    ------
    StoreNotFoundError
        If there is no such message.
    StoreError
        If an option is invalid, or the path has nothing to read.

    Examples
    --------
    >>> from store_core.answers import trace
    >>> print(trace("/data/store", "order-4711").to_text())  # doctest: +SKIP
    """
    options = told(options or TraceOptions(), config)
    with local_engine(processes, on_progress) as engine:
        return trace_by(engine, paths, what, options)


def trace_by(engine: Engine, paths: StorePaths, what: str, options: TraceOptions | None = None) -> TraceReport:
    """Tell what happened to a message, on an engine; see `trace`."""
    chosen = options or TraceOptions()
    paths = configured_paths(paths, chosen.broker_config)
    root = root_of(paths)
    return _Tracing(engine, paths, root, chosen).report(what)


_COPIES: Final = "copies"


@dataclass(frozen=True, slots=True)
class _Tracing:
    engine: Engine
    paths: StorePaths
    root: Path
    options: TraceOptions

    def report(self, what: str) -> TraceReport:
        levels = delay_levels(self.options.broker_config, self.options.release)
        # Asked first, so that in a growing store nothing is called delivered whose delivery is not among the records.
        config = Config(self.root, self.options.release)
        delivered, delay_notes = config.known(DELAY_OFFSETS, "what is delivered of delay levels")
        offsets, offset_notes = config.known(CONSUMER_OFFSETS, "what groups have consumed")
        consumed = None if offsets is None else offsets.by_group
        broker = BrokerState(levels, delivered or {})
        rows, notes = self._records(what)
        halves = [row for row in rows if kind_of(row) is StepKind.HALF]
        rows += self._operations(halves) if halves else []
        extent = Log.for_reading(self.paths)
        messages = [_Message(key, those, broker) for key, those in _by_message(rows)]
        facts = TraceFacts(
            store=str(self.root),
            what=what,
            begin=extent.begin,
            end=extent.end,
            messages=len(messages),
            records=len(rows),
            duplicates=sum(max(message.sends - 1, 0) for message in messages),
            missing_bytes=extent.missing_bytes,
            dead=sum(StepKind.DEAD_LETTER in message.kinds for message in messages),
            notes=(*notes, *delay_notes, *offset_notes),
        )
        tables = {
            "messages": [message.row() for message in messages],
            "steps": [step for message in messages for step in message.steps()],
            "consumers": list(_consumers(rows, consumed or {})),
        }
        return TraceReport.of(facts, tables)

    def _records(self, what: str) -> tuple[list[_Row], tuple[str, ...]]:
        """Return the records of the messages that a word means, in log order."""
        for meaning in meanings_of(what, self.options.kind):
            rows, notes = self._read(self._as_asked(meaning))
            is_of_batch = bool(rows) and _is_of_batch(rows[0]) and meaning.get("key") in (None, rows[0]["uniq_msg_id"])
            if rows and ("key" not in meaning or is_of_batch):
                asked = rows[0]["msg_id"]
                rows, more = self._read(self._family(rows[0]))
                notes = tuple(dict.fromkeys([*notes, *more]))
                if is_of_batch:
                    rows = next(those for _, those in _by_message(rows) if any(row["msg_id"] == asked for row in those))
            if rows:
                return rows, notes
        missing = Log.for_reading(self.paths).missing_bytes
        where = f"; {missing:,} bytes of its log are missing, where one may have been" if missing else ""
        raise StoreNotFoundError(f"{self.root} has no message with the key, id or position {what!r}{where}")

    def _as_asked(self, meaning: Mapping[str, Any]) -> MessageRead:
        return read_of(TRACE_COLUMNS, trace_rows, release=self.options.release, **meaning)

    def _family(self, row: _Row) -> MessageRead:
        """Return the read of all copies of a message: by its unique key, or by its id if it has none."""
        key = row["unique_key"]
        if key is not None:
            return read_of(TRACE_COLUMNS, trace_rows, release=self.options.release, unique_key=key)
        origin = row["origin_id"] or row["replay_origin_id"] or row["msg_id"]
        return read_of(TRACE_COLUMNS, partial(copies_of, message_id=origin), release=self.options.release)

    def _operations(self, halves: Sequence[_Row]) -> list[_Row]:
        """Return the records that settle half messages."""
        indexes = [row["queue_offset"] for row in halves if row["topic"] == HALF_TOPIC]
        reduced = partial(operations_on, indexes=indexes, offsets=[row["physical_offset"] for row in halves])
        read = read_of(OP_COLUMNS, reduced, topic=OP_TOPICS, release=self.options.release)
        found = self._read(read)[0]
        return [_as_step(row, half) for row in found for half in halves if _settles(row, half)]

    def _read(self, read: MessageRead) -> tuple[list[_Row], tuple[str, ...]]:
        """Return the rows of a read, through queues and index if they prove complete.

        They are used only where damage is an error, as leaving it out takes a scan: that is made where there is some.
        """
        strict = replace(read, options=replace(read.options, mode=ReadMode.FAILFAST))
        try:
            found = self.engine.run(ReadJob(self.paths, {_COPIES: strict}))
        except (CorruptRecordError, SegmentLayoutError):
            found = self.engine.run(ReadJob(self.paths, {_COPIES: read}))
        return found.tables[_COPIES].to_pylist(), found.notes


def _consumers(rows: Sequence[_Row], offsets: Mapping[tuple[str, str], Mapping[int, int]]) -> Iterator[_Row]:
    """Yield for each record the groups that consume its queue, and whether they are past it."""
    for row in rows:
        for (topic, group), queues in sorted(offsets.items()):
            following = queues.get(row["queue_id"]) if topic == row["topic"] else None
            if following is not None:
                names = ("topic", "queue_id", "queue_offset")
                yield {name: row[name] for name in names} | {
                    "group": group,
                    "next_offset": following,
                    "is_past": following > row["queue_offset"],
                }


class _Message:
    """A message and its records, in log order."""

    def __init__(self, key: str, rows: Sequence[_Row], broker: BrokerState) -> None:
        self._key = key
        self._rows = sorted(rows, key=lambda row: int(row["physical_offset"]))
        self._broker = broker
        self.kinds = [kind_of(row) for row in self._rows]
        self.sends = sum(map(is_send, self._rows, self.kinds))

    def row(self) -> _Row:
        """Return the message's row in the report."""
        first, last = self._rows[0], self._rows[-1]
        return {
            "unique_key": first["uniq_msg_id"],
            "keys": first["keys"],
            "topic": first["retry_topic"] or first["real_topic"] or first["topic"],
            "outcome": outcome_of(self.kinds),
            "sends": self.sends,
            "attempts": self.kinds.count(StepKind.RETRY),
            "first_timestamp": table_time(first["store_timestamp"]),
            "last_timestamp": table_time(last["store_timestamp"]),
        }

    def steps(self) -> Iterator[_Row]:
        """Yield the rows of its records."""
        begin = self._rows[0]["store_timestamp"]
        for row, kind in zip(self._rows, self.kinds, strict=True):
            yield {name: row.get(name) for name in _SHOWN} | {
                "step": kind.value,
                "store_timestamp": table_time(row["store_timestamp"]),
                "since": row["store_timestamp"] - begin,
                "due": table_time(due_of(row, kind, self._broker)),
                "group": group_of(row),
                "note": note_of(row, kind, self._broker),
            }


_SHOWN: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "reconsume_times",
    "msg_id",
    "origin_id",
    "unique_key",
)


def _by_message(rows: Sequence[_Row]) -> Iterator[tuple[str, list[_Row]]]:
    """Yield the records of each message, those of the earliest message first."""
    found: dict[str, list[_Row]] = {}
    of_batch = {row["msg_id"]: row["uniq_msg_id"] for row in rows if _is_of_batch(row)}
    for row in sorted(rows, key=lambda row: int(row["physical_offset"])):
        found.setdefault(_message_of(row, of_batch), []).append(row)
    yield from found.items()


def _is_of_batch(row: _Row) -> bool:
    """Return whether a record is of a client's batch, whose messages have one unique key in common."""
    return bool(row["uniq_msg_id"] != row["unique_key"])


def _message_of(row: _Row, of_batch: Mapping[str, str]) -> str:
    """Return what the copies of a message have in common; those of a batch's message name it by its offset id."""
    for name in ("msg_id", "origin_id", "replay_origin_id"):
        if row.get(name) in of_batch:
            return of_batch[row[name]]
    return str(row["unique_key"] or row.get("origin_id") or row.get("replay_origin_id") or row["msg_id"])


def _settles(row: _Row, half: _Row) -> bool:
    """Return whether an operation names a half message."""
    named = row["half_physical_offset"]
    if named is not None:
        return bool(named == str(half["physical_offset"]))
    return str(half["queue_offset"]).encode() in (row["body"] or b"").split(b",")


def _as_step(row: _Row, half: _Row) -> _Row:
    """Return an operation as a record of the message that it settles."""
    names = (
        "unique_key",
        "uniq_msg_id",
        "origin_id",
        "replay_origin_id",
        "msg_id",
        "keys",
        "retry_topic",
        "real_topic",
    )
    place = {name: row[name] for name in ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp")}
    return (
        {name: half[name] for name in names}
        | place
        | {
            "msg_id": None if half["unique_key"] else half["msg_id"],
            "sys_flag": 0,
            "prepared_transaction_offset": 0,
            "reconsume_times": None,
        }
    )

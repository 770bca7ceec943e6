# SPDX-License-Identifier: Apache-2.0
"""A state machine of a store's operations, with a list of what was put as the model."""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from store_core import DefaultMessageStore, MessageStoreConfig
from store_core.format.layout import TransactionType
from store_core.format.record.delayed import SCHEDULE_TOPIC
from store_core.store.clean import CleanServices
from store_core.store.store_life import disk_space
from tests.store_core.fakes import FakeClock, MortalFileSystem
from tests.store_core.store.logs import FILE_SIZE, message, messages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store_core.format.message import Message, MessageExt
    from store_core.store.message_store_config import Release
    from store_core.store.recovery.log_recovery import RecoveryReport
    from store_core.store.store_life import StoreSetup


_DAYS: Final = 80 * 3600.0
"""Seconds after which files may be deleted."""


bodies = st.integers(0, 1500)
queues = st.tuples(st.sampled_from(["orders", "refunds"]), st.integers(0, 1))
kinds = st.sampled_from([0, 0, 0, 8, 4, 12])
"""System flags: plain, and of committed, prepared and rolled-back transactions."""


class StoreMachine(RuleBasedStateMachine):
    """Puts, flushes, crashes, restarts, is truncated and cleaned; see the model below."""

    release: Release

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="machine-"))
        self.clock, self.disk = FakeClock(), MortalFileSystem()
        self.clock.while_waiting = self.make_files
        self.store: UnattendedStore | None = None
        self.puts: list[Put] = []
        self.unsure = 0
        """How many of the last puts were not acknowledged."""
        self.safe = 0
        """How many of the first puts survive a power failure."""
        self.cut: list[Put] = []
        """What the log contained before it was truncated, as long as that may come back."""
        self.numbers = 0
        self.blind_until = 0
        self.seed = 0

    # ---- life

    @initialize(syncs=st.booleans())
    def make(self, syncs: bool) -> None:
        self.config = MessageStoreConfig(
            release=self.release,
            mapped_file_size_commit_log=FILE_SIZE,
            mapped_file_size_consume_queue=200,
            max_hash_slot_num=10,
            max_index_num=20,
            message_index_safe=True,
            flush_disk_type="SYNC_FLUSH" if syncs else "ASYNC_FLUSH",
        )
        self.open()

    def open(self) -> None:
        assert self.store is None
        self.store = UnattendedStore.open(self.root / "store", self.config, clock=self.clock, file_system=self.disk)

    def make_files(self) -> None:
        if self.store is not None:
            self.store.make_files()

    @property
    def opened(self) -> UnattendedStore:
        assert self.store is not None
        return self.store

    def doing(self, action: Callable[[], None]) -> None:
        """Run an action, and restart the machine if it dies meanwhile."""
        try:
            action()
        except OSError:
            if not self.disk.is_dead:
                raise
        if self.disk.is_dead:
            self.come_back()

    @rule(changes=st.integers(0, 40), torn=st.floats(0, 1), seed=st.integers(0, 2**32))
    def die_soon(self, changes: int, torn: float, seed: int) -> None:
        self.disk.changes_left, self.disk.torn, self.seed = changes, torn, seed

    @rule(seed=st.integers(0, 2**32))
    def die_now(self, seed: int) -> None:
        self.disk.is_dead, self.seed = True, seed
        self.come_back()

    @rule(seconds=st.integers(0, 20))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def close_and_open(self) -> None:
        self.doing(self._close_and_open)

    def _close_and_open(self) -> None:
        store = self.opened
        store.close()
        if self.disk.is_dead:
            return
        assert not self.root.joinpath("store", "abort").exists()
        self.store = None
        self._acknowledge_all()
        self.open()
        assert self.opened.recovery_report.last_exit_ok
        self.check()

    # ---- putting

    def _message(self, queue: tuple[str, int], size: int, kind: int, level: int | None) -> tuple[Message, Put]:
        number, self.numbers = self.numbers, self.numbers + 1
        body, key = b"%d:" % number + b"x" * size, f"key{number}"
        stored = (SCHEDULE_TOPIC, level - 1) if level is not None and kind in (0, 8) else queue
        put = Put(*stored, kind, body, key)
        return message(body, topic=queue[0], queue_id=queue[1], keys=[key], sys_flag=kind, delay_level=level), put

    def _expect(self, puts: list[Put]) -> None:
        """Record messages as put but not acknowledged, and number them."""
        for put in puts:
            put.queue_offset = following(self.puts, put.topic, put.queue_id) if put.is_queued else 0
            self.puts.append(put)
        self.unsure += len(puts)

    def _acknowledge(self, offsets: list[int], *, is_safe: bool) -> None:
        for put, offset in zip(self.puts[len(self.puts) - self.unsure :], offsets, strict=True):
            put.offset = offset
            put.is_indexed = offset >= self.blind_until
        self.unsure = 0
        if is_safe:
            self._acknowledge_all()

    def _acknowledge_all(self) -> None:
        self.safe, self.cut = len(self.puts), []

    @rule(queue=queues, size=bodies, kind=kinds, level=st.sampled_from([None, None, None, 1, 2]))
    def put(self, queue: tuple[str, int], size: int, kind: int, level: int | None) -> None:
        given, put = self._message(queue, size, kind, level)
        self._expect([put])
        self.doing(lambda: self._put(given))

    def _put(self, given: Message) -> None:
        future = self.opened.async_put_message(given)
        self._flush_if_sync()
        result = future.result(0)
        if not self.disk.is_dead:
            assert result.append_message_result is not None
            self._acknowledge([result.append_message_result.wrote_offset], is_safe=self._syncs)

    @rule(queue=queues, sizes=st.lists(st.integers(0, 300), min_size=1, max_size=6))
    def put_batch(self, queue: tuple[str, int], sizes: list[int]) -> None:
        given = [self._message(queue, size, 0, None) for size in sizes]
        self._expect([put for _, put in given])
        self.doing(lambda: self._put_batch([each for each, _ in given]))

    def _put_batch(self, given: list[Message]) -> None:
        future = self.opened.async_put_messages(given)
        self._flush_if_sync()
        result = future.result(0).append_message_result
        if not self.disk.is_dead:
            assert result is not None
            self._acknowledge([int(each[-16:], 16) for each in result.msg_id.split(",")], is_safe=self._syncs)

    @rule(rows=st.lists(st.tuples(queues, st.integers(0, 700), kinds), min_size=1, max_size=12))
    def append_batch(self, rows: list[tuple[tuple[str, int], int, int]]) -> None:
        given = [self._message(queue, size, kind, None) for queue, size, kind in rows]
        self._expect([put for _, put in given])
        columns: dict[str, list[Any]] = {
            "topic": [each.topic for each, _ in given],
            "queue_id": [each.queue_id for each, _ in given],
            "sys_flag": [each.sys_flag for each, _ in given],
            "keys": [each.keys for each, _ in given],
            "body": [each.body for each, _ in given],
        }
        self.doing(lambda: self._append_batch(pa.table(columns)))

    def _append_batch(self, table: pa.Table) -> None:
        result = self.opened.append_batch(table, waits=False)
        self._flush_if_sync()
        if not self.disk.is_dead:
            self._acknowledge(result.physical_offsets.tolist(), is_safe=self._syncs)

    @property
    def _syncs(self) -> bool:
        return self.config.flush_disk_type == "SYNC_FLUSH"

    def _flush_if_sync(self) -> None:
        if self._syncs:
            self.opened.flush_log()

    # ---- what services do

    @rule()
    def flush_log(self) -> None:
        self.doing(self._flush_log)

    def _flush_log(self) -> None:
        self.opened.flush_log()
        if not self.disk.is_dead:
            self._acknowledge_all()

    @rule()
    def dispatch(self) -> None:
        self.doing(self.opened.dispatch_now)

    @rule()
    def flush_queues(self) -> None:
        self.doing(self.opened.flush_queues)

    @rule()
    def look(self) -> None:
        self.doing(self.check)

    # ---- less of it

    @precondition(lambda self: len(self.puts) > 3)
    @rule(share=st.floats(0.3, 1))
    def truncate(self, share: float) -> None:
        there = [put for put in self.puts if put.offset >= self.opened.commit_log.min_offset]
        if self.disk.changes_left is None and there and not self.unsure:
            first = self.puts.index(there[min(round(len(there) * share), len(there) - 1)])
            self._truncate(first)
            self.check()

    def _truncate(self, first: int) -> None:
        store = self.opened
        offset = self.puts[first].offset
        store.dispatch_now()
        self.blind_until = max(self.blind_until, store.commit_log.max_offset)
        assert store.truncate_files(offset + 1) is False
        assert store.truncate_files(offset) is True
        assert offset == store.commit_log.max_offset
        self.cut = self.cut if len(self.cut) > len(self.puts) else self.puts
        self.puts = self.puts[:first]
        self.safe = min(self.safe, first)

    @rule()
    def clear_away(self) -> None:
        if self.disk.changes_left is None:
            self.opened.flush_log()
            self._acknowledge_all()
            self.opened.dispatch_now()
            self.opened.flush_queues()
            self.clock.advance(_DAYS)
        self.doing(self._clear_away)
        self.doing(self.check)

    def _clear_away(self) -> None:
        store = self.opened
        space = disk_space(store.path, self.config, self.disk)
        services = CleanServices(
            self.config, store.commit_log, space, store.consume_queue_store, store.index_service, self.clock
        )
        services.execute_delete_files_manually()
        services.run_once()

    # ---- coming back

    def come_back(self) -> None:
        """Restart the machine, let it die once more while the store is opened, and check what is there."""
        chance = random.Random(self.seed)  # noqa: S311 -- no secret
        loses_power = chance.random() < 0.5
        self._bury(chance, loses_power)
        if chance.random() < 0.5:
            self.disk.changes_left, self.disk.torn = chance.randrange(30), chance.random()
            with suppress(OSError):
                self._open_as_operator()
            if self.disk.is_dead:
                again = chance.random() < 0.5
                self._bury(chance, again)
                loses_power = loses_power or again
            self.disk.changes_left = None
        if self.store is None:
            self._open_as_operator()
        self._take_what_is_there(loses_power)
        self.check()

    def come_back_from(self, chance: random.Random, *, loses_power: bool) -> None:
        """Kill the process, or cut the power, and check what is there."""
        self._bury(chance, loses_power)
        self._open_as_operator()
        self._take_what_is_there(loses_power)
        self.check()

    def _bury(self, chance: random.Random, loses_power: bool) -> None:
        if self.store is not None:
            self.store.abandon()
            self.store = None
        self.disk.revive(self.root, chance, lost_power=loses_power)
        if loses_power:
            self._remove_blank_queue_files()

    def _remove_blank_queue_files(self) -> None:
        """Remove last files of queues that begin with zeros.

        If the log has lost more than such a queue, RocketMQ, and so this package, keeps a bogus unit in the file, and
        in the one before it units of lost messages: see `store_core.queue.consume_queue.queue_search.truncate`.
        """
        for queue in self.root.glob("store/consumequeue/*/*"):
            last = max(queue.iterdir(), default=None)
            if last is not None and not any(last.read_bytes()[:20]):
                self.disk.remove(last)

    def _open_as_operator(self) -> None:
        """Open the store; up to 4.9 an empty file has to be deleted by hand."""
        report = self._dry_run()
        if report is not None and report.is_refused:
            empty = [path for path in self.root.rglob("*") if path.parent.name.isdigit() or path.name.isdigit()]
            empty = [path for path in empty if path.is_file() and path.stat().st_size == 0]
            assert self.release != "5.3"
            assert empty, report.refusal
            for path in empty:
                self.disk.remove(path)
            report = self._dry_run()
        self.open()
        if report is not None:
            found = self.opened.recovery_report
            assert (report.decisions, report.max_offset) == (found.decisions, found.max_offset)

    def _dry_run(self) -> RecoveryReport | None:
        if not self.root.joinpath("store").exists():
            return None
        before = self._bytes()
        report = DefaultMessageStore.dry_run(self.root / "store", self.config, clock=self.clock, file_system=self.disk)
        assert before == self._bytes()
        return report

    def _bytes(self) -> dict[Path, bytes | None]:
        return {path: path.read_bytes() if path.is_file() else None for path in sorted(self.root.rglob("*"))}

    def _take_what_is_there(self, lost_power: bool) -> None:
        """Compare the log with what was put, and continue from there."""
        found = self._log()
        least = self.safe if lost_power else len(self.puts) - self.unsure
        if lost_power and self.cut and not self._is_there(self.puts, found, least):
            self.puts = self.cut
        first = self._first(self.puts)
        count = first + len(found)
        assert [put.body for put in self.puts[first:count]] == [each.body for each in found]
        assert least <= count
        for put, each in zip(self.puts[first:count], found, strict=True):
            assert put.equals(each)
            put.offset = each.physical_offset
        self.puts, self.cut = self.puts[:count], []
        self.unsure, self.safe = 0, count if lost_power else min(self.safe, count)

    def _first(self, puts: list[Put]) -> int:
        """Count the messages before the log's first segment."""
        return sum(0 <= put.offset < self.opened.commit_log.min_offset for put in puts)

    def _is_there(self, puts: list[Put], found: list[MessageExt], least: int) -> bool:
        first = self._first(puts)
        following = [put.body for put in puts[first : first + len(found)]]
        return following == [each.body for each in found] and least <= first + len(found)

    def _log(self) -> list[MessageExt]:
        directory = self.root / "store" / "commitlog"
        return messages_of(directory) if directory.exists() else []

    # ---- what it tells

    def check(self) -> None:
        """Compare everything that the store reports with the model."""
        store = self.opened
        store.dispatch_now()
        if self.disk.is_dead:
            return
        there = [put for put in self.puts if put.offset >= store.commit_log.min_offset]
        check_queues(store, self.puts, there)
        check_index(store, there)
        if not self.disk.is_dead:
            log = self._log()
            assert [put.body for put in there] == [each.body for each in log]
            assert all(put.equals(each) for put, each in zip(there, log, strict=True))

    def teardown(self) -> None:
        self.disk.changes_left = None
        if self.store is not None and not self.disk.is_dead:  # it is dead if a rule has failed
            self.store.close()
        shutil.rmtree(self.root)


_EVERYTHING: Final = 64
_EVER: Final = 1 << 62
"""End of a query, ms. The first entry of an index file may seem later than it is, by any time, see `IndexFile`."""


@dataclass(slots=True)
class Put:
    """A message that was put, as the log must have it."""

    topic: str
    queue_id: int
    sys_flag: int
    body: bytes
    keys: str
    queue_offset: int = 0
    offset: int = -1
    is_indexed: bool = True

    @property
    def is_queued(self) -> bool:
        return TransactionType.of(self.sys_flag).is_queued

    def equals(self, found: MessageExt) -> bool:
        same = (self.topic, self.queue_id, self.sys_flag, self.body, self.queue_offset)
        there = (found.topic, found.queue_id, found.sys_flag, found.body, found.queue_offset)
        return (
            same == there and found.properties.get("KEYS") == self.keys and self.offset in (-1, found.physical_offset)
        )


def following(puts: Sequence[Put], topic: str, queue_id: int) -> int:
    """Return the index of the next message of a queue."""
    return sum(put.is_queued and (put.topic, put.queue_id) == (topic, queue_id) for put in puts)


def check_queues(store: DefaultMessageStore, puts: Sequence[Put], there: Sequence[Put]) -> None:
    """Compare all queues with what was put, of which a part may be left."""
    for queue in {(put.topic, put.queue_id) for put in puts if put.is_queued}:
        wanted = [put for put in there if put.is_queued and (put.topic, put.queue_id) == queue]
        assert following(puts, *queue) == store.get_max_offset_in_queue(*queue)
        assert following(puts, *queue) == store.get_max_offset_in_queue(*queue, committed=False)
        if wanted:
            assert wanted[0].queue_offset == store.get_min_offset_in_queue(*queue)
        assert [(put.queue_offset, put.body) for put in wanted] == _served(store, *queue)


def _served(store: DefaultMessageStore, topic: str, queue_id: int) -> list[tuple[int, bytes]]:
    """Read a queue as a consumer does."""
    found: list[tuple[int, bytes]] = []
    offset = store.get_min_offset_in_queue(topic, queue_id)
    while True:
        result = store.get_message("group", topic, queue_id, offset, 5)
        assert result is not None
        if not result.message_buffers:
            return found
        found += [(each.queue_offset, each.body) for each in result.messages]
        assert [each.queue_offset for each in result.messages] == result.message_queue_offsets
        offset = result.next_begin_offset


def check_index(store: DefaultMessageStore, there: Sequence[Put]) -> None:
    """Look for every message by its key."""
    for put in there:
        if put.is_indexed and TransactionType.of(put.sys_flag) is not TransactionType.ROLLBACK_TYPE:
            found = store.query_message(put.topic, put.keys, _EVERYTHING, 0, _EVER).messages
            assert put.offset in [each.physical_offset for each in found]


class UnattendedStore(DefaultMessageStore):
    """A store whose services run their steps when the test calls them, in its thread."""

    def __init__(self, setup: StoreSetup) -> None:
        super().__init__(setup)
        self._services.start = lambda: None  # type: ignore[method-assign]  # no thread of its own

    def make_files(self) -> None:
        """Do what the service that makes files in advance does."""
        self._services._allocate.step()

    def flush_log(self) -> None:
        self.commit_log.flusher.flush_service.step()
        self.commit_log.flusher.flush_service.finish()

    def flush_queues(self) -> None:
        self._services.flush_service.flush_thoroughly()

    def abandon(self) -> None:
        """Drop the store, as when the process dies."""
        with suppress(OSError):
            self._let_go()

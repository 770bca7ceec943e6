# SPDX-License-Identifier: Apache-2.0
"""An answer about a store that a broker goes on writing, and cleaning, is as of one moment in all its parts."""

from __future__ import annotations

import os
import pickle
import struct
import sys
from contextlib import contextmanager
from dataclasses import replace
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig, Store
from store_core.answers import Lag
from store_core.errors import StoreNotFoundError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from store_core.store.parts import InProcess
from tests.life_logs import BEGIN, COMMIT, HALF, OP, SCHEDULE, TIMER, LifeLog, write_config
from tests.store_core.answers.asked import answers_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from store_core.answers.answer import Answer

NOW: Final = BEGIN + 3_600_000
SIZE: Final = 8192
CONFIG: Final = MessageStoreConfig(
    mapped_file_size_commit_log=SIZE, mapped_file_size_consume_queue=400, max_hash_slot_num=20, max_index_num=200
)

ANSWERS: Final[dict[str, Answer[Any]]] = {
    **{name: asked for name, asked in answers_at(NOW, "k1").items() if name not in ("check", "salvage")},
    "lag of the past": Lag(as_of=BEGIN + 20),
}
VIEWS: Final = ("consumequeue", "consumer_offsets", "delay_offsets", "index", "segments", "topics")


class Broker:
    """Goes on writing a store: messages of all kinds, what groups consume, what is delivered."""

    def __init__(self, root: Path, store: DefaultMessageStore) -> None:
        self._root, self._store, self._steps = root, store, 0

    def step(self) -> None:
        number = self._steps = self._steps + 1
        self._put(f"k{number % 3}", "orders")
        half = self._put(f"h{number}", HALF, {"REAL_TOPIC": "orders", "REAL_QID": "0", "PGROUP": "shop"})
        self._put(f"h{number}", "orders", sys_flag=COMMIT, prepared_transaction_offset=half)
        self._put(f"o{number}", OP, {"TAGS": "d"}, body=f"{number},".encode())
        self._put(f"d{number}", SCHEDULE, {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"})
        self._put(f"t{number}", TIMER, {"TIMER_OUT_MS": str(NOW), "REAL_TOPIC": "orders", "REAL_QID": "0"})
        self._put(f"k{number % 3}", "%DLQ%billing", {"RETRY_TOPIC": "orders"})
        self._store.reput_message_service.run_once()
        self.commit(10 + number)

    def commit(self, offset: int) -> None:
        """Write that groups and deliveries have come to a queue offset."""
        offsets = {"orders@billing": {"0": offset}, f"{HALF}@CID_RMQ_SYS_TRANS": {"0": offset}}
        write_config(
            self._root,
            consumerOffset={"offsetTable": offsets},
            delayOffset={"offsetTable": {"1": offset}},
            topics={"topicConfigTable": {f"t{each}": {"topicName": f"t{each}"} for each in range(offset)}},
            subscriptionGroup={"subscriptionGroupTable": {f"g{each}": {} for each in range(offset)}},
        )
        (self._root / "config" / "timercheck").write_bytes(struct.pack(">qqq", BEGIN + offset, 0, offset))

    def _put(
        self,
        key: str,
        topic: str,
        properties: dict[str, str] | None = None,
        body: bytes = b"{}",
        **more: Any,  # noqa: ANN401 -- of Message
    ) -> int:
        named = {"KEYS": key, "UNIQ_KEY": f"U-{key}"} | (properties or {})
        message = replace(Message(topic, body, properties=named, queue_id=0), **more)
        found = self._store.put_message(message).append_message_result
        assert found is not None
        return found.wrote_offset


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def broker(root: Path) -> Iterator[Broker]:
    log = LifeLog(segment_size=SIZE)
    sent = log.send("k1")
    log.commit(log.half("a"), "a")
    log.half("b")
    log.delayed("c", 1)
    log.timer("e", NOW)
    log.dead(sent, "k1", "billing")
    log.write(root)
    DefaultMessageStore.open(root, CONFIG).close()  # with a checkpoint
    with DefaultMessageStore.open(root, CONFIG) as store:
        broker = Broker(root, store)
        broker.commit(1)
        for _ in range(8):
            broker.step()
        yield broker


class Looks:
    """Calls a function before this thread opens a file of a store, or lists a directory of it."""

    def __init__(self) -> None:
        self._below, self._thread, self._is_heard = "", 0, False
        self._call: Callable[[], None] = lambda: None

    def hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self._below or event not in {"open", "os.listdir", "os.scandir"} or get_ident() != self._thread:
            return
        if isinstance(given[0], str | os.PathLike) and os.fspath(given[0]).startswith(self._below):
            below, self._below = self._below, ""
            self._call()
            self._below = below

    @contextmanager
    def at(self, root: Path, call: Callable[[], None]) -> Iterator[None]:
        self._below, self._call, self._thread = str(root), call, get_ident()
        if not self._is_heard:  # for good: no hook can be taken away, and each slows all that follows
            sys.addaudithook(self.hear)
            self._is_heard = True
        try:
            yield
        finally:
            self._below = ""


LOOKS: Final = Looks()


def told(name: str, store: Store) -> object:
    if name in VIEWS:
        return store.view(name).read_all().to_pylist()
    return ANSWERS[name].on(InProcess(), store).to_json()


@pytest.mark.parametrize("name", [*ANSWERS, *VIEWS])
def test_an_answer_and_a_view_are_as_of_the_moment_of_their_store_however_it_grows_meanwhile(
    name: str, root: Path, broker: Broker
) -> None:
    store = Store(root)
    assert store.end is not None
    quiet, beside_writer = (pickle.loads(pickle.dumps(store)) for _ in range(2))  # noqa: S301 -- our own
    expected = told(name, quiet)
    steps = iter(range(60))
    with LOOKS.at(root, lambda: broker.step() if next(steps, None) is not None else None):
        found = told(name, beside_writer)

    assert 0 < next(steps, 60) or name == "delay_offsets"  # which a store has read
    assert expected == found


@pytest.fixture
def cleaned(root: Path) -> Path:
    """Return the first segment of a store with what later ones lead to, which a broker holds, and is to delete."""
    log = LifeLog(segment_size=2048)
    sent, half, open_half = log.send("k1"), log.half("a"), log.half("b")
    log.timer("t0", NOW)
    log.fill(3)
    log.commit(half, "a")
    log.op(half)
    log.dead(sent, "k1", "billing")
    log.delayed("c", 1)
    log.commit(open_half, "b")
    log.write(root)
    DefaultMessageStore.open(root, replace(CONFIG, mapped_file_size_commit_log=2048)).close()
    write_config(root, consumerOffset={"offsetTable": {"orders@billing": {"0": 7}}})  # what goes was consumed
    return root / "commitlog" / f"{0:020d}"


class Cleaning:
    """Deletes a segment when a store is looked at for some time."""

    def __init__(self, path: Path, at: int) -> None:
        self._path, self._at, self.looks = path, at, 0

    def look(self) -> None:
        self.looks += 1
        if self.looks > self._at:
            self._path.unlink(missing_ok=True)


@pytest.mark.parametrize("name", sorted({*ANSWERS} - {"lag of the past"}))
def test_nothing_is_called_missing_that_a_broker_deletes_while_an_answer_looks(
    name: str, root: Path, cleaned: Path
) -> None:
    asked, data, at, looks = ANSWERS[name], cleaned.read_bytes(), 0, 1
    with StoreLock(root, OsFileSystem()):
        expected = asked.ask(root).verdict
        while at < looks:
            cleaned.write_bytes(data)
            store, cleaning = Store(root), Cleaning(cleaned, at)
            assert store.end is not None
            try:
                with LOOKS.at(root, cleaning.look):
                    report = asked.on(InProcess(), store)
            except StoreNotFoundError:
                assert "trace" == name
            else:
                found = [getattr(report.found, each, 0) for each in ("missing", "half_missing", "damaged_bytes")]
                assert (expected, 0) == (report.verdict, max(each for each in found if isinstance(each, int)))
                assert not [note for note in report.found.notes if "timerlog" in note]
            looks = cleaning.looks
            at += max(1, looks // 40)  # an answer looks up to some hundred times

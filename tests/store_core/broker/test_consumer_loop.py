# SPDX-License-Identifier: Apache-2.0
"""Following a queue as a consumer does."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from store_core.broker.consumer_offset import ConsumerOffsetManager
from store_core.broker.pull_message_processor import Waiting, follow
from store_core.files.file_system import OsFileSystem
from store_core.format.compression import expand_body
from store_core.format.filter.message_selector import MessageSelector
from store_core.format.message import Message, MessageExt
from store_core.store.get_message import GetMessageResult, GetMessageStatus
from store_core.store.message_store import DefaultMessageStore
from store_core.store.message_store_config import MessageStoreConfig
from tests.golden_stores import UnpackedStore, golden_stores
from tests.store_core.broker.pull_broker import FakeStore
from tests.store_core.fakes import FakeClock, FaultyFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 100,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
LIVE: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 << 20,
    "mapped_file_size_consume_queue": 600_000,
    "max_hash_slot_num": 5000,
    "max_index_num": 20_000,
}


class Queue:
    """A queue that messages are put into, and followed from."""

    def __init__(self, root: Path) -> None:
        self.store = DefaultMessageStore.open(root, MessageStoreConfig(**SIZES), file_system=FaultyFileSystem())
        self.offsets = ConsumerOffsetManager(root, OsFileSystem(), FakeClock())

    def put(self, *bodies: bytes, tags: str | None = None) -> None:
        for body in bodies:
            self.store.put_message(Message("orders", body, tags=tags))
        self.store.dispatch_now()

    def follow(self, **more: Any) -> Iterator[MessageExt]:  # noqa: ANN401 -- those of follow
        return follow(self.store, "billing", "orders", 0, **more)

    def committed(self) -> int:
        return self.offsets.query_offset("billing", "orders", 0)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    made = Queue(tmp_path)
    yield made
    made.store.close()


def bodies(messages: Iterator[MessageExt]) -> list[bytes]:
    return [message.body for message in messages]


def test_gives_all_messages_in_order_and_stops_at_the_end(queue: Queue) -> None:
    """Across the ends of queue files, at which a get stops."""
    given = [b"%d" % number for number in range(23)]
    queue.put(*given)

    assert given == bodies(queue.follow())
    assert given == bodies(queue.follow(max_msg_nums=1))


def test_a_message_is_committed_when_the_next_one_is_asked_for(queue: Queue) -> None:
    queue.put(b"0", b"1")
    kept = [queue.committed() for _ in queue.follow(offsets=queue.offsets)]

    assert [-1, 1, 2] == [*kept, queue.committed()]


def test_goes_on_with_the_message_whose_handling_failed(queue: Queue) -> None:
    queue.put(b"0", b"1", b"2")

    def handle_all() -> None:
        for message in queue.follow(offsets=queue.offsets):
            if message.body == b"1":
                raise RuntimeError("this one is too much")

    with pytest.raises(RuntimeError, match="too much"):
        handle_all()

    assert [b"1", b"2"] == bodies(queue.follow(offsets=queue.offsets))


def test_a_selector_leaves_messages_out_and_the_offset_goes_on(queue: Queue) -> None:
    for number in range(6):
        queue.put(b"%d" % number, tags="AB"[number % 2])
    given = bodies(queue.follow(offsets=queue.offsets, selector=MessageSelector.by_tag("A")))

    assert ([b"0", b"2", b"4"], 6) == (given, queue.committed())
    assert [b"1", b"3", b"5"] == bodies(queue.follow(selector=MessageSelector.by_sql("TAGS = 'B'")))


def test_waits_for_messages_until_it_is_stopped(queue: Queue) -> None:
    clock = FakeClock()
    waiting = Waiting(2.0, clock=clock)

    def meanwhile() -> None:
        queue.put(b"late")
        clock.while_waiting = waiting.stop.set

    clock.while_waiting = meanwhile
    queue.put(b"early")

    assert [b"early", b"late"] == bodies(queue.follow(waiting=waiting))
    assert 2.0 == clock.monotonic()


@pytest.mark.parametrize("status", [status for status in GetMessageStatus if status is not GetMessageStatus.FOUND])
def test_an_answer_that_leads_nowhere_ends_the_loop(status: GetMessageStatus) -> None:
    """A slave, for example, sends a consumer that asks for a deleted message to the same offset again."""
    assert [] == bodies(follow(FakeStore(GetMessageResult(status, 5)), "g", "orders", 0, begin=5))


@pytest.mark.golden
@pytest.mark.parametrize("name", [store.name for store in golden_stores() if store.scenario == "live"])
def test_gives_what_consumers_of_a_real_broker_got(
    name: str, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    """Two groups consumed: the second everything, the first what was stored before the broker was killed."""
    unpacked = golden(name)
    kept = ConsumerOffsetManager(unpacked.root, OsFileSystem(), FakeClock())
    kept.load()
    ours = ConsumerOffsetManager(tmp_path, OsFileSystem(), FakeClock())
    with DefaultMessageStore.open(
        unpacked.root, MessageStoreConfig(**LIVE), read_only=True, file_system=FaultyFileSystem()
    ) as store:
        given = {
            (queue_id, message.queue_offset): _facts(message)
            for queue_id in range(4)
            for message in follow(store, "g2", "LiveTopic", queue_id, offsets=ours)
        }
    for file, group in (("got2.jsonl", "g2"), ("got.jsonl", "lab_group")):
        lines = [json.loads(line) for line in unpacked.path.joinpath(file).read_text(encoding="utf-8").splitlines()]
        got = {(line["queueId"], line["queueOffset"]): _facts_of_java(line) for line in lines}
        ends = kept.query_offsets(group, "LiveTopic")
        assert ends is not None
        consumed = {place: facts for place, facts in given.items() if place[1] < ends[place[0]]}

        assert len(lines) == len(got)
        assert consumed == got
    assert kept.query_offsets("g2", "LiveTopic") == ours.query_offsets("g2", "LiveTopic")


ADDED_BY_CLIENTS = ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME")


def _facts(message: MessageExt) -> tuple[Any, ...]:
    body = expand_body(message.body, message.compression) if message.sys_flag & 1 else message.body
    keys = message.properties.get("KEYS")
    return (message.physical_offset, message.unique_key, message.tags, keys, dict(message.properties),
            hashlib.sha256(body).hexdigest())  # fmt: skip


def _facts_of_java(line: dict[str, Any]) -> tuple[Any, ...]:
    properties = {name: value for name, value in line["properties"].items() if name not in ADDED_BY_CLIENTS}
    return line["commitLogOffset"], line["msgId"], line["tags"], line["keys"], properties, line["bodySha256"]

# SPDX-License-Identifier: Apache-2.0
"""Delivery of delayed messages."""

from __future__ import annotations

import errno
import json
import shutil
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import pytest

from store_core.broker.consumer_offset import DelayOffsetTable
from store_core.broker.schedule_message_service import ScheduleMessageService
from store_core.files.machine import SystemClock
from store_core.format.layout import field_position, head_dtype
from store_core.format.message import Message, PutMessageStatus
from store_core.format.record.delayed import SCHEDULE_TOPIC
from store_core.store.get_message import queue_units
from store_core.store.message_store import DefaultMessageStore
from store_core.store.put.put_preparation import PutMessageResult
from tests.golden_stores import UnpackedStore, golden_stores
from tests.store_core.fakes import FakeClock, FaultyFileSystem
from tests.store_core.store.logs import config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from store_core.format.release import Release

ROOM: dict[str, Any] = {"mapped_file_size_commit_log": 131072}
STORE_TIME_AT = field_position(head_dtype(), "store_timestamp")
RELEASES: tuple[Release, ...] = ("4.3", "4.9", "5.3", "5.5")
OLD, *NEWER = RELEASES


class WallOf(SystemClock):
    """The time of another clock, for a store whose threads should not advance that clock by waiting."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms()


class Delays:
    """A store, and the service that delivers its delayed messages."""

    def __init__(self, root: Path, release: Release = "5.3", clock: FakeClock | None = None, **settings: Any) -> None:  # noqa: ANN401 -- those of a store
        self.clock = clock or FakeClock()
        self.disk = FaultyFileSystem()
        made = config(release=release, **(ROOM | settings))
        self.store = DefaultMessageStore.open(root, made, clock=WallOf(self.clock), file_system=self.disk)
        self.root = root
        self.errors: list[OSError] = []
        self.service = self.restarted()

    def restarted(self) -> ScheduleMessageService:
        self.offsets = DelayOffsetTable(self.root, self.disk, self.clock, self.store.config.release)
        self.service = ScheduleMessageService(self.store, self.offsets, self.clock, self.errors.append)
        return self.service

    def put(self, body: bytes = b"body", **more: Any) -> None:  # noqa: ANN401 -- those of a message
        level = more.pop("delay_level", 1)
        result = self.store.put_message(Message("orders", body, 2, delay_level=level, born_timestamp=5, **more))
        assert result.status is PutMessageStatus.PUT_OK
        self.store.dispatch_now()

    def run(self, seconds: float) -> None:
        """Let time pass, while the service checks as often as it wants to."""
        end = self.clock.seconds + seconds
        self.service.run_once()
        while True:
            self.service.pause()
            if self.clock.seconds > end:
                break
            self.service.step()
        self.store.dispatch_now()

    def delivered(self) -> list[bytes]:
        found = self.store.get_message("g", "orders", 2, 0, 32)
        return [] if found is None else [message.body for message in found.messages]

    def close(self) -> None:
        self.store.close()


@pytest.fixture
def delays(tmp_path: Path) -> Iterator[Delays]:
    made = Delays(tmp_path)
    yield made
    made.close()


def records_of(store: DefaultMessageStore, start: int) -> list[tuple[int, bytes]]:
    """Return offset and bytes of all records from `start` on, without their store times."""
    found = []
    for file in store.commit_log.mapped_file_queue.mapped_files:
        view = file.select(0)
        assert view is not None
        at = max(start - file.file_from_offset, 0)
        while at + 8 <= len(view):
            size = int.from_bytes(view[at : at + 4])
            if size < 88 or at + size > len(view):
                break
            if view[at + 4 : at + 8] == bytes.fromhex("daa320a7"):
                record = bytearray(view[at : at + size])
                record[STORE_TIME_AT : STORE_TIME_AT + 8] = bytes(8)
                found.append((file.file_from_offset + at, bytes(record)))
            at += size
    return found


def cut_back(golden: UnpackedStore, directory: Path) -> tuple[Path, int, list[int]]:
    """Copy a golden store as it was before delivery; return its root, the log's end, and the delivery times, ms.

    The queues still have the units that are cut off. 4.3 checks that only after a crash, and rebuilds them; 4.9 would
    then compute the times again before it has read the delay levels, with one second for each.
    """
    lines = [json.loads(line) for line in golden.path.joinpath("manifest.jsonl").read_text().splitlines()]
    put = {line.get("wroteOffset") for line in lines if line["putStatus"] == "PUT_OK"}
    new = [line for line in golden.lines("record") if line["physicalOffset"] not in put]
    start = min(line["physicalOffset"] for line in new)
    root = directory / "store"
    shutil.copytree(golden.root / "commitlog", root / "commitlog")
    if golden.golden.release == OLD:
        root.joinpath("abort").touch()
    else:
        shutil.copytree(golden.root / "consumequeue", root / "consumequeue")
    for path in sorted(root.joinpath("commitlog").iterdir()):
        kept = max(start - int(path.name), 0)
        data = path.read_bytes()
        path.write_bytes(data[:kept].ljust(len(data), b"\0"))
    return root, start, [line["storeTimestamp"] for line in new]


# The broker of 5.5.0 delivered the first message while timers were still being put: its log can't be cut before that.
_CUT = [store.name for store in golden_stores() if store.scenario == "delay" and store.version != "5.5.0"]


@pytest.mark.golden
@pytest.mark.parametrize("name", _CUT)
def test_delivers_the_bytes_that_rocketmq_delivered(
    name: str, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    """All but the store times; and 4.9 and 5.3 keep the same offsets (4.3 had persisted none when it ended)."""
    store = golden(name)
    release = cast("Release", store.golden.release)
    root, start, times = cut_back(store, tmp_path)
    delays = Delays(root, release, FakeClock(times[0] - 1100))
    assert start == delays.store.max_physical_offset
    delays.run(1 + (times[-1] - times[0] + 200) / 1000)
    delays.service.finish()
    with DefaultMessageStore.open(
        store.root, config(release=release, **ROOM), read_only=True, file_system=FaultyFileSystem()
    ) as expected:
        assert records_of(expected, start) == records_of(delays.store, start)
        assert len(times) == len(records_of(delays.store, start))
    if release != OLD:
        kept = DelayOffsetTable(store.root, delays.disk, delays.clock, release)
        kept.load()
        assert kept.offset_table() == delays.offsets.offset_table()
    delays.close()


def test_a_message_due_later_than_its_level_allows_is_delivered_at_once(tmp_path: Path) -> None:
    """As after the clock was set back: the queue's time is then in the future."""
    delays = Delays(tmp_path, clock=FakeClock(1_700_000_000_000))
    delays.put()
    delays.clock.wall_ms -= 3_600_000
    delays.run(1.2)

    assert [b"body"] == delays.delivered()
    delays.close()


@pytest.mark.parametrize(
    ("release", "delivered"), [("4.3", [b"half", b"after"]), ("4.9", [b"after"]), ("5.3", [b"after"])]
)
def test_half_messages_are_dropped_since_4_9(release: Release, delivered: list[bytes], tmp_path: Path) -> None:
    delays = Delays(tmp_path, release)
    delays.store.put_message(Message("RMQ_SYS_TRANS_HALF_TOPIC", b"half", delay_level=1))
    delays.put(b"after")
    delays.run(3)
    half = delays.store.get_message("g", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 32)
    assert half is not None

    assert delivered == [message.body for message in half.messages] + delays.delivered()
    delays.close()


@pytest.mark.parametrize("properties", [{}, {"REAL_TOPIC": "orders"}, {"REAL_TOPIC": "orders", "REAL_QID": "x"}])
def test_a_message_that_does_not_say_where_it_belongs_is_dropped(delays: Delays, properties: dict[str, str]) -> None:
    delays.store.put_message(Message(SCHEDULE_TOPIC, b"lost", 0, properties=properties))
    delays.put(b"after")
    delays.run(3)

    assert [b"after"] == delays.delivered()


@pytest.mark.parametrize(("release", "seconds"), [("4.3", 10.0), ("4.9", 0.1), ("5.3", 0.1)])
def test_a_put_that_fails_is_tried_again(
    release: Release, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = Delays(tmp_path, release)
    delays.put()
    tried: list[float] = []

    def refuse(_: Message) -> PutMessageResult:
        tried.append(delays.clock.seconds)
        return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)

    with monkeypatch.context() as patched:
        patched.setattr(delays.store, "put_message", refuse)
        delays.run(1.05 + seconds * 1.5)
    delays.run(11)

    assert [pytest.approx(seconds)] == [after - before for before, after in pairwise(tried[:2])]
    assert [b"body"] == delays.delivered()
    delays.close()


def test_a_level_rests_after_an_error_of_the_system(delays: Delays, monkeypatch: pytest.MonkeyPatch) -> None:
    delays.put()

    def fail(_: Message) -> PutMessageResult:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(delays.store, "put_message", fail)
        delays.run(2)
    delays.run(8.5)
    early = delays.delivered()
    delays.run(1)

    assert ([], [b"body"]) == (early, delays.delivered())
    assert [errno.EIO] == [error.errno for error in delays.errors]


def test_offsets_are_persisted_every_ten_seconds_and_at_the_end(delays: Delays) -> None:
    delays.put()
    delays.run(9.9)
    assert not delays.offsets.path.exists()

    delays.run(0.2)
    assert 1 == json.loads(_quoted(delays.offsets.path.read_text()))["offsetTable"]["1"]

    delays.put()
    delays.run(2)
    delays.service.finish()
    assert 2 == json.loads(_quoted(delays.offsets.path.read_text()))["offsetTable"]["1"]


def _quoted(text: str) -> str:
    return text.replace("{1:", '{"1":').split(",2:")[0] + ("}}" if ",2:" in text else "")


def test_a_restart_goes_on_where_delivery_ended(delays: Delays) -> None:
    delays.put(b"one")
    delays.run(3)
    delays.service.finish()
    delays.put(b"two")
    delays.restarted()
    delays.run(3)

    assert [b"one", b"two"] == delays.delivered()


@pytest.mark.parametrize(("kept", "begins"), [(-5, 0), (1, 1), (99, 2)])
@pytest.mark.parametrize("release", NEWER)
def test_offsets_outside_the_queue_are_brought_back(release: Release, kept: int, begins: int, tmp_path: Path) -> None:
    delays = Delays(tmp_path, release)
    delays.put(b"0")
    delays.put(b"1")
    delays.offsets.update_offset(1, kept)
    delays.offsets.persist()
    delays.restarted().load()

    assert begins == delays.offsets.offset_of(1)
    delays.run(3)
    assert [b"%d" % number for number in range(begins, 2)] == delays.delivered()
    delays.close()


def test_a_shutdown_ends_the_thread_and_persists(delays: Delays) -> None:
    delays.service.start()

    assert delays.service.shutdown()
    assert delays.offsets.path.exists()


@pytest.mark.parametrize("release", RELEASES)
def test_the_offset_is_kept_as_soon_as_the_queue_is_delivered(release: Release, tmp_path: Path) -> None:
    delays = Delays(tmp_path, release)
    delays.put(b"0")
    delays.put(b"1")
    delays.run(3)

    assert 2 == delays.offsets.offset_of(1)
    delays.close()


@pytest.mark.parametrize(
    ("release", "lost", "found"), [("4.3", 9, 9), ("4.9", 9, 1), ("5.3", 9, 1), ("4.3", -9, 0), ("5.3", -9, 0)]
)
def test_an_offset_without_a_message_is_moved_to_the_nearest(
    release: Release, lost: int, found: int, tmp_path: Path
) -> None:
    """Up to 4.3 only if it is too small; otherwise delivery stops until the queue gets there."""
    delays = Delays(tmp_path, release)
    delays.put()
    delays.service.load()
    level = delays.service._levels[0]
    level.offset = lost
    delays.clock.advance(1)
    delays.service.run_once()

    assert found == level.offset
    delays.close()


def test_a_time_that_was_in_a_lost_extension_is_worked_out_anew(
    delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays.put(delay_level=2)
    monkeypatch.setattr(
        "store_core.broker.schedule_message_service.queue_units",
        lambda queue, offset: (unit._replace(tags_code=None) for unit in queue_units(queue, offset) or ()),
    )
    delays.run(4.9)
    early = delays.delivered()
    delays.run(0.3)

    assert ([], [b"body"]) == (early, delays.delivered()[:1])

# SPDX-License-Identifier: Apache-2.0
"""The order in which a store is opened and closed, what it leaves behind, and what it dispatches meanwhile."""

from __future__ import annotations

import errno
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import BrokerConfig, DefaultMessageStore, read_messages
from store_core.answers import check
from store_core.answers.rebuild import rebuild_consume_queue
from store_core.answers.report import Verdict
from store_core.files.file_system import OpenFile, OsFileSystem
from store_core.files.store_lock import AbortFile
from store_core.format.columnar.chain import chain
from store_core.format.message import PutMessageStatus
from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.dispatch.dispatch_batch import DispatchRequest, RequestBatch
from store_core.queue.index_service import IndexService
from store_core.store.put.commit_log import CommitLog
from store_core.store.rebuild.plan import RebuildOptions
from store_core.store.recovery.store_recovery import StoreRecovery
from store_core.store.reput import Dispatcher
from store_core.store.store_state import StoreCheckpoint
from tests.store_core.store.logs import FILE_SIZE, config, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.format.record.scan import Scan
    from store_core.store.message_store_config import Release

RELEASES: Final[list[Release]] = ["4.3", "4.9", "5.3"]

DUPLICATED: Final = {"DUP_INFO": "1_2"}
"""Without it a record with properties is not accepted if ``duplicationEnable`` is set."""


def written(root: Path, count: int, **more: Any) -> list[int]:  # noqa: ANN401 -- of a configuration
    """Write messages of 1,000 bytes, close the store, and return the offsets of their records, then the log's end."""
    with DefaultMessageStore.open(root, config(**more)) as store:
        results = [
            store.put_message(message(b"x" * 1000, keys=[f"k{number}"], properties=DUPLICATED))
            for number in range(count)
        ]
        end = store.max_physical_offset
    return [result.append_message_result.wrote_offset for result in results if result.append_message_result] + [end]


def crashed(root: Path) -> None:
    (root / "abort").touch()


class SeesAbort(OsFileSystem):
    """Calls a function when the abort file is opened."""

    at_abort: Callable[[], None]

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> OpenFile:
        if path.name == "abort":
            self.at_abort()
        return super().open(path, create=create, writable=writable)


# ---- order


@pytest.mark.parametrize("release", RELEASES)
def test_store_is_loaded_in_the_order_of_rocketmq(
    tmp_path: Path, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 3, release=release)
    steps: list[str] = []

    def spy(owner: type, name: str, step: str) -> None:
        found = getattr(owner, name)
        real: Callable[..., object] = found.fget if isinstance(found, property) and found.fget else found

        def call(*arguments: Any, **more: Any) -> object:  # noqa: ANN401 -- whatever the method takes
            steps.append(step)
            return real(*arguments, **more)

        monkeypatch.setattr(owner, name, property(call) if step == "abort" else call)

    spy(AbortFile, "exists", "abort")
    spy(CommitLog, "load", "commit log")
    spy(ConsumeQueueStore, "load", "queues")
    spy(StoreCheckpoint, "load", "checkpoint")
    spy(IndexService, "load", "index")
    spy(ConsumeQueueStore, "recover", "ends of the queues")
    spy(StoreRecovery, "_recover_log", "end of the log")
    DefaultMessageStore.open(tmp_path, config(release=release)).close()

    assert ["abort", "commit log", "queues", "checkpoint", "index", "ends of the queues", "end of the log"] == steps


@pytest.mark.parametrize("release", RELEASES)
def test_index_files_newer_than_the_checkpoint_are_gone_before_the_log_is_dispatched(
    tmp_path: Path, release: Release
) -> None:
    """Thus each key is in the index once: the checkpoint is read before that, and the log is checked after it."""
    written(tmp_path, 3, release=release)
    crashed(tmp_path)
    with DefaultMessageStore.open(tmp_path, config(release=release)) as store:
        found = store.index_service.query_offset("orders", "k1", 64, 0, 2**63 - 1).physical_offsets

    assert 1 == len(found)


# ---- abort


@pytest.mark.parametrize("release", RELEASES)
def test_abort_is_made_when_the_services_run(tmp_path: Path, release: Release) -> None:
    system = SeesAbort()
    running: list[set[str]] = []
    before = set(threading.enumerate())
    system.at_abort = lambda: running.append({thread.name for thread in set(threading.enumerate()) - before})
    DefaultMessageStore.open(tmp_path, config(release=release), file_system=system).close()

    assert {"ReputMessageService", "FlushRealTimeService", "FlushConsumeQueueService"} <= running[0]


def test_store_that_does_not_start_leaves_no_abort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise OSError("no thread")

    monkeypatch.setattr("store_core.store.store_life.FlushConsumeQueueService.start", fail)
    with pytest.raises(OSError, match="no thread"):
        DefaultMessageStore.open(tmp_path, config())

    assert not (tmp_path / "abort").exists()


def test_store_that_can_not_make_its_abort_file_leaves_no_thread(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    system, before = SeesAbort(), set(threading.enumerate())
    system.at_abort = fail
    with pytest.raises(OSError, match="No space"):
        DefaultMessageStore.open(tmp_path, config(), file_system=system)

    assert before == set(threading.enumerate())
    DefaultMessageStore.open(tmp_path, config()).close()


def spoiled(store: DefaultMessageStore, count: int, which: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Put messages while nothing is dispatched; return functions that break and repair the magic code of one."""
    for _ in range(count):
        store.commit_log.put(message(b"x" * 100))
    segment = store.commit_log.mapped_file_queue.mapped_files[0].path
    place = which * store.max_physical_offset // count + 4
    right = segment.read_bytes()[place : place + 4]

    def write(data: bytes) -> None:
        with segment.open("r+b") as file:
            file.seek(place)
            file.write(data)

    return lambda: write(b"\1\2\3\4"), lambda: write(right)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("broker_id", "count", "leaves_abort"), [(0, 1, False), (1, 3, True)])
def test_master_skips_what_is_no_record_and_slave_waits_for_it(
    tmp_path: Path, release: Release, broker_id: int, count: int, leaves_abort: bool
) -> None:
    broker = BrokerConfig(broker_id=broker_id)
    with DefaultMessageStore.open(tmp_path, config(release=release), broker=broker) as store:
        with store.reput_message_service.paused():
            spoil, mend = spoiled(store, 3, 1)
            spoil()
        store.dispatch_now()
        before, behind = store.get_max_offset_in_queue("orders", 0), store.dispatch_behind_bytes
        mend()
        assert (1, broker_id == 0) == (before, behind == 0)
        assert count == store.get_max_offset_in_queue("orders", 0)
        with store.reput_message_service.paused():
            spoil, mend = spoiled(store, 3, 2)
            spoil()
    # Closing does not wait for slaves, and the abort file tells the next opening.
    assert leaves_abort is (tmp_path / "abort").exists()


# ---- the end of the log


@pytest.mark.parametrize("is_crashed", [False, True])
@pytest.mark.parametrize("release", RELEASES)
def test_positions_end_with_the_log_and_files_made_ahead_go(tmp_path: Path, release: Release, is_crashed: bool) -> None:
    end = written(tmp_path, 8, release=release)[-1]
    start_of_next = end + FILE_SIZE - end % FILE_SIZE
    (tmp_path / "commitlog" / f"{start_of_next:020d}").write_bytes(bytes(FILE_SIZE))
    if is_crashed:
        crashed(tmp_path)
    store = DefaultMessageStore.open(tmp_path, config(release=release), read_only=True)
    queue = store.commit_log.mapped_file_queue
    last = queue.mapped_files[-1]

    assert (end, end, end) == (queue.max_offset, queue.flushed_where, queue.committed_where)
    assert (start_of_next, [end % FILE_SIZE] * 3) == (
        last.end_offset,
        [last.wrote_position, last.flushed_position, last.committed_position],
    )
    assert [FILE_SIZE] * (len(queue.mapped_files) - 1) == [file.wrote_position for file in queue.mapped_files[:-1]]
    assert 1 == store.recovery_report.truncated_files
    store.close()


@pytest.mark.parametrize(
    ("release", "duplicates", "behind", "dispatched"),
    [
        ("5.3", True, 0, 2),
        ("5.3", True, 1, 2),
        ("5.3", True, -1, 1),
        ("5.3", False, 0, 6),
        ("4.9", True, 0, 0),
        ("4.9", False, 0, 6),
        ("4.3", True, 0, 0),
        ("4.3", False, 0, 6),
    ],
)
def test_with_duplication_only_confirmed_records_are_dispatched_after_a_crash(
    tmp_path: Path, release: Release, duplicates: bool, behind: int, dispatched: int
) -> None:
    """4.x confirms none before replicas have answered."""
    places = written(tmp_path, 6, release=release)
    checkpoint = StoreCheckpoint(tmp_path, OsFileSystem(), release).load()
    checkpoint.confirm_physical_offset = places[2] + behind
    checkpoint.physic_msg_timestamp = 0
    checkpoint.flush()
    checkpoint.close()
    crashed(tmp_path)
    for path in (tmp_path / "consumequeue" / "orders" / "0").iterdir():
        path.unlink()
    store = DefaultMessageStore.open(tmp_path, config(release=release, duplication_enable=duplicates), read_only=True)
    queue = store.consume_queue_store.get("orders", 0)
    store.close()

    assert dispatched == (0 if queue is None else queue.max_offset_in_queue)


# ---- dispatchers


class Recorder:
    """Stands in for queues and index, and records which of them gets what."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def put_batch(self, batch: RequestBatch) -> None:
        self.calls.append(("queue", batch.physical_offset.tolist()))

    gather_batch = put_batch

    def build_indexes(self, batch: RequestBatch) -> None:
        self.calls.append(("index", batch.physical_offset.tolist()))


def a_request(physical_offset: int) -> DispatchRequest:
    return DispatchRequest("orders", 0, physical_offset, 100, 0, 0, 0, keys="", properties={})


@pytest.mark.parametrize("gather", [False, True])
def test_records_go_to_their_queues_and_then_to_the_index(gather: bool) -> None:
    seen = Recorder()
    dispatcher = Dispatcher(seen, seen)  # type: ignore[arg-type]  # it stands for both
    dispatcher.dispatch_batch(RequestBatch([a_request(100), a_request(200)], [0, 100]), gather=gather)

    assert [("queue", [100, 200]), ("index", [100, 200])] == seen.calls
    assert 2 == dispatcher.dispatched


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("bulk", [False, True])
def test_transactions_are_queued_if_committed_and_indexed_unless_rolled_back(
    tmp_path: Path, release: Release, bulk: bool
) -> None:
    kinds = {"none": 0, "prepared": 4, "committed": 8, "rolled-back": 12}
    with DefaultMessageStore.open(tmp_path, config(release=release)) as store:
        with store.reput_message_service.paused():
            for key, sys_flag in kinds.items():
                store.commit_log.put(message(sys_flag=sys_flag, keys=[key]))
                if not bulk:
                    store.dispatch_now()
        result = store.get_message("g", "orders", 0, 0, 32)
        assert result is not None
        indexed = [
            key for key in kinds if store.index_service.query_offset("orders", key, 64, 0, 2**63 - 1).physical_offsets
        ]

    assert [["none"], ["committed"]] == [found.keys for found in result.messages]
    assert ["none", "prepared", "committed"] == indexed


# ---- walks


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("is_crashed", [False, True])
def test_opening_a_store_walks_a_file_for_its_end_and_for_its_records(
    tmp_path: Path, release: Release, is_crashed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers' end of the log is sought from the last file backwards, and a recovery follows its files once."""
    larger = config(release=release, mapped_file_size_commit_log=8 * FILE_SIZE)
    written(tmp_path, 50, release=release, mapped_file_size_commit_log=8 * FILE_SIZE)
    if is_crashed:
        crashed(tmp_path)
    walked: list[int] = []

    def counted(*walk: Any, **more: Any) -> Scan:  # noqa: ANN401 -- those of the walk
        start_offset = walk[3]
        found = chain(*walk, **more)
        walked.extend((found.starts + start_offset).tolist())
        return found

    monkeypatch.setattr("store_core.format.columnar.chain.chain", counted)
    with DefaultMessageStore.open(tmp_path, larger):
        pass

    times = Counter(walked)
    twice = {start for start, count in times.items() if count == 2}
    assert len(times) > 10
    assert max(times.values()) <= 2
    assert twice == {start for start in times if start >= 8 * FILE_SIZE}


@pytest.mark.parametrize("name", ["a,b", "a, b", "a b", "a%20b", "ä", "a;b", "a'b\"c", "a#b?c", "a[0]*", "{a}", "-x"])
def test_a_store_may_be_in_a_directory_of_any_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / name / "store"
    for number in range(2):
        with DefaultMessageStore.open(root, config()) as store:
            assert store.put_message(message(b"%d" % number, keys=["key"])).status is PutMessageStatus.PUT_OK
    rebuild_consume_queue(root, RebuildOptions(replace=True, consume_queue_file_size=800))

    assert [b"0", b"1"] == read_messages(str(root), columns=["body"]).read_all()["body"].to_pylist()
    assert [b"0", b"1"] == read_messages(root, columns=["body"], key="key").read_all()["body"].to_pylist()
    assert check(root, hash_slot_num=100, index_num=400).verdict is Verdict.CLEAN
    assert [tmp_path / name] == list(tmp_path.iterdir())

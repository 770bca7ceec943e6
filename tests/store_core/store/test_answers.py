# SPDX-License-Identifier: Apache-2.0
"""What a store answers and counts, compared with RocketMQ's answers for the same store."""

from __future__ import annotations

import ast
import json
import lzma
import re
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import (
    DefaultMessageStore,
    InvalidOptionError,
    Message,
    MessageSelector,
    MessageStoreConfig,
    UnsupportedStoreError,
    read_messages,
)
from store_core.format.columns import COLUMNS, STORE
from store_core.queue.consume_queue.queue_search import BoundaryType
from store_core.store.store_state import RunningFlag, RunningFlags, StoreStats
from tests.golden_stores import Golden, GoldenStore, UnpackedStore, newer_store, table_rows, unpack, unpack_newer
from tests.store_core.fakes import FakeClock
from tests.store_core.queue.consume_queues import units_in
from tests.store_core.snapshot.test_queues import STORES, queues_of
from tests.store_core.store.damaged_stores import batch_topics_of, config_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store_core.format.filter.message_selector import MessageFilter
    from store_core.store.get_message import GetMessageResult
    from store_core.store.message_store_config import Release


_EVER: Final = 2**63 - 1

some = pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.soak)])

_FOREIGN: Final = {
    ("derived/4.9.7/rmcl5", "orders", 2, 0),
    ("derived/5.3.3/rmcl5", "orders", 2, 0),
}
"""Gets of a log that lost its first files, at a unit with physical offset 0: RocketMQ treats the bytes at the start of
the oldest remaining file as that record. Here there is no record at such an offset."""


@pytest.fixture
def asked(golden: Golden, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskedStores]:
    stores = AskedStores(golden, tmp_path_factory.mktemp("derived"))
    yield stores
    stores.close()


def _selector(line: dict[str, Any], release: str) -> MessageSelector | None:
    if line["filterType"] in (None, "SQLNODATA"):
        return None
    return MessageSelector.of(line["filterType"], line["filter"], release)


def _shown(result: GetMessageResult) -> dict[str, Any]:
    messages = result.message_buffers
    return {
        "status": result.status.name,
        "nextBeginOffset": result.next_begin_offset,
        "minOffset": result.min_offset,
        "maxOffset": result.max_offset,
        "messageCount": result.message_count,
        "bufferTotalSize": result.buffer_total_size,
        "suggestPullingFromSlave": result.suggest_pulling_from_slave,
        "queueOffsets": [int.from_bytes(record[20:28], signed=True) for record in messages],
        "physicalOffsets": [int.from_bytes(record[28:36], signed=True) for record in messages],
    }


def _get(store: DefaultMessageStore, line: dict[str, Any]) -> dict[str, Any]:
    selector = _selector(line, store.config.release)
    try:
        result = store.get_message("g", line["topic"], line["queueId"], line["offset"], line["maxMsgNums"], selector)
    except InvalidOptionError:
        return {"error": True}
    assert result is not None
    return _shown(result)


@some
def test_gets_as_rocketmq_does(asked: AskedStores, every: int) -> None:
    _compare_gets(asked, list(answers("getmessage_matrix", every)))


def test_gets_at_gaps_as_rocketmq_does(asked: AskedStores) -> None:
    """For stores of three releases without some segments of the log, or files of the queues."""
    lines = list(answers("gets_at_gaps"))
    statuses = {(line["store"].split("/")[1], line["answer"]["status"]) for line in lines}
    rare = ("OFFSET_FOUND_NULL", "MESSAGE_WAS_REMOVING")

    assert {(version, status) for version in ("4.3.0", "4.9.7", "5.3.3") for status in rare} <= statuses
    _compare_gets(asked, lines)


def _compare_gets(asked: AskedStores, lines: list[dict[str, Any]]) -> None:
    wrong = []
    for line in lines:
        expected = {"error": True} if "error" in line["answer"] else line["answer"]
        found = _get(asked.of(line), line)
        if found == expected:
            continue
        if (line["store"], line["topic"], line["queueId"], line["offset"]) in _FOREIGN:
            assert found["status"] == "MESSAGE_WAS_REMOVING"
            continue
        wrong.append((line, found))
    assert not wrong[:3], f"{len(wrong)} of {len(lines)}"
    assert len(lines) > 1000


@some
def test_finds_by_time_and_key_as_rocketmq_does(asked: AskedStores, every: int) -> None:
    wrong = []
    for line in answers("time_index_matrix", every):
        store = asked.of(line)
        found = _by_time(store, line) if line["op"] == "offsetByTime" else _by_key(store, line)
        if found != line["answer"]:
            wrong.append((line, found))
    assert not wrong[:3], f"{len(wrong)} differ"


def _by_time(store: DefaultMessageStore, line: dict[str, Any]) -> int:
    boundary = BoundaryType[line["boundary"] or "LOWER"]
    return store.get_offset_in_queue_by_time(line["topic"], line["queueId"], line["timestamp"], boundary)


def _by_key(store: DefaultMessageStore, line: dict[str, Any]) -> dict[str, Any]:
    found = store.query_message(line["topic"], line["key"], line["maxNum"], line["begin"], line["end"])
    return {
        "physicalOffsets": [message.physical_offset for message in found.messages],
        "indexLastUpdateTimestamp": found.index_last_update_timestamp,
        "indexLastUpdatePhyoffset": found.index_last_update_physical_offset,
    }


def _check_get(store: DefaultMessageStore, line: dict[str, Any]) -> None:
    result = store.get_message("g", line["topic"], line["queueId"], line["offset"], 32)
    assert result is not None
    found = _shown(result)
    assert {key: line[key] for key in line if key in found} == {key: found[key] for key in line if key in found}


def test_reads_a_golden_store_through_its_queues(golden_store: UnpackedStore) -> None:
    """Everything by gets of 32, every key, and the times: the answers equal those of the release that wrote it."""
    with open_golden(golden_store) as store:
        for line in golden_store.lines("get"):
            _check_get(store, line)
        for line in golden_store.lines("index"):
            messages = store.query_message(line["topic"], line["key"], 64, 0, _EVER).messages
            assert [message.physical_offset for message in messages] == line["offsets"], line
        for line in golden_store.lines("byTime"):
            for time, offset in line["offsets"].items():
                assert store.get_offset_in_queue_by_time(line["topic"], line["queueId"], int(time)) == offset, line


_GOLDEN: Final = Path(__file__).parents[2] / "golden"
_DIRECTORIES: Final = (Path(__file__).parents[4] / "shared" / "golden" / "answers", _GOLDEN / "answers")
_DERIVED: Final = re.compile(r"golden/(\S+) minus commitlog files (.*), consume queue files (.*)")
_LIMITS: Final[dict[str, tuple[int, int]]] = {
    "default": (262144, 32),
    "small": (3000, 7),
    "unlimited": (1 << 30, 1 << 20),
}


def answers(name: str, every: int = 1) -> Iterator[dict[str, Any]]:
    """Yield the lines of a matrix: each so many of it if it is next to the repository, else the sample in it."""
    path = next(found for directory in _DIRECTORIES if (found := directory / f"{name}.jsonl.xz").exists())
    step = 1 if path.is_relative_to(_GOLDEN) else every
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, islice(lines, 0, None, step))


def open_golden(unpacked: UnpackedStore, limits: str = "default", root: Path | None = None) -> DefaultMessageStore:
    """Open a golden store, or one derived from it, for reading."""
    config = _limited(config_of(unpacked.conf, unpacked.golden.version), limits)
    path = root or unpacked.root
    return DefaultMessageStore.open(path, config, read_only=True, batch_topics=batch_topics_of(unpacked.conf))


def _limited(config: MessageStoreConfig, limits: str) -> MessageStoreConfig:
    most, count = _LIMITS[limits]
    return replace(config, max_transfer_bytes_on_message_in_memory=most, max_transfer_count_on_message_in_memory=count)


class AskedStores:
    """The stores that lines of a matrix are about, each opened once.

    * `golden`: Unpacks a golden store by name.
    * `directory`: For stores that are made from golden ones by removing files.
    """

    def __init__(self, golden: Golden, directory: Path) -> None:
        self._golden = golden
        self._directory = directory
        self._open: dict[tuple[str, str], DefaultMessageStore] = {}

    def of(self, line: dict[str, Any]) -> DefaultMessageStore:
        """Return the store of a line."""
        key = (line["store"], line.get("limits", "default"))
        if key not in self._open:
            derived = _DERIVED.fullmatch(line.get("derive", ""))
            unpacked = self._unpacked(derived[1] if derived else line["store"].removeprefix("golden/"))
            root = self._derive(unpacked, line["store"], derived) if derived else None
            self._open[key] = open_golden(unpacked, key[1], root)
        return self._open[key]

    def _unpacked(self, name: str) -> UnpackedStore:
        """Unpack a store that is next to the answers, or else a golden one."""
        version, scenario = name.split("/")
        archive = _GOLDEN / "answers" / f"{scenario}-{version}.tar.xz"
        if not archive.exists():
            return self._golden(name)
        return unpack(GoldenStore(version, scenario, archive), self._directory)

    def _derive(self, unpacked: UnpackedStore, name: str, derived: re.Match[str]) -> Path:
        root = self._directory / name
        if root.exists():
            return root
        shutil.copytree(unpacked.root, root, copy_function=shutil.copy2)
        for segment in ast.literal_eval(derived[2]) or ():
            root.joinpath("commitlog", segment).unlink()
        for number in ast.literal_eval(derived[3]) or ():
            for queue in root.joinpath("consumequeue").glob("*/*"):
                files = sorted(queue.iterdir())
                if number < len(files) - 1:
                    files[number].unlink()
        return root

    def close(self) -> None:
        """Close them all."""
        for store in self._open.values():
            store.close()


@pytest.mark.parametrize(
    ("elapsed", "label"),
    [
        (-5, "[<=0ms]"),
        (0, "[<=0ms]"),
        (1, "[0~10ms]"),
        (9, "[0~10ms]"),
        (10, "[10~50ms]"),
        (199, "[100~200ms]"),
        (500, "[500ms~1s]"),
        (1000, "[1~2s]"),
        (9999, "[5~10s]"),
        (10_000, "[10s~]"),
    ],
)
def test_put_times_are_counted_where_rocketmq_counts_them(elapsed: int, label: str) -> None:
    stats = StoreStats()
    stats.add_put_time(elapsed, is_ok=True)

    assert [label] == [name for name, count in stats.put_message_distribute_time.items() if count]


@pytest.mark.parametrize(
    ("puts", "elapsed", "share", "expected"),
    [
        (100, 2, 0.0, 0),
        (100, 2, 0.5, 1.5),
        (100, 2, 0.9, 1.9),
        (100, 2, 1.0, 2),
        (1, 60_000, 1.0, 60_000),
        (0, 0, 1.0, 0),
    ],
)
def test_shares_are_estimated_within_their_bucket_and_the_last_one_ends_with_the_longest_time(
    puts: int, elapsed: int, share: float, expected: float
) -> None:
    stats = StoreStats()
    for _ in range(puts):
        stats.add_put_time(elapsed, is_ok=True)

    assert expected == stats.find_put_message_entire_time(share)


class NoMessage:
    """A slow filter that leaves out everything, by the queue or by the record."""

    def __init__(self, *, by_queue: bool, takes: Callable[[], object] = int) -> None:
        self._by_queue = by_queue
        self._takes = takes

    def is_matched_by_consume_queue(self, _tags_code: int | None, _unit: object = None) -> bool:
        self._takes()
        return not self._by_queue

    def is_matched_by_commit_log(self, _record: memoryview) -> bool:
        return False


GETS: Final[list[tuple[str, int, int, MessageFilter | None, tuple[int, int, int]]]] = [
    ("orders", 0, 10, None, (1, 0, 10)),
    ("orders", 140, 32, None, (2, 0, 20)),
    ("orders", 0, 32, NoMessage(by_queue=True), (2, 1, 20)),
    ("orders", 0, 32, NoMessage(by_queue=False), (2, 2, 20)),
    ("orders", 150, 32, None, (2, 3, 20)),
    ("orders", 151, 32, None, (2, 4, 20)),
    ("orders", -1, 32, None, (2, 5, 20)),
    ("unseen", 0, 32, None, (2, 6, 20)),
]
"""Gets of a queue of 150 messages, and the counts of 4.3.0, 4.9.7 and 5.3.3 alike: found, missed, messages."""


def counted(store: DefaultMessageStore) -> tuple[int, int, int]:
    stats = store.stats
    return (
        stats.get_message_times_total_found,
        stats.get_message_times_total_miss,
        stats.get_message_transferred_msg_count,
    )


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_gets_are_counted_as_rocketmq_counts_them(tmp_path: Path, release: Release) -> None:
    config = MessageStoreConfig(release=release, mapped_file_size_commit_log=1 << 16)
    with DefaultMessageStore.open(tmp_path, config) as store:
        for _ in range(150):
            store.put_message(Message("orders", b"x" * 200, tags="TagA"))
        found = []
        for topic, offset, most, wanted, _ in GETS:
            store.get_message("g", topic, 0, offset, most, wanted)
            found.append(counted(store))

    assert [expected for *_, expected in GETS] == found


def test_get_that_is_refused_is_not_counted(tmp_path: Path) -> None:
    with DefaultMessageStore.open(tmp_path, MessageStoreConfig(mapped_file_size_commit_log=1 << 16)) as store:
        store.running_flags.set(RunningFlag.NOT_READABLE)
        assert store.get_message("g", "orders", 0, 0, 32) is None

        assert (0, 0, 0) == counted(store)


@pytest.mark.golden
def test_inner_batch_counts_with_all_its_messages(golden: Golden) -> None:
    with open_golden(golden("5.3.3/bcq")) as store:
        queue = next(iter(store.consume_queue_store.queues()))
        result = store.get_message("g", queue.topic, queue.queue_id, queue.min_offset_in_queue, 32)

        assert result is not None
        assert len(result.message_buffers) < result.message_count
        assert (1, 0, result.message_count) == counted(store)


def test_slowest_get_is_kept(tmp_path: Path) -> None:
    clock, times = FakeClock(), [0.005, 0.07, 0.003]
    slow = NoMessage(by_queue=True, takes=lambda: clock.advance(times.pop()))
    with DefaultMessageStore.open(tmp_path, MessageStoreConfig(mapped_file_size_commit_log=1 << 16)) as store:
        store.put_message(Message("orders", b"x"))
        store.dispatch_now()
        store._clock = clock
        while times:
            store.get_message("g", "orders", 0, 0, 32, slow)

        assert 70 == store.stats.get_message_entire_time_max


@pytest.mark.parametrize("flag", list(RunningFlag))
def test_each_flag_forbids_what_it_forbids_in_rocketmq(flag: RunningFlag) -> None:
    flags = RunningFlags()
    assert flags.set(flag)
    assert not flags.set(flag)

    of_queues = flag in (RunningFlag.DISK_FULL, RunningFlag.FENCED)
    is_reading = flag is RunningFlag.NOT_READABLE
    assert (not is_reading, is_reading, is_reading or of_queues) == (
        flags.is_readable,
        flags.is_writeable,
        flags.is_cq_writeable,
    )
    assert [flag] == [each for each in RunningFlag if flags.has(each)]
    assert flags.clear(flag)
    assert not flags.clear(flag)
    assert flags.is_writeable


def test_flags_have_the_bits_of_rocketmq() -> None:
    assert [1, 2, 4, 8, 16, 32, 64] == [int(flag) for flag in RunningFlag]


IN_ROCKSDB = [name for name in STORES if "cqdouble" not in name]
IN_REPOSITORY = "5.5.0/rocksdb-crash"


def opened(store: UnpackedStore, root: Path | None = None) -> DefaultMessageStore:
    config = MessageStoreConfig(release=store.golden.release)  # type: ignore[arg-type]  # one that there is
    return DefaultMessageStore.open(root or store.root, config, read_only=True)


def state(root: Path) -> dict[Path, tuple[int, int, int]]:
    found = {path: path.stat() for path in (root, *root.rglob("*"))}
    return {path: (each.st_mtime_ns, each.st_ctime_ns, each.st_size) for path, each in found.items()}


@pytest.mark.golden
@pytest.mark.parametrize("name", IN_ROCKSDB)
def test_units_gets_and_times_are_those_of_rocketmq(name: str, golden_directory: Path) -> None:
    store = unpack_newer(name, golden_directory)
    before = state(store.root)
    with opened(store) as message_store:
        for (topic, queue_id), answer in queues_of(store).items():
            queue = message_store.consume_queue_store.get(topic, queue_id)
            assert queue is not None
            assert (answer["minOffset"], answer["maxOffset"]) == (queue.min_offset_in_queue, queue.max_offset_in_queue)
            found = [unit[:4] for unit in units_in(queue, queue.min_offset_in_queue)]
            assert [(each["offset"], each["pos"], each["size"], each["tagsCode"]) for each in answer["units"]] == found
        for line in store.lines("byTime"):
            queue_name = line["topic"], line["queueId"]
            times = {int(time): offset for time, offset in line["offsets"].items()}
            assert times == {time: message_store.get_offset_in_queue_by_time(*queue_name, time) for time in times}
        for line in store.lines("get"):
            _check_get(message_store, line)

    assert before == state(store.root)


@pytest.mark.golden
@pytest.mark.parametrize("name", [*STORES, *filter(newer_store, ["5.5.0/rockskv"])])
def test_rows_are_those_of_rocketmq(name: str, golden_directory: Path) -> None:
    store = unpack_newer(name, golden_directory)
    table = read_messages(
        store.root, columns=[column.name for column in COLUMNS if column.name != STORE], release=store.golden.release
    )

    assert store.expected() == table_rows(table.read_all())


@pytest.mark.golden
def test_units_after_the_end_of_a_log_that_was_cut_are_left_out(golden_directory: Path, tmp_path: Path) -> None:
    store = unpack_newer(IN_REPOSITORY, golden_directory)
    root = shutil.copytree(store.root, tmp_path / "store")
    for segment in sorted((root / "commitlog").iterdir())[2:]:
        segment.unlink()
    with opened(store, root) as message_store:
        end = message_store.max_physical_offset
        found = {
            (queue.topic, queue.queue_id): [unit[0] for unit in units_in(queue)]
            for queue in message_store.consume_queue_store.queues()
            if queue.max_offset_in_queue
        }
        assert end < 2 * 131_072

    expected = {
        queue: [unit["offset"] for unit in answer["units"] if unit["pos"] < end]
        for queue, answer in queues_of(store).items()
    }
    assert {queue: units for queue, units in expected.items() if units} == found


@pytest.mark.golden
def test_it_is_refused_by_name_for_writing_and_a_dry_run_says_so(golden_directory: Path, tmp_path: Path) -> None:
    root = shutil.copytree(unpack_newer(IN_REPOSITORY, golden_directory).root, tmp_path / "store")
    before = state(root)

    with pytest.raises(UnsupportedStoreError, match="is read and never written"):
        DefaultMessageStore.open(root)
    assert "storeType=defaultRocksDB" in str(DefaultMessageStore.dry_run(root).refusal)
    assert before == state(root)


@pytest.mark.golden
def test_messages_of_a_queue_are_found_by_tag_and_by_time(golden_directory: Path) -> None:
    store = unpack_newer(IN_REPOSITORY, golden_directory)
    with opened(store) as message_store:
        earliest = message_store.get_earliest_message_time("orders", 0)
        last = message_store.get_max_offset_in_queue("orders", 0) - 1

        assert 0 < earliest <= message_store.get_message_store_timestamp("orders", 0, last)
        assert message_store.get_commit_log_offset_in_queue("orders", 0, last) > 598_926  # not in the RocksDB
        assert 0 == message_store.get_commit_log_offset_in_queue("orders", 0, last + 1)

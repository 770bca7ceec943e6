# SPDX-License-Identifier: Apache-2.0
"""Consume queues with ten units per file, those of a golden store, and helpers to inspect them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast, overload

import numpy as np

from store_core.files.file_system import OsFileSystem
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import ConsumeQueue, PutUnits, QueueServices
from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt, is_ext_address
from store_core.queue.consume_queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.consume_queue_unit import BATCH_UNIT_SIZE, CQ_STORE_UNIT_SIZE, UNIT_DTYPE, BatchCqUnit, CqUnit
from store_core.queue.dispatch.dispatch_batch import DispatchRequest
from store_core.queue.queue_assignment import index_refusal
from store_core.queue.queue_path import QueueRules
from tests.store_core.fakes import FakeClock, FaultyFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from store_core.format.release import Release
    from store_core.queue.consume_queue.consume_queue_store import Queue
    from tests.golden_stores import UnpackedStore


RELEASES: Final[tuple[Release, ...]] = ("4.3", "4.9", "5.3")
UNITS: Final = 10
FILE_SIZE: Final = UNITS * CQ_STORE_UNIT_SIZE


class Unit(NamedTuple):
    """What a queue stores about a record."""

    physical_offset: int
    size: int
    tags_code: int
    queue_offset: int


class QueueMaker:
    """Makes queues in one directory, with a disk and a clock that tests control."""

    def __init__(self, directory: Path, release: Release = "5.3") -> None:
        self.directory = directory
        self.disk = FaultyFileSystem()
        self.clock = FakeClock()
        self.errors = 0
        self.is_writable = True
        self.rules = QueueRules(
            release=release, consume_queue_file_size=FILE_SIZE, batch_consume_queue_file_size=4 * BATCH_UNIT_SIZE
        )

    @property
    def services(self) -> QueueServices:
        return QueueServices(self.rules, self.disk, self.clock, lambda: self.is_writable, self._note_error)

    def new(self, *, ext: ConsumeQueueExt | None = None) -> ConsumeQueue:
        """Make a queue that has not read anything yet."""
        return ConsumeQueue("T", 0, self.directory, self.services, ext)

    def _note_error(self) -> None:
        self.errors += 1
        self.is_writable = False

    def opened(self) -> ConsumeQueue:
        """Open a queue from the files in the directory."""
        queue = self.new()
        queue.load()
        queue.recover()
        return queue

    def file_bytes(self) -> dict[int, bytes]:
        """Return the files by their offset."""
        return {int(path.name): path.read_bytes() for path in sorted(self.directory.glob("*"))}


def records(count: int, first: int = 0, size: int = 100) -> list[Unit]:
    """Make the units of consecutive records; `first` is the index of the first one."""
    return [Unit(1000 + (first + i) * size, size, 7 * (first + i), first + i) for i in range(count)]


def put_all(queue: ConsumeQueue, units: Iterable[Unit]) -> list[bool]:
    return [queue.put_message_position_info(*unit) for unit in units]


def put_bulk(queue: ConsumeQueue, units: Iterable[Unit]) -> bool:
    """Put at once those of some units that have a place in a queue; return whether all are in it."""
    given = np.array(list(units), np.int64).reshape(-1, 4)
    has_place = np.array([index_refusal(index, queue.rules) is None for index in given[:, 3].tolist()], np.bool_)
    position, size, tags_code, index = given[has_place].T
    put = PutUnits.of(position, size, tags_code, index, queue.rules.features)
    return queue.put(put, 0, len(put.units)) and bool(has_place.all())


def state_of(queue: ConsumeQueue) -> dict[str, object]:
    """Return the whole state of a queue."""
    files = queue.mapped_file_queue
    return {
        "max_physical_offset": queue.max_physical_offset,
        "min_logic_offset": queue.min_logic_offset,
        "max_offset": queue.max_offset_in_queue,
        "misplaced": queue.misplaced,
        "flushed_where": files.flushed_where,
        "committed_where": files.committed_where,
        "files": [(file.file_from_offset, file.wrote_position, file.flushed_position) for file in files.mapped_files],
    }


@overload
def units_in(queue: ConsumeQueue, first: int = 0) -> Iterator[CqUnit]: ...


@overload
def units_in(queue: BatchConsumeQueue, first: int = 0) -> Iterator[BatchCqUnit]: ...


def units_in(queue: ConsumeQueue | BatchConsumeQueue, first: int = 0) -> Iterator[CqUnit] | Iterator[BatchCqUnit]:
    """Yield the units from an index to the end of a queue, over holes between its files."""
    return _batches_in(queue, first) if isinstance(queue, BatchConsumeQueue) else _plain_units_in(queue, first)


def _plain_units_in(queue: ConsumeQueue, first: int) -> Iterator[CqUnit]:
    end = queue.max_offset_in_queue
    while first < end:
        units = queue.get_index_buffer(first)
        if units is None:
            first = queue.roll_next_file(first)
            continue
        for index in range(min(len(units), end - first)):
            yield CqUnit.of(units, index, first + index)
        first += len(units)


def _batches_in(queue: BatchConsumeQueue, first: int) -> Iterator[BatchCqUnit]:
    while (units := queue.get_index_buffer(first)) is not None:
        found = [BatchCqUnit.of(units, index) for index in range(len(units))]
        yield from found
        if found[-1].queue_offset + found[-1].batch_size <= first:
            return  # damage: going on from here would never end
        first = found[-1].queue_offset + found[-1].batch_size


def write_files(directory: Path, units: Sequence[tuple[int, int, int]]) -> None:
    """Write units as files, the last one padded with zeros."""
    directory.mkdir(parents=True, exist_ok=True)
    array = np.zeros(-(-len(units) // UNITS) * UNITS, UNIT_DTYPE)
    array[: len(units)] = np.array([tuple(unit) for unit in units], UNIT_DTYPE)
    for index in range(0, len(array), UNITS):
        (directory / f"{index * CQ_STORE_UNIT_SIZE:020d}").write_bytes(array[index : index + UNITS].tobytes())


FOLDERS: Final = ("consumequeue", "consumequeue_ext", "batchconsumequeue")


def golden_rules(store: UnpackedStore) -> QueueRules:
    """Return the rules with which the store was made."""
    conf = store.conf
    return QueueRules(
        release=cast("Release", store.golden.release),
        consume_queue_file_size=int(conf["cq-size"]),
        batch_consume_queue_file_size=int(conf.get("bcq-size", 460)),
        batch_topics=frozenset(filter(None, conf.get("bcq-topics", "").split(","))),
        ext_file_size=int(conf.get("ext-size", 4096)),
        is_ext_enabled="ext" in conf,
        is_multi_dispatch_enabled=conf.get("set.enableMultiDispatch") == "true",
        is_lmq_enabled=conf.get("set.enableLmq") == "true",
        max_hash_slot_num=int(conf["slot-num"]),
        max_index_num=int(conf["index-num"]),
    )


def queue_store(root: Path, rules: QueueRules) -> ConsumeQueueStore:
    """Make the table of the queues below a directory, which has not read anything yet."""
    return ConsumeQueueStore(root, QueueServices(rules, OsFileSystem(), FakeClock()), lambda *_: None)


def golden_answers(store: UnpackedStore) -> list[dict[str, Any]]:
    """Return RocketMQ's report of each queue, by topic and id."""
    return sorted(store.lines("queue"), key=lambda line: (line["topic"], line["queueId"]))


def golden_requests(store: UnpackedStore) -> list[DispatchRequest]:
    """Return RocketMQ's dispatch request for every record, in log order, with the bit maps of its queues."""
    bit_maps = {
        unit["pos"]: base64.b64decode(unit["ext"]["filterBitMap"])
        for queue in golden_answers(store)
        for unit in queue["units"]
        if unit.get("ext", {}).get("filterBitMap")
    }
    return [_request(line, bit_maps) for line in store.lines("record")]


def _request(line: dict[str, Any], bit_maps: dict[int, bytes]) -> DispatchRequest:
    dispatch = line["dispatch"]
    return DispatchRequest(
        topic=line["topic"],
        queue_id=line["queueId"],
        physical_offset=line["physicalOffset"],
        message_size=line["storeSize"],
        tags_code=dispatch["tagsCode"],
        store_timestamp=line["storeTimestamp"],
        consume_queue_offset=dispatch["consumeQueueOffset"],
        keys=dispatch["keys"],
        unique_key=dispatch["uniqKey"],
        sys_flag=dispatch["sysFlag"],
        prepared_transaction_offset=line["preparedTransactionOffset"],
        properties=line["properties"],
        message_base_offset=dispatch.get("msgBaseOffset", dispatch["consumeQueueOffset"]),
        batch_size=dispatch.get("batchSize", 1),
        bit_map=bit_maps.get(line["physicalOffset"], b""),
    )


def file_bytes(root: Path) -> dict[str, bytes]:
    """Return the files of all queues below a store's root."""
    paths = (path for folder in FOLDERS for path in sorted(root.joinpath(folder).rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def answers_of(queues: ConsumeQueueStore) -> list[dict[str, Any]]:
    """Return our report of each queue in the form of RocketMQ's."""
    return [
        {
            "type": "queue",
            "topic": queue.topic,
            "queueId": queue.queue_id,
            "minOffset": queue.min_offset_in_queue,
            "maxOffset": queue.max_offset_in_queue,
            "maxPhysicOffset": queue.max_physical_offset,
            "units": _units(queue),
        }
        for queue in queues.queues()
    ]


def _units(queue: Queue) -> list[dict[str, Any]]:
    if isinstance(queue, BatchConsumeQueue):
        return [
            {
                "offset": unit.queue_offset,
                "pos": unit.physical_offset,
                "size": unit.store_size,
                "tagsCode": unit.tags_code,
                "batchNum": unit.batch_size,
                "compactedOffset": unit.compacted_offset,
            }
            for unit in units_in(queue, queue.min_offset_in_queue)
        ]
    return [
        {"offset": unit.queue_offset, "pos": unit.physical_offset, "size": unit.store_size, "tagsCode": unit.tags_code}
        | _ext(queue, unit.tags_code)
        for unit in units_in(queue, queue.min_offset_in_queue)
    ]


def _ext(queue: ConsumeQueue, tags_code: int) -> dict[str, Any]:
    if not is_ext_address(tags_code) or not isinstance(queue.ext, ConsumeQueueExt):
        return {}
    unit = queue.ext.get(tags_code)
    if unit is None:
        return {"ext": None}
    bit_map = base64.b64encode(unit.bit_map).decode() if unit.bit_map else None
    return {
        "ext": {
            "size": unit.size,
            "tagsCode": unit.tags_code,
            "msgStoreTime": unit.msg_store_time,
            "filterBitMap": bit_map,
        }
    }

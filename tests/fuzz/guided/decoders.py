# SPDX-License-Identifier: Apache-2.0
"""The decoders that guided fuzzing gives bytes to, each with its oracle: mostly the readable twin of a fast path."""

from __future__ import annotations

import json
import struct
import tarfile
import warnings
from io import BytesIO
from typing import TYPE_CHECKING, Final

import lz4.frame
import numpy as np
import zstandard

from store_core.broker import (
    ConsumerFilterManager,
    ConsumerOffsetManager,
    DelayOffsetTable,
    SubscriptionGroupManager,
    TopicConfigManager,
)
from store_core.errors import FilterError, StoreError
from store_core.files.archive_listing import archive_at, archive_segments
from store_core.files.file_system import OsFileSystem
from store_core.format.columnar.lockstep import scan
from store_core.format.compression import expand_body
from store_core.format.java import parse_java_int
from store_core.format.log_end import find_log_end
from store_core.format.properties import PropertyParser, decode_text, parse_properties
from store_core.format.record.decode import decode_items, unwrap_inner_batch
from store_core.format.record.scan import Framing, follow_frames
from store_core.format.release import RELEASES
from store_core.format.segment_view import SegmentView
from store_core.format.sys_flag import CompressionType
from store_core.queue.consume_queue_unit import (
    BATCH_UNIT_DTYPE,
    CqUnit,
    are_valid,
    count_true,
    count_valid,
    units_of,
)
from store_core.queue.index_file import IndexFile
from store_core.queue.queue_path import QueueRules
from store_core.queue.rocksdb_queues import parse_bound_key, unit_key
from store_core.queue.store_entry import FAMILIES, is_place
from store_core.snapshot.config import checkpoint_fields
from store_core.snapshot.timers import TIMER_DTYPE, TimerChains, due_times, timer_units
from store_core.store.broker_config import BrokerConfig
from store_core.store.export.export_ledger import ExportEntry
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.read.follow.log_position import LogPosition
from store_core.store.read.read_options import ReadOptions
from store_core.store.store_state import StoreCheckpoint
from tests.fuzz.guided.decoder import Decoder, Judge
from tests.fuzz.guided.seeds import golden_pieces, golden_records, index_files
from tests.fuzz.scalar_targets import expect_same_rows, expect_same_scan
from tests.fuzz.target import Finding, expect, refused
from tests.fuzz.text_targets import BROKER_CONFIGS, FILTERS, judge_filter, judge_json
from tests.store_core.fakes import FakeClock
from tests.store_core.queue.dispatch_logs import DELAYS, assert_reads_as_loop
from tests.strategies import Log

if TYPE_CHECKING:
    from pathlib import Path


_COUNTED: Final = (CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD)
_MOST_EXPANDED: Final = 1 << 20
_INDEX_RULES: Final = QueueRules(max_hash_slot_num=10, max_index_num=40)


def _head(data: bytes) -> tuple[int, bytes]:
    """Take the first byte, which chooses among several ways to decode the others."""
    return (data[0], data[1:]) if data else (0, b"")


def _records(_: Path) -> Judge:
    def judge(data: bytes) -> None:
        raw, view = np.frombuffer(data, np.uint8), memoryview(data)
        found = scan(raw)
        expect_same_scan(follow_frames(view), found)
        for parser in PropertyParser:
            expect_same_rows(raw, view, found.starts, parser)

    return judge


def _entries(_: Path) -> Judge:
    def judge(data: bytes) -> None:
        raw = np.frombuffer(data, np.uint8)
        expect_same_scan(follow_frames(memoryview(data), framing=Framing.ENTRIES), scan(raw, framing=Framing.ENTRIES))

    return judge


def _requests(_: Path) -> Judge:
    """What queues and index get of a log: by RocketMQ's definition and in columns."""

    def judge(data: bytes) -> None:
        choice, log = _head(data)
        rules = QueueRules(
            release=RELEASES[choice % len(RELEASES)], delay_levels=DELAYS, verify_property_crc=choice >= 1 << 7
        )
        checks = {"check_crc": bool(choice & 16), "read_body": bool(choice & 32), "check_dup_info": bool(choice & 64)}
        try:
            assert_reads_as_loop(Log(log, 0, []), 0, rules, checks, 3)
        except AssertionError as error:
            raise Finding(f"the reader is unlike the loop: {error}") from error

    return judge


def _log_ends(_: Path) -> Judge:
    def judge(data: bytes) -> None:
        raw = np.frombuffer(data, np.uint8)
        for verify_crc in (False, True):
            end = find_log_end(SegmentView(raw), verify_crc=verify_crc)
            if not 0 <= end.position <= len(data) or end.stale >= len(data):
                raise Finding(f"a log of {len(data)} bytes ends at {end.position}")

    return judge


def _batches(_: Path) -> Judge:
    def judge(data: bytes) -> None:
        with refused(ValueError):
            if sum(len(each.body) for each in unwrap_inner_batch(data)) > len(data):
                raise Finding("more bytes than there are")
        with refused(ValueError):
            if sum(len(body) + len(properties) for _, body, properties in decode_items(data)) > len(data):
                raise Finding("more bytes than there are")

    return judge


def _bodies(_: Path) -> Judge:
    def judge(data: bytes) -> None:
        choice, body = _head(data)
        limit = 10 if choice >= 1 << 7 else _MOST_EXPANDED
        with refused(ValueError):
            found = expand_body(body, _COUNTED[choice % len(_COUNTED)], limit)
            if len(found) > limit:
                raise Finding(f"{len(found)} bytes, more than {limit}")

    return judge


def _bodies_to_begin_with(_: Path) -> list[bytes]:
    import zlib  # noqa: PLC0415 -- what is seen first is what is decoded

    text = b"the body of a message, " * 20
    packed = (zlib.compress(text), lz4.frame.compress(text), zstandard.ZstdCompressor().compress(text))
    return [bytes([number]) + each for number, each in enumerate(packed)]


def _properties(_: Path) -> Judge:
    def judge(data: bytes) -> None:
        decoded = decode_text(data)
        for parser in PropertyParser:
            parse_properties(decoded, parser)
        for bits in (16, 32, 64):
            with refused(ValueError):
                parse_java_int(decoded, bits)

    return judge


def _units(_: Path) -> Judge:
    def judge(data: bytes) -> None:
        units = units_of(memoryview(data))
        rows = [CqUnit.of(units, index, index) for index in range(len(units))]
        invalid = [index for index, each in enumerate(rows) if each.physical_offset < 0 or each.store_size <= 0]
        expect(invalid[0] if invalid else len(rows), count_valid(units), "units before the first invalid one")
        batches = np.frombuffer(
            data[: len(data) // BATCH_UNIT_DTYPE.itemsize * BATCH_UNIT_DTYPE.itemsize], BATCH_UNIT_DTYPE
        )
        if not 0 <= count_true(are_valid(batches)) <= len(batches):
            raise Finding("more units than there are")

    return judge


def _index(directory: Path) -> Judge:
    """An index file is refused, or its keys lead to at most as many offsets as were asked for."""
    path, files = directory / "00000000000000000", OsFileSystem()

    def judge(data: bytes) -> None:
        choice, content = _head(data)
        path.write_bytes(content)
        with refused(StoreError, OSError):
            file = IndexFile.load(path, _INDEX_RULES, files)
            found = file.select_physical_offsets(f"orders#k{choice % 20}", 7, 0, 1 << 62)
            file.close()
            if len(found) > 7 or len(content) not in (0, 880):
                raise Finding(f"{len(found)} offsets of a file of {len(content)} bytes")

    return judge


def _checkpoints(directory: Path) -> Judge:
    """A checkpoint has the numbers that are in its bytes."""
    files = OsFileSystem()
    path = StoreCheckpoint(directory, files).path

    def judge(data: bytes) -> None:
        path.write_bytes(data)
        for release in RELEASES:
            names = [field.name for field in checkpoint_fields(release)]
            numbers = struct.unpack_from(f">{len(names)}q", data.ljust(8 * len(names), b"\0"))
            loaded = StoreCheckpoint(directory, files, release).load()
            expect(list(numbers), [getattr(loaded, name) for name in names], "numbers of the checkpoint")

    return judge


def _rocksdb_entries(_: Path) -> Judge:
    def judge(data: bytes) -> None:
        choice, rest = _head(data)
        for parse in FAMILIES.values():
            parse(rest[choice:], rest[:choice])
        parse_bound_key(rest)
        is_place(rest)

    return judge


def _rocksdb_seeds(_: Path) -> list[bytes]:
    entry = bytes(8) + b"orders@17@U@AC11" + bytes(8)
    return [b"\x08" + entry, b"\x0c" + bytes(12) + bytes(8) + b"AC11", b"\0" + unit_key("orders", 3, 9)]


def _timers(_: Path) -> Judge:
    def judge(data: bytes) -> None:
        found, _ = timer_units(np.frombuffer(data, np.uint8))
        if len(found) * found.dtype.itemsize > len(data):
            raise Finding("more units than bytes")
        due_times(found)
        TimerChains.of(np.arange(len(found), dtype=np.int64) * found.dtype.itemsize, found)

    return judge


def _timer_seeds(_: Path) -> list[bytes]:
    units = np.zeros(6, TIMER_DTYPE)
    units["magic"], units["size"], units["previous_position"] = 1, units.itemsize, np.arange(-1, 5) * units.itemsize
    return [units.tobytes()]


def _json(_: Path) -> Judge:
    def judge(data: bytes) -> None:
        with refused(StoreError):
            judge_json(data)

    return judge


def _json_seeds(_: Path) -> list[bytes]:
    return [json.dumps(each).encode() for each in BROKER_CONFIGS.values()] + [b'{"offsetTable":{"a@b":{0:5,1:-7}}}']


_MANAGERS: Final = {
    "topics.json": TopicConfigManager,
    "consumerOffset.json": ConsumerOffsetManager,
    "subscriptionGroup.json": SubscriptionGroupManager,
    "delayOffset.json": DelayOffsetTable,
    "consumerFilter.json": ConsumerFilterManager,
}


def _broker_files(directory: Path) -> Judge:
    (directory / "config").mkdir(exist_ok=True)
    names = list(_MANAGERS)

    def judge(data: bytes) -> None:
        choice, text = _head(data)
        name = names[choice % len(names)]
        (directory / "config" / name).write_bytes(text)
        with refused(StoreError):
            manager = _MANAGERS[name](directory, clock=FakeClock())
            manager.load()
            manager.text()

    return judge


def _broker_file_seeds(_: Path) -> list[bytes]:
    return [bytes([number]) + json.dumps(BROKER_CONFIGS[name]).encode() for number, name in enumerate(_MANAGERS)]


def _broker_conf(directory: Path) -> Judge:
    path = directory / "broker.conf"

    def judge(data: bytes) -> None:
        path.write_bytes(data)
        for kind in (MessageStoreConfig, BrokerConfig):
            with refused(StoreError):
                kind.from_properties(path)

    return judge


def _sql92(_: Path) -> Judge:
    def judge(data: bytes) -> None:
        choice, text = _head(data)
        with refused(FilterError):
            judge_filter(text.decode("utf-8", "replace"), RELEASES[choice % len(RELEASES)])

    return judge


def _ledgers(directory: Path) -> Judge:
    def judge(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        with refused(StoreError):
            ExportEntry.parse(text, directory / "0.json")
        try:
            place = json.loads(text)
        except (ValueError, RecursionError):
            return
        with refused(StoreError):
            LogPosition.from_json(place)

    return judge


def _ledger_seeds(_: Path) -> list[bytes]:
    record = dict.fromkeys(("physicalOffset", "size", "storeTimestamp", "headCrc"), 7)
    place = {"physicalOffset": 90, "segment": "0" * 20, "lastRecord": record, "anchorRecords": [record]}
    file = {"path": "topic=a/day=2026-01-01/0-9.parquet", "staged": "0" * 32 + ".parquet"}
    export = {
        "schema": "commitlog-export-entry/1", "number": 1, "begin": place, "end": place, "topics": ["a"],
        "segments": [], "files": [file], "damaged_ranges": 0, "damaged_bytes": 0, "lost_bytes": 0, "previous": "",
    }  # fmt: skip
    return [json.dumps(each).encode() for each in (place, export)]


_OPTIONS: Final = ("topics_pattern", "starting_offsets", "ending_offsets", "as_of", "time_zone", "msg_id", "filter")


def _options(_: Path) -> Judge:
    def judge(data: bytes) -> None:
        choice, text = _head(data)
        name = _OPTIONS[choice % len(_OPTIONS)]
        with refused(StoreError), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Python's about a user's regular expression
            ReadOptions.parse(**{name: text.decode("utf-8", "replace")})

    return judge


def _option_seeds(_: Path) -> list[bytes]:
    texts = (
        "ord.*|pay[a-z]+",
        '{"orders":{"0":12}}',
        "latest",
        "2026-01-01 00:00",
        "+08:00",
        "C0A8010200002A9F",
        "a||b",
    )
    return [bytes([number]) + text.encode() for number, text in enumerate(texts)]


def _archives(directory: Path) -> Judge:
    """The headers of an archive lead to segments inside of it."""
    path = directory / "store.tar"

    def judge(data: bytes) -> None:
        path.write_bytes(data)
        archive = archive_at(path)
        with refused(StoreError):
            for segment in archive_segments(archive, []) if archive else ():
                if segment.size > len(data):
                    raise Finding(f"a segment of {segment.size} bytes in an archive of {len(data)}")

    return judge


def _archive_seeds(_: Path) -> list[bytes]:
    held = BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("commitlog/" + "0" * 20, "commitlog/" + f"{400:020d}"):
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = 400, {"comment": "x"}
            tar.addfile(member, BytesIO(bytes(400)))
    return [held.getvalue()[: 1 << 12]]


def _of_index(directory: Path) -> list[bytes]:
    return [bytes([number]) + data for number, data in enumerate(index_files(directory))]


DECODERS: Final = (
    Decoder("records", _records, golden_records),
    Decoder("dledger-entries", _entries, lambda directory: golden_records(directory, "dledger")),
    Decoder("dispatch-requests", _requests, lambda directory: [b"\x34" + each for each in golden_records(directory)]),
    Decoder("log-ends", _log_ends, golden_records),
    Decoder("batches", _batches),
    Decoder("bodies", _bodies, _bodies_to_begin_with),
    Decoder("properties", _properties, lambda _: [b"TAGS\x01a b\x02KEYS\x01k1 k2\x02", b"-9223372036854775808"]),
    Decoder("queue-units", _units, lambda directory: golden_pieces(directory, "consumequeue", 20)),
    Decoder("batch-queue-units", _units, lambda directory: golden_pieces(directory, "batchconsumequeue", 46)),
    Decoder("index-files", _index, _of_index),
    Decoder("checkpoints", _checkpoints, lambda _: [bytes(48), bytes(range(48))]),
    Decoder("rocksdb-entries", _rocksdb_entries, _rocksdb_seeds),
    Decoder("timers", _timers, _timer_seeds),
    Decoder("json", _json, _json_seeds),
    Decoder("broker-files", _broker_files, _broker_file_seeds),
    Decoder(
        "broker-conf",
        _broker_conf,
        lambda _: [b"brokerName = a\nflushDiskType=SYNC_FLUSH\n#c\ndeleteWhen:04;\\\n 05\n"],
    ),
    Decoder("sql92", _sql92, lambda _: [b"\x05" + text.encode() for text in FILTERS]),
    Decoder("ledgers", _ledgers, _ledger_seeds),
    Decoder("options", _options, _option_seeds),
    Decoder("archives", _archives, _archive_seeds),
)

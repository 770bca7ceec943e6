# SPDX-License-Identifier: Apache-2.0
"""The decoders that get bytes and texts, each with its oracle: mostly the readable twin of a fast path."""

from __future__ import annotations

import json
import struct
import tarfile
import warnings
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

import lz4.frame
import numpy as np
import pyarrow as pa
import zstandard

from store_core.answers.repair_plan import RepairPlan, SignedPlan, plan_digest
from store_core.broker import (
    ConsumerFilterManager,
    ConsumerOffsetManager,
    DelayOffsetTable,
    SubscriptionGroupManager,
    TopicConfigManager,
)
from store_core.broker.config_file import write_config
from store_core.errors import CorruptRecordError, FilterError, StoreError
from store_core.files.archive_listing import archive_at, archive_segments
from store_core.files.file_system import OsFileSystem
from store_core.files.storage import StorageSettings, parse_url
from store_core.files.store_path import places_of
from store_core.format.columnar.chain import scan
from store_core.format.columnar.records import Decoding, Records, decode_records
from store_core.format.columns import COLUMNS, STORE
from store_core.format.compression import expand_body
from store_core.format.filter.sql92_columns import evaluate_maps
from store_core.format.filter.sql92_parser import Sql92Expression
from store_core.format.java import hash_code, parse_java_int
from store_core.format.layout import CompressionType
from store_core.format.properties import PropertyParser, decode_text, parse_properties
from store_core.format.record.decode import decode_items, decode_message, unwrap_inner_batch
from store_core.format.record.scan import (
    Framing,
    Scan,
    follow_frames,
    format_host,
    is_message_id,
    position_of_message_id,
)
from store_core.format.release import RELEASES, Release
from store_core.format.salvage import find_log_end
from store_core.format.segment_view import SegmentView
from store_core.queue.consume_queue_unit import (
    BATCH_UNIT_DTYPE,
    CQ_STORE_UNIT_SIZE,
    UNIT_DTYPE,
    CqUnit,
    are_valid,
    count_leading,
)
from store_core.queue.dispatch.rocketmq_check import Strictness
from store_core.queue.index_file import IndexFile
from store_core.queue.queue_path import QueueRules
from store_core.queue.rocksdb_queues import parse_bound_key, unit_key
from store_core.queue.store_entry import FAMILIES, is_place
from store_core.snapshot.config import checkpoint_fields
from store_core.snapshot.config_json import parse_config
from store_core.snapshot.timers import TIMER_DTYPE, TimerChains, due_times, timer_units
from store_core.store.export.export_ledger import ExportEntry
from store_core.store.message_store_config import BrokerConfig, MessageStoreConfig, parse_properties_file
from store_core.store.read.follow.log_segments import LogPosition
from store_core.store.read.read_options import ReadOptions
from store_core.store.sink.commit import CommitLedger
from store_core.store.store_state import StoreCheckpoint
from tests.fuzz.seeds import golden_pieces, golden_records, index_files, small_log
from tests.fuzz.target import Decoder, Finding, Judge, expect, refused
from tests.golden_stores import message_rows, table_rows
from tests.store_core.fakes import FakeClock
from tests.store_core.queue.dispatch_logs import DELAYS, assert_reads_as_loop
from tests.strategies import Log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_COUNTED: Final = (CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD)
_MOST_EXPANDED: Final = 1 << 20
_TEXT: Final = b"the body of a message, " * 40
_INDEX_RULES: Final = QueueRules(max_hash_slot_num=10, max_index_num=40)


_COLUMNS: Final = [column.name for column in COLUMNS if column.name != STORE]
_DATES: Final = range(-62_135_596_800_000, 253_402_300_800_000)
"""Milliseconds of which Python has dates, so that rows can be compared."""


def _expect_same_scan(expected: Scan, found: Scan) -> None:
    """Compare the starts of records as the definition finds them with those of the fast walk."""
    expect(expected.starts.tolist(), found.starts.tolist(), "starts of records")
    expect((expected.stop, expected.reason), (found.stop, found.reason), "end of the chain")


def _expect_same_rows(raw: np.ndarray, view: memoryview, starts: np.ndarray, parser: PropertyParser) -> None:
    """Compare the rows of a batch with the records decoded one by one."""
    messages, faulty = [], []
    for start in starts.tolist():
        try:
            messages.append(decode_message(view, start, parser=parser))
        except (CorruptRecordError, ValueError):
            faulty.append(start)
    decoded = decode_records(Records(raw, starts, "0" * 20, 0, parser), _COLUMNS, Decoding())
    expect(faulty, [fault.position for fault in decoded.faults], "records that can't be decoded")
    if all(message.store_timestamp in _DATES and message.born_timestamp in _DATES for message in messages):
        expect(message_rows(messages, "0" * 20), table_rows(decoded.batch), "rows")


def _head(data: bytes) -> tuple[int, bytes]:
    """Take the first byte, which chooses among several ways to decode the others."""
    return (data[0], data[1:]) if data else (0, b"")


def _in_memory(judge: Judge) -> Callable[[Path], Judge]:
    """Let a function judge inputs without a directory for files."""
    return lambda _: judge


@_in_memory
def _records(data: bytes) -> None:
    raw, view = np.frombuffer(data, np.uint8), memoryview(data)
    found = scan(raw)
    _expect_same_scan(follow_frames(view), found)
    for parser in PropertyParser:
        _expect_same_rows(raw, view, found.starts, parser)


@_in_memory
def _entries(data: bytes) -> None:
    raw = np.frombuffer(data, np.uint8)
    _expect_same_scan(follow_frames(memoryview(data), framing=Framing.ENTRIES), scan(raw, framing=Framing.ENTRIES))


@_in_memory
def _requests(data: bytes) -> None:
    """What queues and index get of a log: by RocketMQ's definition and in columns."""
    choice, log = _head(data)
    rules = QueueRules(
        release=RELEASES[choice % len(RELEASES)], delay_levels=DELAYS, verify_property_crc=choice >= 1 << 7
    )
    checks = Strictness(bool(choice & 16), bool(choice & 32), bool(choice & 64))
    try:
        assert_reads_as_loop(Log(log, 0, []), 0, rules, checks, 3)
    except AssertionError as error:
        raise Finding(f"the reader is unlike the loop: {error}") from error


@_in_memory
def _log_ends(data: bytes) -> None:
    raw = np.frombuffer(data, np.uint8)
    for verify_crc in (False, True):
        end = find_log_end(SegmentView.of(raw), verify_crc=verify_crc)
        if not 0 <= end.position <= len(data) or end.stale >= len(data):
            raise Finding(f"a log of {len(data)} bytes ends at {end.position}")


@_in_memory
def _batches(data: bytes) -> None:
    with refused(ValueError):
        if sum(len(each.body) for each in unwrap_inner_batch(data)) > len(data):
            raise Finding("more bytes than there are")
    with refused(ValueError):
        if sum(len(body) + len(properties) for _, body, properties in decode_items(data)) > len(data):
            raise Finding("more bytes than there are")


@_in_memory
def _bodies(data: bytes) -> None:
    """A body expands to what was compressed, to no more than the bound, or is refused."""
    choice, body = _head(data)
    kind, limit = _COUNTED[choice % len(_COUNTED)], 10 if choice >= 1 << 7 else _MOST_EXPANDED
    with refused(ValueError):
        found = expand_body(body, kind, limit)
        if len(found) > limit:
            raise Finding(f"{len(found)} bytes, more than {limit}")
        if kind is CompressionType.ZLIB and body[:2] == zlib.compress(_TEXT)[:2] and len(found) == len(_TEXT):
            expect(_TEXT, found, "a body with a checksum")


def _body_seeds(_: Path) -> list[bytes]:
    kinds = (zlib.compress, lz4.frame.compress, zstandard.ZstdCompressor(write_checksum=True).compress)
    bodies = (_TEXT, bytes(_MOST_EXPANDED))
    return [bytes([number]) + pack(body) for body in bodies for number, pack in enumerate(kinds)]


def _batch_seeds(_: Path) -> list[bytes]:
    return [
        b"".join(
            struct.pack(">iiiii", 0, 0, 0, flag, 5) + b"body!" + struct.pack(">h", 6) + b"a\x01b\x02c\x01"
            for flag in range(6)
        )
    ]


@_in_memory
def _properties(data: bytes) -> None:
    decoded = decode_text(data)
    for parser in PropertyParser:
        found = parse_properties(decoded, parser)
        if parser is PropertyParser.FIRST_SEPARATOR and not all(name and value for name, value in found.items()):
            raise Finding(f"an empty name or value: {found}")
    hash_code(decoded)


_NUMBERS: Final = (b"12", b"-9223372036854775808", b"+07", b"C0A8010200002A9F" * 2)


@_in_memory
def _numbers(data: bytes) -> None:
    choice, rest = _head(data)
    text, bits = rest.decode("utf-8", "replace"), (16, 32, 64)[choice % 3]
    with refused(ValueError):
        value = parse_java_int(text, bits)
        if not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise Finding(f"{text!r} is {value} in {bits} bits")
    if is_message_id(text):
        position_of_message_id(text)
    host = data.ljust(20, b"\0")
    format_host(host[: 4 if choice & 1 else 16], int.from_bytes(host[-4:], signed=True))


@_in_memory
def _units(data: bytes) -> None:
    units = np.frombuffer(data[: len(data) // CQ_STORE_UNIT_SIZE * CQ_STORE_UNIT_SIZE], UNIT_DTYPE)
    rows = [CqUnit.of(units, index, index) for index in range(len(units))]
    invalid = [index for index, each in enumerate(rows) if each.physical_offset < 0 or each.store_size <= 0]
    expect(invalid[0] if invalid else len(rows), count_leading(units, are_valid), "units before the first invalid one")
    batches = np.frombuffer(
        data[: len(data) // BATCH_UNIT_DTYPE.itemsize * BATCH_UNIT_DTYPE.itemsize], BATCH_UNIT_DTYPE
    )
    if not 0 <= count_leading(batches, are_valid) <= len(batches):
        raise Finding("more units than there are")


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


@_in_memory
def _rocksdb_entries(data: bytes) -> None:
    choice, rest = _head(data)
    for parse in FAMILIES.values():
        parse(rest[choice:], rest[:choice])
    parse_bound_key(rest)
    is_place(rest)


def _rocksdb_seeds(_: Path) -> list[bytes]:
    entry = bytes(8) + b"orders@17@U@AC11" + bytes(8)
    return [b"\x08" + entry, b"\x0c" + bytes(12) + bytes(8) + b"AC11", b"\0" + unit_key("orders", 3, 9)]


@_in_memory
def _timers(data: bytes) -> None:
    found, _ = timer_units(np.frombuffer(data, np.uint8))
    if len(found) * found.dtype.itemsize > len(data):
        raise Finding("more units than bytes")
    due_times(found)
    TimerChains.of(np.arange(len(found), dtype=np.int64) * found.dtype.itemsize, found)


def _timer_seeds(_: Path) -> list[bytes]:
    units = np.zeros(6, TIMER_DTYPE)
    units["magic"], units["size"], units["previous_position"] = 1, units.itemsize, np.arange(-1, 5) * units.itemsize
    return [units.tobytes()]


@_in_memory
def _json(data: bytes) -> None:
    with refused(StoreError):
        _judge_json(data)


def _judge_json(data: bytes) -> None:
    """Parse near-JSON, write it, and compare what is read of that."""
    value = parse_config(data, "config.json")
    text = write_config(value)
    if "\\ud" not in text:
        expect(_without_nulls(value), parse_config(text.encode("utf-8", "replace"), "again"), "what was written of it")


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 -- any value of JSON
    """Return a value without members that are null, which brokers do not write."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _json_seeds(_: Path) -> list[bytes]:
    return [json.dumps(each).encode() for each in _BROKER_CONFIGS.values()] + [b'{"offsetTable":{"a@b":{0:5,1:-7}}}']


_BROKER_CONFIGS: Final[dict[str, Any]] = {
    "topics.json": {
        "dataVersion": {"counter": 3, "timestamp": 1700000000000, "stateVersion": 0},
        "topicConfigTable": {
            "orders": {"attributes": {"+message.type": "NORMAL"}, "order": False, "perm": 6, "readQueueNums": 4,
                       "topicFilterType": "SINGLE_TAG", "topicName": "orders", "topicSysFlag": 0, "writeQueueNums": 4},
        },
    },
    "consumerOffset.json": {"offsetTable": {"orders@billing": {"0": 5, "1": 7}}, "groupTopicMap": {}},
    "subscriptionGroup.json": {
        "subscriptionGroupTable": {"g": {"groupName": "g", "consumeEnable": True, "retryMaxTimes": 16, "brokerId": 0}},
        "forbiddenTable": {"g": {"orders": 3}},
    },
    "delayOffset.json": {"offsetTable": {"1": 5, "18": 9}},
    "consumerFilter.json": {
        "filterDataByTopic": {"orders": {"topic": "orders", "groupFilterData": {"g": {
            "bloomFilterData": {"bitNum": 20, "bitPos": [1, 5, 9]}, "bornTime": 1, "clientVersion": 2,
            "consumerGroup": "g", "deadTime": 0, "expression": "a > 5",
            "expressionType": "SQL92", "topic": "orders"}}}},
    },
}  # fmt: skip


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
    return [bytes([number]) + json.dumps(_BROKER_CONFIGS[name]).encode() for number, name in enumerate(_MANAGERS)]


def _broker_conf(directory: Path) -> Judge:
    path = directory / "broker.conf"

    def judge(data: bytes) -> None:
        parse_properties_file(data)
        path.write_bytes(data)
        for kind in (MessageStoreConfig, BrokerConfig):
            with refused(StoreError):
                kind.from_properties(path)

    return judge


_MAPS: Final[list[dict[str, str]]] = [
    {}, {"a": "5"}, {"a": "-7", "b": "x"}, {"a": "1.5", "TAGS": "t"}, {"b": "it's", "c": "true"}, {"a": "9" * 30},
    {"a": "", "b": " 5"}, {"a": "NaN", "c": "1e400"},
]  # fmt: skip
_TABLE: Final = pa.array([list(each.items()) for each in _MAPS], pa.map_(pa.string(), pa.string()))
_SQL: Final = (
    " AND ", " OR ", "NOT ", "(", ")", "a", "b", "TAGS", "5", "-1", "9223372036854775808", "1.5e3", "'x'", "'it''s'",
    " IS NULL", " IS NOT NULL", " BETWEEN 1 AND 9", " IN ('x','y')", "=", "<>", ">", "<=", "TRUE", "NULL", " CONTAINS ",
    "STARTSWITH 'x'", "/*", "*/", "--", "\n", "+", "-", "(" * 500, "NOT " * 500, "a=1 AND " * 200, "$", "0x1", "1l",
)  # fmt: skip
_FILTERS: Final = (
    "a > 5 AND (b = 'x' OR c IS NULL)", "TAGS IN ('t', 'u') AND a BETWEEN -3 AND 9.5", "NOT (a <= 3) OR b <> 'it''s'",
    "b CONTAINS 'x' AND a = -7", "c = TRUE OR a IS NOT NULL",
)  # fmt: skip


def _judge_filter(text: str, release: Release) -> None:
    """Compile an expression, and compare its verdicts on messages one by one with those on columns."""
    expression = Sql92Expression(text, release)
    found = evaluate_maps(expression, _TABLE)
    scalar = [_verdict(expression, each) for each in _MAPS]
    expect([each is True for each in scalar], np.asarray(found.matches).tolist(), "messages that match")
    expect(scalar.count("error"), found.error_count, "messages that fail")


def _verdict(expression: Sql92Expression, properties: dict[str, str]) -> bool | str | None:
    try:
        return expression.evaluate(properties)
    except FilterError:
        return "error"


@_in_memory
def _sql92(data: bytes) -> None:
    choice, text = _head(data)
    with refused(FilterError):
        _judge_filter(text.decode("utf-8", "replace"), RELEASES[choice % len(RELEASES)])


def _ledgers(directory: Path) -> Judge:
    """Ledgers of appends and exports, plans of repairs, positions of streams."""
    ledger, plan = CommitLedger(directory, OsFileSystem()), directory / "plan.json"

    def judge(data: bytes) -> None:
        choice, text = _head(data)
        with refused(StoreError):
            if choice % 4 == 0:
                ledger.path_of("s").write_bytes(text)
                ledger.entry("s")
            elif choice % 4 == 1:
                ExportEntry.parse(text.decode("utf-8", "replace"), directory / "0.json")
            elif choice % 4 == 2:
                plan.write_bytes(_signed(text))
                SignedPlan.read(plan)
            else:
                try:
                    place = json.loads(text)
                except (ValueError, RecursionError):
                    place = None
                LogPosition.from_json(place)

    return judge


def _signed(data: bytes) -> bytes:
    """Return a changed plan with the digest of what it says now, if it is still JSON."""
    try:
        plan = json.loads(data)
        return json.dumps({**plan, "digest": plan_digest(plan)}).encode()
    except (ValueError, RecursionError, TypeError):
        return data


def _ledger_seeds(_: Path) -> list[bytes]:
    record = dict.fromkeys(("physicalOffset", "size", "storeTimestamp", "headCrc"), 7)
    place = {"physicalOffset": 90, "segment": "0" * 20, "lastRecord": record, "anchorRecords": [record]}
    entry = {
        "transaction": {"sender": "s", "number": 4}, "is_committed": True, "left_out": 0,
        "appended": {"first_offset": 0, "end_offset": 500, "records": 3},
    }  # fmt: skip
    file = {"path": "topic=a/day=2026-01-01/0-9.parquet", "staged": "0" * 32 + ".parquet"}
    export = {
        "schema": "commitlog-export-entry/1", "number": 1, "begin": place, "end": place, "topics": ["a"],
        "segments": [], "files": [file], "damaged_ranges": 0, "damaged_bytes": 0, "lost_bytes": 0, "previous": "",
    }  # fmt: skip
    plan = {
        "schema": RepairPlan.SCHEMA.name, "tables": {each.name: [{"what": "x"}] for each in RepairPlan.SCHEMA.tables},
        "release": "5.5", "config": None, "store_path_commit_log": None,
        "check_crc": True, "batch_topic": ["b"], "hash_slot_num": 100, "index_num": 400, "max_queues": None,
    }  # fmt: skip
    return [bytes([number]) + json.dumps(each).encode() for number, each in enumerate((entry, export, plan, place))]


_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "columns": ("topic,body", "topic"), "topic": ("orders,payments",), "topics_pattern": ("ord.*|pay[a-z]+",),
    "queue_id": ("0,1", "3"), "tag": ("a||b", "*"), "key": ("k1",), "msg_id": ("C0A8010200002A9F0000000000000010",),
    "physical_offset": ("4096",), "filter": ("a > 5", "a||b"), "filter_type": ("SQL92", "TAG"),
    "starting_offsets": ("earliest", '{"orders":{"0":12}}', "500"), "ending_offsets": ("latest", '{"t":{"1":-1}}'),
    "starting_timestamp": ("2026-01-01T00:00:00Z", "1700000000000"), "as_of": ("2026-01-01 00:00",),
    "time_zone": ("Asia/Shanghai", "+08:00"), "max_partition_bytes": ("64m", "1048576"), "min_partitions": ("7",),
    "max_records_per_batch": ("1000",), "mode": ("PERMISSIVE",), "verify_crc": ("true",), "release": ("5.5", "4.3"),
    "use_consume_queues": ("auto",), "decompress": ("false",),
}  # fmt: skip


@_in_memory
def _options(data: bytes) -> None:
    """An option with any text, beside two others."""
    names = list(_OPTIONS)
    choice, others, text = (*data[:2].ljust(2, b"\0"), data[2:])
    chosen: Any = {names[each % len(names)]: _OPTIONS[names[each % len(names)]][0] for each in (others, others // 7)}
    chosen[names[choice % len(names)]] = text.decode("utf-8", "replace")
    with refused(StoreError), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # Python's about a user's regular expression
        ReadOptions.parse(**chosen)


def _option_seeds(_: Path) -> list[bytes]:
    return [bytes([number, number]) + text.encode() for number, texts in enumerate(_OPTIONS.values()) for text in texts]


@_in_memory
def _urls(data: bytes) -> None:
    """Texts that say where a store is; nothing is opened, and no setting is ever shown."""
    secret = "s3cr4711t"  # noqa: S105 -- of nothing
    name, _, text = data.decode("utf-8", "replace").partition("\n")
    with refused(StoreError):
        settings = StorageSettings.of({name: secret, "region": text})
        if secret in repr(settings) or secret in str(settings):
            raise Finding("a setting is shown")
        try:
            parse_url(text, settings)
            settings.check_names(("region",))
        except StoreError as error:
            if secret in str(error):
                raise Finding(f"an error shows a setting: {error}") from error
    if "\0" not in text and "://" not in text:
        with refused(StoreError):
            places_of(text)


def _url_seeds(directory: Path) -> list[bytes]:
    urls = (
        "s3://bucket/store", "hdfs://host:8020/a/b", "gs://b/x?y=1", "abfss://c@a.dfs.core.windows.net/s", "memory://x",
        "file:///tmp/x", f"{directory}/store,{directory}/other", "s3://key:secret@bucket/p", "github://a:b@sha/p",
    )  # fmt: skip
    return [f"access_key\n{url}".encode() for url in urls]


def _archives(directory: Path) -> Judge:
    """The headers of an archive lead to segments inside of it."""
    path = directory / "store.tar"

    def judge(data: bytes) -> None:
        path.write_bytes(data)
        with refused(StoreError):
            for segment in archive_segments(archive_at(path), []):
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


def _every(step: int) -> Callable[[bytes], range]:
    return lambda data: range(0, len(data), step)


def _frames(data: bytes) -> list[int]:
    starts: list[int] = scan(np.frombuffer(data, np.uint8)).starts.tolist()
    return starts


_DEEP: Final = "[" * 3000
_JSON: Final = (
    "{", "}", "[", "]", ":", ",", '"', "null", "true", "1", "-0", "1e5", '{"a":', _DEEP, '{"a":' * 1500, "\\u0000",
    "\\ud800", "0",
)  # fmt: skip
_PROPERTY_PIECES: Final = ("\x01", "\x02", "TAGS", "KEYS", "UNIQ_KEY", "", "é", "\ufffd", "__CRC32#", " ")
_CONF: Final = (
    "brokerName = a\nflushDiskType=SYNC_FLUSH\nmappedFileSizeCommitLog=1048576\ndeleteWhen=04;\\\n 05\n"
    "fileReservedTime:48\nmaxMessageSize=65536\n# c\nenableConsumeQueueExt=true\nstorePathRootDir=/x\n"
)
_CONF_PIECES: Final = ("=", ":", "\\", "\n", "\r", "\\u00", "\\u0041", "true", "-1", "#", "!", "\t", "1" * 5000)
_OPTION_PIECES: Final = (
    ",", "{", "}", '"', ":", "latest", "-1", "(", "[", "*", "+", "\\", ".", "T", "Z", "m", "g", "٣", _DEEP,
)  # fmt: skip
_URL_PIECES: Final = (
    "://", "/", "@", ":", "?", "#", "%2f", "%", "..", ",", "[", "]", " ", "s3", "file:", "\\", "//", "~", "-", ".",
)  # fmt: skip

DECODERS: Final = (
    Decoder("records", _records, lambda directory: [small_log()[0], *golden_records(directory)], 60_000, 60,
            edges=_frames),
    Decoder("dledger-entries", _entries, lambda directory: golden_records(directory, "dledger"), 120_000, 300),
    Decoder("dispatch-requests", _requests, lambda directory: [b"\x34" + each for each in golden_records(directory)]),
    Decoder("log-ends", _log_ends, golden_records),
    Decoder("inner-batches", _batches, _batch_seeds, 160_000, 500, edges=_every(33)),
    Decoder("bodies", _bodies, _body_seeds, 140_000, 300, edges=lambda data: (1, 3, 5, 7, len(data) - 4)),
    Decoder("properties", _properties, lambda _: ["TAGS\x01a b\x02KEYS\x01k1 k2\x02é\x01日本\x02".encode()],
            180_000, 500, _PROPERTY_PIECES),
    Decoder("numbers", _numbers, lambda _: [b"\0" + each for each in _NUMBERS], 110_000, 500, "0٣x-+", 1),
    Decoder("queue-units", _units, lambda directory: golden_pieces(directory, "consumequeue", 20), edges=_every(20)),
    Decoder("batch-queue-units", _units, lambda directory: golden_pieces(directory, "batchconsumequeue", 46),
            edges=_every(46)),
    Decoder("index-files", _index, _of_index, in_slice=60),
    Decoder("checkpoints", _checkpoints, lambda _: [bytes(48), bytes(range(48))], in_slice=60, edges=_every(8)),
    Decoder("rocksdb-entries", _rocksdb_entries, _rocksdb_seeds, 60_000, 300, edges=lambda _: (0, 1, 4, 5)),
    Decoder("timers", _timers, _timer_seeds, 60_000, 300, edges=_every(TIMER_DTYPE.itemsize)),
    Decoder("json", _json, _json_seeds, 60_000, 300, _JSON),
    Decoder("broker-files", _broker_files, _broker_file_seeds, 25_000, 200, _JSON, 1),
    Decoder("broker-conf", _broker_conf, lambda _: [_CONF.encode()], 12_000, 50, _CONF_PIECES),
    Decoder("sql92", _sql92, lambda _: [b"\x05" + text.encode() for text in _FILTERS], 30_000, 150, _SQL, 1),
    Decoder("ledgers-and-plans", _ledgers, _ledger_seeds, 30_000, 200, _JSON, 1),
    Decoder("options", _options, _option_seeds, 40_000, 300, _OPTION_PIECES, 2),
    Decoder("urls", _urls, _url_seeds, 50_000, 300, _URL_PIECES),
    Decoder("archive-headers", _archives, _archive_seeds, 6_000, 15, edges=_every(512)),
)  # fmt: skip

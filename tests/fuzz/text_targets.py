# SPDX-License-Identifier: Apache-2.0
"""Decoders of texts: configuration, ledgers, plans, filters, options, URLs, settings."""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from store_core.answers.repair_plan import RepairPlan, SignedPlan, plan_digest
from store_core.broker import (
    ConsumerFilterManager,
    ConsumerOffsetManager,
    DelayOffsetTable,
    SubscriptionGroupManager,
    TopicConfigManager,
)
from store_core.broker.config_file import write_config
from store_core.errors import FilterError, StoreError
from store_core.files.file_system import OsFileSystem
from store_core.files.storage import StorageSettings, parse_url
from store_core.files.store_path import places_of
from store_core.format.filter.sql92_columns import evaluate_maps
from store_core.format.filter.sql92_expression import Sql92Expression
from store_core.format.release import RELEASES, Release
from store_core.snapshot.config_json import parse_config
from store_core.store.broker_config import BrokerConfig, parse_properties_file
from store_core.store.export.export_ledger import ExportEntry
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.read.follow.log_position import LogPosition
from store_core.store.read.read_options import ReadOptions
from store_core.store.sink.commit_ledger import CommitLedger
from tests.fuzz.mutation import mutate_bytes, mutate_text
from tests.fuzz.target import Case, Finding, Target, expect, refused
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random


_DEEP: Final = "[" * 3000
_JSON: Final = (
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    '"',
    "null",
    "true",
    "1",
    "-0",
    "1e5",
    '{"a":',
    _DEEP,
    '{"a":' * 1500,
    "\\u0000",
    "\\ud800",
    "0",
)


def _json_text(random: Random, seed: str) -> bytes:
    data = bytearray(mutate_text(random, seed, _JSON).encode("utf-8", "surrogatepass"))
    if random.random() < 0.2:
        mutate_bytes(random, data)
    return bytes(data)


BROKER_CONFIGS: Final[dict[str, Any]] = {
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


def _json(_: Path) -> Case:
    """What is accepted is written and read back as the same."""
    seeds = [json.dumps(each) for each in BROKER_CONFIGS.values()] + ['{"offsetTable":{"a@b":{0:5,1:-7}}}']

    def run(random: Random) -> None:
        with refused(StoreError):
            judge_json(_json_text(random, random.choice(seeds)))

    return run


def judge_json(data: bytes) -> None:
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


def _managers(directory: Path) -> Case:
    """A broker's files are loaded, or refused by name, and so is the backup."""
    kinds: dict[str, Any] = {
        "topics.json": TopicConfigManager, "consumerOffset.json": ConsumerOffsetManager,
        "subscriptionGroup.json": SubscriptionGroupManager, "delayOffset.json": DelayOffsetTable,
        "consumerFilter.json": ConsumerFilterManager,
    }  # fmt: skip
    (directory / "config").mkdir()

    def run(random: Random) -> None:
        name = random.choice(list(kinds))
        (directory / "config" / name).write_bytes(_json_text(random, json.dumps(BROKER_CONFIGS[name])))
        manager = kinds[name](directory, clock=FakeClock())
        with refused(StoreError):
            manager.load()
            manager.text()

    return run


def _broker_conf(directory: Path) -> Case:
    text = (
        "brokerName = a\nflushDiskType=SYNC_FLUSH\nmappedFileSizeCommitLog=1048576\ndeleteWhen=04;\\\n 05\n"
        "fileReservedTime:48\nmaxMessageSize=65536\n# c\nenableConsumeQueueExt=true\nstorePathRootDir=/x\n"
    )
    pieces = ("=", ":", "\\", "\n", "\r", "\\u00", "\\u0041", "true", "-1", "#", "!", "\t", "1" * 5000)

    def run(random: Random) -> None:
        data = mutate_text(random, text, pieces).encode("utf-8", "surrogatepass")
        parse_properties_file(data)
        path = directory / "broker.conf"
        path.write_bytes(data)
        for kind in (MessageStoreConfig, BrokerConfig):
            with refused(StoreError):
                kind.from_properties(path)

    return run


def _ledgers(directory: Path) -> Case:
    """Ledgers of appends and exports, plans of repairs, positions of streams."""
    ledger = CommitLedger(directory, OsFileSystem())
    entry = json.dumps({
        "transaction": {"sender": "s", "number": 4}, "is_committed": True, "left_out": 0,
        "appended": {"first_offset": 0, "end_offset": 500, "records": 3},
    })  # fmt: skip
    record = dict.fromkeys(("physicalOffset", "size", "storeTimestamp", "headCrc"), 7)
    place = {"physicalOffset": 90, "segment": "0" * 20, "lastRecord": record, "anchorRecords": [record]}
    position = json.dumps(place)
    file = {"path": "topic=a/day=2026-01-01/0-9.parquet", "staged": "0" * 32 + ".parquet"}
    export = json.dumps({
        "schema": "commitlog-export-entry/1", "number": 1, "begin": place, "end": place, "topics": ["a"],
        "segments": [], "files": [file], "damaged_ranges": 0, "damaged_bytes": 0, "lost_bytes": 0, "previous": "",
    })  # fmt: skip
    tables = {each.name: [{"what": "x"}] for each in RepairPlan.SCHEMA.tables}
    plan = {
        "schema": RepairPlan.SCHEMA.name, "tables": tables, "release": "5.5", "config": None,
        "store_path_commit_log": None,
        "check_crc": True, "batch_topic": ["b"], "hash_slot_num": 100, "index_num": 400, "max_queues": None,
    }  # fmt: skip
    signed = json.dumps({**plan, "digest": plan_digest(plan)})

    def run(random: Random) -> None:
        kind = random.randrange(4)
        with refused(StoreError):
            if kind == 0:
                ledger.path_of("s").write_bytes(_json_text(random, entry))
                ledger.entry("s")
            elif kind == 1:
                text = _json_text(random, export).decode("utf-8", "replace")
                ExportEntry.parse(text, directory / "0.json")
            elif kind == 2:
                (directory / "plan.json").write_bytes(_signed(_json_text(random, signed)))
                SignedPlan.read(directory / "plan.json")
            else:
                try:
                    found = json.loads(_json_text(random, position))
                except (ValueError, RecursionError):
                    found = None
                LogPosition.from_json(found)

    return run


def _signed(data: bytes) -> bytes:
    """Return a changed plan with the digest of what it says now, if it is still JSON."""
    try:
        plan = json.loads(data)
        return json.dumps({**plan, "digest": plan_digest(plan)}).encode()
    except (ValueError, RecursionError, TypeError):
        return data


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
FILTERS: Final = (
    "a > 5 AND (b = 'x' OR c IS NULL)", "TAGS IN ('t', 'u') AND a BETWEEN -3 AND 9.5", "NOT (a <= 3) OR b <> 'it''s'",
    "b CONTAINS 'x' AND a = -7", "c = TRUE OR a IS NOT NULL",
)  # fmt: skip


def _sql92(_: Path) -> Case:
    """What compiles has one verdict, message by message and in columns."""

    def run(random: Random) -> None:
        text = mutate_text(random, random.choice(FILTERS), _SQL)
        with refused(FilterError):
            judge_filter(text, random.choice(RELEASES))

    return run


def judge_filter(text: str, release: Release) -> None:
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


def _options(_: Path) -> Case:
    pieces = (",", "{", "}", '"', ":", "latest", "-1", "(", "[", "*", "+", "\\", ".", "T", "Z", "m", "g", "٣", _DEEP)

    def run(random: Random) -> None:
        names = random.sample(list(_OPTIONS), random.choice((1, 1, 2, 3)))
        chosen: Any = {name: random.choice(_OPTIONS[name]) for name in names}
        chosen[names[0]] = mutate_text(random, chosen[names[0]], pieces)
        with refused(StoreError), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # Python's about a user's regular expression
            ReadOptions.parse(**chosen)

    return run


def _urls(directory: Path) -> Case:
    """Texts that say where a store is; nothing is opened, and no setting is ever shown."""
    seeds = (
        "s3://bucket/store", "hdfs://host:8020/a/b", "gs://b/x?y=1", "abfss://c@a.dfs.core.windows.net/s", "memory://x",
        "file:///tmp/x", f"{directory}/store,{directory}/other", "s3://key:secret@bucket/p", "github://a:b@sha/p",
    )  # fmt: skip
    pieces = ("://", "/", "@", ":", "?", "#", "%2f", "%", "..", ",", "[", "]", " ", "s3", "file:", "\\", "//", "~")

    def run(random: Random) -> None:
        text = mutate_text(random, random.choice(seeds), pieces)
        secret = f"s3cr{random.getrandbits(40)}t"
        with refused(StoreError):
            settings = StorageSettings.of({mutate_text(random, "access_key", ("-", "", ".")): secret, "region": text})
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

    return run


TEXT_TARGETS: Final = (
    Target("json", _json, 60_000, 300),
    Target("broker-files", _managers, 25_000, 200),
    Target("broker-conf", _broker_conf, 12_000, 50),
    Target("ledgers-and-plans", _ledgers, 30_000, 200),
    Target("sql92", _sql92, 30_000, 150),
    Target("options", _options, 40_000, 300),
    Target("urls", _urls, 50_000, 300),
)

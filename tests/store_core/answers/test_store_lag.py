# SPDX-License-Identifier: Apache-2.0
"""Lag is what is in a queue from the committed offset on: never negative, never guessed."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from store_core import (
    InvalidOptionError,
    RebuildOptions,
    StoreNotFoundError,
    UnsupportedStoreError,
    read_messages,
    read_view,
    rebuild_consume_queue,
)
from store_core.answers import Info, Lag, LagReport, bill, dead_letters, lag, retention, transactions
from store_core.answers.lag_queues import GroupKind
from store_core.answers.report import Verdict
from store_core.files.file_system import OpenFile, OsFileSystem
from store_core.files.store_lock import StoreLock
from store_core.format.columns import iso_time
from store_core.snapshot.config import CONSUMER_OFFSETS, SUBSCRIPTION_GROUPS, TOPICS
from tests.builders import LogBuilder
from tests.golden_stores import find_golden_store, newer_store, unpack
from tests.viewed_store import write_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


NAMES = ["4.9.7/ipv6", "5.3.3/propcrc", "5.3.3/bcq", "5.3.3/lmq", "5.5.0/rocksdb-crash"]
COLUMNS = ["topic", "queue_id", "queue_offset", "physical_offset", "store_size", "batch_num", "is_filler"]
NOW = 2_000_000_000_000


@pytest.fixture
def store(viewed: Path) -> Path:
    return viewed


def rows(report: LagReport, table: str = "queues") -> list[dict[str, Any]]:
    return report.to_json()["tables"][table]  # type: ignore[no-any-return]


def by_queue(report: LagReport) -> dict[tuple[str, str, int], dict[str, Any]]:
    return {(row["consumer_group"], row["topic"], row["queue_id"]): row for row in rows(report)}


def commit(root: Path, offsets: Mapping[str, Mapping[int, int]], name: str = "consumerOffset.json") -> None:
    write_config(root, name, json.dumps({"offsetTable": offsets}))


# ---- against the rows of the store


def golden(name: str, directory: Path, tmp_path: Path) -> Path:
    """Copy a store, with offsets of three groups at the beginning, in the middle and near the end of each queue."""
    found = newer_store(name) if "rocksdb" in name else find_golden_store(name)
    assert found is not None
    root = shutil.copytree(unpack(found, directory).root, tmp_path / "store")
    offsets: dict[str, dict[int, int]] = {}
    for row in read_view(root, "topics").read_all().to_pylist():
        if row["queue_id"] is not None and "@" not in row["topic"]:
            span = row["max_offset"] - row["min_offset"]
            for group, share in (("first", 0.0), ("middle", 0.5), ("last", 0.9)):
                place = offsets.setdefault(f"{row['topic']}@{group}", {})
                place[row["queue_id"]] = row["min_offset"] + int(span * share)
    commit(root, offsets)
    return root


def units(root: Path, *, is_rocksdb: bool) -> list[dict[str, Any]]:
    """Return all units, and for a RocksDB what only the log has."""
    if not is_rocksdb:
        found = read_view(root, "consumequeue", COLUMNS).read_all().to_pylist()
        return [row for row in found if not row["is_filler"]]
    names = [*COLUMNS[:5], "transaction_type"]
    messages = read_messages(root, columns=names).read_all().to_pylist()
    return [row | {"batch_num": 1} for row in messages if row["transaction_type"] in ("NOT_TYPE", "COMMIT_TYPE")]


@pytest.mark.golden
@pytest.mark.parametrize("share", [None, 0.4])
@pytest.mark.parametrize("name", NAMES)
def test_lag_is_what_the_units_from_the_committed_offset_on_say(
    name: str, share: float | None, golden_directory: Path, tmp_path: Path
) -> None:
    root = golden(name, golden_directory, tmp_path)
    log = read_messages(root, columns=["physical_offset", "store_timestamp"]).read_all()
    positions = log["physical_offset"].to_pylist()
    times = [each // 1000 for each in log["store_timestamp"].cast("int64").to_pylist()]
    time = None if share is None else times[int(share * len(times))]
    stored = dict(zip(positions, times, strict=True))
    end = next((at for at, when in stored.items() if time is not None and when >= time), 2**62)
    known = [row for row in units(root, is_rocksdb="rocksdb" in name) if row["physical_offset"] < end]

    found = by_queue(lag(root, as_of=time))

    assert {group for group, _, _ in found} >= {"first", "middle", "last"}
    for (_, topic, queue_id), row in found.items():
        left = [
            each
            for each in known
            if (each["topic"], each["queue_id"]) == (topic, queue_id)
            and each["queue_offset"] + each["batch_num"] > row["committed_offset"]
        ]
        assert row["state"] == "ok"
        assert sum(each["store_size"] for each in left) == row["bytes"]
        assert max((each["queue_offset"] + each["batch_num"] for each in left), default=0) == (
            row["max_offset"] if row["messages"] else 0
        )
        assert sum(each["batch_num"] for each in left) >= row["messages"] >= len(left)
        if left:
            oldest = stored[min(left, key=lambda each: each["queue_offset"])["physical_offset"]]
            assert iso_time(oldest) == row["oldest_store_timestamp"]


@pytest.mark.golden
@pytest.mark.parametrize("name", ["5.3.3/propcrc", "5.5.0/rocksdb-crash"])
def test_the_messages_not_consumed_are_listed_with_tags_and_keys(
    name: str, golden_directory: Path, tmp_path: Path
) -> None:
    root = golden(name, golden_directory, tmp_path)
    columns = ["physical_offset", "topic", "queue_id", "queue_offset", "tags", "keys", "unique_key", "born_host"]
    stored = {row["physical_offset"]: row for row in read_messages(root, columns=columns).read_all().to_pylist()}

    report = lag(root, group=("last",), messages=True, rows=10_000)
    listed = rows(report, "messages")

    assert report.found.messages == len(listed) > 40
    assert len(listed) < len(report.to_text(width=None).partition("Messages not consumed:")[2].splitlines())
    for row in listed:
        assert stored[row["physical_offset"]].items() <= row.items()
    assert listed[:7] == rows(lag(root, group=("last",), messages=True, rows=7), "messages")


# ---- offsets that are not within their queue


def test_an_offset_that_is_not_within_its_queue_is_named_and_nothing_is_negative(store: Path) -> None:
    commit(store, {"orders@a": {0: 31, 1: 30}, "gone@a": {0: 5, 1: 0}, "payments@b": {0: -7}})
    report = lag(store)
    found = by_queue(report)

    assert ("beyond_end", None, None) == tuple(found["a", "orders", 0][each] for each in ("state", "messages", "bytes"))
    assert ("ok", 0, 0) == tuple(found["a", "orders", 1][each] for each in ("state", "messages", "bytes"))
    assert ("no_queue", None) == tuple(found["a", "gone", 0][each] for each in ("state", "messages"))
    assert ("empty", 0) == tuple(found["a", "gone", 1][each] for each in ("state", "messages"))
    assert ("ok", 30) == tuple(found["b", "payments", 0][each] for each in ("state", "messages"))
    assert (0, 1, 1, 30) == (
        report.found.below_min, report.found.beyond_end, report.found.no_queue, report.found.messages,
    )  # fmt: skip
    assert Verdict.FINDINGS is report.verdict
    assert "1 offset is beyond the end of its queue: how far that group is behind is not known" in report.lines


def test_messages_that_were_deleted_do_not_count_as_behind(store: Path) -> None:
    first, second, *_ = sorted((store / "commitlog").iterdir())
    first.unlink()
    commit(store, {"orders@a": {0: 0}})
    row = by_queue(lag(store))["a", "orders", 0]
    left = read_messages(store, columns=["store_size"], topic="orders", queue_id=0).read_all()["store_size"].to_pylist()

    assert second.name == f"{4096:020d}"
    assert ("below_min", len(left), sum(left)) == (row["state"], row["messages"], row["bytes"])
    assert 0 < row["messages"] < 30
    assert row["oldest_offset"] == row["min_offset"] == 30 - len(left)


def test_a_queue_that_vanishes_while_it_is_looked_at_is_none(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = OsFileSystem.open

    def vanish(self: OsFileSystem, path: Path, *, create: bool = False, writable: bool = True) -> OpenFile:
        if "payments" in str(path):
            path.unlink(missing_ok=True)
        return original(self, path, create=create, writable=writable)

    monkeypatch.setattr(OsFileSystem, "open", vanish)
    commit(store, {"payments@a": {0: 3}, "orders@a": {0: 3, 1: 30}})
    found = by_queue(lag(store))

    assert ("no_queue", 27) == (found["a", "payments", 0]["state"], found["a", "orders", 0]["messages"])


def test_groups_and_queues_that_are_not_behind_do_not_count_as_behind(store: Path) -> None:
    commit(store, {"orders@a": {0: 10, 1: 30}, "payments@b": {0: 30}, "payments@c": {0: 30}})
    lines = lag(store).lines
    commit(store, {"payments@b": {0: 30}})

    assert lines[0].endswith("not consumed, by 1 of 3 groups in 1 queue")
    assert "no message is known to be left to consume, for 1 group" == lag(store).lines[0]


# ---- groups


def test_groups_and_topics_narrow_and_unknown_ones_are_refused(pristine: Path) -> None:
    assert {"billing"} == {group for group, _, _ in by_queue(lag(pristine, group="billing"))}
    assert {"gone"} == {topic for _, topic, _ in by_queue(lag(pristine, topic=["gone"]))}
    for asked in (Lag(group=("biling",)), Lag(topic=("ordrs",))):
        with pytest.raises(InvalidOptionError, match="did you mean"):
            asked.ask(pristine)


def test_kinds_of_groups_are_named(store: Path) -> None:
    queue = store / "consumequeue" / "orders" / "0"
    for topic in ("%RETRY%a", "%RETRY%a+orders", "%DLQ%a", "%LMQ%light", "rmq_sys_REVIVE_LOG_c", "plain", "popped"):
        shutil.copytree(queue, store / "consumequeue" / topic / "0")
    offsets = {f"{topic}@a": {0: 29} for topic in ("%RETRY%a+orders", "%DLQ%a", "plain", "popped", "orders")} | {
        "rmq_sys_REVIVE_LOG_c@CID_RMQ_SYS_REVIVE_GROUP": {0: 20},
        "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {0: 0},
    }
    commit(store, {**offsets, "plain@wide@broadcast": {0: 11}})
    write_config(
        store,
        "messageRequestMode.json",
        '{"messageRequestModeMap":{"popped":{"a":{"consumerGroup":"a","mode":"POP","topic":"popped"}}}}',
    )
    write_config(store, "lmqConsumerOffset.json", '{"offsetTable":{},"lmqOffsetTable":{"%LMQ%light@%LMQ%light":25}}')
    write_config(store, "subscriptionGroup.json", '{"subscriptionGroupTable":{"a":{},"idle":{},"TOOLS_CONSUMER":{}}}')
    report = lag(store)
    found = {(row["consumer_group"], row["topic"]): (row["kind"], row["messages"]) for row in rows(report, "topics")}
    groups = {row["consumer_group"]: row for row in rows(report, "groups")}

    assert {each.name.lower() for each in GroupKind} == {kind for kind, _ in found.values()}
    assert ("retry", 30) == found["a", "%RETRY%a"]
    assert ("pop_retry", 1) == found["a", "%RETRY%a+orders"]
    assert ("light", 5) == found["%LMQ%light", "%LMQ%light"]
    assert ("broadcast", 19) == found["wide", "plain"]
    assert ("revive", 10) == found["CID_RMQ_SYS_REVIVE_GROUP", "rmq_sys_REVIVE_LOG_c"]
    assert (30, False) == (groups["a"]["dead_letters"], groups["a"]["is_unknown"])
    assert groups["idle"]["is_unknown"]
    assert "TOOLS_CONSUMER" not in groups
    assert any("no offsets of idle" in note for note in report.found.notes)


# ---- what is read


def test_of_the_log_only_first_messages_not_consumed_and_last_ones_are_read(pristine: Path, opened: list[str]) -> None:
    report = lag(pristine, now=1)
    first = sum(row["oldest_store_timestamp"] is not None for row in rows(report))
    last = len({(row["topic"], row["queue_id"]) for row in rows(report) if row["max_offset"]})

    assert (2, 2) == (first, last)
    assert first + last == sum("commitlog" in path for path in opened)


def test_ages_of_a_copy_count_from_its_last_message_and_those_of_a_live_store_from_the_clock(store: Path) -> None:
    of_copy = lag(store)
    with StoreLock(store, OsFileSystem()):
        of_live = lag(store)

    assert [
        note
        for note in of_copy.found.notes
        if note.startswith(f"ages count from the store's last message, of {of_copy.found.now}:")
    ]
    assert str(of_live.found.now) > str(of_copy.found.now)
    assert not [note for note in of_live.found.notes if "ages count" in note]


def test_a_last_message_is_not_read_if_a_newer_one_was(store: Path, opened: list[str]) -> None:
    shutil.copytree(store / "consumequeue" / "payments" / "0", store / "consumequeue" / "newest" / "0")
    commit(store, {"newest@a": {0: 30}, "orders@a": {0: 30, 1: 30}})
    lag(store, now=1)

    assert [str(max((store / "commitlog").iterdir(), key=lambda path: path.name))] == [
        path for path in opened if "commitlog" in path
    ]


@pytest.mark.golden
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("name", NAMES)
def test_what_was_stored_since_the_offsets_were_written_is_told_apart(
    name: str, share: float, golden_directory: Path, tmp_path: Path
) -> None:
    root = golden(name, golden_directory, tmp_path)
    log = read_messages(root, columns=["physical_offset", "store_timestamp"]).read_all()
    times = [each // 1000 for each in log["store_timestamp"].cast("int64").to_pylist()]
    written = times[int(share * (len(times) - 1))]
    os.utime(root / "config" / "consumerOffset.json", ns=(0, written * 10**6))
    stored = dict(zip(log["physical_offset"].to_pylist(), times, strict=True))
    newer: Counter[tuple[str, int]] = Counter()
    for row in units(root, is_rocksdb="rocksdb" in name):
        if stored[row["physical_offset"]] > written:
            newer[row["topic"], row["queue_id"]] += row["batch_num"]

    report = lag(root)

    for (_, topic, queue_id), row in by_queue(report).items():
        assert min(newer[topic, queue_id], row["messages"]) == row["newer_messages"]
    text = report.to_text(width=None)
    assert (report.found.newer_messages > 0) == (f"the offsets were last written at {iso_time(written)}" in text)
    assert report.found.newer_messages == sum(row["newer_messages"] for row in rows(report, "groups"))


def test_without_offsets_nothing_is_said(store: Path) -> None:
    (store / "config" / "consumerOffset.json").unlink()
    with pytest.raises(StoreNotFoundError, match="missing or empty"):
        lag(store)


@pytest.mark.parametrize("database", ["consumerOffsets", "metadata", "rdb"])
def test_what_a_database_has_is_not_called_missing_and_files_beside_it_are_called_older(
    database: str, store: Path
) -> None:
    config = store / "config"
    (config / database).mkdir()
    for report in (lag(store), bill(store), Info().ask(store), dead_letters(store), transactions(store)):
        assert any(f"{config / database}, which is not read" in note for note in report.found.notes)

    for kind in (TOPICS, CONSUMER_OFFSETS, SUBSCRIPTION_GROUPS):
        (config / kind.name).unlink()
    for view in ("consumer_offsets", "subscription_groups"):
        with pytest.raises(UnsupportedStoreError, match=f"is in the RocksDB {config / database}"):
            read_view(store, view).read_all()
    with pytest.raises(UnsupportedStoreError, match=f"is in the RocksDB {config / database}"):
        lag(store)
    assert any(f"is in the RocksDB {config / database}" in note for note in retention(store).found.notes)
    assert not {f"config/{kind.name}" for kind in (TOPICS, CONSUMER_OFFSETS)} & set(Info().ask(store).found.missing)


def test_the_newer_of_two_files_has_the_offsets(store: Path) -> None:
    for name, time, offset in (("consumerOffset.json", 5, 11), ("lmqConsumerOffset.json", 9, 22)):
        table = {"dataVersion": {"timestamp": time}, "offsetTable": {"orders@a": {"0": offset, "1": 30}}}
        write_config(store, name, json.dumps(table))
    report = lag(store)

    assert 8 == by_queue(report)["a", "orders", 0]["messages"]
    assert any("consumerOffset.json is older" in note for note in report.found.notes)


def test_times_can_be_before_the_last_message_and_in_a_zone(pristine: Path) -> None:
    stored = read_messages(pristine, columns=["store_timestamp"]).read_all()["store_timestamp"].cast("int64")
    last = stored.to_pylist()[-1] // 1000

    assert iso_time(last - 60_000) == lag(pristine, as_of="-1m").found.as_of
    assert iso_time(last) == lag(pristine, now="-0s").found.now
    local: dict[str, Any] = {"now": "2024-05-01T12:00:00", "time_zone": "+08:00"}
    assert 1714536000000 == Lag(**local).now


@pytest.mark.parametrize("time", [-(2**63) + 5, 2**60])
def test_no_age_is_counted_from_a_store_time_that_no_table_holds(time: int, tmp_path: Path) -> None:
    log = LogBuilder()
    log.append(b"a", topic="orders", store_timestamp=time)
    log.append(b"b", topic="orders")
    root = log.write(tmp_path)
    rebuild_consume_queue(root, RebuildOptions(replace=True))
    commit(root, {"orders@billing": {0: 0}})
    report = lag(root, now=NOW)

    for table in ("groups", "topics", "queues"):
        [row] = rows(report, table)
        assert (2, None, None) == (row["messages"], row["oldest_store_timestamp"], row["age_ms"])

# SPDX-License-Identifier: Apache-2.0
"""Views of stores whose queues are in a RocksDB show what RocketMQ reads back from them; so does that of a RocksDB."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import read_messages, read_view
from store_core.answers.info import Info
from store_core.errors import CorruptDatabaseError, UnsupportedStoreError
from store_core.files import rocksdb_reader
from store_core.queue.store_entry import FAMILIES
from tests.builders import stored_half, stored_index_key, stored_timer
from tests.golden_stores import GoldenStore, UnpackedStore, stores_of_kind, unpack, unpack_newer
from tests.store_core.command.calls import call
from tests.store_core.files.rocksdbs import make_rocksdb
from tests.store_core.snapshot.test_queues import STORES, queues_of
from tests.viewed_store import rows_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.golden

IN_REPOSITORY = "5.5.0/rocksdb-crash"


@pytest.mark.parametrize("name", STORES)
def test_units_are_those_of_rocketmq_with_the_store_times_of_their_records(name: str, golden_directory: Path) -> None:
    store = unpack_newer(name, golden_directory)
    columns = ["topic", "queue_id", "queue_offset", "physical_offset", "store_size", "store_timestamp"]
    records = {tuple(row.values()) for row in read_messages(store.root, columns=columns).read_all().to_pylist()}
    answers = queues_of(store)
    rows = rows_of(store.root, "consumequeue", columns=[*columns, "tags_code", "kind", "batch_num", "segment"])
    live = [row for row in rows if row["queue_offset"] >= answers[row["topic"], row["queue_id"]]["minOffset"]]
    expected = {
        (*queue, unit["offset"]): (unit["pos"], unit["size"], unit["tagsCode"])
        for queue, answer in answers.items()
        for unit in answer["units"]
    }

    found = {
        (row["topic"], row["queue_id"], row["queue_offset"]): (
            row["physical_offset"], row["store_size"], row["tags_code"],
        )
        for row in live
    }  # fmt: skip
    assert found.items() <= expected.items()
    assert "crash" in name or expected == found
    if "cqdouble" in name:
        assert {"simple"} == {row["kind"] for row in rows}
    else:
        assert {("rocksdb", 1, None)} == {(row["kind"], row["batch_num"], row["segment"]) for row in rows}
        assert {tuple(row[column] for column in columns) for row in live} <= records


@pytest.mark.parametrize("name", STORES)
def test_topics_have_the_bounds_of_rocketmq_also_for_what_was_not_flushed(name: str, golden_directory: Path) -> None:
    store = unpack_newer(name, golden_directory)
    rows = rows_of(store.root, "topics")

    assert {queue: (each["minOffset"], each["maxOffset"]) for queue, each in queues_of(store).items()} == {
        (row["topic"], row["queue_id"]): (row["min_offset"], row["max_offset"]) for row in rows
    }
    assert all(row["oldest_store_timestamp"] <= row["newest_store_timestamp"] for row in rows if row["messages"])


def test_parts_and_bounds_give_the_same_units(golden_directory: Path) -> None:
    root = unpack_newer(IN_REPOSITORY, golden_directory).root
    rows = rows_of(root, "consumequeue")

    assert rows == rows_of(root, "consumequeue", max_partition_bytes=1000, max_records_per_batch=7)
    some = rows_of(root, "consumequeue", topic="orders", queue_id=2, starting_offsets=100_000)
    assert some == [
        row for row in rows if (row["topic"], row["queue_id"]) == ("orders", 2) and row["physical_offset"] >= 100_000
    ]


def test_without_the_library_the_log_is_read_and_a_view_of_queues_says_what_to_install(
    golden_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = unpack_newer(IN_REPOSITORY, golden_directory).root
    monkeypatch.setattr(rocksdb_reader, "find_spec", lambda _: None)

    assert 1_012 == read_messages(root, columns=["topic"]).read_all().num_rows
    for view in ("consumequeue", "topics"):
        with pytest.raises(UnsupportedStoreError, match="pip install"):
            read_view(root, view)


@pytest.mark.parametrize("kept", ["*.sst", "[!CM]*", "CURRENT", "MANIFEST-*"])
def test_what_is_left_of_a_rocksdb_is_no_store_without_queues(
    kept: str, golden_directory: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(unpack_newer(IN_REPOSITORY, golden_directory).root, tmp_path / "store")
    for path in {*(root / "consumequeue").iterdir()} - {*(root / "consumequeue").glob(kept)}:
        path.unlink()
    for view in ("topics", "consumequeue"):
        with pytest.raises(CorruptDatabaseError, match=f"{root / 'consumequeue'} is damaged"):
            read_view(root, view)
    report = Info().ask(root)

    assert ("queues in a RocksDB",) == report.found.kinds
    assert report.found.queues is None
    assert "messages: not known, as the queues can't be read" in call("info", root).text
    assert any("is damaged, or not all of it was copied" in note for note in report.found.notes)


def entries(root: Path, **options: Any) -> list[dict[str, Any]]:  # noqa: ANN401 -- those of the view
    table = read_view(root, "rocksdbstore", **options).read_all()
    table.validate(full=True)
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def written(root: Path, families: dict[str, dict[bytes, bytes]]) -> Path:
    (root / "commitlog").mkdir()
    make_rocksdb(root / "rocksdbstore", families)
    return root


def index_entries(store: UnpackedStore) -> set[tuple[Any, ...]]:
    """Return the entries that the index has to have, by RocketMQ's own read-back."""
    found: set[tuple[Any, ...]] = set()
    for row in store.expected():
        if row["unique_key"]:
            kinds = [("UNIQ_KEY", None), *(("KEYS", key) for key in row["keys"] or [])]
            kinds += [("TAGS", row["tags"])] if row["tags"] else []
            found |= {(row["topic"], *kind, row["unique_key"], row["physical_offset"]) for kind in kinds}
    return found


@pytest.mark.golden
@pytest.mark.parametrize("golden", stores_of_kind("rockskv"), ids=lambda golden: golden.name)
def test_entries_are_those_that_rocketmq_wrote(golden: GoldenStore, golden_directory: Path) -> None:
    store = unpack(golden, golden_directory)
    records = {row["physical_offset"]: row for row in store.expected()}
    found = entries(store.root)
    kinds = {kind: [row for row in found if row["kind"] == kind] for kind in ("index", "timer", "half")}

    assert (1007, 50, 20) == tuple(map(len, kinds.values()))
    columns = ("topic", "key_type", "key", "unique_key", "physical_offset")
    assert {tuple(row[name] for name in columns) for row in kinds["index"]} == index_entries(store)
    for row in kinds["index"]:
        assert records[row["physical_offset"]]["store_timestamp"] == row["store_timestamp"].timestamp() * 1000
    for row in kinds["timer"]:
        record = records[row["physical_offset"]]
        assert ("rmq_sys_wheel_timer", row["unique_key"]) == (record["topic"], record["unique_key"])
        assert int(record["properties"]["TIMER_OUT_MS"]) == row["due_timestamp"].timestamp() * 1000
        assert record["store_size"] == row["store_size"]
    for row in kinds["half"]:
        record = records[row["physical_offset"]]
        assert (row["topic"], row["unique_key"]) == (record["properties"]["REAL_TOPIC"], record["unique_key"])
        assert record["store_size"] == row["store_size"]


def test_each_kind_has_what_its_entry_says(tmp_path: Path) -> None:
    root = written(
        tmp_path,
        {
            "default": dict(
                [stored_index_key("@t@K@a@b@ID@", 5_000_000, 77), stored_index_key("@t@U@ID@", 5_000_001, 78)]
            ),
            "timer": dict([stored_timer(9_000, "T1", 5)]) | {b"timeline_checkpoint": bytes(8)},
            "trans": dict([stored_half(6, "t", "a@b", 2)]) | {b"lastOffsetPy": bytes(8)},
        },
    )
    names = ["kind", "topic", "key_type", "key", "unique_key", "physical_offset", "store_size", "check_times"]

    assert [
        ("index", "t", "KEYS", "a@b", "ID", 77, None, None),
        ("index", "t", "UNIQ_KEY", None, "ID", 78, None, None),
        ("timer", None, None, None, "T1", 5, 100, None),
        ("half", "t", None, None, "a@b", 6, 200, 2),
    ] == [tuple(row.values()) for row in entries(root, columns=names)]
    times = [(row["due_timestamp"], row["store_timestamp"]) for row in entries(root)]
    assert [(True, False), (True, False), (False, True), (True, True)] == [
        tuple(time is None for time in pair) for pair in times
    ]


def test_what_is_no_entry_is_named_or_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = written(tmp_path, {"trans": {b"something": b"else"} | dict([stored_half(6, "t", "x")])})

    with pytest.raises(CorruptDatabaseError, match="column family 'trans' that is none of RocketMQ's"):
        entries(root)
    assert [6] == [row["physical_offset"] for row in entries(root, fail_on_data_loss=False)]
    assert "that is none of RocketMQ's" in caplog.text


@given(st.sampled_from(sorted(FAMILIES)), st.binary(max_size=40), st.binary(max_size=16))
def test_any_bytes_are_an_entry_or_none(family: str, key: bytes, value: bytes) -> None:
    entry = FAMILIES[family](key, value)

    assert entry is None or entry.kind in {"index", "timer", "half"}


@given(st.text(st.characters(exclude_characters="@", codec="utf-8")), st.text(), st.integers(0, 2**62))
def test_an_index_entry_says_what_it_was_made_of(unique_key: str, key: str, offset: int) -> None:
    entry = FAMILIES["default"](*stored_index_key(f"@topic@T@{key}@{unique_key}@", 4_000_000, offset))

    assert entry is not None
    assert ("topic", "TAGS", key, unique_key, offset, 4_000_000) == (
        entry.topic, entry.key_type, entry.key, entry.unique_key, entry.physical_offset, entry.store_timestamp,
    )  # fmt: skip

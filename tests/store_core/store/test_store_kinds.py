# SPDX-License-Identifier: Apache-2.0
"""Stores of other kinds, and parts of stores, at every entry point of the core: nothing is written before a refusal."""

from __future__ import annotations

import shutil
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest

from store_core import (
    DefaultMessageStore,
    MessageStoreConfig,
    UnsupportedStoreError,
    read_messages,
    rebuild_consume_queue,
)
from store_core.answers import check, diff, salvage
from store_core.errors import CorruptDatabaseError, InvalidOptionError
from store_core.files.file_system import OsFileSystem
from store_core.store.sink.commit import SinkCommit
from tests.golden_stores import Golden, GoldenStore, newer_store, stores_of_kind, unpack
from tests.store_core.fakes import FakeClock
from tests.store_core.files.store_kinds import SEGMENT_SIZE, add_dledger, add_rocksdb, every_file, ordinary_store
from tests.store_core.store.damaged_stores import config_of
from tests.store_core.store.logs import config, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


CONFIG = config(mapped_file_size_commit_log=SEGMENT_SIZE)


def commit(path: Path, **more: Any) -> None:  # noqa: ANN401 -- any field of SinkCommit
    SinkCommit(path, f"job-{0:032x}", CONFIG, FakeClock(), OsFileSystem(), **more).run([])


ENTRANCES: dict[str, Callable[[Path], object]] = {
    "for writing": lambda path: DefaultMessageStore.open(path, CONFIG),
    "to read": lambda path: DefaultMessageStore.open(path, CONFIG, read_only=True),
    "append": commit,
    "overwrite": lambda path: commit(path, overwrite=True),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return ordinary_store(tmp_path / "store")


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("kind", ["pure", "mixed"])
def test_a_dledger_store_is_refused_everywhere_and_stays_as_it_is(root: Path, entrance: str, kind: str) -> None:
    add_dledger(root)
    if kind == "pure":
        shutil.rmtree(root / "commitlog")
    before = every_file(root.parent)

    with pytest.raises(UnsupportedStoreError, match="is a DLedger store"):
        ENTRANCES[entrance](root)

    assert before == every_file(root.parent)


@pytest.mark.parametrize("is_named", [False, True])
def test_what_a_configuration_says_of_dledger_counts_too(root: Path, is_named: bool) -> None:
    """A switch, or the path of a commit log, which lies in a DLedger store."""
    add_dledger(root)
    other = root.parent / "other"
    config = (
        MessageStoreConfig(enable_dleger_commit_log=True)
        if is_named
        else MessageStoreConfig(store_path_commit_log=str(root / "commitlog"))
    )

    with pytest.raises(UnsupportedStoreError, match="is a DLedger store"):
        DefaultMessageStore.open(other, config)

    assert not other.exists()


def test_a_dry_run_says_why_a_dledger_store_is_refused(root: Path) -> None:
    add_dledger(root)

    report = DefaultMessageStore.dry_run(root, CONFIG)

    assert report.is_refused
    assert "is a DLedger store" in str(report.refusal)
    assert () == report.changes


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(
    "below", ["commitlog", f"commitlog/{0:020d}", "consumequeue", "consumequeue/orders/0", "index"]
)
def test_a_part_of_a_store_is_not_opened_and_the_root_is_named(root: Path, entrance: str, below: str) -> None:
    before = every_file(root)

    with pytest.raises(InvalidOptionError, match=f"Give {root}$"):
        ENTRANCES[entrance](root / below)
    with pytest.raises(InvalidOptionError, match=f"Give {root}$"):
        DefaultMessageStore.dry_run(root / below, CONFIG)

    assert before == every_file(root)


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_queues_in_a_rocksdb_alone_are_read_or_refused_before_anything_is_written(root: Path, entrance: str) -> None:
    shutil.rmtree(root / "consumequeue")
    add_rocksdb(root / "consumequeue")
    before = every_file(root)

    is_read = entrance == "to read"
    with pytest.raises(
        CorruptDatabaseError if is_read else UnsupportedStoreError,
        match="damaged" if is_read else "has its queues in a RocksDB",
    ):
        ENTRANCES[entrance](root)

    assert before == every_file(root)
    assert read_messages(root, columns=["topic"]).read_all().num_rows > 0
    assert "RocksDB" in str(DefaultMessageStore.dry_run(root, CONFIG).refusal)


def test_queues_in_files_and_in_a_rocksdb_are_opened_and_the_report_says_so(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with DefaultMessageStore.open(root, CONFIG) as store:
        store.put_message(message())
    database = add_rocksdb(root / "consumequeue")
    files = every_file(database)

    with DefaultMessageStore.open(root, CONFIG) as store:
        store.put_message(message())
        assert any(str(database) in note for note in store.recovery_report.notes)

    with DefaultMessageStore.open(root, CONFIG, read_only=True) as store:
        assert 2 == store.get_max_offset_in_queue("orders", 0)
    assert {name: files[name] for name in files if "/" not in name} == {
        path.name: path.read_bytes() if path.is_file() else None for path in database.iterdir()
    }


# ---- stores of RocketMQ, if they are here


@pytest.mark.golden
@pytest.mark.parametrize("golden", stores_of_kind("dledger"), ids=attrgetter("name"))
def test_a_dledger_store_keeps_its_queues(golden_directory: Path, golden: GoldenStore) -> None:
    root = unpack(golden, golden_directory).root
    before = {path: path.stat() for path in root.rglob("*")}

    assert read_messages(root, columns=["topic"]).read_all().num_rows > 0
    calls: list[Callable[[], object]] = [
        lambda: DefaultMessageStore.open(root),
        lambda: rebuild_consume_queue(root),
        lambda: check(root),
        lambda: salvage(root, root.parent / "out"),
        lambda: diff(root, root),
        *(partial(read_messages, path) for path in root.glob("commitlog")),
    ]
    for refused in calls:
        with pytest.raises(UnsupportedStoreError, match="is a DLedger store"):
            refused()

    assert {path: status.st_mtime_ns for path, status in before.items()} == {
        path: path.stat().st_mtime_ns for path in root.rglob("*")
    }


@pytest.mark.golden
@pytest.mark.parametrize("name", ["5.3.3/tx", *filter(newer_store, ("5.5.0/cqdouble", "5.5.0/rockskv"))])
def test_queues_with_a_rocksdb_beside_them_are_those_of_rocketmq(
    golden: Golden, golden_directory: Path, tmp_path: Path, name: str
) -> None:
    archive = newer_store(name)
    store = unpack(archive, golden_directory) if archive is not None else golden(name)
    root = shutil.copytree(store.root, tmp_path / "copy")
    if archive is None:
        add_rocksdb(root / "consumequeue")
    sizes = {key: value for key, value in store.conf.items() if "." not in key}
    expected = store.lines("queue")

    with DefaultMessageStore.open(root, config_of(sizes, "5.3.3"), read_only=True) as opened:
        assert any("holds" in note for note in opened.recovery_report.notes)
        for line in expected:
            queue = opened.consume_queue_store.get(line["topic"], line["queueId"])
            assert queue is not None
            assert (line["minOffset"], line["maxOffset"]) == (queue.min_offset_in_queue, queue.max_offset_in_queue)
    assert expected

# SPDX-License-Identifier: Apache-2.0
"""Queues in files, made from the log, take the place of those in a RocksDB where that is asked for by name."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, MessageStoreConfig, RebuildOptions, rebuild_consume_queue
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files import rocksdb_reader
from tests.golden_stores import UnpackedStore, unpack_newer
from tests.store_core.answers.test_check_rocksdb import change
from tests.store_core.files.rocksdbs import bound, bound_key
from tests.store_core.queue.consume_queues import units_in
from tests.store_core.queue.test_rocksdb_queues import queues_of

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.golden

TO_FILES = RebuildOptions(release="5.5", replace=True, to="files", consume_queue_file_size=800)


@pytest.fixture
def golden_store_(golden_directory: Path) -> UnpackedStore:
    return unpack_newer("5.5.0/rocksdb-crash", golden_directory)


@pytest.fixture
def root(golden_store_: UnpackedStore, tmp_path: Path) -> Path:
    return shutil.copytree(golden_store_.root, tmp_path / "store")


def test_all_queues_are_then_files_and_the_rocksdb_is_kept(root: Path, golden_store_: UnpackedStore) -> None:
    database = {path.name: path.read_bytes() for path in (root / "consumequeue").iterdir()}
    assert rebuild_consume_queue(root, TO_FILES).verdict.name == "CLEAN"

    assert database == {path.name: path.read_bytes() for path in (root / "replaced-1" / "consumequeue").iterdir()}
    config = MessageStoreConfig(release="5.5", mapped_file_size_consume_queue=800)
    with DefaultMessageStore.open(root, config) as store:
        for queue, answer in queues_of(golden_store_).items():
            found = store.consume_queue_store.get(*queue)
            assert found is not None
            assert [(each["offset"], each["pos"], each["size"], each["tagsCode"]) for each in answer["units"]] == [
                unit[:4] for unit in units_in(found, answer["minOffset"])
            ]


def test_without_being_asked_for_files_a_rocksdb_stays_in_its_place(root: Path) -> None:
    with pytest.raises(UnsupportedStoreError, match="add --to files"):
        rebuild_consume_queue(root, RebuildOptions(release="5.5", replace=True))

    assert (root / "consumequeue" / "CURRENT").exists()


def test_a_queue_that_only_the_rocksdb_has_is_listed(root: Path) -> None:
    family = {bound_key("gone", b"max", 4): bound(99)}
    change(root, family, family="offset")

    report = rebuild_consume_queue(root, TO_FILES).report

    assert report is not None
    assert ("gone", 4) in report.unlogged


def test_without_the_library_queues_are_made_all_the_same(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_reader, "find_spec", lambda _: None)
    said: list[str] = []

    rebuild_consume_queue(root, TO_FILES, say=said.append)
    assert (root / "consumequeue" / "orders" / "0").is_dir()
    assert any("pip install" in line for line in said)


def test_there_are_no_other_targets() -> None:
    with pytest.raises(InvalidOptionError, match="expected 'files', found 'rocksdb'"):
        RebuildOptions(to="rocksdb")  # type: ignore[arg-type]  # as a caller without types may

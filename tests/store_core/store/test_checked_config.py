# SPDX-License-Identifier: Apache-2.0
"""Sizes of files: inferred from the files if not configured, refused if configured otherwise."""

from __future__ import annotations

import copy
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from store_core import DefaultMessageStore, MessageStoreConfig, SegmentLayoutError
from store_core.errors import InvalidOptionError
from store_core.files.file_system import OsFileSystem
from store_core.format.message import Message
from store_core.store.message_store_config import DefaultSize, Release
from store_core.store.store_layout import with_sizes_of_files
from tests.store_core.files.store_kinds import every_file

if TYPE_CHECKING:
    from pathlib import Path


SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "mapped_file_size_consume_queue_ext": 1024,
    "mapper_file_size_batch_consume_queue": 460,
    "max_hash_slot_num": 10,
    "max_index_num": 40,
}
OPTIONS = {
    "mapped_file_size_commit_log": "mappedFileSizeCommitLog",
    "mapped_file_size_consume_queue": "mappedFileSizeConsumeQueue",
    "mapped_file_size_consume_queue_ext": "mappedFileSizeConsumeQueueExt",
    "mapper_file_size_batch_consume_queue": "mapperFileSizeBatchConsumeQueue",
    "max_hash_slot_num": "maxHashSlotNum",
    "max_index_num": "maxIndexNum",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with small files of every kind, more than one of most."""
    root = tmp_path_factory.mktemp("sizes") / "store"
    config = MessageStoreConfig(**SIZES, enable_consume_queue_ext=True)
    with DefaultMessageStore.open(root, config, batch_topics=["batches"]) as store:
        for number in range(60):
            store.put_message(Message("orders", b"x" * 100, properties={"KEYS": f"k{number}", "TAGS": "t"}))
    batch = root / "batchconsumequeue" / "batches" / "0"
    batch.mkdir(parents=True)
    (batch / f"{0:020d}").write_bytes(bytes(460))
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "store")


def sized(root: Path, **given: Any) -> dict[str, int]:  # noqa: ANN401 -- any field
    config = with_sizes_of_files(root, MessageStoreConfig(**given), OsFileSystem())
    return {name: getattr(config, name) for name in SIZES}


def test_all_sizes_are_those_of_the_files(root: Path) -> None:
    assert sized(root) == SIZES


def test_a_new_store_has_the_defaults_and_they_stay_ungiven(tmp_path: Path) -> None:
    config = with_sizes_of_files(tmp_path / "none", MessageStoreConfig(), OsFileSystem())

    for each in (config, replace(config, release="4.9"), copy.deepcopy(config)):
        assert all(isinstance(getattr(each, name), DefaultSize) for name in SIZES)
    assert not isinstance(replace(config, max_index_num=20_000_000).max_index_num, DefaultSize)


@pytest.mark.parametrize("field", SIZES)
def test_a_size_that_contradicts_is_refused_by_name_before_anything_is_written(root: Path, field: str) -> None:
    wrong = replace(MessageStoreConfig(), **{field: SIZES[field] * 2})
    before = every_file(root)

    with pytest.raises(InvalidOptionError, match=f"option {OPTIONS[field]} says {SIZES[field] * 2}, but the store"):
        DefaultMessageStore.open(root, wrong)
    with pytest.raises(InvalidOptionError, match=f"field {field} of MessageStoreConfig"):
        DefaultMessageStore.open(root, wrong, read_only=True)
    assert OPTIONS[field] in str(DefaultMessageStore.dry_run(root, wrong).refusal)

    assert before == every_file(root)


def test_the_error_names_a_file_and_its_size(root: Path) -> None:
    with pytest.raises(InvalidOptionError, match=rf"expected 1048576 bytes, found 4096 in {root}/commitlog/0{{20}}\."):
        sized(root, mapped_file_size_commit_log=1 << 20)
    with pytest.raises(InvalidOptionError, match=rf"found 10 slots and 40 entries in {root}/index/"):
        sized(root, max_index_num=41)


def test_sizes_of_a_broker_s_file_are_given_and_what_it_leaves_out_is_not(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mapedFileSizeCommitLog=4096\nmaxIndexNum=40\nflushDiskType=SYNC_FLUSH\n")
    config = with_sizes_of_files(root, MessageStoreConfig.from_properties(conf), OsFileSystem())
    assert SIZES == {name: getattr(config, name) for name in SIZES}

    conf.write_text("mappedFileSizeCommitLog=1073741824\n")  # the default, but explicit
    config = MessageStoreConfig.from_properties(conf)
    with pytest.raises(InvalidOptionError, match="mappedFileSizeCommitLog says 1073741824"):
        with_sizes_of_files(root, config, OsFileSystem())


def test_queue_sizes_are_rounded_up_as_rocketmq_does(root: Path) -> None:
    assert 181 == sized(root, mapped_file_size_consume_queue=181)["mapped_file_size_consume_queue"]
    assert 415 == sized(root, mapper_file_size_batch_consume_queue=415)["mapper_file_size_batch_consume_queue"]
    with pytest.raises(InvalidOptionError):
        sized(root, mapped_file_size_consume_queue=180)


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_one_file_of_another_size_is_damage_and_the_release_decides(root: Path, release: Release) -> None:
    last = max((root / "commitlog").iterdir())
    last.write_bytes(last.read_bytes()[:-100])
    config = MessageStoreConfig(**SIZES, release=release)

    report = DefaultMessageStore.dry_run(root, config)

    assert report.is_refused is (release != "4.3")
    assert sized(root)["mapped_file_size_commit_log"] == 4096
    if release != "4.3":
        with pytest.raises(SegmentLayoutError, match="expected a segment of 4096 bytes, found 3996"):
            DefaultMessageStore.open(root, config)


def test_an_index_that_tells_nothing_leaves_the_configuration_as_it_is(root: Path) -> None:
    for path in (root / "index").iterdir():
        path.write_bytes(path.read_bytes()[:-7])

    assert {"max_hash_slot_num": 11, "max_index_num": 77}.items() <= sized(
        root, max_hash_slot_num=11, max_index_num=77
    ).items()


def test_entries_and_look_ups_are_those_of_the_store_without_a_configuration(root: Path) -> None:
    with DefaultMessageStore.open(root, read_only=True, batch_topics=["batches"]) as store:
        assert 60 == store.get_max_offset_in_queue("orders", 0)
        for number in (0, 37, 59):
            assert 1 == len(store.query_message("orders", f"k{number}", 10, 0, 2**62).message_buffers)


def test_what_is_written_without_a_configuration_has_the_sizes_that_are_there(root: Path) -> None:
    with DefaultMessageStore.open(
        root, MessageStoreConfig(enable_consume_queue_ext=True), batch_topics=["batches"]
    ) as store:
        for number in range(100):
            store.put_message(Message("orders", b"x" * 100, properties={"KEYS": f"n{number}", "TAGS": "t"}))

    assert {4096} == {path.stat().st_size for path in (root / "commitlog").iterdir()}
    assert {200} == {path.stat().st_size for path in (root / "consumequeue" / "orders" / "0").iterdir()}
    assert {40 + 4 * 10 + 20 * 40} == {path.stat().st_size for path in (root / "index").iterdir()}
    assert sized(root) == SIZES

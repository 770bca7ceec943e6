# SPDX-License-Identifier: Apache-2.0
"""Queues in a RocksDB: a check compares them with the log, and files take their place where that is asked for."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from rocksdict import Options, Rdict

from store_core import DefaultMessageStore, MessageStoreConfig, RebuildOptions, rebuild_consume_queue
from store_core.answers import Check, check, plan_repair, repair
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.files import rocksdb_reader
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from store_core.queue.rocksdb_queues import RocksdbQueues, unit_key
from tests.golden_stores import unpack_newer
from tests.store_core.answers.planting import plant
from tests.store_core.files.rocksdbs import bound, bound_key
from tests.store_core.files.store_kinds import every_file
from tests.store_core.queue.consume_queues import units_in
from tests.store_core.rebuilt import index_files
from tests.store_core.snapshot.test_queues import STORES, queues_of

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.format.release import Release


pytestmark = pytest.mark.golden

IN_REPOSITORY = "5.5.0/rocksdb-crash"
OPTIONS = Check(release="5.5")
QUEUES = [("orders", 0), ("orders", 1), ("orders", 2), ("orders", 3), ("a_b", 0)]


@pytest.fixture
def root(golden_directory: Path, tmp_path: Path) -> Path:
    return shutil.copytree(unpack_newer(IN_REPOSITORY, golden_directory).root, tmp_path / "store")


def change(root: Path, put: dict[bytes, bytes], deleted: tuple[bytes, ...] = (), family: str = "default") -> None:
    """Write to the database of a copy, as no broker would."""
    families = {name: Options(raw_mode=True) for name in ("default", "offset")}
    database = Rdict(str(root / "consumequeue"), options=Options(raw_mode=True), column_families=families)
    changed = database.get_column_family(family)
    for key, value in put.items():
        changed[key] = value
    for key in deleted:
        del changed[key]
    del changed
    database.close()


@pytest.mark.parametrize("name", STORES)
def test_stores_of_rocketmq_have_no_findings(name: str, golden_directory: Path) -> None:
    report = check(unpack_newer(name, golden_directory).root, release="5.5" if "5.5.0" in name else "5.3")

    assert {} == report.counts
    assert report.found.queues == report.found.complete_queues > 20


@pytest.mark.parametrize("name", ["5.5.1/cqdouble-lite", "5.5.1/cqdouble-light"])
def test_light_queues_beside_files_are_checked_where_they_are(
    name: str, golden_directory: Path, tmp_path: Path
) -> None:
    """Written twice for a topic of light queues (``rocksdbCQSelectiveDoubleWriteEnable``), or only to the RocksDB."""
    root = shutil.copytree(unpack_newer(name, golden_directory).root, tmp_path / "store")
    options = Check(release="5.5.1")
    sound = options.ask(root)
    change(root, {}, (unit_key("%LMQ%a", 0, 7),))
    broken = options.ask(root)

    assert {} == sound.counts
    assert sound.found.queues == sound.found.complete_queues == 7
    is_in_files = root.joinpath("consumequeue", "%LMQ%a").is_dir()
    assert ({} if is_in_files else {"unit_missing": 1}) == broken.counts


def test_light_queues_that_only_a_rocksdb_has_are_opened_to_read_alone(golden_directory: Path, tmp_path: Path) -> None:
    """A writer would number their messages from 0 again."""
    root = shutil.copytree(unpack_newer("5.5.1/cqdouble-light", golden_directory).root, tmp_path / "store")
    light = MessageStoreConfig(
        release="5.5.1",
        mapped_file_size_commit_log=131072,
        mapped_file_size_consume_queue=800,
        max_hash_slot_num=100,
        max_index_num=400,
        enable_lmq=True,
        enable_multi_dispatch=True,
    )
    before = every_file(root)
    with DefaultMessageStore.open(root, light, read_only=True) as store:
        result = store.get_message("g", "%LMQ%a", 0, 7, 32)
        bounds = [store.get_max_offset_in_queue(topic, 0) for topic in ("%LMQ%a", "%LMQ%b1", "lmq_topic")]
    with pytest.raises(UnsupportedStoreError, match=r"combineCQUseRocksdbForLmq.* read-only"):
        DefaultMessageStore.open(root, light)

    assert result is not None
    assert ("FOUND", 39) == (result.status.name, result.next_begin_offset)
    assert [90, 20, 30] == bounds
    assert before.items() <= every_file(root).items()


def test_each_wrong_unit_is_found_and_nothing_else(root: Path) -> None:
    """Five queues have one wrong unit each, and each of these is wrong in another way."""
    with RocksdbQueues.open(root / "consumequeue") as queues:
        first, second, third, fourth, fifth = (next(queues.units(*queue)).units for queue in QUEUES)
    sized, moved, tagged, doubled = first[3].copy(), second[5].copy(), fourth[4].copy(), fifth[6].copy()
    sized["store_size"] += 1
    moved["physical_offset"], moved["store_size"] = first["physical_offset"][5], first["store_size"][5]
    tagged["tags_code"] += 1
    doubled["physical_offset"], doubled["store_size"] = fifth["physical_offset"][5], fifth["store_size"][5]
    wrong = {(0, 3): sized, (1, 5): moved, (3, 4): tagged, (4, 6): doubled}
    put = {unit_key(*QUEUES[number], place): made.tobytes() for (number, place), made in wrong.items()}
    change(root, put, (unit_key(*QUEUES[2], 7),))
    rows = OPTIONS.ask(root).tables["findings"].to_pylist()

    assert {
        ("unit_wrong_size", *QUEUES[0], 3, first["physical_offset"][3]),
        ("unit_wrong_place", *QUEUES[1], 5, first["physical_offset"][5]),
        ("unit_missing", *QUEUES[2], 7, third["physical_offset"][7]),
        ("unit_wrong_tags_code", *QUEUES[3], 4, fourth["physical_offset"][4]),
        ("unit_duplicate", *QUEUES[4], 6, fifth["physical_offset"][5]),
    } == {tuple(row[name] for name in ("kind", "topic", "queue_id", "queue_offset", "begin")) for row in rows}


@pytest.mark.parametrize("name", [IN_REPOSITORY, "5.3.3/rocksdb-aged"])
def test_a_store_that_a_broker_holds_has_no_findings_and_a_lost_unit_is_found(
    name: str, golden_directory: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(unpack_newer(name, golden_directory).root, tmp_path / "store")
    options = Check(release="5.5" if "5.5.0" in name else "5.3")
    with RocksdbQueues.open(root / "consumequeue") as queues:
        queue = max(queues.names, key=lambda each: queues.end_of(*each))
        place = queues.end_of(*queue) - 5
    with StoreLock(root, OsFileSystem()):
        sound = options.ask(root)
        change(root, {}, (unit_key(*queue, place),))
        broken = options.ask(root)

    assert sound.found.is_live
    assert {} == sound.counts
    assert {"unit_missing": 1} == broken.counts


@pytest.mark.parametrize(
    ("name", "release", "lost", "told"),
    [
        (IN_REPOSITORY, "5.5", ("orders", 2, 7), r"is read and never written.* --to files --replace"),
        (
            "5.5.1/cqdouble-light",
            "5.5.1",
            ("%LMQ%a", 0, 7),
            r"combineCQUseRocksdbForLmq.* found %LMQ%a.* --to files --replace",
        ),
    ],
)
def test_a_repair_of_wrong_units_is_refused_by_name(
    name: str, release: Release, lost: tuple[str, int, int], told: str, golden_directory: Path, tmp_path: Path
) -> None:
    root = shutil.copytree(unpack_newer(name, golden_directory).root, tmp_path / "store")
    change(root, {}, (unit_key(*lost),))
    before = every_file(root)
    with pytest.raises(UnsupportedStoreError, match=told):
        plan_repair(root, release=release)

    assert before == every_file(root)


@pytest.mark.parametrize("name", ["5.3.3/rocksdb-aged", IN_REPOSITORY, "5.5.0/cqdouble"])
def test_an_index_beside_such_queues_is_repaired(name: str, golden_directory: Path, tmp_path: Path) -> None:
    source = unpack_newer(name, golden_directory).root
    root = shutil.copytree(source, tmp_path / "store")
    options = Check(release="5.5" if "5.5.0" in name else "5.3")
    plant("link_cut", root)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(plan_repair(root, release=options.release).to_json()))
    before = {path: data for path, data in every_file(root).items() if path.startswith("consumequeue")}
    repair(root, plan)

    assert {} == options.ask(root).counts
    assert index_files(source) == index_files(root)
    assert before == {path: data for path, data in every_file(root).items() if path.startswith("consumequeue")}


TO_FILES = RebuildOptions(release="5.5", replace=True, to="files", consume_queue_file_size=800)


def test_all_queues_are_then_files_and_the_rocksdb_is_kept(root: Path, golden_directory: Path) -> None:
    database = {path.name: path.read_bytes() for path in (root / "consumequeue").iterdir()}
    assert rebuild_consume_queue(root, TO_FILES).verdict.name == "CLEAN"

    assert database == {path.name: path.read_bytes() for path in (root / "replaced-1" / "consumequeue").iterdir()}
    config = MessageStoreConfig(release="5.5", mapped_file_size_consume_queue=800)
    with DefaultMessageStore.open(root, config) as store:
        for queue, answer in queues_of(unpack_newer(IN_REPOSITORY, golden_directory)).items():
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

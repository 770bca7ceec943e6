# SPDX-License-Identifier: Apache-2.0
"""A repair makes a store whole with the least action, by a plan that is refused wherever it does not fit."""

from __future__ import annotations

import json
import shutil
import struct
from typing import TYPE_CHECKING, Any

import pytest

from store_core import InvalidOptionError, RepairRefusedError, StoreLockedError
from store_core.answers import Check, check, plan_repair, repair
from store_core.answers.repair_job import Replacement
from store_core.answers.repair_plan import RepairPlan, RepairReport, plan_digest
from store_core.answers.report import Verdict
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from store_core.snapshot.likely_release import LikelyRelease
from store_core.store.store_state import StoreCheckpoint
from tests.builders import patch
from tests.store_core.answers.planting import Expected, Fault, StoreCopy, fault_named, largest_queue, plant
from tests.store_core.answers.planting.other_faults import INDEX_FAULTS
from tests.store_core.answers.planting.queue_faults import QUEUE_FAULTS
from tests.store_core.answers.planting.store_copy import IndexCopy
from tests.store_core.fakes import DeadDiskError, MortalFileSystem
from tests.store_core.files.store_kinds import every_file
from tests.store_core.rebuilt import index_files, queue_files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import Golden

pytestmark = pytest.mark.golden

REPAIRABLE = [
    fault
    for fault in (*QUEUE_FAULTS, *INDEX_FAULTS)
    if "5.3.3/propcrc" in fault.stores and str(fault) != "index_missing"  # which needs none without a configuration
]
A_SLICE = 3
"""Every how many kinds of faults are repaired without being asked for more."""

PLANTED = [
    pytest.param("5.3.3/propcrc", fault, id=str(fault), marks=[pytest.mark.soak] * (number % A_SLICE > 0))
    for number, fault in enumerate(REPAIRABLE)
]
PLANTED += [
    pytest.param("4.9.7/lmq", fault_named(name), id=f"{name}-4.9")
    for name in ("queue_missing", "unknown_queue", "header_ends_after_the_log")
]


def written(root: Path, release: str = "5.3") -> Path:
    """Write a plan as the command does."""
    path = root.with_name(f"{root.name}-plan.json")
    path.write_text(json.dumps(plan_repair(root, release=release).to_json()))
    return path


def repaired(root: Path, release: str = "5.3") -> RepairReport:
    return repair(root, written(root, release))


def directory_of(planted: list[Expected]) -> str:
    """Return the directory of the queue that has a fault."""
    place = planted[0].place
    assert place is not None
    return f"consumequeue/{place[0]}/{place[1]}"


def sums(root: Path) -> dict[str, bytes | None]:
    return {name: data for name, data in every_file(root).items() if name != "lock"}


# ---- what is repaired


@pytest.mark.parametrize(("name", "fault"), PLANTED)
def test_a_planted_fault_is_repaired_and_nothing_else_is_touched(
    name: str, fault: Fault, golden: Golden, tmp_path: Path
) -> None:
    source = golden(name)
    root = shutil.copytree(source.root, tmp_path / "store")
    fault.plant(StoreCopy(root, release=source.golden.release))
    broken = sums(root)
    report = repaired(root, source.golden.release)

    assert Verdict.CLEAN is report.verdict
    assert {} == check(root, release=source.golden.release).counts
    assert derived(source.root) == derived(root)
    replaced = {row["place"] for row in report.tables["places"].to_pylist()}
    now = sums(root)
    assert replaced
    has_old = any(path.startswith(tuple(replaced)) for path in broken)
    assert (report.found.kept is None) != has_old
    for path, data in broken.items():
        is_replaced = any(path == place or path.startswith(f"{place}/") for place in replaced)
        assert data == now.get(f"replaced-1/{path}" if is_replaced else path) or path == "checkpoint"
    assert not (root / "repaired").exists()
    assert not (root / "rebuild-swap.json").exists()


def test_only_the_queue_that_is_wrong_is_replaced(store: Path) -> None:
    planted = plant("unit_size_changed", store)
    report = repaired(store)

    assert [directory_of(planted)] == report.tables["places"]["place"].to_pylist()
    assert f"{store}/replaced-1" == report.found.kept


@pytest.mark.parametrize("name", ["4.9.7/lmq", "5.3.3/propcrc", "4.3.0/tx", "5.3.3/aged", "5.3.3/bcq"])
def test_a_sound_store_needs_no_repair(name: str, golden: Golden) -> None:
    source = golden(name)
    plan = plan_repair(source.root, release=source.golden.release)

    assert not plan.is_needed
    assert Verdict.CLEAN is plan.verdict


@pytest.mark.parametrize("name", ["4.3.0/basic", "4.9.7/lmq", "5.3.3/basic", "5.5.0/basic"])
@pytest.mark.parametrize("lost", [("consumequeue", "index"), ("consumequeue",), ("index",)])
def test_what_is_lost_as_a_whole_does_not_tell_the_release(
    name: str, lost: tuple[str, ...], golden: Golden, tmp_path: Path
) -> None:
    store = shutil.copytree(golden(name).root, tmp_path / "store", ignore=shutil.ignore_patterns(*lost))

    plan = plan_repair(store, hash_slot_num=100)

    assert LikelyRelease.of(store).releases[0] == plan.found.release
    assert plan.is_needed


def test_index_files_before_the_first_wrong_one_stay(store: Path) -> None:
    names, before = sorted(path.name for path in (store / "index").iterdir()), index_files(store)
    index = IndexCopy(store / "index" / names[1])
    patch(index.file, index.slot_at(index.used_slots()[0]), bytes(4))
    report = repaired(store)

    assert f"index/{names[0]}" not in report.tables["places"]["place"].to_pylist()
    assert names[0] in {path.name for path in (store / "index").iterdir()}
    assert before == index_files(store)
    assert {} == check(store).counts


def test_a_missing_index_is_made_in_files_of_the_size_that_is_said(store: Path, tmp_path: Path) -> None:
    before = index_files(store)
    shutil.rmtree(store / "index")
    plan = plan_repair(store, release="5.3", hash_slot_num=100, index_num=400)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan.to_json()))
    report = repair(store, path)

    assert "index: there is none; to make in files of 100 slots and 400 entries" in plan.to_text().split("\n")
    assert [("make", None)] == [(row["action"], row["file"]) for row in plan.tables["index_files"].to_pylist()]
    assert () == plan.found.notes
    assert before == index_files(store)
    assert "made what was missing in 2 places: there are no old files to keep" in report.to_text().split("\n")
    assert [] == list(store.glob("replaced-*"))


def test_a_plan_says_which_sizes_it_assumes_of_a_missing_index(store: Path) -> None:
    shutil.rmtree(store / "index")
    plan = plan_repair(store, index_num=20_000_000)

    assert not plan_repair(store).is_needed
    assert (5_000_000, 20_000_000) == (plan.found.hash_slot_num, plan.found.index_num)
    assert any("5,000,000 slots and 20,000,000 entries are assumed" in note for note in plan.found.notes)


def test_queues_that_lag_after_a_crash_are_repaired_with_another_one(store: Path) -> None:
    """A restart goes on where the last queue ends, so that it would not come by their records."""
    (store / "abort").touch()
    queues = sorted(store.glob("consumequeue/*/*"))
    for path in queues:
        file = max(path.iterdir())
        units = file.read_bytes()
        last = max((n for n in range(0, len(units), 20) if struct.unpack_from(">i", units, n + 8)[0] > 0), default=0)
        file.write_bytes(units[:last] + bytes(20) + units[last + 20 :])
    sound = check(store)
    queue = largest_queue(store)
    offset, size, code = queue.unit(1)
    queue.put(1, (offset, size + 1, code))
    repaired(store)

    assert any("records without a unit" in note for note in sound.facts["notes"])
    report = check(store)
    assert {} == report.counts
    assert not any("records without a unit" in note for note in report.facts["notes"])


def test_a_queue_of_deleted_records_keeps_its_offsets(golden: Golden, tmp_path: Path) -> None:
    source = golden("5.3.3/aged")
    root = shutil.copytree(source.root, tmp_path / "store")
    first = min(int(path.name) for path in (root / "commitlog").iterdir())
    directory = root / "consumequeue" / "gone" / "0"
    directory.mkdir(parents=True)
    size = next(root.glob("consumequeue/*/*/*")).stat().st_size
    units = b"".join(struct.pack(">qiq", max(first - 1000 + 100 * n, 0), 100, 0) for n in range(10))
    units += struct.pack(">qiq", first + 1, 100, 0)
    (directory / ("0" * 20)).write_bytes(units.ljust(size, b"\0"))
    plan = plan_repair(root)
    repaired(root)

    assert first > 0
    assert ["cut"] == [row["action"] for row in plan.tables["queues"].to_pylist()]
    assert {} == check(root).counts
    assert units[:200].ljust(size, b"\0") == (directory / ("0" * 20)).read_bytes()


def test_a_checkpoint_that_is_later_than_the_log_is_lowered(store: Path) -> None:
    checkpoint = StoreCheckpoint(store, OsFileSystem(), "5.3").load()
    before = checkpoint.index_msg_timestamp
    checkpoint.physic_msg_timestamp = checkpoint.logics_msg_timestamp = 1 << 60
    checkpoint.flush()
    checkpoint.close()
    plan = plan_repair(store)
    report = repaired(store)
    after = StoreCheckpoint(store, OsFileSystem(), "5.3").load()

    assert ("physic_msg_timestamp", "logics_msg_timestamp") == plan.found.checkpoint
    assert report.found.is_checkpoint_written
    assert report.found.kept is None
    assert 0 < after.physic_msg_timestamp == after.logics_msg_timestamp < 1 << 60
    assert before == after.index_msg_timestamp
    assert not plan_repair(store).is_needed


@pytest.mark.parametrize("name", ["checkpoint_time_negative", "checkpoint_cut", "checkpoint_garbage"])
def test_a_checkpoint_that_can_not_be_right_is_repaired(name: str, store: Path) -> None:
    plant(name, store)
    before = check(store).counts
    report = repaired(store)

    assert {"checkpoint": 1} == before
    assert Verdict.CLEAN is report.verdict
    assert {} == check(store).counts


def test_an_offset_in_a_checkpoint_that_is_after_the_log_is_lowered(golden: Golden, tmp_path: Path) -> None:
    root = shutil.copytree(golden("5.5.0/basic").root, tmp_path / "store")
    checkpoint = StoreCheckpoint(root, OsFileSystem(), "5.5").load()
    checkpoint.logics_physical_offset = 1 << 60
    checkpoint.flush()
    checkpoint.close()
    options = Check(release="5.5")
    before, plan = options.ask(root), plan_repair(root, release=options.release)
    repaired(root, "5.5")

    assert {"checkpoint": 1} == before.counts
    assert ("logics_physical_offset",) == plan.found.checkpoint
    assert before.found.end_offset == StoreCheckpoint(root, OsFileSystem(), "5.5").load().logics_physical_offset
    assert {} == options.ask(root).counts


def test_findings_of_other_kinds_are_left_and_told(store: Path) -> None:
    for name in ("unit_size_changed", "config_cut"):
        plant(name, store)
    report = repaired(store)

    assert Verdict.FINDINGS is report.verdict
    assert 1 == report.found.left
    assert any(line.startswith("1 finding is left") for line in report.lines)
    assert {"config_unreadable": 1} == check(store).counts


# ---- what is refused


@pytest.mark.parametrize("name", ["body_bit_flipped", "magic_code_overwritten"])
def test_a_damaged_log_is_refused_with_the_commands_for_it(name: str, store: Path) -> None:
    plant(name, store)
    plant("unit_size_changed", store)
    before = every_file(store)
    with pytest.raises(RepairRefusedError, match=r"commitlog recover .* commitlog salvage"):
        plan_repair(store)

    assert before == every_file(store)


def test_a_torn_last_record_is_for_recovery_and_hinders_no_repair(store: Path) -> None:
    segments = sorted(path for path in (store / "commitlog").iterdir())
    end = check(store).found.end_offset
    torn = next(path for path in reversed(segments) if int(path.name) <= end)
    patch(torn, end - int(torn.name), struct.pack(">iI", 200, 0xDAA320A7))
    (store / "abort").touch()
    plant("unit_size_changed", store)

    assert repaired(store).found.kept
    assert {} == check(store).counts


def test_a_store_that_a_broker_holds_is_refused(store: Path) -> None:
    plant("unit_size_changed", store)
    plan = written(store)
    before = sums(store)
    with StoreLock(store, OsFileSystem()):
        with pytest.raises(StoreLockedError, match=r"is held by a broker, or another writer, .* stop it first"):
            plan_repair(store)
        with pytest.raises(StoreLockedError):
            repair(store, plan)

    assert before == sums(store)


@pytest.mark.parametrize("more", ["unit_dropped", "link_cut", "last_unit_missing"])
def test_a_plan_for_another_state_of_the_store_is_refused_by_name(more: str, store: Path) -> None:
    plant("unit_size_changed", store)
    plan = written(store)
    planted = plant(more, store)
    before = sums(store)
    name = "index/" if more == "link_cut" else directory_of(planted)
    with pytest.raises(RepairRefusedError, match=f"another state of the store: {name}"):
        repair(store, plan)

    assert before == sums(store)


def test_a_plan_for_another_log_is_refused_by_name(store: Path, golden: Golden, tmp_path: Path) -> None:
    other = shutil.copytree(golden("5.3.3/bcq").root, tmp_path / "other")
    for root in (store, other):
        plant("unit_size_changed", root)

    with pytest.raises(RepairRefusedError, match="another state of the store: commitlog was"):
        repair(other, written(store))


def test_a_plan_that_was_changed_is_refused(store: Path) -> None:
    plant("unit_size_changed", store)
    path = written(store)
    plan = json.loads(path.read_text())
    plan["tables"]["queues"] = []
    path.write_text(json.dumps(plan))

    with pytest.raises(RepairRefusedError, match="was changed after it was made"):
        repair(store, path)


TABLES: dict[str, list[Any]] = {table.name: [] for table in RepairPlan.SCHEMA.tables}
PLAN: dict[str, Any] = {
    "schema": RepairPlan.SCHEMA.name,
    "release": "5.3",
    "config": None,
    "store_path_commit_log": None,
    "check_crc": True,
    "batch_topic": [],
    "hash_slot_num": 100,
    "index_num": 400,
    "max_queues": None,
    "tables": TABLES,
}
"""All that a repair needs of a plan."""


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ([], "is not a plan of this version"),
        ({"schema": "commitlog-repair-plan/0"}, "found 'commitlog-repair-plan/0'"),
        (PLAN | {"tables": {"queues": 1}}, "lacks tables"),
        ({name: value for name, value in PLAN.items() if name != "config"}, "`config` is missing"),
        (PLAN | {"release": 5}, "release"),
        (PLAN | {"batch_topic": [1]}, "batch_topic"),
        (PLAN | {"max_queues": True}, "max_queues"),
        (PLAN | {"index_num": None}, "index_num"),
    ],
)
def test_what_is_no_plan_is_refused(found: Any, expected: str, tmp_path: Path) -> None:  # noqa: ANN401 -- of JSON
    if isinstance(found, dict):
        found |= {"digest": plan_digest(found)}
    path = tmp_path / "plan.json"
    path.write_text(found if isinstance(found, str) else json.dumps(found))

    with pytest.raises(InvalidOptionError, match=expected):
        repair(tmp_path, path)


def test_a_file_too_large_for_a_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)
    with pytest.raises(
        InvalidOptionError, match=r"expected a plan, at most 1,073,741,824\. Give what commitlog repair"
    ):
        repair(tmp_path, path)


def test_new_files_that_differ_from_the_log_are_not_put_in_place(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant("unit_size_changed", store)
    plan, before = written(store), sums(store)
    make = Replacement._make

    def make_wrong(replacement: Replacement) -> None:
        make(replacement)
        file = next((store / "repaired").glob("consumequeue/*/*/*"))
        data = bytearray(file.read_bytes())
        data[11] ^= 1  # of a size
        file.write_bytes(data)

    monkeypatch.setattr(Replacement, "_make", make_wrong)

    with pytest.raises(RepairRefusedError, match=r"differ from the log in \d+ places"):
        repair(store, plan)
    assert before == sums(store)


# ---- the reports


def test_plan_and_report_have_what_their_schemas_say(store: Path) -> None:
    plant("unit_size_changed", store)
    plan = json.loads(written(store).read_text())
    report = json.loads(json.dumps(repaired(store).to_json()))

    for schema, found in ((RepairPlan.SCHEMA, plan), (RepairReport.SCHEMA, report)):
        assert ["schema", "verdict", *(fact.name for fact in schema.facts), "tables"] == list(found)
        assert [table.name for table in schema.tables] == list(found["tables"])
    assert plan["digest"] == report["plan"]
    assert [("unit_wrong_size", "rebuild")] == [(row["why"], row["action"]) for row in plan["tables"]["queues"]]


# ---- deaths


@pytest.mark.slow
@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.soak)])
def test_a_disk_that_dies_at_any_change_leaves_the_old_store_or_what_the_next_run_finishes(
    stride: int, store: Path, golden: Golden, tmp_path: Path
) -> None:
    for name in ("unit_dropped", "link_cut", "unknown_queue"):
        plant(name, store)
    plan, old, new = written(store), derived(store), derived(golden("5.3.3/propcrc").root)
    swapped: list[bool] = []
    for changes in range(0, 1000, stride):
        root, disk = shutil.copytree(store, tmp_path / str(changes)), MortalFileSystem()
        disk.changes_left, disk.torn = changes, 0.5
        try:
            repair(root, plan, file_system=disk)
        except DeadDiskError:
            assert (root / "rebuild-swap.json").exists() or derived(root) in (old, new)
            swapped.append(repair(root, plan).found.kept is not None)
        else:
            break
        assert new == derived(root)
        assert [] == [name for name in ("repaired", "rebuild-swap.json") if (root / name).exists()]
        (kept,) = (path for path in root.glob("replaced-*") if any(path.glob("consumequeue/*")))
        assert old[0].items() >= queue_files(kept).items()
        assert all(data in old[1] for data in index_files(kept))

    assert {True, False} == set(swapped)
    assert len(swapped) * stride > 40


def derived(root: Path) -> tuple[dict[str, bytes], list[bytes]]:
    return queue_files(root), index_files(root)

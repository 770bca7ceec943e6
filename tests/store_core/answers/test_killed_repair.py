# SPDX-License-Identifier: Apache-2.0
"""A repair that is killed leaves the old store, or what the next run finishes; then nothing is left behind."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from store_core.answers import plan_repair, repair
from tests.store_core.answers.planting import plant
from tests.store_core.mortal_disk import DeadDiskError, MortalFileSystem
from tests.store_core.rebuilt import index_files, queue_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.golden_stores import Golden

pytestmark = [pytest.mark.golden, pytest.mark.slow]

_SCRIPT: Final = "tests.store_core.answers.killed_repair"
_ROOT: Final = Path(__file__).parents[3]
_SEED: Final = 18
_FAULTS: Final = ("unit_dropped", "link_cut", "unknown_queue")
_AT_ONCE: Final = 20
"""Stores that are repaired by one process, one after another; they take 3 MB each."""

Derived = tuple[dict[str, bytes], list[bytes]]


@pytest.fixture
def broken(golden: Golden, tmp_path: Path) -> Path:
    root = shutil.copytree(golden("5.3.3/propcrc").root, tmp_path / "broken")
    for name in _FAULTS:
        plant(name, root)
    (tmp_path / "plan.json").write_text(json.dumps(plan_repair(root, release="5.3").to_json()))
    return root


def derived(root: Path) -> Derived:
    return queue_files(root), index_files(root)


def check_next_run(store: Path, plan: Path, old: Derived, new: Derived) -> bool:
    """Check what a killed run left, and what the next one makes of it; return whether that run had to swap."""
    is_swapping = (store / "rebuild-swap.json").exists()
    left = derived(store)
    assert is_swapping or left in (old, new)
    again = repair(store, plan)

    assert new == derived(store)
    assert [] == [name for name in ("repaired", "rebuild-swap.json") if (store / name).exists()]
    (kept,) = (path for path in store.glob("replaced-*") if any(path.glob("consumequeue/*")))
    assert old[0].items() >= queue_files(kept).items()
    assert all(data in old[1] for data in index_files(kept))
    return again.found.kept is not None


def run_killed(plan: Path, places: Sequence[str]) -> list[int]:
    """Run the script on stores and calls; return how many calls those made that were not killed."""
    command = [sys.executable, "-m", _SCRIPT, str(plan), *places]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=_ROOT)  # noqa: S603 -- our own
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize("points", [3, pytest.param(200, marks=pytest.mark.soak)])
def test_a_process_killed_at_any_call_leaves_the_old_store_or_what_the_next_run_finishes(
    points: int, broken: Path, golden: Golden, tmp_path: Path
) -> None:
    plan, source = tmp_path / "plan.json", golden("5.3.3/propcrc").root
    whole = shutil.copytree(broken, tmp_path / "whole")
    (calls,) = run_killed(plan, [f"{whole}=0"])
    chance = random.Random(_SEED)  # noqa: S311 -- no secret
    chosen = sorted(chance.sample(range(1, calls + 1), min(points, calls)))
    swapped: set[bool] = set()
    for begin in range(0, len(chosen), _AT_ONCE):
        stores = {call: shutil.copytree(broken, tmp_path / str(call)) for call in chosen[begin : begin + _AT_ONCE]}
        assert [] == run_killed(plan, [f"{store}={call}" for call, store in stores.items()])
        for store in stores.values():
            swapped.add(check_next_run(store, plan, derived(broken), derived(source)))
            shutil.rmtree(store)

    assert derived(source) == derived(whole)
    assert calls > 100
    assert len(chosen) >= points


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.soak)])
def test_a_disk_that_dies_at_any_change_leaves_the_old_store_or_what_the_next_run_finishes(
    stride: int, broken: Path, golden: Golden, tmp_path: Path
) -> None:
    plan, new = tmp_path / "plan.json", derived(golden("5.3.3/propcrc").root)
    swapped: list[bool] = []
    for changes in range(0, 1000, stride):
        store, disk = shutil.copytree(broken, tmp_path / str(changes)), MortalFileSystem()
        disk.changes_left, disk.torn = changes, 0.5
        try:
            repair(store, plan, file_system=disk)
        except DeadDiskError:
            swapped.append(check_next_run(store, plan, derived(broken), new))
        else:
            break

    assert {True, False} == set(swapped)
    assert len(swapped) * stride > 40

# SPDX-License-Identifier: Apache-2.0
"""Rebuilding without Spark has the same result in one process and in several; nothing is lost or left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from dataclasses import replace
from multiprocessing import active_children, parent_process
from typing import TYPE_CHECKING, Any

import pytest

from store_core import (
    InvalidOptionError,
    LostWorkerError,
    RebuildOptions,
    plan_rebuild,
    rebuild_consume_queue,
)
from store_core.answers.report import Verdict
from store_core.files.machine import SystemClock
from store_core.store.parts import InProcess, PartsDone, Step
from store_core.store.rebuild import segment_scan
from store_core.store.rebuild.job import rebuild_by
from store_core.store.rebuild.queue_compare import LogBounds
from tests.builders import LogBuilder
from tests.store_core.fakes import FakeClock
from tests.store_core.files.store_kinds import every_file
from tests.store_core.rebuilt import golden_rules, index_files, queue_files

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.store.process_pool import ProcessPool
    from tests.golden_stores import Golden

SIZES: dict[str, Any] = {"release": "5.3", "consume_queue_file_size": 800, "hash_slot_num": 100, "index_num": 400}
GOLDEN = ["4.3.0/tx", "4.9.7/lmq", "5.3.3/bcq", "5.3.3/delay", "5.3.3/propcrc", "5.3.3/v2topic"]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let temporary files be made where a test can look."""
    path = tmp_path / "scratch"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


def unlocked(store: Path) -> dict[str, bytes | None]:
    """Return every file except the lock, which each writer creates and removes."""
    return {name: data for name, data in every_file(store).items() if name != "lock"}


# ---- the same everywhere


@pytest.mark.golden
@pytest.mark.parametrize("name", GOLDEN)
def test_a_pool_gives_what_this_process_gives_and_rocketmq_wrote(
    name: str,
    pool: ProcessPool,
    golden: Golden,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = golden(name)
    monkeypatch.setattr(segment_scan, "_SMALLEST_PART", 5000)
    here, there = (
        rebuild_by(engine, store.root, tmp_path / name, golden_rules(store), clock=FakeClock())
        for name, engine in (("here", InProcess()), ("there", pool))
    )
    made = every_file(tmp_path / "here")

    assert here == there
    assert queue_files(store.root) == queue_files(tmp_path / "here")
    assert index_files(store.root) == index_files(tmp_path / "here")
    assert made == every_file(tmp_path / "there")
    assert not [path for path in made if "attempts" in str(path)]


@pytest.mark.golden
def test_a_comparison_is_the_same_in_a_pool_and_leaves_no_scratch_files(
    pool: ProcessPool, store: Path, scratch: Path, tmp_path: Path
) -> None:
    max((store / "consumequeue").rglob("0" * 20)).write_bytes(bytes(800))
    rules = plan_rebuild(store, RebuildOptions(with_index=True)).rules
    here, there = (
        rebuild_by(engine, store, tmp_path / "none", rules, compared=LogBounds(0)) for engine in (InProcess(), pool)
    )

    assert any(each.counts for each in here.judged)
    assert here == there
    assert [] == list(scratch.iterdir())
    assert not (tmp_path / "none").exists()


# ---- the functions


@pytest.mark.golden
def test_a_store_is_rebuilt_and_replaced_by_a_call(store: Path) -> None:
    queues, index = queue_files(store), index_files(store)
    for kind in ("consumequeue", "index"):
        shutil.rmtree(store / kind)
    children = set(active_children())
    said: list[str] = []
    seen: list[PartsDone] = []
    options = RebuildOptions(with_index=True, replace=True, discard_old=True, **SIZES)
    result = rebuild_consume_queue(store, options, processes=2, say=said.append, on_progress=seen.append)

    assert Verdict.CLEAN is result.verdict
    assert (queues, index) == (queue_files(store), index_files(store))
    assert result.report is not None
    assert 462 == result.report.records
    assert said == list(result.actions)
    assert "no findings" in result.to_text()
    assert 462 == json.loads(json.dumps(result.to_json()))["records"]
    assert {Step.RUN, Step.GATHER} == {each.step for each in seen}
    assert all(1 <= each.done <= each.total for each in seen)
    assert children == set(active_children())
    assert not {"rebuilt", "replaced-1", "replaced-2"} & {path.name for path in store.iterdir()}


@pytest.mark.parametrize("discard_old", [False, True])
def test_offsets_that_jump_are_no_damage_whatever_is_deleted(discard_old: bool, tmp_path: Path) -> None:
    log = LogBuilder()
    log.append(b"first", queue_offset=0)
    log.append(b"after a jump", queue_offset=7)
    result = rebuild_consume_queue(
        log.write(tmp_path / "store"), RebuildOptions(replace=True, discard_old=discard_old, **SIZES)
    )

    assert Verdict.CLEAN is result.verdict
    assert result.check is None or ["log_offsets"] == list(result.check.counts)


# ---- what must not happen


class DeadlyClock(SystemClock):
    """A clock that ends a process when it asks for the time of an index file."""

    def now_ms(self) -> int:
        if parent_process() is None:
            raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


@pytest.mark.golden
@pytest.mark.parametrize(
    ("processes", "index_num", "expected"),
    [(1, 400, KeyboardInterrupt), (2, 400, KeyboardInterrupt), (2, 4000, LostWorkerError)],
    ids=["one process", "the process that names files of an index", "the process that writes a single file"],
)
def test_a_killed_process_and_an_interrupt_leave_the_old_files_and_nothing_else(
    processes: int, index_num: int, expected: type[BaseException], store: Path, scratch: Path
) -> None:
    before = unlocked(store)
    options = replace(RebuildOptions(with_index=True, replace=True, **SIZES), index_num=index_num)
    with pytest.raises(expected):
        rebuild_consume_queue(store, options, processes=processes, clock=DeadlyClock())

    assert before == unlocked(store)
    assert not (store / "rebuilt").exists()
    assert [] == list(scratch.iterdir())
    assert Verdict.CLEAN is rebuild_consume_queue(store, options).verdict


@pytest.mark.golden
@pytest.mark.parametrize("is_verified", [False, True])
def test_an_interrupt_while_others_work_leaves_nothing(is_verified: bool, store: Path, scratch: Path) -> None:
    def interrupt(_: PartsDone) -> None:
        raise KeyboardInterrupt

    before = unlocked(store)
    children = set(active_children())
    with pytest.raises(KeyboardInterrupt):
        rebuild_consume_queue(store, RebuildOptions(verify=is_verified), processes=2, on_progress=interrupt)

    assert before == unlocked(store)
    assert not (store / "rebuilt").exists()
    assert [] == list(scratch.iterdir())
    assert children == set(active_children())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"queue_id": -1}, "queue_id: expected an int from 0 to 9223372036854775807, found -1"),
        ({"since_offset": 2**63}, "since_offset: expected an int"),
        ({"index_num": 0}, "index_num: expected an int from 1 to 2147483647, found 0"),
        ({"hash_slot_num": True}, "hash_slot_num: expected an int from 1 to 2147483647, found True"),
        ({"topic": "orders"}, "topic: expected a list of topics, found the text 'orders'"),
        ({"with_queues": False}, "there is nothing to rebuild"),
        ({"with_queues": False, "with_index": True, "queue_id": 1}, "the index is one for all topics"),
        ({"verify": True, "replace": True}, "verify changes nothing"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidOptionError, match=expected):
        RebuildOptions(**options)


def test_no_process_is_too_few(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append(b"one", topic="orders")
    store = log.write(tmp_path / "store")
    with pytest.raises(InvalidOptionError, match="processes: expected 1 or more, found 0"):
        rebuild_consume_queue(store, processes=0)

    assert not (store / "rebuilt").exists()

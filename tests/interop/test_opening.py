# SPDX-License-Identifier: Apache-2.0
"""RocketMQ loads, recovers and serves stores that we wrote as its own, and each respects the other's lock."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, StoreLockedError
from store_core.format.message import Message
from tests.interop.answers import answer_queues, answer_rows, queues_of, read_rows_one_by_one
from tests.interop.judge import Judge, our_small_config
from tests.interop.ours import put_all
from tests.interop.puts import Put
from tests.interop.rocketmq import JobFailedError
from tests.interop.scenarios import ALL_RELEASES, Scenario, each_release, known_to

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from tests.golden_stores import Row
    from tests.interop.rocketmq import Answer


FIRST_TIME = 1_700_000_000_000


@dataclass(frozen=True)
class Opened:
    """A store of ours that a RocketMQ has opened, and our own view of it before.

    Its queues can be derived unless RocketMQ does not build them; light ones also unless another release counted them.
    """

    scenario: Scenario
    release: str
    has_queues: bool
    rows: list[Row]
    end: int
    future: Future[Answer]


def open_ours(writer: str, judge: Judge, scenario: Scenario, directory: Path, *, crashed: bool = False) -> Opened:
    """Write a store as release `writer` does, and have another release open a copy of it."""
    store, copy = directory / "ours" / "store", directory / "copy"
    puts = scenario.puts(min(writer, judge.release))  # 4.3 does not support IPv6
    put_all(store, writer, scenario, puts, range(FIRST_TIME, FIRST_TIME + len(puts)))
    shutil.copytree(store, copy)
    if crashed:
        copy.joinpath("abort").touch()
    rows = read_rows_one_by_one(store, judge.release)
    end = rows[-1]["physical_offset"] + rows[-1]["store_size"]
    role = {} if judge.release not in ("4.3", "4.9") else {"brokerRole": "SLAVE"}  # masters of 4.x deliver due messages
    has_queues = crashed or judge.release != "4.3" or copy.joinpath("consumequeue").exists()  # 4.3 builds after a crash
    has_queues &= scenario.plain_queues and (writer == judge.release or "enableLmq" not in scenario.settings)
    return Opened(scenario, judge.release, has_queues, rows, end, judge.open(copy, **scenario.job_settings, **role))


def check(opened: Opened) -> None:
    answer = opened.future.result()
    bounds = {"min": 0, "max": opened.end}
    expected = {
        "loaded": True,
        "afterLoad": bounds,
        "afterStart": bounds,
        "chainEnd": opened.end,
        "dispatchBehindBytes": 0,
        "abortLeft": False,
    }

    # In one piece, so that a failure shows all that RocketMQ saw; and of what it was.
    assert (opened.scenario.name, expected) == (opened.scenario.name, {name: answer.get(name) for name in expected})
    assert answer_rows(answer, opened.scenario.segment_size) == opened.rows
    if opened.has_queues:
        light = "enableLmq" in opened.scenario.settings
        assert answer_queues(answer) == queues_of(opened.rows, opened.release, light=light)


@pytest.mark.parametrize("release", each_release())
def test_rocketmq_opens_our_stores(release: str, judge_of: Callable[[str], Judge], tmp_path: Path) -> None:
    judge = judge_of(release)
    stores = [
        open_ours(release, judge, scenario, tmp_path / scenario.name) for scenario in known_to(release, is_ours=True)
    ]

    for opened in stores:
        check(opened)


@pytest.mark.interop
@pytest.mark.parametrize("reader", ALL_RELEASES)
@pytest.mark.parametrize("writer", ALL_RELEASES)
def test_every_release_opens_what_we_write_as_another(
    writer: str, reader: str, judge_of: Callable[[str], Judge], tmp_path: Path
) -> None:
    judge = judge_of(reader)
    scenarios = known_to(writer, reader, is_ours=True)
    if writer != reader:
        scenarios = [scenario for scenario in scenarios if scenario.plain_queues]
    stores = [open_ours(writer, judge, scenario, tmp_path / scenario.name, crashed=True) for scenario in scenarios]

    for opened in stores:
        check(opened)


@pytest.mark.interop
def test_a_store_that_rocketmq_has_open_is_refused(judge: Judge, tmp_path: Path) -> None:
    config = our_small_config(judge.release)
    running = judge.live(tmp_path, Put(body=b"more"), count=400, burst=1, pause_ms=5)
    while not tmp_path.joinpath("abort").exists():  # made at the end of RocketMQ's start
        assert not running.done()

    with pytest.raises(StoreLockedError):
        DefaultMessageStore.open(tmp_path, config)
    with DefaultMessageStore.open(tmp_path, config, read_only=True) as store:
        assert 0 <= store.max_physical_offset
    assert not running.done()
    running.result()
    with DefaultMessageStore.open(tmp_path, config) as store:
        assert store.get_max_offset_in_queue("orders", 0) == 400


@pytest.mark.interop
def test_rocketmq_does_not_start_on_a_store_that_we_have_open(judge: Judge, tmp_path: Path) -> None:
    with DefaultMessageStore.open(tmp_path, our_small_config(judge.release)) as store:
        store.put_message(Message("orders", b"first"))

        with pytest.raises(JobFailedError, match=r"Lock failed, ?MQ already started"):
            judge.open(tmp_path).result()
        assert store.put_message(Message("orders", b"second")).is_ok
    assert judge.open(tmp_path).result()["loaded"]

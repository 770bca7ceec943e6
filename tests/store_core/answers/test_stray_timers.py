# SPDX-License-Identifier: Apache-2.0
"""Pending timers that lead past the log's end, or to other records, are named by `delays` and `check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.answers import check, delays
from store_core.answers.delay_states import stray_timers
from store_core.snapshot.log import Log
from store_core.snapshot.timers import Timers
from tests.builders import LogBuilder, Timer, write_timers
from tests.golden_stores import GoldenStore, stores_of_kind, unpack

if TYPE_CHECKING:
    from pathlib import Path

DUE = 1_700_000_100


def store_with(tmp_path: Path, *timers: tuple[int, int]) -> tuple[Path, list[int], int]:
    """Make a log of two timers and a message, and timers that lead to (offset, size)."""
    log = LogBuilder()
    sent = [log.append(b"body", topic=topic) for topic in ("rmq_sys_wheel_timer", "orders", "rmq_sys_wheel_timer")]
    root = log.write(tmp_path / "store")
    places = [record.physical_offset for record in sent]
    units = [Timer(DUE, DUE - 100, *timer) for timer in timers]
    write_timers(root, units, DUE - 50)
    return root, places, sent[0].size


def test_timers_that_lead_to_their_records_are_no_finding(tmp_path: Path) -> None:
    _, places, size = store_with(tmp_path / "first", (0, 1))
    root, _, _ = store_with(tmp_path / "second", (places[0], size), (places[2], size))

    assert stray_timers(Timers.of(root), Log.of(root), "5.3") is None
    assert "timer_unit" not in check(root).counts


@pytest.mark.parametrize(
    ("number", "found"), [(1, "a message of topic 'orders'"), (99, "no record begins there"), (10**9, "ends at")]
)
def test_timers_that_lead_elsewhere_are_named(number: int, found: str, tmp_path: Path) -> None:
    _, places, size = store_with(tmp_path / "first", (0, 1))
    offset = places[1] if number == 1 else number
    root, _, _ = store_with(tmp_path / "second", (places[0], size), (offset, size), (offset, size))
    report = delays(root, now=DUE * 1000)
    (note,) = [note for note in report.found.notes if "pending timers of timerlog" in note]

    assert note.startswith("2 pending timers of timerlog lead past the log's end or to other records")
    assert f"leads to offset {offset}: " in note
    assert found in note
    assert 1 == check(root).counts["timer_unit"]


def test_a_record_of_another_size_is_another_timer(tmp_path: Path) -> None:
    root, _, size = store_with(tmp_path, (0, 1))
    stray = stray_timers(Timers.of(root), Log.of(root), "5.3")

    assert stray is not None
    assert f"a timer of {size} bytes, not of 1" == stray.found


def test_what_a_crash_explains_is_no_finding(tmp_path: Path) -> None:
    root, _, _ = store_with(tmp_path, (10**9, 100))
    (root / "abort").touch()

    assert "timer_unit" not in check(root).counts


@pytest.mark.golden
@pytest.mark.parametrize("store", stores_of_kind("timer"), ids=lambda store: store.name)
def test_timers_that_rocketmq_wrote_lead_to_their_records(store: GoldenStore, tmp_path: Path) -> None:
    root = unpack(store, tmp_path).root

    assert stray_timers(Timers.of(root), Log.of(root), store.release) is None

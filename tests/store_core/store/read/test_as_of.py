# SPDX-License-Identifier: Apache-2.0
"""As of a time, a read has the records before the first that was stored then or later, in the order of the log."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import InvalidOptionError, ReadOptions, explain, read_messages
from store_core.store.read.read_plan import log_end_at, plan_ranges
from tests.budgets import budget
from tests.builders import FIRST_STORE_TIMESTAMP, LogBuilder

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 1024
SECOND = 1000


def log_of(times: list[int]) -> LogBuilder:
    log = LogBuilder(SIZE)
    for number, time in enumerate(times):
        log.append(b"x" * 40, topic=f"t{number % 2}", store_timestamp=FIRST_STORE_TIMESTAMP + time * SECOND)
    return log


def offsets(root: Path, **options: object) -> list[int]:
    found = read_messages(root, columns=["physical_offset"], **options).read_all()  # type: ignore[arg-type]
    return list(found["physical_offset"].to_pylist())


@budget(0.3)
@given(
    steps=st.lists(st.integers(-50, 3600), min_size=1, max_size=40),
    at=st.integers(-10, 41),
    topic=st.sampled_from([None, "t0", "t1"]),
)
def test_the_rows_are_those_before_the_first_record_of_that_time(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], at: int, topic: str | None
) -> None:
    """The clock is set back by less than a minute now and then, also in the middle of a segment."""
    times = [sum(steps[: end + 1]) for end in range(len(steps))]
    log = log_of(times)
    root = log.write(tmp_path_factory.mktemp("store"))
    time = FIRST_STORE_TIMESTAMP + times[min(max(at, 0), len(times) - 1)] * SECOND + (at == 41) - (at < 0)
    there = list(takewhile(lambda record: record.store_timestamp < time, log.records))

    after = log.records[len(there) :]
    assert (after[0].physical_offset if after else None) == log_end_at(root, time)
    assert offsets(root, as_of=time, topic=topic) == [
        record.physical_offset for record in there if topic in (None, record.topic)
    ]


def test_a_plan_is_as_of_a_time_of_the_log_that_the_configuration_names(tmp_path: Path) -> None:
    log_of([0, 1, 2, 3]).write(tmp_path / "elsewhere")
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={tmp_path}\nstorePathCommitLog={tmp_path / 'elsewhere' / 'commitlog'}\n")
    time = FIRST_STORE_TIMESTAMP + 2 * SECOND

    assert 2 == len(offsets(tmp_path, as_of=time, config=config))
    assert "1 file" in str(explain(tmp_path, as_of=time, config=config))


def test_a_record_whose_clock_was_set_back_is_not_there_though_its_time_is_earlier(tmp_path: Path) -> None:
    log = log_of([0, 30, 10, 40])
    root = log.write(tmp_path / "store")
    time = FIRST_STORE_TIMESTAMP + 20 * SECOND

    assert [log.records[0].physical_offset] == offsets(root, as_of=time)
    assert [0, 2] == [log.records.index(each) for each in log.records if each.store_timestamp < time]


def test_other_bounds_hold_as_well(tmp_path: Path) -> None:
    log = log_of(list(range(20)))
    root = log.write(tmp_path / "store")
    at = [record.physical_offset for record in log.records]
    times = [record.store_timestamp for record in log.records]

    assert at[3:7] == offsets(root, as_of=times[7], starting_offsets=at[3])
    assert at[3:5] == offsets(root, as_of=times[7], starting_offsets=at[3], ending_offsets=at[5])
    assert at[2:5] == offsets(root, as_of=times[7], starting_timestamp=times[2], ending_timestamp=times[5])
    assert at[:7] == offsets(root, as_of=times[7], ending_timestamp=times[9])
    assert [] == offsets(root, as_of=times[0])
    assert [] == offsets(root, as_of=times[5], physical_offset=at[6])


def test_what_is_after_the_time_is_neither_read_nor_looked_at(tmp_path: Path) -> None:
    log = log_of(list(range(0, 4000, 100)))
    damaged = log.records[-1]
    log.flip(damaged.physical_offset + 4)
    root = log.write(tmp_path / "store")
    plan = plan_ranges(root, ReadOptions.parse(as_of=log.records[10].store_timestamp))

    assert log.records[10].physical_offset == plan.ranges[-1].end
    assert plan.end is None
    assert plan.notes == ()


def test_a_time_needs_a_zone() -> None:
    with pytest.raises(InvalidOptionError, match="option asOf"):
        ReadOptions.parse(as_of="2024-05-01T12:00:00")

    assert ReadOptions.parse(as_of="2024-05-01T12:00:00", time_zone="UTC").as_of == 1714564800000

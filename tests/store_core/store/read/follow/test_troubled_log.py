# SPDX-License-Identifier: Apache-2.0
"""A log that is appended to, truncated and expired between any two steps of a stream: no record twice, none missed."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from logging.handlers import BufferingHandler
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from store_core.store.read.follow.log_follower import ReadLimits
from store_core.store.read.read_messages import read_messages
from tests.budgets import budget
from tests.store_core.store.read.follow.followed import SIZE, Followed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    import pytest

    from store_core.store.read.follow.log_position import LogPosition

APPEND = st.tuples(st.just("append"), st.integers(1, 25))
TRUNCATE = st.tuples(st.just("truncate"), st.integers(1, 40))
EXPIRE = st.tuples(st.just("expire"), st.integers(1, 3))
READ = st.tuples(st.sampled_from(["plan", "read", "restart"]), st.integers(1, 30))
STEPS = st.lists(APPEND | TRUNCATE | EXPIRE | READ, max_size=25)


class Trial:
    """A stream that takes losses, and what it has read."""

    def __init__(self, followed: Followed) -> None:
        self.followed = followed.restart(fail_on_data_loss=False)
        self.append(8)
        self.position = followed.first()  # of a log with something in it
        self.end: LogPosition | None = None
        self.rows: Counter[tuple[int, int]] = Counter()

    def append(self, count: int) -> None:
        self.followed.log.append_all(*[b"x" * 60] * count)
        self.followed.write()

    def truncate(self, count: int) -> None:
        """Cut off records, but leave as many segments as go, and write on later than before."""
        records = self.followed.log.records
        number = max(len(records) - count, len(records) * 2 // 3, 1)
        if number < len(records) and records[number].physical_offset - self.followed.log.start_offset > 2 * SIZE:
            self.followed.truncate(number, b"written after the recovery")

    def expire(self, count: int) -> None:
        for _ in range(count):
            if len(self.followed.log.segments()) > 4:
                self.followed.expire()

    def plan(self, most: int) -> None:
        """Plan a batch, unless one is planned."""
        if self.end is None:
            self.end = self.followed.advance(self.position, ReadLimits(max_records=most))

    def read(self, most: int) -> None:
        """Read the batch that is planned, as it is then, or a new one."""
        self.plan(most)
        assert self.end is not None
        self.rows.update(row for batch in self.followed.batches(self.position, self.end) for row in rows_of(batch))
        self.position, self.end = self.end, None

    def restart(self, _: int) -> None:
        self.followed.restart()


def rows_of(rows: pa.RecordBatch | pa.Table) -> list[tuple[int, int]]:
    """Return what tells each row from all others: its place, and when it was stored."""
    times = rows["store_timestamp"].cast("int64").to_pylist()
    return list(zip(rows["physical_offset"].to_pylist(), times, strict=True))


@contextmanager
def heard() -> Iterator[list[logging.LogRecord]]:
    """Collect what is logged."""
    log, handler = logging.getLogger("store_core"), BufferingHandler(10**6)
    log.addHandler(handler)
    try:
        yield handler.buffer
    finally:
        log.removeHandler(handler)


@budget(0.5)
@given(steps=STEPS)
def test_a_stream_reads_what_is_left_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    trial = Trial(Followed(tmp_path_factory.mktemp("log") / "store"))
    with heard() as warnings:
        for kind, number in steps:
            getattr(trial, kind)(number)
        for _ in range(3):  # a batch that was planned, what a loss leaves, and the rest
            trial.read(10**6)

    if not any("another log" in warning.getMessage() for warning in warnings):
        assert max(trial.rows.values()) == 1
    assert set(rows_of(read_messages(trial.followed.root).read_all())) <= set(trial.rows)

# SPDX-License-Identifier: Apache-2.0
"""A store that is written, rolled over, truncated and deleted from while it is read or followed."""

from __future__ import annotations

import logging
import os
from collections import Counter
from contextlib import contextmanager, nullcontext
from logging.handlers import BufferingHandler
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import ReadOptions, SegmentVanishedError, plan_ranges, read_messages, read_range
from store_core.files.file_system import OsFileSystem
from store_core.files.mapped_file import MappedFile, TransientStorePool
from store_core.files.store_lock import StoreLock
from store_core.format.record.decode import client_batch
from store_core.store.read.follow.log_follower import ReadLimits
from tests.budgets import budget
from tests.builders import BODY_AT, LogBuilder, Record, patch
from tests.store_core.fakes import FaultyFileSystem
from tests.store_core.store.logs import Log, message
from tests.store_core.store.read.followed import SIZE, Followed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from store_core.store.read.follow.log_segments import LogPosition


SEGMENT_SIZE = 4096


def offsets(path: Path, **options: Any) -> list[int]:  # noqa: ANN401 -- those of reading
    table = read_messages(path, columns=["physical_offset", "body"], **options).read_all()
    found: list[int] = table.column("physical_offset").to_pylist()
    return found


def sample_log(segments: int) -> LogBuilder:
    log = LogBuilder(SEGMENT_SIZE)
    while log.end < segments * SEGMENT_SIZE - 500:
        decoy = Record(b"decoy", physical_offset=log.end + BODY_AT, store_timestamp=2**40).encode()
        log.append(decoy if len(log.records) % 3 else b"x" * (len(log.records) % 200))
    return log


def test_every_state_of_a_record_that_is_being_written_gives_the_records_before_it(tmp_path: Path) -> None:
    log = LogBuilder(SEGMENT_SIZE)
    log.append_all(b"one", b"two")
    before = [record.physical_offset for record in log.records]
    root = log.write(tmp_path, preallocated=1)
    position = log.end
    decoy = Record(b"decoy", physical_offset=position + BODY_AT, store_timestamp=2**40).encode()
    properties = b"TAGS\x01TagA\x02"
    record = log.append(decoy, properties=properties).encode()

    for written in range(len(record) - len(properties)):  # with its length there, nothing proves the properties
        patch(root / "commitlog" / f"{0:020d}", position, record[:written])
        assert offsets(root) == before
        assert offsets(root, mode="PERMISSIVE") == before


def test_every_state_of_a_file_that_is_being_closed_gives_all_records(tmp_path: Path) -> None:
    log = LogBuilder(SEGMENT_SIZE)
    log.append_all(b"one", b"two")
    before = [record.physical_offset for record in log.records]
    root = log.write(tmp_path, preallocated=1)
    position = log.end
    log.roll()
    blank = log.segments()[f"{0:020d}"][position : position + 8]

    for written in range(9):
        patch(root / "commitlog" / f"{0:020d}", position, blank[:written])
        assert offsets(root) == before


def test_a_plan_has_one_end_whatever_is_appended_after_it(tmp_path: Path) -> None:
    log = sample_log(2)
    before = [record.physical_offset for record in log.records]
    root = log.write(tmp_path, preallocated=1)
    options = ReadOptions.parse(columns="physical_offset", max_partition_bytes=500)
    plan = plan_ranges(root, options)
    log.fill(2)
    log.write(tmp_path)
    rows = [row for part in plan.ranges for batch in read_range(part, options) for row in batch.to_pylist()]

    assert [row["physical_offset"] for row in rows] == before


def put_alone(log: Log, first: int) -> int:
    log.put_message(message(b"%d:" % first + bytes(500)))
    return 1


def put_together(log: Log, first: int) -> int:
    log.put_messages(client_batch([message(b"%d:" % (first + number) + bytes(100)) for number in range(9)]))
    return 9


def append_batch(log: Log, first: int) -> int:
    bodies = [b"%d:" % (first + number) + bytes(200) for number in range(20)]  # more than a segment has room for
    log.log.append_batch(pa.table({"topic": ["orders"] * len(bodies), "body": bodies}))
    return len(bodies)


@pytest.mark.parametrize("put", [put_alone, put_together, append_batch])
@pytest.mark.parametrize("is_held", [True, False])
def test_a_reader_sees_a_prefix_at_any_call_of_a_writer(
    put: Callable[[Log, int], int], is_held: bool, tmp_path: Path
) -> None:
    log, seen = Log(tmp_path / "commitlog"), set[int]()

    def look() -> None:
        for mode in ("FAILFAST", "DROPMALFORMED", "PERMISSIVE"):
            read = read_messages(tmp_path, mode=mode, columns=["body"]).read_all()["body"].to_pylist()
            bodies = [body for body in read if body is not None]  # a torn tail is a row of what was not finished
            assert list(range(len(bodies))) == [int(body.partition(b":")[0]) for body in bodies]
            assert len(read) - len(bodies) in ((0, 1) if mode == "PERMISSIVE" and not is_held else (0,))
            seen.add(len(bodies))

    with StoreLock(tmp_path, OsFileSystem()) if is_held else nullcontext():
        count = put(log, 0)
        log.disk.before = dict.fromkeys(("open", "write", "grow", "sync"), look)
        for _ in range(4):
            count += put(log, count)

    assert {count - (count // 5), count // 5} <= seen


def test_a_reader_sees_a_prefix_at_any_call_of_a_commit_of_many_messages(tmp_path: Path) -> None:
    """Those in a write buffer have times of their own: later ones after a gap would look like the end of damage."""
    log, disk = LogBuilder(1 << 16), FaultyFileSystem()
    records = [log.append(b"%d:" % number + bytes(number * 67 % 2900)) for number in range(30)]
    path, seen = tmp_path / "commitlog" / f"{0:020d}", set[int]()
    file = MappedFile.create(path, log.segment_size, disk, TransientStorePool(1, log.segment_size))

    def look() -> None:
        read = read_messages(tmp_path, columns=["body"], mode="FAILFAST").read_all()["body"].to_pylist()
        assert [record.body for record in records[: len(read)]] == read
        seen.add(len(read))

    disk.before = dict.fromkeys(("write", "sync"), look)
    for record in records:
        assert file.append(record.encode())
    file.commit(0)
    look()

    assert {0, len(records)} < seen


SEGMENT = 1 << 16


@pytest.fixture
def root(tmp_path: Path) -> Path:
    log = LogBuilder(SEGMENT)
    log.fill(2)
    log.append(b"last")
    log.write(tmp_path)
    return tmp_path


def begun(root: Path) -> tuple[pa.RecordBatchReader, int]:
    """Begin to read in small batches; return the reader, and how many rows the first one has."""
    reader = read_messages(root, columns=["physical_offset", "body"], max_records_per_batch=20)
    return reader, reader.read_next_batch().num_rows


def first_segment(root: Path) -> Path:
    return root / "commitlog" / f"{0:020d}"


@pytest.mark.parametrize("size", [0, 1000, SEGMENT - 1])
def test_a_segment_that_is_truncated_between_batches_is_a_named_error(root: Path, size: int) -> None:
    reader, _ = begun(root)
    os.truncate(first_segment(root), size)

    with pytest.raises(SegmentVanishedError, match=rf"had {SEGMENT} bytes when it was opened, and has {size} now"):
        reader.read_all()


def test_a_segment_that_is_deleted_or_replaced_is_read_to_its_end(root: Path) -> None:
    expected = read_messages(root, columns=["physical_offset", "body"]).read_all().num_rows
    reader, count = begun(root)
    first_segment(root).unlink()
    first_segment(root).write_bytes(b"another file")

    assert expected == count + reader.read_all().num_rows


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

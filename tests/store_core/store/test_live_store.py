# SPDX-License-Identifier: Apache-2.0
"""A store that a broker writes, rolls over and deletes from while it is read."""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from store_core import ReadOptions, SegmentVanishedError, plan_ranges, read_messages, read_range
from tests.builders import BODY_AT, LogBuilder, Record

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 4096


def offsets(path: Path, **options: Any) -> list[int]:  # noqa: ANN401 -- those of reading
    table = read_messages(path, columns=["physical_offset", "body"], **options).read_all()
    found: list[int] = table.column("physical_offset").to_pylist()
    return found


class Broker:
    """Writes a log into files piece by piece, through a mapping, as RocketMQ does."""

    def __init__(self, root: Path, log: LogBuilder) -> None:
        self.directory = root / "commitlog"
        self.directory.mkdir(parents=True)
        self.files = log.segments()
        self.offsets = [record.physical_offset for record in log.records]

    def allocate(self, name: str) -> None:
        with (self.directory / name).open("ab") as file:
            file.truncate(SIZE)

    def write(self, pieces: int = 3) -> None:
        """Write all segments; the next one is made before it is needed, and each record arrives in pieces."""
        names = [*self.files, f"{len(self.files) * SIZE:020d}"]
        self.allocate(names[0])
        for name, following in pairwise(names):
            self.allocate(following)
            self.fill(name, pieces)

    def fill(self, name: str, pieces: int) -> None:
        data, start = self.files[name], int(name)
        cuts = [at - start for at in self.offsets if start <= at < start + SIZE]
        with (self.directory / name).open("r+b") as file, mmap.mmap(file.fileno(), SIZE) as mapped:
            for begin, end in zip(cuts, [*cuts[1:], SIZE], strict=True):
                step = -(-(end - begin) // pieces)
                for at in range(begin, end, step):
                    mapped[at : min(at + step, end)] = data[at : min(at + step, end)]


def sample_log(segments: int) -> LogBuilder:
    log = LogBuilder(SIZE)
    while log.end < segments * SIZE - 500:
        decoy = Record(b"decoy", physical_offset=log.end + BODY_AT, store_timestamp=2**40).encode()
        log.append(decoy if len(log.records) % 3 else b"x" * (len(log.records) % 200))
    return log


def test_every_state_of_a_record_that_is_being_written_gives_the_records_before_it(tmp_path: Path) -> None:
    log = LogBuilder(SIZE)
    log.append_all(b"one", b"two")
    before = [record.physical_offset for record in log.records]
    root = log.write(tmp_path, preallocated=1)
    position = log.end
    decoy = Record(b"decoy", physical_offset=position + BODY_AT, store_timestamp=2**40).encode()
    properties = b"TAGS\x01TagA\x02"
    record = log.append(decoy, properties=properties).encode()

    for written in range(len(record) - len(properties)):  # with its length there, nothing proves the properties
        with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(position)
            file.write(record[:written])
        assert offsets(root) == before
        assert offsets(root, mode="PERMISSIVE") == before


def test_every_state_of_a_file_that_is_being_closed_gives_all_records(tmp_path: Path) -> None:
    log = LogBuilder(SIZE)
    log.append_all(b"one", b"two")
    before = [record.physical_offset for record in log.records]
    root = log.write(tmp_path, preallocated=1)
    position = log.end
    log.roll()
    blank = log.segments()[f"{0:020d}"][position : position + 8]

    for written in range(9):
        with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(position)
            file.write(blank[:written])
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


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_reads_beside_a_writer_give_longer_and_longer_beginnings(tmp_path: Path, pieces: int) -> None:
    log = sample_log(12)
    broker = Broker(tmp_path, log)
    broker.allocate(f"{0:020d}")
    counts = []
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(broker.write, pieces)
        while not writing.done():
            found = offsets(tmp_path, max_partition_bytes=1000)
            assert found == broker.offsets[: len(found)]
            counts.append(len(found))
        writing.result()

    assert counts == sorted(counts)
    assert offsets(tmp_path) == broker.offsets


def test_reads_beside_retention_give_the_end_of_the_log_or_say_what_vanished(tmp_path: Path) -> None:
    log = sample_log(40)
    root = log.write(tmp_path)
    every = [record.physical_offset for record in log.records]
    segments = sorted((root / "commitlog").iterdir())[:-1]

    def delete() -> None:
        for segment in segments:
            segment.unlink()

    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(delete)
        while not deleting.done():
            found = offsets(root, fail_on_data_loss=False)
            assert set(found) <= set(every)
            assert found[-1] == every[-1]
            try:
                found = offsets(root)
            except SegmentVanishedError as error:
                assert "failOnDataLoss=false" in str(error)  # noqa: PT017 -- it may be raised or not
            else:
                assert found == every[-len(found) :]
        deleting.result()

    assert offsets(root) == [at for at in every if at >= int(segments[-1].name) + SIZE]

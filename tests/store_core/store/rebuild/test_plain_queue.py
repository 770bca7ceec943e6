# SPDX-License-Identifier: Apache-2.0
"""A plain queue in memory is reported and judged exactly as one that is written as a broker does, and read back."""

from __future__ import annotations

import errno
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.files.file_system import OsFileSystem
from store_core.queue.queue_path import QueueRules, queue_path
from store_core.queue.units.consume_queue_unit import CQ_STORE_UNIT_SIZE, stored_units
from store_core.queue.units.unit_rows import PackedUnits, unpack_units
from store_core.store.rebuild.compare import LogBounds, judge_queue
from store_core.store.rebuild.files import QueueReport, QueueWriter
from store_core.store.rebuild.options import RebuildRules
from store_core.store.rebuild.plain_queue import PlainQueue
from store_core.store.rebuild.stored_queues import StoredQueues
from tests.budgets import budget
from tests.store_core.fakes import FakeClock, FaultyFileSystem

FILE_SIZE: Final = 100
RULES: Final = RebuildRules(QueueRules(consume_queue_file_size=FILE_SIZE))
SIZE: Final = 100
FIRST_RECORD: Final = 1000
QUEUE: Final = ("T", 0)
MOSTLY_NONE: Final = st.sampled_from([0, 0, 0, 0, -1, 1])


def packed(first: int, count: int, begin: int = FIRST_RECORD, size: int = SIZE) -> bytes:
    """Pack the units of records that follow one another."""
    numbers = np.arange(count)
    units = stored_units(begin + numbers * SIZE, np.full(count, size), numbers * 3)
    return PackedUnits(np.zeros(count, np.int64), units, first + numbers).piece(0, count)


def written(root: Path, payloads: list[bytes]) -> QueueReport:
    writer = QueueWriter(*QUEUE, RULES, root, root, OsFileSystem(), FakeClock())
    for payload in payloads:
        writer.add(unpack_units(payload))
    return writer.finish()


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def stored(root: Path) -> StoredQueues:
    return StoredQueues(root, RULES.queue_rules)


def change(root: Path, place: int, value: int) -> None:
    """Overwrite a byte of a queue."""
    files = sorted((root / "consumequeue" / QUEUE[0] / str(QUEUE[1])).iterdir())
    file, at = files[place // FILE_SIZE % len(files)], place % FILE_SIZE
    data = bytearray(file.read_bytes())
    data[at] ^= value
    file.write_bytes(data)


@given(
    st.integers(0, 12),
    st.lists(st.tuples(st.integers(1, 7), MOSTLY_NONE, MOSTLY_NONE), max_size=4),
    st.none() | st.tuples(st.integers(0, 10 * FILE_SIZE), st.integers(0, 255)),
    st.sampled_from([0, 0, FIRST_RECORD + SIZE + 1]),
)
@budget(0.5)
def test_a_plain_queue_is_judged_as_its_files_are(
    first: int, shapes: list[tuple[int, int, int]], changed: tuple[int, int] | None, min_offset: int
) -> None:
    payloads, index, begin = [], first, FIRST_RECORD
    for count, jump, overlap in shapes:
        index += jump
        payloads.append(packed(max(index, 0), count, begin - overlap))
        index, begin = max(index, 0) + count, begin + count * SIZE
    plain = PlainQueue.of(payloads, RULES)

    assert plain is not None or not shapes or any(jump or overlap for _, jump, overlap in shapes)
    if plain is None:
        return
    with tempfile.TemporaryDirectory() as scratch:
        ours, theirs = Path(scratch, "ours"), Path(scratch, "theirs")
        report = written(ours, payloads)
        shutil.copytree(ours, theirs)
        if changed is not None:
            change(theirs, *changed)
        judged = judge_queue(*QUEUE, stored(ours), stored(theirs), LogBounds(min_offset, log_end=begin))
        is_equal = plain.is_all_of(stored(theirs), *QUEUE, min_offset)

        plain.write(queue_path(Path(scratch, "plain", "consumequeue"), *QUEUE), RULES.queue_rules, OsFileSystem())
        assert files_of(Path(scratch, "plain")) == files_of(ours)

    assert report == plain.report(*QUEUE)
    if min_offset == 0:
        assert is_equal == (not judged.counts)
        assert not is_equal or judged == plain.judgement(*QUEUE)
    assert not (is_equal and judged.counts)


@pytest.mark.parametrize(
    "payloads",
    [
        [],
        [packed(0, 3), packed(4, 1, FIRST_RECORD + 3 * SIZE)],
        [packed(0, 3), packed(3, 1, FIRST_RECORD + 2 * SIZE)],
        [packed(0, 3, size=SIZE + 1)],
        [packed(0, 3, size=0)],
        [packed(2**63 // FILE_SIZE * (FILE_SIZE // CQ_STORE_UNIT_SIZE), 1)],
        [packed(-1, 2)],
    ],
    ids=["no unit", "a gap", "a record again", "records that overlap", "no size", "a full queue", "below 0"],
)
def test_any_other_queue_is_not_plain(payloads: list[bytes]) -> None:
    assert PlainQueue.of(payloads, RULES) is None


@pytest.mark.parametrize("values", [{"since_offset": 1}, {"is_salvaged": True}])
def test_no_queue_is_plain_if_more_than_its_units_counts(values: dict[str, int]) -> None:
    assert PlainQueue.of([packed(0, 3)], replace(RULES, **values)) is None  # type: ignore[arg-type]  # fields of rules


def test_a_queue_on_a_failing_disk_is_given_up_at_once(tmp_path: Path) -> None:
    """A broker tries for half a minute; a job would wait as long for each of its queues."""
    disk, clock = FaultyFileSystem(), FakeClock()
    writer = QueueWriter(*QUEUE, RULES, tmp_path, tmp_path, disk, clock)
    disk.fail("open", errno.EIO, times=1000)
    before = clock.monotonic()
    writer.add(unpack_units(packed(0, 1)))

    assert before == clock.monotonic()
    with pytest.raises(OSError, match="could not be written"):
        writer.finish()

# SPDX-License-Identifier: Apache-2.0
"""Units of files that are not mapped, as in a store that is opened to read only: what isn't asked for isn't read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from store_core.files.overlay_file_system import OverlayFile, OverlayFileSystem
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue import ConsumeQueue, QueueServices
from store_core.queue.consume_queue.queue_search import BoundaryType, LogTimes
from store_core.queue.consume_queue_unit import BATCH_UNIT_SIZE, CQ_STORE_UNIT_SIZE, FileUnits, batch_units
from store_core.queue.queue_path import QueueRules
from store_core.store.get_message import queue_units
from tests.store_core.fakes import FakeClock, FaultyFileSystem

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem

_UNITS: Final = 20_000
_FILES: Final = 3
_RULES: Final = QueueRules(
    consume_queue_file_size=_UNITS * CQ_STORE_UNIT_SIZE, batch_consume_queue_file_size=_UNITS * BATCH_UNIT_SIZE
)
_LOG: Final = LogTimes(lambda physical_offset, _: physical_offset // 100, 0)
"""A log in which the record at 100 * n is stored at n."""


def _queue(directory: Path, disk: FileSystem, *, is_batch: bool) -> ConsumeQueue | BatchConsumeQueue:
    services = QueueServices(_RULES, disk, FakeClock())
    return (BatchConsumeQueue if is_batch else ConsumeQueue)("T", 0, directory, services)


def _write(directory: Path, *, is_batch: bool) -> None:
    """Write a queue in which unit n is of the record at 100 * n, of one message, stored at n."""
    numbers = np.arange(_FILES * _UNITS)
    ones = np.ones(len(numbers), np.int64)
    queue = _queue(directory, FaultyFileSystem(), is_batch=is_batch)
    if isinstance(queue, ConsumeQueue):
        assert queue.put_units(100 * numbers, 100 * ones, ones, numbers)
    else:
        columns = {"physical_offset": 100 * numbers, "store_size": 100 * ones, "tags_code": ones}
        columns |= {"store_timestamp": numbers, "msg_base_offset": numbers, "batch_size": ones}
        assert queue.put_units(batch_units(columns))


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_question_reads_few_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_batch: bool) -> None:
    _write(tmp_path, is_batch=is_batch)
    read: list[int] = []
    view = OverlayFile._view

    def counted(file: OverlayFile, begin: int, end: int) -> memoryview:
        read.append(end - begin)
        return view(file, begin, end)

    monkeypatch.setattr(OverlayFile, "_view", counted)
    queue = _queue(tmp_path, OverlayFileSystem(FaultyFileSystem(), FakeClock()), is_batch=is_batch)
    queue.load()
    queue.recover()
    read.clear()
    for number in (7, _UNITS + 70, _FILES * _UNITS - 1):
        assert 100 * number == next(queue_units(queue, number) or iter(())).physical_offset
        assert number == queue.get_offset_in_queue_by_time(number, BoundaryType.LOWER, _LOG)
    last = queue.last_unit
    assert last is not None
    assert _FILES * _UNITS - 1 == last.queue_offset
    queue.correct_min_offset(100 * 70)
    assert 70 == queue.min_offset_in_queue
    assert max(read) <= 1024 * queue.unit_dtype.itemsize
    assert sum(read) <= _UNITS * queue.unit_dtype.itemsize / 10


def test_a_unit_beyond_the_last_is_an_error(tmp_path: Path) -> None:
    _write(tmp_path, is_batch=False)
    queue = _queue(tmp_path, FaultyFileSystem(), is_batch=False)
    queue.load()
    queue.recover()
    units = FileUnits(queue.mapped_file_queue.first_mapped_file, begin=(_UNITS - 2) * CQ_STORE_UNIT_SIZE)

    assert [100 * (_UNITS - 2), 100 * (_UNITS - 1)] == [int(units[at]["physical_offset"]) for at in (0, 1)]
    assert 0 == len(units[5:])
    assert 100 * (_UNITS - 1) == int(units[-1]["physical_offset"])
    with pytest.raises(IndexError):
        units[2]
    assert 0 == len(FileUnits(None))

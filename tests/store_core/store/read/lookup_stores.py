# SPDX-License-Identifier: Apache-2.0
"""Stores with queues for tests of look-ups, ways to make their queues lie, and the comparison with a scan."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from store_core import CorruptRecordError, ReadOptions, read_range
from store_core.store.read.lookup.costs import LookUpCosts
from store_core.store.read.read_plan import plan_and_walk
from tests.builders import LogBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from store_core.store.read.read_plan import ReadPlan
    from tests.builders import Record

__all__ = ["ALWAYS", "UNIT", "same_as_scan", "small_store", "write_queues"]

ALWAYS: Final = LookUpCosts(least_log=0, per_file=0, per_record=1, most_share=1e9)
"""Look-ups are worth everything, so that they are used wherever they can be."""

UNIT: Final = struct.Struct(">qiq")
_ROLLBACK: Final = 0x0C
_SEGMENT: Final = 1024


def small_store(root: Path, *, segments: int = 4) -> LogBuilder:
    """Write a store of three topics with two queues each, in small segments, with a rolled-back record in each."""
    log = LogBuilder(_SEGMENT)
    number = 0
    while log.end < segments * _SEGMENT - _SEGMENT // 2:
        topic, queue_id = f"t{number % 3}", number // 3 % 2
        log.append(b"x" * (number % 5), topic=topic, queue_id=queue_id, properties={"KEYS": f"k{number}"})
        if number % 7 == 0:
            log.append(b"gone", topic=topic, queue_id=queue_id, sys_flag=_ROLLBACK, queue_offset=0)
            log._next[topic, queue_id] -= 1
        number += 1
    log.write(root)
    write_queues(root, log.records)
    return log


def write_queues(root: Path, records: Iterable[Record], *, units_per_file: int = 8) -> None:
    """Write the consume queues of records, in files of a few units."""
    units: dict[tuple[str, int], list[bytes]] = {}
    for record in records:
        if record.sys_flag & _ROLLBACK != _ROLLBACK:
            unit = UNIT.pack(record.physical_offset, record.size, 0)
            units.setdefault((str(record.topic), record.queue_id), []).append(unit)
    size = units_per_file * UNIT.size
    for (topic, queue_id), packed in units.items():
        directory = root / "consumequeue" / topic / str(queue_id)
        directory.mkdir(parents=True)
        data = b"".join(packed)
        for start in range(0, len(data), size):
            directory.joinpath(f"{start:020d}").write_bytes(data[start : start + size].ljust(size, b"\0"))


def _read(root: Path, costs: LookUpCosts, options: ReadOptions) -> tuple[pa.Table | None, ReadPlan]:
    plan, mapped = plan_and_walk(root, options, costs)
    try:
        batches = [batch for part in plan.ranges for batch in read_range(part, options, mapped)]
    except CorruptRecordError:
        return None, plan
    return pa.Table.from_batches(batches) if batches else pa.table({}), plan


def same_as_scan(root: Path, **options: Any) -> ReadPlan:  # noqa: ANN401 -- those of reading
    """Check that a look-up returns the rows of the scan, unless that stops at damage; return the look-up's plan."""
    expected, scanned = _read(root, ALWAYS, ReadOptions.parse(**options, use_consume_queues="never"))
    assert all(part.picks is None for part in scanned.ranges)

    actual, plan = _read(root, ALWAYS, ReadOptions.parse(**options))
    assert expected is None or (actual is not None and expected.equals(actual)), plan.explanation
    return plan

# SPDX-License-Identifier: Apache-2.0
"""A scan gathers from each message once, whatever is damaged, and however the log is divided."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from store_core.answers import message_reads
from store_core.answers.answer import processes as engine_of
from store_core.answers.message_reads import MessageScan, ScanCounts
from store_core.snapshot.store import Store
from tests.builders import BODY_AT, SIZE_AT, LogBuilder

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from store_core.files.segment_source import Segment
    from store_core.store.parts import Engine


class Offsets:
    """Gathers where messages are."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []

    def add(self, batch: pa.RecordBatch, segment: Segment) -> None:
        self.found += [(segment.name, offset) for offset in batch.column("physical_offset").to_pylist()]

    def absorb(self, other: Offsets) -> None:
        self.found += other.found


class OffsetScan(MessageScan[Offsets]):
    COLUMNS: ClassVar[tuple[str, ...]] = ("topic",)

    def nothing(self) -> Offsets:
        return Offsets()


@pytest.mark.parametrize("part_bytes", [1 << 30, 1000])
def test_each_message_is_gathered_once_in_log_order(
    tmp_path: Path, part_bytes: int, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_reads, "PART_BYTES", part_bytes)
    log = LogBuilder()
    log.append_all(*(b"body %d" % number for number in range(60)))
    damaged = log.records[20]
    log.flip(log.records[3].physical_offset + BODY_AT)  # a body that nobody reads
    log.flip(damaged.physical_offset + SIZE_AT, 1)
    found, counts = engine.run(OffsetScan(Store(log.write(tmp_path))))

    sound = [each for each in log.records if each is not damaged]
    assert [each.physical_offset for each in sound] == [offset for _, offset in found.found]
    assert all(int(name) <= offset < int(name) + 4096 for name, offset in found.found)
    assert ScanCounts(59, sum(each.size for each in sound), 1, damaged.size) == counts


def test_what_a_crash_left_after_the_end_is_no_damage(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append_all(b"one", b"two")
    store = log.write(tmp_path)
    (store / "lock").touch()
    segment = next((store / "commitlog").iterdir())
    end = log.records[-1].physical_offset
    segment.write_bytes(segment.read_bytes()[: end + 60].ljust(4096, b"\0"))
    with engine_of(1) as engine:
        _, counts = engine.run(OffsetScan(Store(store)))

    assert ScanCounts(1, log.records[0].size) == counts


def test_a_last_record_whose_body_is_damaged_is_after_the_end(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append_all(b"one", b"two")
    log.flip(log.records[-1].physical_offset + BODY_AT)
    scan = OffsetScan(Store(log.write(tmp_path)))
    with engine_of(1) as engine:
        _, counts = engine.run(scan)

    assert ScanCounts(1, log.records[0].size) == counts
    assert f"the log ends at offset {log.records[0].size}" in scan.notes[0]

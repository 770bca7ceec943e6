# SPDX-License-Identifier: Apache-2.0
"""One scan for several reads finds what each finds by itself, each message once, whatever the log is."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.answers import message_reads
from store_core.answers.answer import processes as engine_of
from store_core.answers.message_reads import MessageRead, MessageScan, ReadJob, ScanCounts, SharedScan, read_of
from store_core.snapshot.store import Store
from store_core.store.parts import InProcess
from tests.budgets import budget
from tests.builders import BODY_AT, SIZE_AT, LogBuilder
from tests.life_logs import LifeLog

if TYPE_CHECKING:
    from store_core.files.segment_source import Segment
    from store_core.store.parts import Engine

TOPICS = ("orders", "half", "%RETRY%g", "op", b"\xff")
COLUMNS = ("topic", "queue_id", "physical_offset", "store_size", "sys_flag", "unique_key", "body")


def reads() -> dict[str, MessageRead]:
    return {
        "one": read_of(COLUMNS, topic="half"),
        "two": read_of(("unique_key",), topic=["op", "%RETRY%g"]),
        "settled": read_of(COLUMNS[:-1], settled_heads, flag_bits=12),
    }


def settled_heads(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.not_equal(pc.bit_wise_and(batch["sys_flag"], 12), 0))


@st.composite
def life_logs(draw: st.DrawFn) -> LifeLog:
    """Draw a log of several topics and flags, and break some of it."""
    log = LifeLog(512, draw(st.sampled_from([0, 1024])))
    kinds = st.tuples(st.sampled_from(TOPICS), st.sampled_from([0, 4, 8, 12, 1]), st.binary(max_size=40))
    for topic, flag, body in draw(st.lists(kinds, min_size=1, max_size=25)):
        log.append(body, topic=topic, sys_flag=flag, properties={"UNIQ_KEY": f"U{len(log.records)}"})
    for place in draw(st.lists(st.integers(log.start_offset, log.end - 1), max_size=3)):
        log.flip(place, min(draw(st.integers(1, 8)), log.end - place))
    return log


@given(life_logs())
@budget(0.5)
def test_a_shared_scan_finds_what_each_read_finds_and_the_damage(log: LifeLog) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = Store(log.write(Path(directory) / "store"))
        found = InProcess().run(SharedScan(store, reads()))
        permissive = store.messages(columns=["physical_offset", "store_size", "magic_code", "topic"], mode="PERMISSIVE")
        rows = [row for row in permissive.read_all().to_pylist() if row["magic_code"] is None]
        # What is shown after the last record is no damage, unless no record before it is sound, and in its place.
        read, damage = (
            [(row["physical_offset"], row["store_size"]) for row in some if row["physical_offset"] < log.end]
            for some in (rows, found.damage.to_pylist())
        )

        assert found.tables == {name: InProcess().run(ReadJob(store, read)) for name, read in reads().items()}
        assert read == damage


class Offsets:
    """Gathers where messages are."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []

    def add(self, batch: pa.RecordBatch, segment: Segment) -> None:
        self.found += [(segment.name, offset) for offset in batch.column("physical_offset").to_pylist()]

    def absorb(self, other: Offsets) -> None:
        self.found += other.found


def offset_scan(store: Path) -> MessageScan[Offsets]:
    return MessageScan(Store(store), ("topic",), Offsets)


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
    found, counts = engine.run(offset_scan(log.write(tmp_path)))

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
        _, counts = engine.run(offset_scan(store))

    assert ScanCounts(1, log.records[0].size) == counts


def test_a_last_record_whose_body_is_damaged_is_after_the_end(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append_all(b"one", b"two")
    log.flip(log.records[-1].physical_offset + BODY_AT)
    scan = offset_scan(log.write(tmp_path))
    with engine_of(1) as engine:
        _, counts = engine.run(scan)

    assert ScanCounts(1, log.records[0].size) == counts
    assert f"the log ends at offset {log.records[0].size}" in scan.notes[0]

# SPDX-License-Identifier: Apache-2.0
"""One scan for several reads finds what each read finds by itself, whatever the log is."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from store_core.answers import transactions
from store_core.answers.message_reads import MessageRead, ReadJob, SharedScan, read_of
from store_core.snapshot.store import Store
from store_core.store.parts import InProcess
from tests.budgets import budget
from tests.life_logs import BEGIN, LifeLog

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
        damaged = [row for row in permissive.read_all().to_pylist() if row["magic_code"] is None]

        assert found.tables == {name: InProcess().run(ReadJob(store, read)) for name, read in reads().items()}
        assert [(row["physical_offset"], row["store_size"]) for row in damaged if row["physical_offset"] < log.end] == [
            tuple(row.values()) for row in found.damage.to_pylist()
        ]


def test_records_in_an_archive_are_read_without_picking(tmp_path: Path) -> None:
    log = LifeLog(1024)
    for number in range(8):
        log.op(log.half(f"t{number}"))
    root = log.write(tmp_path / "store")
    expected = transactions(root, now=BEGIN, lists_all=True).to_json()
    for segment in (root / "commitlog").iterdir():
        segment.with_name(f"{segment.name}.gz").write_bytes(gzip.compress(segment.read_bytes()))
        segment.unlink()

    assert expected == transactions(root, now=BEGIN, lists_all=True).to_json()

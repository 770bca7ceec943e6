# SPDX-License-Identifier: Apache-2.0
"""One scan for several reads finds what each read finds by itself, whatever the log is."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from store_core.answers import delays, message_reads, transactions
from store_core.answers.answer import processes as engine_of
from store_core.answers.message_reads import MessageRead, ReadJob, can_share_scan, read_of, rows_by_one_scan
from store_core.snapshot.store import Store
from tests.budgets import budget
from tests.life_logs import BEGIN, LifeLog

if TYPE_CHECKING:
    import pytest

TOPICS = ("orders", "half", "%RETRY%g", "op", b"\xff")
COLUMNS = ("topic", "queue_id", "physical_offset", "store_size", "sys_flag", "unique_key", "body", "magic_code")
HEADS = tuple(name for name in COLUMNS if name != "body")


def flagged(batch: pa.RecordBatch) -> pa.RecordBatch:
    bits = pc.fill_null(pc.bit_wise_and(batch["sys_flag"], 12), 1)
    return batch.filter(pc.not_equal(bits, 0))


def reads() -> dict[str, MessageRead]:
    return {
        "one": read_of(COLUMNS, topic="half"),
        "two": read_of(("unique_key",), topic=["op", "%RETRY%g"]),
        "settled": read_of(HEADS, flagged, is_permissive=True, flag_bits=12),
        "damage": read_of(COLUMNS[:5], is_permissive=True, topic="orders"),
    }


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
def test_a_shared_scan_finds_what_each_read_finds(log: LifeLog) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = log.write(Path(directory) / "store")
        job = ReadJob(Store(root), reads())
        parts = [part for part in job.plan() if len(part.ranges) > 1]
        for part in parts:
            alone = {name: job.reads[name].rows_of(each) for name, each in part.ranges}

            assert alone == dict(rows_by_one_scan({name: (job.reads[name], each) for name, each in part.ranges}))
            for name, each in part.ranges:
                assert [(name, alone[name])] == rows_by_one_scan({name: (job.reads[name], each)})
        assert all(len(job.reads) == len(part.ranges) for part in parts)


@given(life_logs(), st.data())
@budget(0.3)
def test_reads_of_different_ends_each_find_their_own(log: LifeLog, data: st.DataObject) -> None:
    """In a growing log, what is planned later ends later."""
    with tempfile.TemporaryDirectory() as directory:
        job = ReadJob(Store(log.write(Path(directory) / "store")), reads())
        for part in job.plan():
            starts = [each.physical_offset for each in log.records]
            whole = part.ranges[0][1]
            mine = [at for at in starts if whole.begin < at < whole.end]
            end = data.draw(st.sampled_from(mine)) if mine else whole.end
            ranges = dict(part.ranges) | {"one": replace(whole, end=end, data_end=min(end, whole.data_end))}
            alone = {name: job.reads[name].rows_of(each) for name, each in ranges.items()}
            found = dict(rows_by_one_scan({name: (job.reads[name], each) for name, each in ranges.items()}))

            assert alone["one"] == found["one"]
            assert alone == found


def test_a_read_of_all_messages_or_of_keys_is_not_shared() -> None:
    assert not can_share_scan(read_of(("topic",)))
    assert not can_share_scan(read_of(("topic",), key="a"))
    assert not can_share_scan(read_of(("body",), topic="a", is_permissive=True))
    assert not can_share_scan(read_of(("topic",), topic="a", starting_timestamp=1))
    assert can_share_scan(read_of(("body",), topics_pattern="a.*"))


def test_answers_are_the_same_with_and_without_a_shared_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LifeLog(1024)
    for number in range(12):
        half = log.half(f"t{number}")
        log.delayed(f"d{number}", 1 + number % 3)
        log.send(f"m{number}")
        if number % 3:
            log.commit(half, f"t{number}")
            log.op(half)
        log.timer(f"r{number}", BEGIN + number)
    root = log.write(tmp_path / "store")
    answers: list[Any] = [
        lambda: transactions(root, now=BEGIN, lists_all=True).to_json(),
        lambda: delays(root, now=BEGIN, lists_all=True).to_json(),
    ]
    shared = [answer() for answer in answers]
    monkeypatch.setattr(message_reads, "can_share_scan", lambda _: False)

    assert shared == [answer() for answer in answers]
    assert {row["state"] for row in shared[0]["tables"]["transactions"]} >= {"committed", "pending"}


def test_a_pool_makes_the_same_tables(tmp_path: Path) -> None:
    log = LifeLog(512)
    for number in range(20):
        log.append(b"x", topic=TOPICS[number % 4], sys_flag=(number % 2) * 8)
    job = ReadJob(Store(log.write(tmp_path / "store")), reads())
    with engine_of(1) as engine:
        found = engine.run(job).tables

    assert {"one": 5, "two": 10} == {name: found[name].num_rows for name in ("one", "two")}

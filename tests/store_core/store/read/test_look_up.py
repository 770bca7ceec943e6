# SPDX-License-Identifier: Apache-2.0
"""Look-ups by queues return the rows of a scan, or `check` has a finding, wherever the store is."""

from __future__ import annotations

import random
import shutil
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import InvalidOptionError, ReadOptions, explain, plan_ranges, read_messages
from store_core.snapshot.config import RECOVERY_MARGIN_MS
from store_core.store.read.lookup.explanation import ReadExplanation
from tests.budgets import budget
from tests.builders import BODY_AT, LogBuilder, Record
from tests.store_core.store.damaged_stores import damaged_archives, unpack_damaged
from tests.store_core.store.read.lookup_stores import (
    ALWAYS,
    OPTIONS,
    UNIT,
    has_findings,
    keeps_the_promise,
    lie_in_queues,
    lying_copy,
    promised_rows,
    questions_about,
    same_as_scan,
    small_store,
    write_queues,
)
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.golden_stores import UnpackedStore

pytestmark = pytest.mark.usefixtures("no_pauses", "few_bytes")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("look-ups") / "store"
    small_store(root)
    return root


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_sound_store_is_looked_up(store: Path, options: dict[str, Any]) -> None:
    plan, elsewhere = (same_as_scan(store, at, **options) for at in (store, in_memory(store, "queues")))

    assert plan.explanation.plan == elsewhere.explanation.plan == "queues"
    assert all(part.picks is not None for part in plan.ranges[:-1])  # the log is scanned behind the last unit


def test_a_look_up_reads_only_its_records(store: Path) -> None:
    plan = same_as_scan(store, topic="t0", queue_id=0)
    scan = explain(store, topic="t0", queue_id=0, use_consume_queues="never")

    assert plan.explanation.bytes < scan.bytes / 3


@pytest.mark.parametrize("mode", ["DROPMALFORMED", "PERMISSIVE"])
def test_modes_that_look_for_damage_scan(store: Path, mode: str) -> None:
    assert same_as_scan(store, topic="t0", mode=mode).explanation.plan == "scan"


def test_a_topic_whose_queues_are_gone_is_scanned_for(tmp_path: Path) -> None:
    """Its messages are in the log until they expire, also after a broker deleted the topic with its queues."""
    small_store(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue" / "t1")

    plans = {topic: same_as_scan(tmp_path, topic=topic).explanation for topic in ("t0", "t1")}

    assert [plan.plan for plan in plans.values()] == ["queues", "scan"]
    assert plans["t1"].why == "topic 't1' has no queue that is asked for"


def test_a_queue_that_is_not_asked_for_can_be_broken(tmp_path: Path) -> None:
    """Its last unit leads nowhere, so that another queue, or the index, says how far the log was dispatched."""
    small_store(tmp_path)
    file = max((tmp_path / "consumequeue" / "t1" / "0").iterdir())
    units = bytearray(file.read_bytes())
    last = next(at for at in range(len(units) - UNIT.size, -1, -UNIT.size) if UNIT.unpack_from(units, at)[1] > 0)
    UNIT.pack_into(units, last, -1, 200, 0)
    file.write_bytes(units)

    assert same_as_scan(tmp_path, topic="t0").explanation.plan == "queues"
    assert same_as_scan(tmp_path, topic="t1").explanation.plan == "scan"


def test_a_queue_whose_file_has_the_name_of_no_unit_is_scanned_for(tmp_path: Path) -> None:
    small_store(tmp_path)
    file = min((tmp_path / "consumequeue" / "t1" / "0").iterdir())
    file.rename(file.with_name(f"{7:020d}"))

    assert same_as_scan(tmp_path, topic="t0").explanation.plan == "queues"
    explanation = same_as_scan(tmp_path, topic="t1").explanation
    assert explanation.plan == "scan"
    assert "no unit of a queue begins at byte 7" in explanation.why


@budget(0.4)
@given(seed=st.integers(0, 2**32), lies=st.integers(1, 4))
def test_lying_queues_give_sound_rows_and_lack_none_without_a_finding(
    tmp_path_factory: pytest.TempPathFactory, store: Path, seed: int, lies: int
) -> None:
    root = tmp_path_factory.getbasetemp() / "lying"
    drawn = lying_copy(store, root, seed, lies, lie_in_queues)

    asked = drawn.sample(OPTIONS, 3)
    for options in asked:
        keeps_the_promise(root, **options)
    keeps_the_promise(root, in_memory(root, "lying"), **asked[0])


def test_after_an_unclean_end_the_log_is_scanned_from_where_a_recovery_would_begin(tmp_path: Path) -> None:
    """The checkpoint covers the first two segments; units of a later one were lost with the power."""
    log = small_store(tmp_path)
    starts = sorted(int(path.name) for path in (tmp_path / "commitlog").iterdir())
    lost = next(record for record in log.records if record.physical_offset > starts[2] and record.topic == "t0")
    covered = next(record for record in log.records if record.physical_offset >= starts[1])
    path = tmp_path / "consumequeue" / "t0" / str(lost.queue_id)
    for file in sorted(path.iterdir()):
        kept = max(lost.queue_offset * UNIT.size - int(file.name), 0)
        file.write_bytes(file.read_bytes()[:kept].ljust(file.stat().st_size, b"\0"))
    (tmp_path / "abort").touch()
    time = covered.store_timestamp + RECOVERY_MARGIN_MS
    (tmp_path / "checkpoint").write_bytes(struct.pack(">qqq", time, time, 0).ljust(4096, b"\0"))

    plan = same_as_scan(tmp_path, topic="t0")
    (tmp_path / "abort").unlink()
    _, missing = promised_rows(tmp_path, topic="t0")

    assert plan.explanation.plan == "queues"
    assert starts[1] in [part.begin for part in plan.ranges if part.picks is None]
    assert lost.physical_offset in missing
    assert has_findings(tmp_path)


@pytest.mark.golden
def test_golden_stores_are_looked_up_as_they_are_scanned(golden_store: UnpackedStore) -> None:
    drawn = random.Random(golden_store.golden.name)  # noqa: S311 -- reproducible

    for options in questions_about(golden_store.root, drawn, 1):
        keeps_the_promise(golden_store.root, release=golden_store.golden.release, **options)


@pytest.mark.golden
@pytest.mark.parametrize("name", ["4.9.7/tx", "5.3.3/bcq", "5.3.3/propcrc"])
def test_a_golden_store_elsewhere_is_looked_up(name: str, golden: Callable[[str], UnpackedStore]) -> None:
    _check_elsewhere(golden(name), 2)


@pytest.mark.soak
def test_every_golden_store_elsewhere_is_looked_up(golden_store: UnpackedStore) -> None:
    _check_elsewhere(golden_store, 6)


def _check_elsewhere(store: UnpackedStore, most: int) -> None:
    url, drawn = in_memory(store.root, "golden"), random.Random(store.golden.name)  # noqa: S311 -- reproducible
    for options in questions_about(store.root, drawn, most):
        keeps_the_promise(store.root, url, release=store.golden.release, **options)


def test_a_message_id_is_checked_and_found_in_any_case(tmp_path: Path) -> None:
    log = small_store(tmp_path)
    ids = read_messages(tmp_path, columns=["msg_id"]).read_all()["msg_id"].to_pylist()

    found = read_messages(tmp_path, msg_id=ids[5].lower(), columns=["physical_offset"]).read_all()

    assert found["physical_offset"].to_pylist() == [log.records[5].physical_offset]
    assert not read_messages(tmp_path, msg_id="FF" * 16).read_all().num_rows
    with pytest.raises(InvalidOptionError, match="expected an offset message id of 32 hexadecimal digits"):
        read_messages(tmp_path, msg_id="7F0000010A1B18B4AAC2")


def test_a_position_is_proven_by_the_unit_of_its_own_queue(tmp_path: Path) -> None:
    log = small_store(tmp_path)

    for record in log.records:
        plan = same_as_scan(tmp_path, physical_offset=record.physical_offset)
        is_queued = record.body != b"gone"
        assert [is_queued] == [part.picks is not None for part in plan.ranges]
        assert is_queued == ("has a unit for it" in plan.explanation.why)
    url = in_memory(tmp_path, "positions")
    for position in (record.physical_offset + at for record in log.records[::9] for at in (0, 1)):
        assert same_as_scan(tmp_path, url, physical_offset=position).explanation.plan == "position"


def test_no_position_inside_a_record_is_one(tmp_path: Path) -> None:
    """The body holds a record that would fit its place, and a queue has a unit for another one."""
    log = LogBuilder(4096)
    inner = Record(b"inner", topic="t0", queue_offset=0)
    place = log.append(b"first", topic="t0", queue_id=3).end + BODY_AT
    log.append(replace(inner, physical_offset=place).encode(), topic="t1")
    log.write(tmp_path)
    write_queues(tmp_path, log.records)

    assert not same_as_scan(tmp_path, physical_offset=place).explanation.records
    assert not read_messages(tmp_path, physical_offset=place).read_all().num_rows


@pytest.mark.parametrize("change", [1, -1, 100])
def test_a_unit_that_leads_elsewhere_proves_no_position(tmp_path: Path, change: int) -> None:
    log = small_store(tmp_path)
    record = log.records[4]
    path = tmp_path / "consumequeue" / str(record.topic) / str(record.queue_id) / f"{0:020d}"
    data = bytearray(path.read_bytes())
    offset, size, code = UNIT.unpack_from(data, record.queue_offset * UNIT.size)
    UNIT.pack_into(data, record.queue_offset * UNIT.size, offset + change, size, code)
    path.write_bytes(data)

    explained = same_as_scan(tmp_path, physical_offset=record.physical_offset).explanation
    assert "is walked to it" in explained.why
    assert explained.bytes == record.physical_offset % 4096 + 1  # the lengths of those before it, too


def test_an_explanation_says_what_is_read(tmp_path: Path) -> None:
    small_store(tmp_path)

    assert str(explain(tmp_path, topic="t0")).startswith("scan: a scan reads less")
    never = plan_ranges(tmp_path, ReadOptions.parse(topic="t0", use_consume_queues="never"), ALWAYS).explanation
    assert str(never).startswith("scan: option use_consume_queues is never")
    explained = plan_ranges(tmp_path, ReadOptions.parse(topic="t0"), ALWAYS).explanation
    assert "units of queues" in str(explained)
    assert "\n" not in explained.line


def test_an_explanation_counts_in_words_that_agree() -> None:
    one = ReadExplanation("queues", "why", files=1, bytes=1, units=1, entries=1, records=1)
    more = ReadExplanation("queues", "why", files=2, bytes=2_000, units=3_000, entries=4, records=0)

    assert "reads 1 byte of the log in 1 file" in one.line
    assert "of 1 unit of queues and 1 entry of the index, 1 record is read at its position" in one.line
    assert "reads 2,000 bytes of the log in 2 files" in more.line
    assert "of 3,000 units of queues and 4 entries of the index, 0 records are read at their positions" in more.line
    assert "of 1 unit of queues, 1 record is read" in replace(one, entries=0).line


def test_a_store_without_queues_is_scanned(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append_all(b"one", b"two", topic="t0")
    log.write(tmp_path)

    assert same_as_scan(tmp_path, topic="t0").explanation.why == "there are no queues and no index beside the log"


ARCHIVES: Final = damaged_archives()
_STEP: Final = 16


def _look_up(archive: Path, directory: Path) -> set[str]:
    root = unpack_damaged(archive, directory) / "store"
    drawn = random.Random(archive.name)  # noqa: S311 -- reproducible
    url, asked = in_memory(root, archive.name), questions_about(root, drawn, 2)
    for options in asked[::2]:
        keeps_the_promise(root, url, **options)
    return {keeps_the_promise(root, **options) for options in asked}


@pytest.mark.golden
@pytest.mark.parametrize("archive", ARCHIVES[::_STEP], ids=lambda archive: archive.name.split(".")[0])
def test_a_look_up_in_a_damaged_store_keeps_the_promise(archive: Path, tmp_path: Path) -> None:
    _look_up(archive, tmp_path)


@pytest.mark.soak
def test_a_look_up_in_any_damaged_store_keeps_the_promise(tmp_path: Path) -> None:
    plans = {plan for archive in ARCHIVES for plan in _look_up(archive, tmp_path)}

    assert {"scan", "queues", "index", "position"} <= plans

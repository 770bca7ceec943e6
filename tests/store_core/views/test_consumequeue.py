# SPDX-License-Identifier: Apache-2.0
"""The view `consumequeue`: units of sound, damaged, growing and hostile queues."""

from __future__ import annotations

import os
import shutil
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import SegmentVanishedError
from store_core.snapshot.store import Store
from store_core.views.view import ViewOptions, plan_view
from tests.store_core.views.asking import column, rows
from tests.viewed_store import FILE_SIZE

if TYPE_CHECKING:
    from pathlib import Path

UNIT = struct.Struct(">qiq")
BATCH_UNIT = struct.Struct(">qiqqqhii")
FILLER = UNIT.pack(0, 2**31 - 1, 0)
UNITS_OF_A_FILE = FILE_SIZE // UNIT.size


def write_queue(root: Path, *units: bytes, start: int = 0, size: int = FILE_SIZE, topic: str = "t") -> Path:
    """Write one file of queue 0 of a topic: units of 20 bytes, then zeros."""
    path = root / "consumequeue" / topic / "0" / f"{start:020d}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(units).ljust(size, b"\0"))
    return path


def unit(number: int) -> bytes:
    return UNIT.pack(100 * number, 100, number)


def offsets(root: Path, **options: object) -> list[int]:
    return column(root, "consumequeue", "queue_offset", **options)


def test_fields_are_those_of_a_unit(tmp_path: Path) -> None:
    write_queue(tmp_path, FILLER, UNIT.pack(2**40, 123, -7), start=FILE_SIZE)
    common = {"topic": "t", "queue_id": 0, "kind": "simple", "store_timestamp": None, "segment": f"{FILE_SIZE:020d}"}
    filler = {"queue_offset": 20, "physical_offset": 0, "store_size": 2**31 - 1, "tags_code": 0, "batch_num": 0}
    last = {"queue_offset": 21, "physical_offset": 2**40, "store_size": 123, "tags_code": -7, "batch_num": 1}

    assert [
        {**common, **filler, "is_filler": True},
        {**common, **last, "is_filler": False},
    ] == rows(tmp_path, "consumequeue")


def test_a_hole_of_a_sparse_file_is_not_read_and_counts_like_zeros(tmp_path: Path) -> None:
    path = write_queue(tmp_path, unit(1))
    with path.open("r+b") as file:
        file.truncate(60_000_000)
        file.seek(30_000_000)
        file.write(unit(2))
    sizes = column(tmp_path, "consumequeue", "store_size", starting_offsets={"t": {0: 1_499_999}})

    assert [0, 100] == sizes
    assert 1_500_001 == len(offsets(tmp_path))


def test_a_unit_whose_last_bytes_are_a_hole_is_read(tmp_path: Path) -> None:
    units = [UNIT.pack(100 * number, 100, 0) for number in range(205)]
    path = write_queue(tmp_path, *units[:-1], units[-1][:16])
    with path.open("r+b") as file:
        file.truncate(6_000_000)

    assert 4096 == sum(map(len, units)) - 4
    assert 205 == len(offsets(tmp_path))
    assert [205] == column(tmp_path, "topics", "max_offset")


@given(st.lists(st.sampled_from([unit(1), bytes(20), FILLER, UNIT.pack(-1, -1, -1), UNIT.pack(9, 0, 9)]), max_size=50))
def test_rows_are_the_units_up_to_the_last_that_has_a_size(
    tmp_path_factory: pytest.TempPathFactory, units: list[bytes]
) -> None:
    root = tmp_path_factory.mktemp("units")
    root.joinpath("checkpoint").touch()
    path = write_queue(root, *units, size=1000)
    expected = [UNIT.unpack(stored) for stored in units]
    while expected and not expected[-1][1]:
        del expected[-1]
    found = [tuple(row.values()) for row in rows(root, "consumequeue", "physical_offset,store_size,tags_code")]
    shutil.rmtree(path.parents[2])

    assert expected == found


def test_offsets_and_topics_select_units(pristine: Path) -> None:
    bounds = {"starting_offsets": {"orders": {0: 25}}, "ending_offsets": {"orders": {0: 28}}}

    assert [25, 26, 27] == offsets(pristine, topic="orders", queue_id=0, **bounds)
    assert 30 + 3 == len(offsets(pristine, topics_pattern="ord.*", **bounds))
    places = column(pristine, "consumequeue", "physical_offset")
    assert [at for at in places if 500 <= at < 2000] == column(
        pristine, "consumequeue", "physical_offset", starting_offsets=500, ending_offsets=2000
    )


def test_many_small_queues_are_few_parts_and_one_batch(tmp_path: Path) -> None:
    for number in range(300):
        write_queue(tmp_path, unit(number), topic=f"t{number}")
    options = ViewOptions.parse("consumequeue")
    (part,) = plan_view(Store(tmp_path), options)

    assert [300] == [batch.num_rows for batch in part.batches(options)]


def test_only_the_last_file_of_each_queue_is_opened_to_plan(pristine: Path, opened: list[str]) -> None:
    plan_view(Store(pristine), ViewOptions.parse("consumequeue"))

    assert 3 == len(opened)
    assert all(path.endswith(f"{FILE_SIZE:020d}") for path in opened)


def test_what_a_broker_appends_after_planning_is_not_read(tmp_path: Path) -> None:
    path = write_queue(tmp_path, unit(1))
    options = ViewOptions.parse("consumequeue")
    (part,) = plan_view(Store(tmp_path), options)
    path.write_bytes((unit(1) + unit(2)).ljust(FILE_SIZE, b"\0"))

    assert [1] == [batch.num_rows for batch in part.batches(options)]


def test_a_file_that_vanishes_after_planning_is_an_error_unless_tolerated(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strict = ViewOptions.parse("consumequeue")
    (part,) = plan_view(Store(store), strict)
    gone = store / "consumequeue" / "orders" / "0" / f"{0:020d}"
    gone.unlink()

    with pytest.raises(SegmentVanishedError, match="failOnDataLoss=false"):
        list(part.batches(strict))
    tolerant = ViewOptions.parse("consumequeue", fail_on_data_loss=False)
    assert 90 - UNITS_OF_A_FILE == sum(batch.num_rows for batch in part.batches(tolerant))
    assert str(gone) in caplog.text


def test_names_that_are_no_queue_are_left_out_with_a_warning(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("seven", "007", "99999999999"):
        store.joinpath("consumequeue", "orders", name).mkdir()
    store.joinpath("consumequeue", "stray").write_bytes(b"file")
    store.joinpath("consumequeue", "orders", "0", "notes.txt").write_bytes(b"x")

    assert 90 == len(offsets(store))
    for name in ("seven", "007", "99999999999", "notes.txt"):
        assert name in caplog.text


def test_a_name_that_is_not_utf8_and_a_short_file_are_shown(tmp_path: Path) -> None:
    write_queue(tmp_path, unit(1), unit(2)[:13], topic=os.fsdecode(b"caf\xe9"), size=0)

    assert [("caf\ufffd", 0)] == [
        (row["topic"], row["queue_offset"]) for row in rows(tmp_path, "consumequeue", "topic,queue_offset")
    ]


@pytest.mark.parametrize("topic", ["../orders", "orders/../payments", "..", "a\0b", "x" * 300])
def test_a_topic_that_is_no_name_finds_nothing(topic: str, store: Path) -> None:
    assert [] == offsets(store, topic=[topic])


def test_a_topic_without_queues_is_said_to_have_none(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert [] == offsets(store, topic="order")
    assert "did you mean 'orders'?" in caplog.text


def test_a_topic_whose_directory_is_not_utf_8_can_be_selected(tmp_path: Path) -> None:
    write_queue(tmp_path, unit(1), topic=os.fsdecode(b"t\xff"))
    write_queue(tmp_path, unit(2))

    assert [100] == column(tmp_path, "consumequeue", "physical_offset", topic=os.fsdecode(b"t\xff"))

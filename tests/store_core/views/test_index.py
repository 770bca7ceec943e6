# SPDX-License-Identifier: Apache-2.0
"""The view `index`: entries of full, half full, new and broken files."""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import CorruptRecordError, SegmentVanishedError
from store_core.format.java import hash_code, positive_hash
from store_core.snapshot.store import Store
from store_core.views.view import ViewOptions, plan_view
from tests.builders import patch
from tests.viewed_store import column, refusal, refusal_if_any, rows_of

if TYPE_CHECKING:
    from pathlib import Path

HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">iqii")
SLOTS, ENTRIES = 10, 40


def files_of(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def test_entries_are_those_in_the_files(pristine: Path) -> None:
    found = rows_of(pristine, "index")
    expected = []
    for path in files_of(pristine):
        data = path.read_bytes()
        begin, _, _, _, _, count = HEADER.unpack_from(data)
        for number in range(1, count):
            at = HEADER.size + 4 * SLOTS + ENTRY.size * number
            key_hash, offset, seconds, previous = ENTRY.unpack_from(data, at)
            expected.append((key_hash, offset, begin + 1000 * seconds, key_hash % SLOTS, previous, number, path.name))

    assert 180 == len(expected)
    assert expected == [
        (*row[:2], round(row[2].timestamp() * 1000), *row[3:]) for row in (tuple(row.values()) for row in found)
    ]


def test_a_time_that_no_table_holds_is_null_with_one_warning(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = files_of(store)[0]
    patch(path, 0, (1_700_000_000_000_000).to_bytes(8))
    entries = [row for row in rows_of(store, "index") if row["segment"] == path.name]

    assert {row["store_timestamp"] for row in entries} == {None}
    (told,) = (record.getMessage() for record in caplog.records)
    assert f"the entry of offset {entries[0]['physical_offset']}: its store_timestamp is" in told


def test_a_key_is_found_by_its_hash_in_all_its_topics(pristine: Path) -> None:
    found = rows_of(pristine, "index", topic="orders,payments", key="k5")

    assert [positive_hash(hash_code("payments#k5"))] == [row["key_hash"] for row in found]


def test_times_and_offsets_select_entries(pristine: Path) -> None:
    places = column(pristine, "index", "physical_offset")

    assert [at for at in places if 1000 <= at < 2000] == column(
        pristine, "index", "physical_offset", starting_offsets=1000, ending_offsets=2000
    )
    assert places == column(pristine, "index", "physical_offset", starting_timestamp=10**12)
    assert [] == column(pristine, "index", "physical_offset", ending_timestamp=10**12)


def test_a_new_file_has_no_entries(store: Path) -> None:
    files_of(store)[-1].with_name("99990101000000000").write_bytes(bytes(HEADER.size + 4 * SLOTS + 20 * ENTRIES))

    assert 180 == len(rows_of(store, "index"))


@pytest.mark.parametrize(
    "content",
    [
        b"short",
        HEADER.pack(0, 0, 0, 0, 1, 2**31 - 1).ljust(880, b"\0"),
        HEADER.pack(0, 0, 0, 0, 1, 500).ljust(880, b"\0"),
        HEADER.pack(0, 0, 0, 0, 1, 7).ljust(881, b"\0"),
        HEADER.pack(0, 0, 0, 0, 1, 7).ljust(880, b"\xff"),
    ],
)
def test_a_file_that_is_no_index_is_named_or_left_out(
    content: bytes, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = files_of(store)[-1].with_name("99990101000000000")
    path.write_bytes(content)
    error = refusal(store, "index")

    assert isinstance(error, CorruptRecordError)
    assert str(path) in str(error)
    assert 180 == len(rows_of(store, "index", fail_on_data_loss=False))
    assert str(path) in caplog.text


def test_other_names_are_left_out_with_a_warning(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    store.joinpath("index", "notes").write_text("x")
    store.joinpath("index", "123").mkdir()

    assert 180 == len(rows_of(store, "index"))
    assert str(store / "index" / "notes") in caplog.text


def test_a_large_file_is_read_in_parts(pristine: Path) -> None:
    whole = rows_of(pristine, "index")

    assert len(plan_view(Store(pristine), ViewOptions.parse("index", max_partition_bytes=100))) > 10
    assert whole == rows_of(pristine, "index", max_partition_bytes=100)


def test_a_file_that_vanishes_after_planning_is_an_error_unless_tolerated(store: Path) -> None:
    parts = plan_view(Store(store), ViewOptions.parse("index"))
    files_of(store)[0].unlink()

    with pytest.raises(SegmentVanishedError):
        list(parts[0].batches(ViewOptions.parse("index")))
    assert [] == list(parts[0].batches(ViewOptions.parse("index", fail_on_data_loss=False)))


@given(at=st.integers(0, 879), data=st.binary(min_size=1, max_size=8))
def test_no_bytes_raise_anything_but_errors_of_a_store(
    at: int, data: bytes, pristine: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("hostile")
    directory = shutil.copytree(pristine / "index", root / "index")
    path = min(directory.iterdir())
    patch(path, at, data)

    assert str(path) in refusal_if_any(root, "index", str(path))

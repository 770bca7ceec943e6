# SPDX-License-Identifier: Apache-2.0
"""The extension of a queue: addresses, file ends, recovery and truncation."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.files.file_system import FileSystem, OsFileSystem
from store_core.queue.consume_queue.consume_queue_ext import (
    EXT_UNIT_DTYPE,
    MAX_EXT_UNIT_SIZE,
    ConsumeQueueExt,
    CqExtUnit,
    address_of,
    is_ext_address,
    offset_of_address,
)
from store_core.queue.queue_path import QueueRules
from tests.store_core.fakes import FaultyFileSystem

if TYPE_CHECKING:
    from pathlib import Path


_FILE_SIZE = 100
"""Room for four units of 20 bytes, and one of 16 that stays free."""

_LONG = st.integers(-(2**63), 2**63 - 1)


def _ext(directory: Path, disk: FileSystem | None = None, size: int = _FILE_SIZE) -> ConsumeQueueExt:
    return ConsumeQueueExt(directory, QueueRules(ext_file_size=size), disk or OsFileSystem())


def _reopened(directory: Path) -> ConsumeQueueExt:
    ext = _ext(directory)
    ext.load()
    ext.recover()
    return ext


def start_of(ext: ConsumeQueueExt) -> int:
    return address_of(ext.mapped_file_queue.min_offset)


def end_of(ext: ConsumeQueueExt) -> int:
    return address_of(ext.mapped_file_queue.max_wrote_position)


def _put(ext: ConsumeQueueExt, *, count: int = 1, bit_map: bytes = b"") -> list[int]:
    addresses = [ext.put(7 * index, 1000 + index, bit_map) for index in range(count)]
    found = [address for address in addresses if address is not None]
    assert len(found) == count
    return found


def test_the_first_address_is_the_smallest_long() -> None:
    assert address_of(0) == -(2**63)
    assert offset_of_address(-(2**63) + 5) == 5


@given(_LONG, _LONG, st.binary(max_size=60))
def test_what_is_put_is_found_at_its_address(tags_code: int, store_timestamp: int, bit_map: bytes) -> None:
    unit = CqExtUnit(tags_code, store_timestamp, bit_map)
    head = np.frombuffer(unit.to_bytes()[:20], EXT_UNIT_DTYPE)[0].item()

    assert head == (unit.size, tags_code, store_timestamp, len(bit_map))
    assert unit.to_bytes()[20:] == bit_map
    assert unit.size == len(unit.to_bytes())


def test_units_are_found_again_in_every_file(tmp_path: Path) -> None:
    ext = _ext(tmp_path)
    addresses = _put(ext, count=10, bit_map=b"\x01\xff")

    assert all(map(is_ext_address, addresses))
    assert [ext.get(address) for address in addresses] == [CqExtUnit(7 * i, 1000 + i, b"\x01\xff") for i in range(10)]
    assert [ext.get(address) for address in addresses] == [_reopened(tmp_path).get(address) for address in addresses]


def test_a_file_ends_with_minus_one_where_a_unit_and_four_bytes_do_not_fit(tmp_path: Path) -> None:
    ext = _ext(tmp_path)
    addresses = _put(ext, count=5)

    assert [offset_of_address(address) for address in addresses] == [0, 20, 40, 60, 100]
    assert (tmp_path / f"{0:020d}").read_bytes()[80:] == b"\xff\xff" + bytes(18)


def test_a_unit_that_leaves_four_bytes_fits(tmp_path: Path) -> None:
    ext = _ext(tmp_path, size=104)
    addresses = _put(ext, count=5)

    assert [offset_of_address(address) for address in addresses] == [0, 20, 40, 60, 80]


@given(st.lists(st.tuples(_LONG, _LONG), max_size=40), st.integers(1, 9), st.integers(20, 120))
def test_many_units_at_once_are_as_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, units: list[tuple[int, int]], cut: int, size: int
) -> None:
    one_by_one = _ext(tmp_path_factory.mktemp("a"), size=size)
    bulk = _ext(tmp_path_factory.mktemp("b"), size=size)
    expected = [one_by_one.put(tags, time) for tags, time in units]
    found: list[int] = []
    for first in range(0, len(units), cut):
        part = np.array(units[first : first + cut], np.int64).reshape(-1, 2)
        found += bulk.put_units(part[:, 0], part[:, 1]).tolist()

    assert [tags if address is None else address for address, (tags, _) in zip(expected, units, strict=True)] == found
    assert end_of(one_by_one) == end_of(bulk)
    assert [file.path.read_bytes() for file in one_by_one.mapped_file_queue.mapped_files] == [
        file.path.read_bytes() for file in bulk.mapped_file_queue.mapped_files
    ]


@pytest.mark.parametrize("size", [MAX_EXT_UNIT_SIZE + 1, 97])
def test_a_unit_that_no_file_holds_is_refused_and_begins_none(tmp_path: Path, size: int) -> None:
    ext = _ext(tmp_path, size=1 << 20 if size > 100 else _FILE_SIZE)

    assert ext.put(1, 2, bytes(size - 20)) is None
    assert ext.mapped_file_queue.mapped_files == ()


@pytest.mark.parametrize("operation", ["open", "write"])
def test_a_disk_that_fails_leaves_the_plain_tags_code(tmp_path: Path, operation: str) -> None:
    disk = FaultyFileSystem()
    ext = _ext(tmp_path, disk)
    disk.fail(operation, errno.ENOSPC, times=2)

    assert ext.put(5, 6) is None
    assert ext.put_units(np.array([5, 7], np.int64), np.array([6, 6], np.int64)).tolist() == [5, 7]
    assert ext.put(5, 6) == address_of(0)


@pytest.mark.parametrize("address", [0, 5, -1, -(2**31), address_of(20), address_of(1 << 40)])
def test_at_no_unit_there_is_nothing(tmp_path: Path, address: int) -> None:
    ext = _ext(tmp_path)
    _put(ext)

    assert ext.get(address) is None


def test_a_damaged_length_of_the_bit_map_is_nothing(tmp_path: Path) -> None:
    ext = _ext(tmp_path)
    (address,) = _put(ext)
    with (tmp_path / f"{0:020d}").open("r+b") as file:
        file.seek(18)
        file.write((500).to_bytes(2))

    assert ext.get(address) is None


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 9])
def test_recovery_finds_the_end(tmp_path: Path, count: int) -> None:
    ext = _ext(tmp_path)
    _put(ext, count=count)

    assert end_of(_reopened(tmp_path)) == end_of(ext)


def test_a_unit_that_runs_past_its_file_ends_the_walk(tmp_path: Path) -> None:
    _put(_ext(tmp_path), count=3)
    with (tmp_path / f"{0:020d}").open("r+b") as file:
        file.seek(40)
        file.write((32000).to_bytes(2))

    assert offset_of_address(end_of(_reopened(tmp_path))) == 40


def test_cutting_behind_an_address_keeps_its_unit(tmp_path: Path) -> None:
    ext = _ext(tmp_path)
    addresses = _put(ext, count=9)
    ext.truncate_by_max_address(addresses[2])

    assert offset_of_address(end_of(ext)) == 60
    assert ext.get(addresses[2]) is not None
    assert ext.get(addresses[3]) is None
    assert len(list(tmp_path.iterdir())) == 1


def test_cutting_before_an_address_deletes_the_files_that_end_before_it(tmp_path: Path) -> None:
    ext = _ext(tmp_path)
    addresses = _put(ext, count=13)
    ext.truncate_by_min_address(addresses[4])

    assert start_of(ext) == address_of(0), "a file that ends right there stays, as in RocketMQ"

    ext.truncate_by_min_address(addresses[5])

    assert start_of(ext) == address_of(100)


@pytest.mark.parametrize("address", [1, 0, -5, address_of(16)])
def test_cutting_at_what_is_no_unit_does_nothing(tmp_path: Path, address: int) -> None:
    ext = _ext(tmp_path)
    before = _put(ext, count=9, bit_map=b"")
    ext.truncate_by_max_address(address if address > address_of(1 << 40) else address_of(96))
    ext.truncate_by_min_address(address if not is_ext_address(address) else 1)

    assert [ext.get(each) is not None for each in before] == [True] * 9


def test_a_queue_made_anew_writes_over_the_files_that_are_there(tmp_path: Path) -> None:
    _put(_ext(tmp_path), count=3)
    ext = _ext(tmp_path)
    ext.put(99, 1)

    assert ext.get(address_of(0)) == CqExtUnit(99, 1)
    assert offset_of_address(end_of(_reopened(tmp_path))) == 60


def test_destroyed_it_leaves_nothing(tmp_path: Path) -> None:
    ext = _ext(tmp_path / "T" / "0")
    _put(ext, count=5)

    assert not ext.flush(0)

    ext.close()
    ext.destroy()

    assert not (tmp_path / "T" / "0").exists()
    assert end_of(ext) == address_of(0)

# SPDX-License-Identifier: Apache-2.0
"""The table of the format matches the positions and sizes in RocketMQ's sources, and files that it wrote."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from store_core.format import layout
from store_core.format.layout import MagicCode, head_dtype, head_size, unit_dtype
from tests import builders
from tools import layout_document

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.golden_stores import UnpackedStore


@pytest.mark.parametrize(("sys_flag", "size"), [(0, 88), (0x10, 100), (0x20, 100), (0x30, 112), (0x3CF, 88), (-1, 112)])
def test_only_the_two_host_bits_change_the_width_of_the_head(sys_flag: int, size: int) -> None:
    assert head_size(sys_flag) == size
    assert head_dtype(sys_flag).itemsize == size


def test_the_shortest_record_has_91_bytes() -> None:
    assert (layout.MIN_HEAD_SIZE, layout.MAX_HEAD_SIZE, layout.MIN_RECORD_SIZE) == (88, 112, 91)


@pytest.mark.parametrize(
    ("unit", "size"),
    [
        (layout.BLANK_RECORD, 8),
        (layout.BATCH_ITEM_HEAD, 20),
        (layout.CONSUME_QUEUE_UNIT, 20),
        (layout.CONSUME_QUEUE_EXT_UNIT, 20),
        (layout.BATCH_CONSUME_QUEUE_UNIT, 46),
        (layout.ROCKSDB_QUEUE_NAME, 5),
        (layout.ROCKSDB_QUEUE_PLACE, 14),
        (layout.ROCKSDB_QUEUE_UNIT, 28),
        (layout.ROCKSDB_QUEUE_BOUND, 16),
        (layout.INDEX_HEADER, 40),
        (layout.INDEX_UNIT, 20),
        (layout.CHECKPOINT, 48),
        (layout.DLEDGER_ENTRY_HEAD, 48),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_units_have_the_sizes_that_rocketmq_names(unit: layout.Unit, size: int) -> None:
    assert unit_dtype(unit).itemsize == size


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("total_size", builders.SIZE_AT),
        ("magic_code", builders.MAGIC_AT),
        ("body_crc", builders.CRC_AT),
        ("queue_id", 12),
        ("flag", 16),
        ("queue_offset", 20),
        ("physical_offset", builders.PHYSICAL_OFFSET_AT),
        ("sys_flag", builders.SYS_FLAG_AT),
        ("born_timestamp", 40),
        ("born_host", 48),
        ("store_timestamp", builders.STORE_TIMESTAMP_AT),
        ("store_host", 64),
        ("reconsume_times", 72),
        ("prepared_transaction_offset", 76),
        ("body_length", builders.BODY_LENGTH_AT),
    ],
)
def test_fields_of_the_head_lie_where_rocketmq_puts_them(name: str, position: int) -> None:
    assert _position(name) == position


def test_the_first_fourteen_fields_take_84_bytes_and_12_more_for_each_ipv6_host() -> None:
    assert [_position("body_length", flags) for flags in (0, 0x10, 0x20, 0x30)] == [84, 96, 96, 108]


def test_the_store_timestamp_moves_with_the_born_host_alone() -> None:
    assert [_position("store_timestamp", flags) for flags in (0, 0x10, 0x20, 0x30)] == [56, 68, 56, 68]


def _position(name: str, sys_flag: int = 0) -> int:
    fields: Any = head_dtype(sys_flag).fields
    return int(fields[name][1])


@pytest.mark.parametrize("unit", layout.UNITS, ids=lambda unit: unit.name)
def test_fields_follow_each_other_without_gaps_in_stored_order(unit: layout.Unit) -> None:
    dtype = unit_dtype(unit)

    assert dtype.itemsize == sum(dtype[name].itemsize for name in dtype.names or ())
    assert all(field.v6_flag is not None or field.type.startswith(">i") for field in unit.fields)


def test_magic_codes_are_those_of_the_files() -> None:
    stored = {magic: struct.pack(">i", magic).hex() for magic in MagicCode}

    assert stored == {
        MagicCode.MESSAGE_V1: "daa320a7",
        MagicCode.MESSAGE_V2: "daa320ab",
        MagicCode.BLANK: "cbd43194",
    }


def test_v2_records_have_two_bytes_of_topic_length() -> None:
    assert (MagicCode.MESSAGE_V1.topic_length_size, MagicCode.MESSAGE_V2.topic_length_size) == (1, 2)


def test_every_field_is_documented() -> None:
    document = layout_document.markdown_document()

    for unit in layout.UNITS:
        assert f"## {unit.name} ({unit_dtype(unit).itemsize} bytes)" in document
        assert all(f"`{field.name}` | {field.java_name} | {field.doc} |" in document for field in unit.fields)


def test_the_checkpoint_of_a_store_is_as_rocketmq_reads_it(golden: Callable[[str], UnpackedStore]) -> None:
    store = golden("5.3.3/propcrc")
    with store.path.joinpath("recovered.json").open() as lines:
        expected = json.loads(lines.readline())["afterLoad"]["checkpoint"]
    checkpoint = np.frombuffer(store.root.joinpath("checkpoint").read_bytes(), unit_dtype(layout.CHECKPOINT), 1)[0]

    for name in ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp", "master_flushed_offset"):
        field = next(field for field in layout.CHECKPOINT.fields if field.name == name)
        assert int(checkpoint[name]) == expected[field.java_name]

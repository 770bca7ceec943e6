# SPDX-License-Identifier: Apache-2.0
"""Faults of the commit log."""

from __future__ import annotations

import os
import shutil
import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from store_core.format.layout import MagicCode
from store_core.store.rebuild.findings import FindingKind
from tests.builders import patch
from tests.store_core.answers.planting.store_copy import SOUND, Expected, Fault, Record, StoreCopy

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


_SEVERAL: Final = ("5.3.3/propcrc", "5.3.3/batch", "4.9.7/basic")
"""Stores with several segments."""


_WITH_CRC: Final = ("5.3.3/propcrc", "5.5.0/propcrc")
_OF_4_9: Final = ("4.9.7/lmq", "4.9.7/basic")
_WITHOUT_CRC: Final = ("5.3.3/lmq", "4.9.7/lmq", "5.5.0/tx")

_WHERE: Final[dict[FindingKind, tuple[str, tuple[str, ...]]]] = {
    FindingKind.LOG_RECORD_CRC: ("__CRC32#", _WITH_CRC),
    FindingKind.LOG_TIME: ("", _WITHOUT_CRC),
}
"""Kind of findings -> the property that a record has to have for it, and the stores that have such records."""


def _bytes(
    title: str,
    change: Callable[[Record, bytes, Random], tuple[int, bytes]],
    kind: FindingKind = FindingKind.LOG_DAMAGE,
) -> Fault:
    """Make a fault that overwrites bytes of a record: `change` says where in its file, and which."""
    needs, stores = _WHERE.get(kind, ("", SOUND))

    def plant(store: StoreCopy) -> list[Expected]:
        record = store.record(needs)
        patch(record.file, *change(record, record.file.read_bytes(), store.random))
        return [Expected(kind, begin=record.offset)]

    return Fault(plant, stores, title)


def _field(
    title: str,
    name: str,
    code: str,
    value: Callable[[Record, Random], int],
    kind: FindingKind = FindingKind.LOG_DAMAGE,
) -> Fault:
    """Make a fault that overwrites a field of a record's head."""

    def change(record: Record, _: bytes, chance: Random) -> tuple[int, bytes]:
        return record.field_at(name), struct.pack(f">{code}", value(record, chance))

    return _bytes(title, change, kind)


def _flipped(data: bytes, at: int, bit: int = 0) -> tuple[int, bytes]:
    return at, bytes([data[at] ^ 1 << bit])


def body_bit_flipped(record: Record, data: bytes, chance: Random) -> tuple[int, bytes]:
    return _flipped(data, record.body_at + chance.randrange(record.body_length), chance.randrange(8))


def properties_length_changed(record: Record, _: bytes, chance: Random) -> tuple[int, bytes]:
    return record.properties_at - 2, struct.pack(">h", chance.choice([-1, 1, 32767]))


def property_checksum_changed(record: Record, data: bytes, chance: Random) -> tuple[int, bytes]:
    at = record.at + record.size - 2 - chance.randrange(9)
    return at, b"%d" % ((data[at] - ord("0") + 1) % 10)


def queue_offset_changed(store: StoreCopy) -> list[Expected]:
    """Let a record claim a later place of its queue; the record after it is then behind."""
    records = store.records()
    record = store.record()
    later = [each for each in records if each.place == record.place and each.offset > record.offset]
    record.put("queue_offset", "q", record.queue_offset + 3)
    return [Expected(FindingKind.LOG_OFFSETS, 1 + bool(later), begin=record.offset, place=record.place)]


def _filler(store: StoreCopy) -> tuple[Record, int]:
    """Return the last record of a segment that is followed by another, and where the blank record after it is."""
    records = store.records()
    ends = [each for each, after in pairwise(records) if each.file != after.file]
    last = store.random.choice(ends)
    return last, last.at + last.size


def filler_overwritten(store: StoreCopy) -> list[Expected]:
    last, at = _filler(store)
    patch(last.file, at + 4, b"\x01\x02\x03\x04")
    return [Expected(FindingKind.LOG_DAMAGE, begin=last.offset + last.size)]


def filler_zeroed(store: StoreCopy) -> list[Expected]:
    last, at = _filler(store)
    patch(last.file, at, bytes(8))
    return [Expected(FindingKind.LOG_DAMAGE, begin=last.offset + last.size)]


def segment_missing(store: StoreCopy) -> list[Expected]:
    store.random.choice(store.segments[1:-1]).unlink()
    return [Expected(FindingKind.LOG_LAYOUT)]


def segment_short(store: StoreCopy) -> list[Expected]:
    segment = store.random.choice(store.segments[:-1])
    os.truncate(segment, store.segment_size // 2)
    return [Expected(FindingKind.LOG_LAYOUT)]


def segment_long(store: StoreCopy) -> list[Expected]:
    segment = store.random.choice(store.segments[:-1])
    with segment.open("ab") as file:
        file.write(bytes(4096))
    return [Expected(FindingKind.LOG_LAYOUT)]


def last_segment_cut(store: StoreCopy) -> list[Expected]:
    """Cut the last segment after its last record, as a copy may do: releases from 4.5 on do not load it."""
    last = store.records()[-1]
    os.truncate(last.file, last.at + last.size)
    return [Expected(FindingKind.LOG_LAYOUT)]


def empty_segment_at_the_end(store: StoreCopy) -> list[Expected]:
    """Leave what a crash leaves between making a segment and extending it: 4.9 does not load it, 5.3 deletes it."""
    end = int(store.segments[-1].name) + store.segment_size
    (store.root / "commitlog" / f"{end:020d}").touch()
    return [Expected(FindingKind.LOG_LAYOUT)]


def file_of_another_name_in_the_log(store: StoreCopy) -> list[Expected]:
    shutil.copyfile(store.segments[0], store.root / "commitlog" / "segment.bak")
    return [Expected(FindingKind.LOG_LAYOUT)]


def directory_in_the_log(store: StoreCopy) -> list[Expected]:
    (store.root / "commitlog" / "old").mkdir()
    return [Expected(FindingKind.LOG_LAYOUT)]


def segment_repeated(store: StoreCopy) -> list[Expected]:
    """Put a copy of a segment in the place of the next one: no record of it is where it says."""
    number = store.random.randrange(len(store.segments) - 2)
    shutil.copyfile(store.segments[number], store.segments[number + 1])
    return [Expected(FindingKind.LOG_DAMAGE, begin=int(store.segments[number + 1].name))]


def segments_swapped(store: StoreCopy) -> list[Expected]:
    first, second = store.segments[:2]
    data = first.read_bytes()
    shutil.copyfile(second, first)
    second.write_bytes(data)
    return [Expected(FindingKind.LOG_DAMAGE, 2, begin=0)]


def garbage_after_the_end(store: StoreCopy) -> list[Expected]:
    last = store.records()[-1]
    patch(last.file, last.at + last.size, store.random.randbytes(40))
    return [Expected(FindingKind.LOG_DAMAGE, begin=last.offset + last.size)]


def last_record_torn(store: StoreCopy) -> list[Expected]:
    last = store.records()[-1]
    store.taken.add(last.place)
    patch(last.file, last.at + last.size // 2, bytes(last.size - last.size // 2))
    return [Expected(FindingKind.LOG_DAMAGE, begin=last.offset)]


LOG_FAULTS: Final = (
    _field("size_zero", "total_size", "i", lambda *_: 0),
    _field("size_negative", "total_size", "i", lambda *_: -1),
    _field("size_too_small_for_a_record", "total_size", "i", lambda *_: 20),
    _field("size_one_too_large", "total_size", "i", lambda record, _: record.size + 1),
    _field("size_after_the_end_of_the_file", "total_size", "i", lambda *_: 1 << 30),
    _field("magic_code_zeroed", "magic_code", "i", lambda *_: 0),
    _field("magic_code_overwritten", "magic_code", "i", lambda *_: 0x01020304),
    _field("body_length_changed", "body_length", "i", lambda record, _: record.body_length + 7),
    _field("body_length_negative", "body_length", "i", lambda *_: -5),
    _field("physical_offset_changed", "physical_offset", "q", lambda record, _: record.offset + 1),
    _field("physical_offset_after_the_end", "physical_offset", "q", lambda *_: 1 << 40),
    _bytes("body_bit_flipped", body_bit_flipped, FindingKind.LOG_CRC),
    _bytes("body_zeroed", lambda record, *_: (record.body_at, bytes(record.body_length)), FindingKind.LOG_CRC),
    _field(
        "body_checksum_changed", "body_crc", "i", lambda _, chance: chance.randrange(1, 1 << 30), FindingKind.LOG_CRC
    ),
    _bytes(
        "topic_length_changed",
        lambda record, _, chance: (record.topic_at, bytes([chance.choice([0, 126, 127, 255])])),
    ),
    _bytes("properties_length_changed", properties_length_changed),
    _bytes("property_checksum_changed", property_checksum_changed, FindingKind.LOG_RECORD_CRC),
    _bytes(
        "property_value_changed",
        lambda record, data, _: _flipped(data, record.properties_at + 1),
        FindingKind.LOG_RECORD_CRC,
    ),
    _bytes(
        "topic_byte_changed", lambda record, data, _: _flipped(data, record.topic_at + 1), FindingKind.LOG_RECORD_CRC
    ),
    _field("queue_id_changed", "queue_id", "i", lambda record, _: record.queue_id + 1, FindingKind.LOG_RECORD_CRC),
    Fault(queue_offset_changed, _WITHOUT_CRC),
    _field(
        "store_time_lost",
        "store_timestamp",
        "q",
        lambda _, chance: chance.choice([0, -1, -(1 << 62)]),
        FindingKind.LOG_TIME,
    ),
    _bytes("zeros_in_the_middle", lambda record, *_: (record.at, bytes(record.size))),
    _bytes("garbage_in_the_middle", lambda record, _, chance: (record.at, chance.randbytes(record.size))),
    _bytes(
        "blank_record_in_the_middle",
        lambda record, *_: (record.at, struct.pack(">ii", record.size, MagicCode.BLANK.value)),
    ),
    Fault(filler_overwritten, _SEVERAL),
    Fault(filler_zeroed, _SEVERAL),
    Fault(segment_missing, _SEVERAL),
    Fault(segment_short, _SEVERAL),
    Fault(segment_long, _SEVERAL),
    Fault(last_segment_cut, _SEVERAL),
    Fault(empty_segment_at_the_end, _OF_4_9),
    Fault(file_of_another_name_in_the_log),
    Fault(directory_in_the_log, _OF_4_9),
    Fault(segment_repeated, _SEVERAL),
    Fault(segments_swapped, _SEVERAL),
    Fault(garbage_after_the_end),
    Fault(last_record_torn),
)

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
from tests.store_core.answers.planting.store_copy import Expected, Fault, Record, StoreCopy, patch

if TYPE_CHECKING:
    from collections.abc import Callable


_SEVERAL: Final = ("5.3.3/propcrc", "5.3.3/batch", "4.9.7/basic")
"""Stores with several segments."""


def _damage(record: Record) -> list[Expected]:
    return [Expected(FindingKind.LOG_DAMAGE, begin=record.offset)]


def _head_field(
    name: str, code: str, value: Callable[[Record], int], title: str
) -> Callable[[StoreCopy], list[Expected]]:
    """Make a fault that overwrites a field of a record's head, so that it is no record."""

    def plant(store: StoreCopy) -> list[Expected]:
        record = store.record()
        record.put(name, code, value(record))
        return _damage(record)

    plant.__name__ = title
    return plant


def body_bit_flipped(store: StoreCopy) -> list[Expected]:
    record = store.record()
    at = record.body_at + store.random.randrange(record.body_length)
    patch(record.file, at, bytes([record.file.read_bytes()[at] ^ 1 << store.random.randrange(8)]))
    return [Expected(FindingKind.LOG_CRC, begin=record.offset)]


def body_zeroed(store: StoreCopy) -> list[Expected]:
    record = store.record()
    patch(record.file, record.body_at, bytes(record.body_length))
    return [Expected(FindingKind.LOG_CRC, begin=record.offset)]


def body_checksum_changed(store: StoreCopy) -> list[Expected]:
    record = store.record()
    record.put("body_crc", "i", store.random.randrange(1, 1 << 30))
    return [Expected(FindingKind.LOG_CRC, begin=record.offset)]


def topic_length_changed(store: StoreCopy) -> list[Expected]:
    record = store.record()
    patch(record.file, record.topic_at, bytes([store.random.choice([0, 126, 127, 255])]))
    return _damage(record)


def properties_length_changed(store: StoreCopy) -> list[Expected]:
    record = store.record()
    length_at = record.topic_at + 1 + len(record.topic.encode())
    patch(record.file, length_at, struct.pack(">h", store.random.choice([-1, 1, 32767])))
    return _damage(record)


def property_checksum_changed(store: StoreCopy) -> list[Expected]:
    record = store.record("__CRC32#")
    at = record.at + record.size - 2 - store.random.randrange(9)
    digit = record.file.read_bytes()[at] - ord("0")
    patch(record.file, at, b"%d" % ((digit + 1) % 10))
    return [Expected(FindingKind.LOG_RECORD_CRC, begin=record.offset)]


def property_value_changed(store: StoreCopy) -> list[Expected]:
    """Change a byte of a property of a record that has a checksum over all of it."""
    record = store.record("__CRC32#")
    at = record.topic_at + 1 + len(record.topic.encode()) + 2 + 1
    patch(record.file, at, bytes([record.file.read_bytes()[at] ^ 1]))
    return [Expected(FindingKind.LOG_RECORD_CRC, begin=record.offset)]


def topic_byte_changed(store: StoreCopy) -> list[Expected]:
    record = store.record("__CRC32#")
    at = record.topic_at + 1
    patch(record.file, at, bytes([record.file.read_bytes()[at] ^ 1]))
    return [Expected(FindingKind.LOG_RECORD_CRC, begin=record.offset)]


def queue_id_changed(store: StoreCopy) -> list[Expected]:
    record = store.record("__CRC32#")
    record.put("queue_id", "i", record.queue_id + 1)
    return [Expected(FindingKind.LOG_RECORD_CRC, begin=record.offset)]


def queue_offset_changed(store: StoreCopy) -> list[Expected]:
    """Let a record claim a later place of its queue; the record after it is then behind."""
    records = store.records()
    record = store.record()
    later = [each for each in records if each.place == record.place and each.offset > record.offset]
    record.put("queue_offset", "q", record.queue_offset + 3)
    return [Expected(FindingKind.LOG_OFFSETS, 1 + bool(later), begin=record.offset, place=record.place)]


def zeros_in_the_middle(store: StoreCopy) -> list[Expected]:
    record = store.record()
    patch(record.file, record.at, bytes(record.size))
    return _damage(record)


def garbage_in_the_middle(store: StoreCopy) -> list[Expected]:
    record = store.record()
    patch(record.file, record.at, store.random.randbytes(record.size))
    return _damage(record)


def record_replaced_by_an_earlier_one(store: StoreCopy) -> list[Expected]:
    """Put the bytes of an earlier record of the same size where another one was: its physical offset is wrong."""
    record = store.record()
    head = record.file.read_bytes()[record.at : record.at + record.size]
    patch(record.file, record.at, head)
    record.put("physical_offset", "q", record.offset - record.size)
    return _damage(record)


def blank_record_in_the_middle(store: StoreCopy) -> list[Expected]:
    record = store.record()
    patch(record.file, record.at, struct.pack(">ii", record.size, MagicCode.BLANK.value))
    return _damage(record)


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


def store_time_lost(store: StoreCopy) -> list[Expected]:
    record = store.record()
    record.put("store_timestamp", "q", store.random.choice([0, -1, -(1 << 62)]))
    return [Expected(FindingKind.LOG_TIME, begin=record.offset)]


_WITH_CRC: Final = ("5.3.3/propcrc", "5.5.0/propcrc")
_OF_4_9: Final = ("4.9.7/lmq", "4.9.7/basic")
_WITHOUT_CRC: Final = ("5.3.3/lmq", "4.9.7/lmq", "5.5.0/tx")

_HEADS: Final = (
    _head_field("total_size", "i", lambda _: 0, "size_zero"),
    _head_field("total_size", "i", lambda _: -1, "size_negative"),
    _head_field("total_size", "i", lambda _: 20, "size_too_small_for_a_record"),
    _head_field("total_size", "i", lambda record: record.size + 1, "size_one_too_large"),
    _head_field("total_size", "i", lambda _: 1 << 30, "size_after_the_end_of_the_file"),
    _head_field("magic_code", "i", lambda _: 0, "magic_code_zeroed"),
    _head_field("magic_code", "i", lambda _: 0x01020304, "magic_code_overwritten"),
    _head_field("body_length", "i", lambda record: record.body_length + 7, "body_length_changed"),
    _head_field("body_length", "i", lambda _: -5, "body_length_negative"),
    _head_field("physical_offset", "q", lambda record: record.offset + 1, "physical_offset_changed"),
    _head_field("physical_offset", "q", lambda _: 1 << 40, "physical_offset_after_the_end"),
)

LOG_FAULTS: Final = (
    *(Fault(plant) for plant in _HEADS),
    Fault(body_bit_flipped),
    Fault(body_zeroed),
    Fault(body_checksum_changed),
    Fault(topic_length_changed),
    Fault(properties_length_changed),
    Fault(property_checksum_changed, _WITH_CRC),
    Fault(property_value_changed, _WITH_CRC),
    Fault(topic_byte_changed, _WITH_CRC),
    Fault(queue_id_changed, _WITH_CRC),
    Fault(queue_offset_changed, _WITHOUT_CRC),
    Fault(store_time_lost, _WITHOUT_CRC),
    Fault(zeros_in_the_middle),
    Fault(garbage_in_the_middle),
    Fault(blank_record_in_the_middle),
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

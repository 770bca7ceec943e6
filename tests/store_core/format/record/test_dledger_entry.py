# SPDX-License-Identifier: Apache-2.0
"""Each way to break an entry of a DLedger log has its name; walks with many cursors follow them as one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.columnar.chain import scan
from store_core.format.record.scan import Framing, RecordCheck, StopReason, check_entry, follow_frames
from tests import builders
from tests.dledger_logs import (
    BODY_LENGTH_AT,
    HEAD_SIZE,
    INDEX_AT,
    MAGIC_AT,
    POSITION_AT,
    SIZE_AT,
    TERM_AT,
    DLedgerLog,
)
from tests.segment import assert_same_scan

START = 1 << 40


def log_of(*bodies: bytes) -> DLedgerLog:
    log = DLedgerLog(1 << 16, START)
    for body in bodies:
        log.append(body, term=3)
    return log


def check(log: DLedgerLog, number: int = 0, *, previous: int | None = None) -> RecordCheck:
    at = log.entries[number] - START
    before = -1 if previous is None else log.entries[previous] - START
    return check_entry(memoryview(bytes(log.data)), at, START, verify_crc=True, previous=before)


@pytest.mark.parametrize(
    ("at", "layout", "value", "reason"),
    [
        (MAGIC_AT, ">i", 2, StopReason.BAD_MAGIC),
        (MAGIC_AT, ">i", -1, StopReason.END_OF_FILE),
        (MAGIC_AT, ">q", 0, StopReason.UNWRITTEN),
        (SIZE_AT, ">i", 0, StopReason.BAD_SIZE),
        (SIZE_AT, ">i", -1, StopReason.BAD_SIZE),
        (SIZE_AT, ">i", HEAD_SIZE + 90, StopReason.BAD_SIZE),
        (SIZE_AT, ">i", (1 << 31) - 1, StopReason.TORN),
        (SIZE_AT, ">i", HEAD_SIZE + 91, StopReason.SIZE_MISMATCH),
        (BODY_LENGTH_AT, ">i", 0, StopReason.SIZE_MISMATCH),
        (BODY_LENGTH_AT, ">i", -1, StopReason.SIZE_MISMATCH),
        (POSITION_AT, ">q", START + 1, StopReason.WRONG_OFFSET),
        (INDEX_AT, ">q", -1, StopReason.WRONG_INDEX),
        (HEAD_SIZE + builders.SIZE_AT, ">i", 99, StopReason.SIZE_MISMATCH),
        (HEAD_SIZE + builders.MAGIC_AT, ">I", builders.MAGIC_BLANK, StopReason.BAD_MAGIC),
        (HEAD_SIZE + builders.MAGIC_AT, ">I", 7, StopReason.BAD_MAGIC),
        (HEAD_SIZE, ">q", 0, StopReason.BAD_MAGIC),
        (HEAD_SIZE + builders.PHYSICAL_OFFSET_AT, ">q", START, StopReason.WRONG_OFFSET),
        (HEAD_SIZE + builders.BODY_AT, ">b", 7, StopReason.BAD_CRC),
    ],
)
def test_each_broken_field_has_its_reason(at: int, layout: str, value: int, reason: StopReason) -> None:
    found = check(log_of(b"one", b"two").put(0, at, layout, value))

    assert reason is found.reason
    assert reason.is_damage is bool(found.expected and found.found)


def test_an_index_that_does_not_follow_is_damage_only_behind_a_sound_entry() -> None:
    log = log_of(b"one", b"two").put(1, INDEX_AT, ">q", 7)
    found = check(log, 1, previous=0)

    assert StopReason.WRONG_INDEX is found.reason
    assert ("DLedger index 1", "7") == (found.expected, found.found)
    assert check(log, 1).reason is None


@pytest.mark.parametrize(
    ("rest", "reason"), [(b"", StopReason.LIMIT), (bytes(7), StopReason.UNWRITTEN), (b"\0\0\0\1", StopReason.TORN)]
)
def test_fewer_than_eight_bytes_hold_no_entry(rest: bytes, reason: StopReason) -> None:
    assert reason is check_entry(memoryview(rest), 0).reason


FIELDS = [MAGIC_AT, SIZE_AT, INDEX_AT, TERM_AT, POSITION_AT, BODY_LENGTH_AT, HEAD_SIZE, HEAD_SIZE + 4, HEAD_SIZE + 84]
NUMBERS = [0, 1, -1, 48, 91, 138, 139, 140, 255, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1]
lanes = st.sampled_from([None, 1, 2, 12, 13, 40])


@st.composite
def entry_logs(draw: st.DrawFn) -> DLedgerLog:
    """Draw a file of up to 40 entries; bodies may hold entries, too."""
    log = DLedgerLog(1 << 20, draw(st.sampled_from([0, 1 << 20, 1 << 40])))
    term = 0
    for kind in draw(st.binary(max_size=40)):
        term += kind % 7 == 0
        body = bytes(log.data[-(kind % 200) :]) if kind % 5 == 0 else b"x" * (kind % 30)
        host = ("::1", 1) if kind % 11 == 0 else ("10.1.2.3", 5555)
        log.append(body, term=term, version=1 + (kind % 3 == 0), born_host=host)
    log.data += draw(st.sampled_from([b"", bytes(5), bytes(200), b"\xff\xff\xff\xff\0\0\0\x20" + bytes(24)]))
    return log


@st.composite
def broken_logs(draw: st.DrawFn) -> DLedgerLog:
    """Draw a file with up to three changed fields, or bytes cut off."""
    log = draw(entry_logs())
    for _ in range(draw(st.integers(1, 3)) if log.entries else 0):
        at = draw(st.sampled_from(log.entries)) - log.start_offset + draw(st.sampled_from(FIELDS))
        width = draw(st.sampled_from([1, 4, 8]))
        number = draw(st.sampled_from(NUMBERS) | st.integers(-(1 << 63), (1 << 63) - 1))
        part = (number & (1 << 8 * width) - 1).to_bytes(width, "big")[: len(log.data) - at]
        log.data[at : at + len(part)] = part
    del log.data[len(log.data) - draw(st.integers(0, min(len(log.data), 60))) :]
    return log


def assert_walks_agree(log: DLedgerLog, begin: int = 0, end: int | None = None, *, lanes: int | None = None) -> None:
    data = bytes(log.data)
    expected = follow_frames(memoryview(data), begin, end, log.start_offset, Framing.ENTRIES)

    raw = np.frombuffer(data, np.uint8)
    assert_same_scan(expected, scan(raw, begin, end, log.start_offset, Framing.ENTRIES, lanes=lanes))


@given(entry_logs() | broken_logs(), lanes)
def test_scan_equals_the_entries_one_by_one(log: DLedgerLog, lanes: int | None) -> None:
    assert_walks_agree(log, lanes=lanes)


@given(entry_logs() | broken_logs(), lanes, st.data())
def test_scan_equals_the_entries_of_any_range(log: DLedgerLog, lanes: int | None, data: st.DataObject) -> None:
    places = st.sampled_from([0, *(each - log.start_offset for each in log.entries)]) | st.integers(0, len(log.data))
    begin, end = data.draw(places), data.draw(st.none() | places)

    assert_walks_agree(log, begin, end, lanes=lanes)


@given(st.binary(max_size=300))
def test_scan_equals_the_entries_on_any_bytes(data: bytes) -> None:
    log = DLedgerLog()
    log.data += data

    assert_walks_agree(log)


def test_a_window_continues_the_last_sound_entry_before_it() -> None:
    log = DLedgerLog(1 << 20)
    for index in (0, 1, 3):
        log.append(b"body", index=index)
    raw = np.frombuffer(bytes(log.data), np.uint8)
    begin = log.entries[2]

    assert 1 == scan(raw, begin, framing=Framing.ENTRIES).starts.size
    assert 0 == scan(raw, begin, framing=Framing.ENTRIES, previous=log.entries[1]).starts.size
    assert 1 == scan(raw, begin, framing=Framing.ENTRIES, previous=log.entries[0]).starts.size

# SPDX-License-Identifier: Apache-2.0
"""Each way to break an entry of a DLedger log has its name; a sound one is its record."""

from __future__ import annotations

import pytest

from store_core.format.record.scan import RecordCheck, StopReason, check_entry
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


def test_a_sound_entry_has_its_own_size_and_the_parts_of_its_record() -> None:
    log = log_of(b"one", b"two")
    found = check(log, 1, previous=0)

    assert (None, log.end - log.entries[1]) == (found.reason, found.size)
    assert found.spans is not None
    assert b"two" == log.data[found.spans.body_start : found.spans.body_stop]


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


def test_a_term_that_goes_back_is_damage_and_a_later_one_is_none() -> None:
    log = log_of(b"one", b"two")

    assert StopReason.EARLIER_TERM is check(log.put(1, TERM_AT, ">q", 2), 1, previous=0).reason
    assert check(log.put(1, TERM_AT, ">q", 1 << 40), 1, previous=0).reason is None


def test_an_entry_further_on_need_not_continue() -> None:
    assert check(log_of(b"one", b"lost", b"three"), 2, previous=0).reason is None


@pytest.mark.parametrize(
    ("rest", "reason"), [(b"", StopReason.LIMIT), (bytes(7), StopReason.UNWRITTEN), (b"\0\0\0\1", StopReason.TORN)]
)
def test_fewer_than_eight_bytes_hold_no_entry(rest: bytes, reason: StopReason) -> None:
    assert reason is check_entry(memoryview(rest), 0).reason

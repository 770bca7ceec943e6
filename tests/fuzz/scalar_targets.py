# SPDX-License-Identifier: Apache-2.0
"""Decoders of bytes and numbers in memory: records, batches, bodies, properties, units."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

import lz4.frame
import numpy as np
import zstandard

from store_core.errors import CorruptRecordError
from store_core.format.columnar.decode_batch import Decoding, decode_records
from store_core.format.columnar.lockstep import scan
from store_core.format.columnar.records import Records
from store_core.format.columns import COLUMNS, STORE
from store_core.format.compression import MAX_EXPANDED_BODY, expand_body
from store_core.format.java import hash_code, parse_java_int
from store_core.format.properties import PropertyParser, decode_text, parse_properties
from store_core.format.record.decode import decode_message, unwrap_inner_batch
from store_core.format.record.record_head import format_host, is_message_id, position_of_message_id
from store_core.format.record.scan import Framing, Scan, follow_frames
from store_core.format.sys_flag import CompressionType
from store_core.queue.rocksdb_queues import parse_bound_key, unit_key
from store_core.snapshot.timers import TIMER_DTYPE, TimerChains, due_times, timer_units
from tests.dledger_logs import DLedgerLog
from tests.fuzz.mutation import mutate_bytes, mutate_text, telling_number
from tests.fuzz.seeds import small_log
from tests.fuzz.target import Case, Finding, Target, expect, refused
from tests.golden_stores import message_rows, table_rows

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random


_COLUMNS: Final = [column.name for column in COLUMNS if column.name != STORE]
_DATES: Final = range(-62_135_596_800_000, 253_402_300_800_000)
"""Milliseconds of which Python has dates, so that rows can be compared."""


def _records(_directory: Path) -> Case:
    """The rows of a batch are those of its records, one by one, and of untouched records what was stored."""
    sound, starts, _ = small_log()
    before = {start: sound[start:end] for start, end in zip(starts, [*starts[1:], len(sound)], strict=True)}

    def run(random: Random) -> None:
        data = bytearray(sound)
        mutate_bytes(random, data, starts)
        raw, view = np.frombuffer(bytes(data), np.uint8), memoryview(bytes(data))
        followed, found = follow_frames(view), scan(raw)
        expect_same_scan(followed, found)
        parser = random.choice(list(PropertyParser))
        expect_same_rows(raw, view, found.starts, parser)
        for start in found.starts.tolist():
            piece = before.get(start)
            if piece is not None and data[start : start + len(piece)] == piece:
                expect(len(piece), struct.unpack_from(">i", data, start)[0], "size of an untouched record")

    return run


def expect_same_scan(expected: Scan, found: Scan) -> None:
    """Compare the starts of records as the definition finds them with those of the fast walk."""
    expect(expected.starts.tolist(), found.starts.tolist(), "starts of records")
    expect((expected.stop, expected.reason), (found.stop, found.reason), "end of the chain")


def expect_same_rows(raw: np.ndarray, view: memoryview, starts: np.ndarray, parser: PropertyParser) -> None:
    """Compare the rows of a batch with the records decoded one by one."""
    messages, faulty = [], []
    for start in starts.tolist():
        try:
            message = decode_message(view, start, parser=parser)
            _ = message.compression  # a column, and of an unknown type none
            messages.append(message)
        except (CorruptRecordError, ValueError):
            faulty.append(start)
    decoded = decode_records(Records(raw, starts, "0" * 20, 0, parser), _COLUMNS, Decoding())
    expect(faulty, [fault.position for fault in decoded.faults], "records that can't be decoded")
    if all(message.store_timestamp in _DATES and message.born_timestamp in _DATES for message in messages):
        expect(message_rows(messages, "0" * 20), table_rows(decoded.batch), "rows")


def _entries(_: Path) -> Case:
    """Entries of a DLedger log are found alike by both walks."""
    log = DLedgerLog(1 << 14)
    for number in range(12):
        log.append(b"body %d" % number, topic=f"t{number % 3}", term=number // 5)
    log.roll()
    sound = bytes(log.data)

    def run(random: Random) -> None:
        data = bytearray(sound)
        mutate_bytes(random, data, log.entries)
        raw = np.frombuffer(bytes(data), np.uint8)
        expect_same_scan(
            follow_frames(memoryview(bytes(data)), framing=Framing.ENTRIES), scan(raw, framing=Framing.ENTRIES)
        )

    return run


def _inner_batches(_: Path) -> Case:
    items = b"".join(
        struct.pack(">iiiii", 0, 0, 0, flag, 5) + b"body!" + struct.pack(">h", 6) + b"a\x01b\x02c\x01"
        for flag in range(6)
    )

    def run(random: Random) -> None:
        data = bytearray(items)
        mutate_bytes(random, data, range(0, len(items), 33))
        with refused(ValueError):
            found = unwrap_inner_batch(bytes(data))
            if sum(len(each.body) for each in found) > len(data):
                raise Finding("more bytes than there are")

    return run


def _bodies(_: Path) -> Case:
    """A body expands to what was compressed, to no more than the bound, or is refused."""
    text = b"the body of a message, " * 40
    seeds = [
        (CompressionType.ZLIB, zlib.compress(text)), (CompressionType.LZ4, lz4.frame.compress(text)),
        (CompressionType.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(text)),
        (CompressionType.ZLIB, zlib.compress(bytes(1 << 20))),
        (CompressionType.LZ4, lz4.frame.compress(bytes(1 << 20))),
        (CompressionType.ZSTD, zstandard.ZstdCompressor().compress(bytes(1 << 20))),
    ]  # fmt: skip
    has_checksum = {CompressionType.ZLIB, CompressionType.ZSTD}

    def run(random: Random) -> None:
        number = random.randrange(len(seeds))
        kind, sound = seeds[number]
        data = bytearray(sound)
        mutate_bytes(random, data, (0, 2, 4, 6, len(data) - 4))
        limit = random.choice((MAX_EXPANDED_BODY, 1 << 21, len(text), 10))
        with refused(ValueError):
            found = expand_body(bytes(data), kind, limit)
            if len(found) > limit:
                raise Finding(f"{len(found)} bytes, more than {limit}")
            if (
                number < 3
                and kind in has_checksum
                and data[:2] == sound[:2]
                and not data.startswith(sound)
                and len(found) == len(text)
                and found != text
                and kind is CompressionType.ZLIB
            ):
                raise Finding("another body, although it has a checksum")

    return run


_PIECES: Final = ("\x01", "\x02", "TAGS", "KEYS", "UNIQ_KEY", "", "é", "\ufffd", "__CRC32#", " ")


def _properties(_: Path) -> Case:
    text = "TAGS\x01a b\x02KEYS\x01k1 k2\x02WAIT\x01true\x02é\x01日本\x02"

    def run(random: Random) -> None:
        stored = bytearray(mutate_text(random, text, _PIECES).encode("utf-8", "surrogatepass"))
        if random.random() < 0.3:
            mutate_bytes(random, stored)
        decoded = decode_text(bytes(stored))
        for parser in PropertyParser:
            found = parse_properties(decoded, parser)
            if any(not name or not value for name, value in found.items()) and parser is PropertyParser.FIRST_SEPARATOR:
                raise Finding(f"an empty name or value: {found}")
        hash_code(decoded)

    return run


def _numbers(_: Path) -> Case:
    def run(random: Random) -> None:
        text = mutate_text(
            random, random.choice(("12", "-9223372036854775808", "+07", "C0A8010200002A9F" * 2)), "0٣x-+"
        )
        with refused(ValueError):
            bits = random.choice((16, 32, 64))
            value = parse_java_int(text, bits)
            if not -(1 << bits - 1) <= value < 1 << bits - 1:
                raise Finding(f"{text!r} is {value} in {bits} bits")
        if is_message_id(text):
            position_of_message_id(text)
        format_host(random.randbytes(random.choice((4, 16))), int.from_bytes(telling_number(random, ">i"), signed=True))

    return run


def _units(_: Path) -> Case:
    def run(random: Random) -> None:
        key = bytearray(unit_key("topic", 1, 2))
        mutate_bytes(random, key, (0, 4, 5))
        parse_bound_key(bytes(key))

    return run


def _timers(_: Path) -> Case:
    """Chains of timers end, wherever their links lead."""
    units = np.zeros(20, TIMER_DTYPE)
    units["magic"], units["size"], units["previous_position"] = 1, units.itemsize, np.arange(-1, 19) * units.itemsize
    seed = units.tobytes()

    def run(random: Random) -> None:
        data = bytearray(seed)
        mutate_bytes(random, data, range(0, len(data), TIMER_DTYPE.itemsize))
        found, _ = timer_units(np.frombuffer(bytes(data), np.uint8))
        if len(found) * found.dtype.itemsize > len(data):
            raise Finding("more units than bytes")
        due_times(found)
        TimerChains.of(np.arange(len(found), dtype=np.int64) * found.dtype.itemsize, found)

    return run


SCALAR_TARGETS: Final = (
    Target("records", _records, 60_000, 60),
    Target("dledger-entries", _entries, 120_000, 300),
    Target("inner-batches", _inner_batches, 160_000, 500),
    Target("bodies", _bodies, 140_000, 300),
    Target("properties", _properties, 180_000, 500),
    Target("numbers", _numbers, 110_000, 500),
    Target("units", _units, 60_000, 300),
    Target("timers", _timers, 60_000, 300),
)

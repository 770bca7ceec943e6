# SPDX-License-Identifier: Apache-2.0
"""Builds commit logs, timers and databases with plain `struct`, only from the format's description.

An independent check of our layout: nothing here imports `store_core`, and nothing here is clever. A record is the
concatenation of its fields.
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
BLANK_SIZE = 8
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
FIRST_STORE_TIMESTAMP = 1_700_000_000_000

# Positions of fields in a record with two IPv4 hosts, for tests that break them.
SIZE_AT = 0
MAGIC_AT = 4
CRC_AT = 8
PHYSICAL_OFFSET_AT = 28
SYS_FLAG_AT = 36
STORE_TIMESTAMP_AT = 56
BODY_LENGTH_AT = 84
BODY_AT = 88


_CRC_SIZE = 20


def pack_properties(properties: Mapping[str, str]) -> bytes:
    """Write properties as RocketMQ 5.2 does: with a separator after every value."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


def in_batch(own: str, batch: str, key: str = "k") -> bytes:
    """Return the properties of a message of a client's batch, as RocketMQ 4.8 to 5.4 stores them."""
    return f"KEYS\x01{key}\x02UNIQ_KEY\x01{own}\x02WAIT\x01true\x02UNIQ_KEY\x01{batch}\x02".encode()


def pack_host(ip: str, port: int) -> bytes:
    return ipaddress.ip_address(ip).packed + struct.pack(">i", port)


def blank_record(room: int) -> bytes:
    """Fill the rest of a segment: the blank record's eight bytes, then zeros."""
    return struct.pack(">iI", room, MAGIC_BLANK).ljust(room, b"\0")


@dataclass(frozen=True, slots=True)
class Record:
    """A message record. `properties`, `topic` and `crc` are stored as given, right or wrong.

    `record_crc` is added to the checksum over the whole record, its last property; None for a record without it.
    """

    body: bytes = b""
    topic: str | bytes = "orders"
    properties: Mapping[str, str] | bytes = field(default_factory=dict)
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = FIRST_STORE_TIMESTAMP - 5
    born_host: tuple[str, int] = ("10.1.2.3", 5555)
    store_timestamp: int = FIRST_STORE_TIMESTAMP
    store_host: tuple[str, int] = ("192.168.1.2", 10911)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    version: int = 1
    crc: int | None = None
    record_crc: int | None = None

    @property
    def stored_sys_flag(self) -> int:
        """The sys_flag with the bits for the widths of the two hosts."""
        born = BORN_HOST_V6 if ":" in self.born_host[0] else 0
        return self.sys_flag | born | (STORE_HOST_V6 if ":" in self.store_host[0] else 0)

    @property
    def stored_crc(self) -> int:
        return (zlib.crc32(self.body) & 0x7FFFFFFF if self.body else 0) if self.crc is None else self.crc

    @property
    def size(self) -> int:
        return len(self.encode())

    @property
    def end(self) -> int:
        """Physical offset after the record."""
        return self.physical_offset + self.size

    def encode(self) -> bytes:
        topic = self.topic if isinstance(self.topic, bytes) else self.topic.encode()
        properties = self.properties if isinstance(self.properties, bytes) else pack_properties(self.properties)
        if self.record_crc is not None:
            properties += bytes(_CRC_SIZE)
        rest = b"".join(
            (
                struct.pack(">I", MAGIC_V1 if self.version == 1 else MAGIC_V2),
                struct.pack(">iii", self.stored_crc, self.queue_id, self.flag),
                struct.pack(">qqi", self.queue_offset, self.physical_offset, self.stored_sys_flag),
                struct.pack(">q", self.born_timestamp) + pack_host(*self.born_host),
                struct.pack(">q", self.store_timestamp) + pack_host(*self.store_host),
                struct.pack(">iq", self.reconsume_times, self.prepared_transaction_offset),
                struct.pack(">i", len(self.body)) + self.body,
                struct.pack(">b" if self.version == 1 else ">h", len(topic)) + topic,
                struct.pack(">h", len(properties)) + properties,
            )
        )
        record = struct.pack(">i", len(rest) + 4) + rest
        if self.record_crc is None:
            return record
        covered = record[:-_CRC_SIZE]
        digits = str((zlib.crc32(covered) + self.record_crc) & 0x7FFFFFFF)[::-1].ljust(10, "0")
        return covered + f"__CRC32#\x01{digits}\x02".encode()


def patch(file: Path, at: int, data: bytes) -> None:
    """Overwrite some bytes of a file."""
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(data)


class LogBuilder:
    """A commit log in memory, written as a broker writes it: records, a blank record where one does not fit, segments.

    * `segment_size`: Bytes of each segment.
    * `start_offset`: Physical offset of the first one; not 0 in a store whose first segments were deleted.
    """

    def __init__(self, segment_size: int = 4096, start_offset: int = 0) -> None:
        self.segment_size = segment_size
        self.start_offset = start_offset
        self.records: list[Record] = []
        self._data = bytearray()
        self._next: Counter[tuple[str | bytes, int]] = Counter()
        self._clock = FIRST_STORE_TIMESTAMP

    @property
    def end(self) -> int:
        """The write position, as a physical offset."""
        return self.start_offset + len(self._data)

    @property
    def room(self) -> int:
        """Bytes left in the current segment."""
        return self.segment_size - len(self._data) % self.segment_size

    def append(self, record: Record | bytes = b"", /, **fields: Any) -> Record:  # noqa: ANN401 -- those of Record
        """Append a record (or a body): in the next segment if it doesn't fit with a blank record after it.

        The physical offset is the log's. The queue offset counts up and the store time advances by a millisecond per
        record, unless they are given by name.
        """
        made = replace(record, **fields) if isinstance(record, Record) else Record(record, **fields)
        if made.size + BLANK_SIZE > self.room:
            self.roll()
        self._clock += 1
        placed = replace(
            made,
            physical_offset=self.end,
            queue_offset=fields.get("queue_offset", self._next[made.topic, made.queue_id]),
            store_timestamp=fields.get("store_timestamp", self._clock),
        )
        self._next[made.topic, made.queue_id] += 1
        self._data += placed.encode()
        self.records.append(placed)
        return placed

    def append_all(self, *bodies: bytes, **fields: Any) -> list[Record]:  # noqa: ANN401
        return [self.append(body, **fields) for body in bodies]

    def append_raw(self, data: bytes) -> int:
        """Append bytes as they are; return their physical offset."""
        position = self.end
        self._data += data
        return position

    def roll(self) -> None:
        """Close the segment with a blank record."""
        self._data += blank_record(self.room)

    def fill(self, segments: int = 1, body: bytes = b"x" * 100, **fields: Any) -> None:  # noqa: ANN401
        """Append records until this number of segments is closed."""
        closed = self.end // self.segment_size + segments
        while self.end // self.segment_size < closed:
            self.append(body, **fields)

    def patch(self, physical_offset: int, data: bytes) -> None:
        """Overwrite bytes before the write position."""
        begin = physical_offset - self.start_offset
        if begin + len(data) > len(self._data):
            raise ValueError(f"{len(data)} bytes at {physical_offset} pass the write position {self.end}")
        self._data[begin : begin + len(data)] = data

    def flip(self, physical_offset: int, count: int = 1) -> None:
        """Invert bytes."""
        begin = physical_offset - self.start_offset
        self.patch(physical_offset, bytes(byte ^ 0xFF for byte in self._data[begin : begin + count]))

    def truncate(self, physical_offset: int) -> bytes:
        """Move the write position back, as recovery does, and return the bytes after it."""
        begin = physical_offset - self.start_offset
        behind = bytes(self._data[begin:])
        del self._data[begin:]
        self.records = [record for record in self.records if record.physical_offset < physical_offset]
        return behind

    def expire(self) -> str:
        """Leave out the first segment from now on, as retention does, and return its name."""
        name = f"{self.start_offset:020d}"
        del self._data[: self.segment_size]
        self.start_offset += self.segment_size
        self.records = [record for record in self.records if record.physical_offset >= self.start_offset]
        return name

    def segments(self) -> dict[str, bytes]:
        """Return file names and contents; the last segment is filled up with zeros."""
        size = self.segment_size
        cuts = range(0, max(len(self._data), 1), size)
        pieces = {self.start_offset + cut: bytes(self._data[cut : cut + size]) for cut in cuts}
        return {f"{start:020d}": piece.ljust(size, b"\0") for start, piece in pieces.items()}

    def write(self, root: Path, *, preallocated: int = 0) -> Path:
        """Write ``root/commitlog/``, with `preallocated` segments of zeros after the data; return `root`."""
        directory = root / "commitlog"
        directory.mkdir(parents=True, exist_ok=True)
        files = self.segments()
        for _ in range(preallocated):
            files[f"{int(max(files)) + self.segment_size:020d}"] = bytes(self.segment_size)
        for name, data in files.items():
            (directory / name).write_bytes(data)
        return root


TIMER_UNIT_SIZE = 52
TIMER_SLOTS = 1_209_600
_UNITS_IN_FILE = 78


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that is due at a second."""

    due: int
    write: int
    physical_offset: int = 0
    store_size: int = 100
    magic: int = 1


def _place(number: int) -> int:
    files, unit = divmod(number, _UNITS_IN_FILE)
    return files * (_UNITS_IN_FILE * TIMER_UNIT_SIZE + 40) + unit * TIMER_UNIT_SIZE


def write_timers(root: Path, timers: Sequence[Timer], read_until: int) -> None:
    """Write ``timerlog/``, ``timerwheel`` and ``config/timercheck``; times in seconds."""
    slots: dict[int, tuple[int, int, int]] = {}
    log = bytearray()
    for number, timer in enumerate(timers):
        at = _place(number)
        if at > len(log):
            log += struct.pack(">iqI", 40, 0, 0xCBD43194).ljust(40, b"\0")
        first, last, count = slots.get(timer.due, (at, -1, 0))
        log += struct.pack(
            ">iqiqiqiiq", TIMER_UNIT_SIZE, last, timer.magic, timer.write * 1000, (timer.due - timer.write) * 1000,
            timer.physical_offset, timer.store_size, 0, 0,
        )  # fmt: skip
        slots[timer.due] = first, at, count + (-1 if timer.magic & 4 else 1)
    size = _UNITS_IN_FILE * TIMER_UNIT_SIZE + 40
    (root / "timerlog").mkdir(parents=True)
    for begin in range(0, max(len(log), 1), size):
        (root / "timerlog" / f"{begin:020d}").write_bytes(bytes(log[begin : begin + size]).ljust(size, b"\0"))
    with (root / "timerwheel").open("wb") as wheel:
        wheel.truncate(TIMER_SLOTS * 32)
        for due, slot in slots.items():
            wheel.seek(due % TIMER_SLOTS * 32)
            wheel.write(struct.pack(">qqqii", due, *slot, 0))
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "timercheck").write_bytes(struct.pack(">q", read_until * 1000).ljust(4096, b"\0"))


_HOUR = 3_600_000


def stored_index_key(text: str, stored: int, physical_offset: int) -> tuple[bytes, bytes]:
    """Return an entry of the index; the text is as ``@topic@K@key@UNIQ_KEY@``."""
    key = struct.pack(">q", stored // _HOUR * _HOUR) + text.encode() + struct.pack(">q", physical_offset)
    return key, struct.pack(">q", stored)


def stored_timer(due: int, unique_key: str, physical_offset: int) -> tuple[bytes, bytes]:
    """Return a pending timer of a message of 100 bytes."""
    return struct.pack(">q", due) + unique_key.encode(), struct.pack(">iq", 100, physical_offset)


def stored_half(physical_offset: int, topic: str, transaction: str, check_times: int = 0) -> tuple[bytes, bytes]:
    """Return a half message of 200 bytes that is still open."""
    return struct.pack(">q", physical_offset) + f"@{topic}@{transaction}".encode(), struct.pack(">ii", check_times, 200)

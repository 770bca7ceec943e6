# SPDX-License-Identifier: Apache-2.0
"""Makes segments for the benchmarks: full of records as a 5.x broker writes them, with fixed content."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


_READ_AT_ONCE: Final = 4 << 20
_HEAD: Final = struct.Struct(">iiiiiqqiq4siq4siiqi")
_MAGIC: Final = -626843481
_BLANK: Final = -875286124
_TOPICS: Final = (
    b"orders-eu",
    b"orders-us",
    b"payments",
    b"clicks",
    b"%RETRY%billing",
    b"stock",
    b"mail",
    b"audit-log",
)
RARE_TOPIC: Final = "refunds"
"""Topic of one in a hundred messages, in logs that have it."""

_RARE: Final = 100
_QUEUES: Final = 8
_GIBIBYTE: Final = 1 << 30
_FEW: Final = 1 << 16
_BODIES: Final = 64
_MIXED_TOPICS: Final = 50
_MIXED_NAMES: Final = tuple(
    b"UNIQ_KEY KEYS TAGS WAIT CLUSTER TRACE_ON traceId spanId region tenant contentType schemaVersion".split()
)
_LONGEST_VALUE: Final = 40
_MIXED_TEXT: Final = 1 << 16
_MIXED_STEP: Final = 4096
_BORN_HOST: Final = bytes([10, 1, 2, 3])
_STORE_HOST: Final = bytes([192, 168, 1, 2])
_FIRST_TIME: Final = 1_700_000_000_000


def make_store(folder: Path, size: int, body_size: int) -> Path:
    """Write a store of one segment of `size` bytes, full of records with bodies of `body_size`, unless it is there.

    A record has the properties KEYS, UNIQ_KEY and TAGS: 372 bytes in total for a body of 200, as from a broker with
    short keys. Sixteen producers send to eight topics of eight queues.
    """
    return _of_one_segment(folder / f"bench-{size}-{body_size}", lambda: _segment(size, body_size))


def _of_one_segment(store: Path, make: Callable[[], bytearray]) -> Path:
    """Write the only segment of a store, unless it is there."""
    segment = store / "commitlog" / f"{0:020d}"
    if not segment.exists():
        segment.parent.mkdir(parents=True, exist_ok=True)
        partial = segment.with_name("partial")
        partial.write_bytes(make())
        partial.rename(segment)
    return _cached(store)


def _cached(store: Path) -> Path:
    """Read all segments anew, in order, so that the system keeps them in large pages.

    What it keeps after a look-up or under pressure are small ones, and mapping these takes 70 ms for a GiB, not 10.
    """
    for segment in sorted((store / "commitlog").iterdir()):
        with segment.open("r+b", buffering=0) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while file.read(_READ_AT_ONCE):
                pass
    return store


def make_log(folder: Path, size: int, segment_size: int, body_size: int, *, has_rare: bool = False) -> Path:
    """Write a store with `size` bytes of records in segments of `segment_size`, the last not full, unless it is there.

    Records are those of `make_store`; with `has_rare`, one in a hundred is of `RARE_TOPIC`.
    """
    store = folder / f"{'rare' if has_rare else 'log'}-{size}-{segment_size}-{body_size}"
    if not store.exists():
        partial = folder / "partial-log"
        (partial / "commitlog").mkdir(parents=True)
        number = 0
        for start in range(0, size, segment_size):
            used = min(segment_size, size - start)
            data, number = _part_of_log(start, used, segment_size, body_size, number, has_rare=has_rare)
            path = partial / "commitlog" / f"{start:020d}"
            path.write_bytes(data)
            os.truncate(path, segment_size)  # what is not written is a hole, as in a broker's file
        partial.rename(store)
    return _cached(store)


def make_indexed(folder: Path, size: int, body_size: int, *, has_rare: bool = False) -> Path:
    """Write a log as `make_log`, in segments of 1 GiB, and let this project make its queues and index."""
    from store_core import RebuildOptions, rebuild_consume_queue  # noqa: PLC0415 -- most logs are without

    store = make_log(folder, size, _GIBIBYTE, body_size, has_rare=has_rare)
    if not (store / "index").exists():
        rebuild_consume_queue(store, RebuildOptions(with_index=True))
        for name in ("consumequeue", "index"):
            (store / "rebuilt" / name).rename(store / name)
        shutil.rmtree(store / "rebuilt")
    return store


def link_log(store: Path, log: Path) -> Path:
    """Make a store that has the same files of a log, and shares nothing else with others."""
    (store / "commitlog").mkdir(parents=True, exist_ok=True)
    for path in (log / "commitlog").iterdir():
        linked = store / "commitlog" / path.name
        if not linked.exists():
            linked.hardlink_to(path)
    return store


def make_sparse_log(folder: Path, segments: int, last_bytes: int, body_size: int) -> Path:
    """Write a store of segments of 1 GiB, unless it is there: the last has `last_bytes` of records, the others few.

    After the first 64 KiB of the others is a hole, as if their records had been lost: they are there to be planned.
    """
    store = folder / f"sparse-{segments}-{last_bytes}-{body_size}"
    if not store.exists():
        partial = folder / "partial-sparse"
        (partial / "commitlog").mkdir(parents=True, exist_ok=True)
        number = 0
        for start in range(0, segments * _GIBIBYTE, _GIBIBYTE):
            used = last_bytes if start == (segments - 1) * _GIBIBYTE else _FEW
            # A segment with room for more than its records: those that are not full have no blank record at their end.
            data, number = _part_of_log(start, used, used + 1, body_size, number)
            path = partial / "commitlog" / f"{start:020d}"
            path.write_bytes(data)
            os.truncate(path, _GIBIBYTE)
        partial.rename(store)
    return store


def make_store_of_topics(folder: Path, size: int, body_size: int, topics: int) -> Path:
    """Write a store as `make_store`, but of this many topics in turn."""
    names = [b"topic-%05d" % number for number in range(topics)]
    return _of_one_segment(folder / f"topics-{topics}-{size}-{body_size}", lambda: _segment(size, body_size, names))


def make_mixed_store(folder: Path, size: int, body_size: int) -> Path:
    """Write a store as `make_store`, but of 50 topics whose records differ in their properties.

    A topic has 1 to 12 properties, and values of 1 to 40 characters whose lengths differ from record to record.
    """
    return _of_one_segment(folder / f"mixed-{size}-{body_size}", lambda: _mixed_segment(size, body_size))


def _mixed_segment(size: int, body_size: int) -> bytearray:
    """Return a full segment: the topics in random order, each with properties of its own names."""
    data, position, number = bytearray(size), 0, 0
    random = np.random.default_rng(body_size)
    body = random.integers(0, 256, body_size, np.uint8).tobytes()
    text = random.integers(0, 16, _MIXED_TEXT).astype(np.uint8)
    letters = np.frombuffer(b"0123456789abcdef", np.uint8)[text].tobytes()
    while True:
        topics = random.integers(0, _MIXED_TOPICS, _MIXED_STEP).tolist()
        values = random.integers(1, _LONGEST_VALUE + 1, (_MIXED_STEP, len(_MIXED_NAMES))).tolist()
        for topic, lengths in zip(topics, values, strict=True):
            names = _MIXED_NAMES[: 1 + topic % len(_MIXED_NAMES)]
            at = number % (_MIXED_TEXT - _LONGEST_VALUE)
            properties = b"".join(
                b"%b\x01%b\x02" % (name, letters[at : at + length])
                for name, length in zip(names, lengths, strict=False)
            )
            record = _packed(b"topic-%02d" % topic, number // _QUEUES, number, position, body, properties)
            if position + len(record) + 8 > size:
                struct.pack_into(">ii", data, position, size - position, _BLANK)
                return data
            data[position : position + len(record)] = record
            position += len(record)
            number += 1


def _part_of_log(
    start: int,
    used: int,
    segment_size: int,
    body_size: int,
    number: int,
    *,
    has_rare: bool = False,
    topics: Sequence[bytes] = _TOPICS,
) -> tuple[bytearray, int]:
    """Return the segment that begins at `start`, and the number of the next record."""
    random = np.random.default_rng(body_size)
    bodies = [random.integers(0, 256, body_size, np.uint8).tobytes() for _ in range(_BODIES)]
    data, position = bytearray(segment_size), 0
    while True:
        record = _record(number, start + position, bodies[number % _BODIES], has_rare=has_rare, topics=topics)
        if position + len(record) + 8 > used:
            if used == segment_size:
                struct.pack_into(">ii", data, position, segment_size - position, _BLANK)
                return data, number
            return data[:position], number
        data[position : position + len(record)] = record
        position += len(record)
        number += 1


def _segment(size: int, body_size: int, topics: Sequence[bytes] = _TOPICS) -> bytearray:
    """Return a full segment: the only one of a log."""
    return _part_of_log(0, size, size, body_size, 0, topics=topics)[0]


def _place(number: int, topics: Sequence[bytes], *, has_rare: bool) -> tuple[bytes, int]:
    """Return a record's topic, and its number among those of the topic."""
    if not has_rare:
        return topics[number % len(topics)], number // len(topics)
    if number % _RARE == _RARE - 1:
        return RARE_TOPIC.encode(), number // _RARE
    common = number - number // _RARE
    return topics[common % len(topics)], common // len(topics)


def _record(number: int, position: int, body: bytes, *, has_rare: bool, topics: Sequence[bytes]) -> bytes:
    topic, place = _place(number, topics, has_rare=has_rare)
    properties = b"KEYS\x01order%07d\x02UNIQ_KEY\x017F0000010A1B18B4AAC2%012X\x02TAGS\x01Tag%c\x02" % (
        number,
        number,
        65 + number % 4,
    )
    return _packed(topic, place, number, position, body, properties)


def _packed(topic: bytes, place: int, number: int, position: int, body: bytes, properties: bytes) -> bytes:
    """Return a record: message `place` of its topic, `number` of the log."""
    tail = bytes([len(topic)]) + topic + struct.pack(">h", len(properties)) + properties
    time = _FIRST_TIME + number // 4
    head = _HEAD.pack(
        _HEAD.size + len(body) + len(tail),
        _MAGIC,
        zlib.crc32(body) & 0x7FFFFFFF,
        place % _QUEUES,
        0,
        place // _QUEUES,
        position,
        0,
        time - 3,
        _BORN_HOST,
        40000 + number % 16,
        time,
        _STORE_HOST,
        10911,
        0,
        0,
        len(body),
    )
    return head + body + tail

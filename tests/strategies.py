# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for commit logs: sound, odd, hostile and broken ones.

Records are built by `tests.builders`, which is independent of the package.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import lz4.frame
import zstandard
from hypothesis import strategies as st

from tests.builders import (
    BLANK_SIZE,
    BODY_AT,
    BODY_LENGTH_AT,
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    SIZE_AT,
    SYS_FLAG_AT,
    Record,
    blank_record,
    pack_properties,
)

if TYPE_CHECKING:
    from collections.abc import Callable


_I32: Final = st.integers(-(1 << 31), (1 << 31) - 1)
_COMPRESSED: Final = 0x01
_LZ4, _ZSTD, _ZLIB = 0x100, 0x200, 0x300


@dataclass(frozen=True, slots=True)
class Log:
    """The bytes of a segment, and where its records start if nothing is broken."""

    data: bytes
    start_offset: int = 0
    starts: list[int] = field(default_factory=list)


start_offsets: Final = st.sampled_from([0, 4096, 1 << 30, (1 << 31) + 7, 1 << 50])

# --- parts of records ---

hosts: Final = st.tuples(
    st.sampled_from(["10.1.2.3", "255.255.255.255", "::", "2001:db8::1", "2001:db8:0:0:1:0:0:1", "::ffff:1.2.3.4"])
    | st.ip_addresses().map(str),
    st.integers(0, 0xFFFF),
)

_NAMES: Final = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "", "é", "日本", "tags", "TAGS2"]) | st.text(
    max_size=5
)
_VALUES: Final = st.sampled_from(["", " ", "k1 k2", " k1  k2 ", "x\x01", "\x01x", "😀", "v" * 300]) | st.text(
    max_size=8
)
_MALFORMED: Final = st.sampled_from([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xe4\xb8", b"\xf0\x9f\x98", b"\xc0\x80"])


def _item(name: str, separator: str, value: str, extra: bytes) -> bytes:
    return f"{name}{separator}{value}".encode("utf-8", "replace") + extra


_SEPARATORS: Final = st.sampled_from(["\x01"] * 6 + ["", "\x01\x01", "\x02"])
_ITEMS: Final = st.builds(_item, _NAMES, _SEPARATORS, _VALUES, st.just(b"") | _MALFORMED) | _MALFORMED

_regular: Final = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "CLUSTER", "é"]),
    st.sampled_from(["TagA", "true", "k1 k2", " ", "日本 k", "v" * 200]) | st.text("abc ", min_size=1, max_size=6),
    max_size=5,
).map(pack_properties)
same_names: Final = st.lists(st.sampled_from(["TagA", "TagB", "x y"]), min_size=3, max_size=3).map(
    lambda values: pack_properties(dict(zip(["TAGS", "KEYS", "a"], values, strict=True)))
)
_odd: Final = st.builds(
    lambda items, end: b"\x02".join(items) + end,
    st.lists(_ITEMS, max_size=6),
    st.sampled_from([b"", b"\x02", b"\x01", b"\x02\x02", b"\x01\x02"]),
)
_huge: Final = st.sampled_from(
    [
        b"TAGS\x01" + b"t" * 32_762,
        b"a\x01b\x02" * 8191,
        b"\x02" * 32_767,
        b"\x01" * 32_767,
        b"".join(b"n%d\x01v\x02" % number for number in range(500)),
    ]
)

properties: Final = same_names | _regular | _regular.map(lambda stored: stored.removesuffix(b"\x02")) | _odd
"""Stored bytes of a properties field: regular ones with and without the last separator, and all kinds of odd ones."""

_topics: Final = st.sampled_from(["orders", "T", "", "日本", "%RETRY%g", "t" * 127]) | st.text("abc", max_size=4)
_long_topics: Final = st.sampled_from(["t" * 128, "t" * 255, "日" * 100, "x" * 32_767])
_bad_topics: Final = _MALFORMED.map(lambda bad: b"topic" + bad)

_bodies: Final = st.binary(max_size=40) | st.sampled_from([b"", b"\0" * 100, bytes(5000), b"\x01\x02" * 50])


def _compress(kind: int, body: bytes) -> bytes:
    packers: dict[int, Callable[[bytes], bytes]] = {
        0: zlib.compress,
        _LZ4: lz4.frame.compress,
        _ZSTD: zstandard.ZstdCompressor().compress,
        _ZLIB: zlib.compress,
    }
    return packers[kind](body)


@st.composite
def _packed_bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """Draw a compressed body with its sys_flag: mostly sound, else truncated, garbled or of an invalid type."""
    kind = draw(st.sampled_from([0, _LZ4, _ZSTD, _ZLIB]))
    body = _compress(kind, draw(_bodies))
    broken = draw(st.sampled_from(["", "", "", "cut", "garbled", "type", "empty", "longer"]))
    if broken == "cut":
        body = body[: draw(st.integers(0, len(body)))]
    elif broken == "garbled":
        at = draw(st.integers(0, len(body) - 1))
        body = body[:at] + bytes([body[at] ^ draw(st.integers(1, 255))]) + body[at + 1 :]
    elif broken == "type":
        kind = draw(st.sampled_from([0x400, 0x500, 0x600, 0x700]))
    elif broken == "empty":
        body = b""
    elif broken == "longer":
        body += draw(st.binary(min_size=1, max_size=9))
    return body, _COMPRESSED | kind


_sys_flags: Final = st.sampled_from([0, 0, 0, 2, 4, 8, 12, 0x40, 0xC0, 0x300, 0x700, -0x40000000 & ~0x31])
_stored_bodies: Final = st.tuples(_bodies, _sys_flags)


_NUMBERS: Final = struct.Struct(">iqiqqiq")
_MS_MASK: Final = (1 << 53) - 1


def _numbers(stored: bytes) -> dict[str, Any]:
    """Read the integers of a head from any bytes; times stay in the range of Arrow's microseconds."""
    queue_id, queue_offset, flag, born, store, times, prepared = _NUMBERS.unpack(stored)
    return {
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "flag": flag,
        "born_timestamp": born & _MS_MASK,
        "store_timestamp": -(store & _MS_MASK),
        "reconsume_times": times,
        "prepared_transaction_offset": prepared,
    }


_head_numbers: Final = (
    st.binary(min_size=_NUMBERS.size, max_size=_NUMBERS.size)
    | st.sampled_from([bytes(_NUMBERS.size), b"\xff" * _NUMBERS.size, b"\x80\0\0\0" * 11, b"\x7f\xff\xff\xff" * 11])
).map(_numbers)


def records(*, faults: bool = True) -> st.SearchStrategy[Record]:
    """Return records of every kind; with `faults` some can't be decoded (topic not UTF-8, checksum wrong).

    Their physical offsets are set by `logs`.
    """
    bodies = st.one_of(_stored_bodies, _stored_bodies, _packed_bodies() if faults else _stored_bodies)
    plain = st.builds(
        _record,
        bodies,
        st.sampled_from([1, 1, 2]),
        _head_numbers,
        topic=_topics,
        properties=properties,
        born_host=hosts,
        store_host=hosts,
    )
    rare = [
        st.builds(_record, bodies, st.just(2), topic=_long_topics),
        st.builds(_record, bodies, st.sampled_from([1, 2]), topic=_topics, properties=_huge),
    ]
    crcs = st.just(0) | st.integers(1, 9) if faults else st.just(0)
    rare.append(
        st.builds(_record, bodies, st.sampled_from([1, 2]), topic=_topics, properties=properties, record_crc=crcs)
    )
    if faults:
        rare.append(st.builds(_record, bodies, st.sampled_from([1, 2]), topic=_bad_topics, properties=properties))
        rare.append(st.builds(_record, bodies, st.just(1), crc=st.integers(0, (1 << 31) - 1), properties=properties))
    similar = st.builds(_record, bodies, st.just(1), topic=_topics, properties=same_names)
    return st.one_of(similar, plain, plain, *rare)


def _record(
    stored: tuple[bytes, int],
    version: int,
    numbers: dict[str, Any] | None = None,
    **fields: Any,  # noqa: ANN401 -- those of Record
) -> Record:
    body, sys_flag = stored
    return Record(body=body, sys_flag=sys_flag, version=version, **(numbers or {}), **fields)


# --- whole logs ---


def _place(parts: list[Record | Callable[[int], Record]], start_offset: int, tail: bytes) -> Log:
    """Write consecutive records, each with its own physical offset."""
    data = bytearray()
    starts: list[int] = []
    for part in parts:
        position = len(data)
        record = part if isinstance(part, Record) else part(start_offset + position)
        starts.append(position)
        data += replace(record, physical_offset=start_offset + position).encode()
    return Log(bytes(data + tail), start_offset, starts)


_STALE: Final = Record(b"stale").encode()
_tails: Final = st.sampled_from(
    [
        b"",
        bytes(3),
        bytes(200),
        blank_record(8),
        blank_record(100),
        struct.pack(">iI", 5, MAGIC_BLANK) + _STALE,
        bytes(8) + _STALE,
        _STALE[:50],
        b"garbage that is no record",
    ]
)


@st.composite
def logs(draw: st.DrawFn, *, faults: bool = True, max_size: int = 12) -> Log:
    """Draw a log of up to `max_size` records of every kind."""
    parts: list[Record | Callable[[int], Record]] = list(draw(st.lists(records(faults=faults), max_size=max_size)))
    return _place(parts, draw(start_offsets), draw(_tails))


def _hostile(count: int, filler: int, last_reaches: int) -> Callable[[int], Record]:
    """Make a record whose body contains `count` records with correct physical offsets.

    `last_reaches` changes the size of the last one: with 0 a reader that follows it reaches the next true record.
    """

    def record_at(position: int) -> Record:
        body = bytearray(b"\xda" * filler)
        for _ in range(count):
            body += Record(b"decoy", physical_offset=position + BODY_AT + len(body)).encode()
        if count:
            last = len(body) - len(Record(b"decoy").encode())
            rest = len(Record(bytes(body), physical_offset=position).encode()) - BODY_AT - last
            struct.pack_into(">i", body, last, max(rest + last_reaches, 0))
        return Record(bytes(body), physical_offset=position)

    return record_at


_LAST_REACHES: Final = (0, 0, 0, 1, -7, 100, 300, 1 << 30)


def _part(kind: int) -> Record | Callable[[int], Record]:
    """Make a record cheaply, in a form that depends on a one-byte number."""
    if kind >= 0xD0:
        return _hostile(kind % 6 * 3, kind % 5 * 7, _LAST_REACHES[kind % len(_LAST_REACHES)])
    return Record(
        bytes(kind % 31),
        topic="t" * (kind % 5),
        version=2 if kind % 11 == 1 else 1,
        born_host=("::1", 1) if kind % 7 == 1 else ("10.0.0.1", 1),
        store_host=("::1", 1) if kind % 13 == 1 else ("10.0.0.1", 1),
    )


@st.composite
def layouts(draw: st.DrawFn) -> Log:
    """Draw a log to test only where records are: up to 80 small ones, some with bodies full of records."""
    count = draw(st.integers(0, 80))
    kinds = draw(st.binary(min_size=count, max_size=count))
    return _place([_part(kind) for kind in kinds], draw(start_offsets), draw(_tails))


# --- broken logs ---

_FIELD_POSITIONS: Final = [SIZE_AT, MAGIC_AT, PHYSICAL_OFFSET_AT + 4, SYS_FLAG_AT, BODY_LENGTH_AT, BODY_AT]
_TELLING_NUMBERS: Final = st.sampled_from([
    0, 1, -1, 4, 7, 8, 88, 90, 91, 92, 112, 127, 128, 255, 256, 0x7FFF, 0x10000, 1 << 20, (1 << 31) - 1, -(1 << 31),
    MAGIC_V1 - (1 << 32), MAGIC_V2 - (1 << 32), MAGIC_BLANK - (1 << 32), 0x10, 0x20, 0x30,
])  # fmt: skip


_CLOSE: Final = st.integers(-9, 9)


@st.composite
def mutated(draw: st.DrawFn, sound: st.SearchStrategy[Log]) -> Log:
    """Draw a log and break it in up to four places."""
    log = draw(sound)
    data = bytearray(log.data)
    for _ in range(draw(st.integers(1, 4))):
        _break(draw, data, log.starts)
    return replace(log, data=bytes(data))


def _break(draw: st.DrawFn, data: bytearray, starts: list[int]) -> None:
    size = max(len(data) - 1, 0)
    near_edge = st.builds(lambda start, by: min(max(start + by, 0), size), st.sampled_from([*starts, size]), _CLOSE)
    where = st.integers(0, size) | near_edge
    kind = draw(
        st.sampled_from(["field", "field", "field", "flip", "zero", "truncate", "duplicate", "delete", "insert"])
    )
    at = draw(where)
    length = draw(st.integers(1, 300))
    if kind == "field" and starts:
        at = draw(st.sampled_from(starts)) + draw(st.sampled_from(_FIELD_POSITIONS))
        data[at : at + 4] = struct.pack(">i", draw(_TELLING_NUMBERS | _I32))
    elif kind == "flip":
        data[at : at + 1] = bytes([draw(st.integers(0, 255))])
    elif kind == "zero":
        data[at : at + length] = bytes(len(data[at : at + length]))
    elif kind == "truncate":
        del data[at:]
    elif kind == "duplicate":
        to = draw(where)
        data[to : to + length] = data[at : at + length]
    elif kind == "delete":
        del data[at : at + length]
    elif kind == "insert":
        data[at:at] = draw(st.binary(min_size=1, max_size=BLANK_SIZE))

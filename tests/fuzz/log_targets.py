# SPDX-License-Identifier: Apache-2.0
"""Logs in files and tar archives: which rows a mutation may change, and that none disappears without a word."""

from __future__ import annotations

import gzip
import io
import logging
import shutil
import tarfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import lz4.frame
import zstandard

from store_core import read_messages
from store_core.errors import CorruptRecordError, StoreError
from tests.builders import LogBuilder, Record, blank_record
from tests.dledger_logs import DLedgerLog
from tests.fuzz.seeds import small_log
from tests.fuzz.target import Case, Finding, Target, mutate_bytes, refused

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random


_SEGMENT: Final = 4096
_COLUMNS: Final = [
    "physical_offset",
    "store_size",
    "topic",
    "queue_id",
    "queue_offset",
    "properties",
    "body",
    "_corrupt_record",
]
_MODES: Final = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")


class _Words(logging.Handler):
    """What was said while a log was read."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@dataclass(frozen=True, slots=True)
class _Piece:
    """A record and its frame, as they were stored."""

    offset: int
    frame: int
    data: bytes
    row: dict[str, Any]

    @property
    def end(self) -> int:
        return self.frame + len(self.data)


def _row(record: Record) -> dict[str, Any]:
    properties = dict(record.properties) if not isinstance(record.properties, bytes) else {}
    return {
        "physical_offset": record.physical_offset,
        "store_size": record.size,
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "properties": properties,
        "body": record.body,
    }


class _Judge:
    """Compares what is read from a mutated log with what was stored.

    * `pieces`: All records, in order.
    """

    def __init__(self, root: Path, pieces: list[_Piece]) -> None:
        self._root = root
        self._pieces = pieces
        self._words = _Words()
        log = logging.getLogger("store_core")
        log.handlers, log.propagate = [self._words], False

    def judge(self, data: bytes, *, has_layout: bool) -> None:
        """Read the log, whose bytes are now these, in all modes.

        `has_layout` says that each file has its size, so that only records may be refused.
        """
        sound = [each for each in self._pieces if data[each.frame : each.end] == each.data]
        allowed = (CorruptRecordError,) if has_layout else (StoreError,)
        found: dict[str, tuple[list[dict[str, Any]], bool]] = {}
        words: list[str] = []
        for mode in _MODES:
            self._words.lines = words
            found[mode] = self._read(mode, allowed if mode == "FAILFAST" or not has_layout else ())
        if not has_layout and any(is_refused for _, is_refused in found.values()):
            return
        rows = {mode: [row for row in found[mode][0] if row["_corrupt_record"] is None] for mode in _MODES}
        if rows["DROPMALFORMED"] != rows["PERMISSIVE"]:
            raise Finding("DROPMALFORMED and PERMISSIVE have different messages")
        fast, is_refused = found["FAILFAST"]
        whole = rows["PERMISSIVE"]
        if fast != whole[: len(fast)] or (not is_refused and len(fast) < len(whole)):
            raise Finding("the rows of FAILFAST are not those before the damage")
        self._judge_rows(whole, sound)
        self._judge_loss(found["PERMISSIVE"][0], sound, words)

    def _read(self, mode: str, allowed: tuple[type[Exception], ...]) -> tuple[list[dict[str, Any]], bool]:
        rows: list[dict[str, Any]] = []
        try:
            for batch in read_messages(self._root, columns=_COLUMNS, mode=mode):  # type: ignore[arg-type]  # one of three
                rows += batch.to_pylist()
        except allowed:
            return rows, True
        return rows, False

    def _judge_rows(self, rows: list[dict[str, Any]], sound: list[_Piece]) -> None:
        """A row is what was stored, or it overlaps bytes that were changed."""
        stored = {each.offset: each.row for each in sound}
        places = [(each.frame, each.end) for each in sound]
        for row in rows:
            begin, expected = row["physical_offset"], stored.get(row["physical_offset"])
            if expected is None:
                end = begin + row["store_size"]
                if any(start <= begin and end <= stop for start, stop in places):
                    raise Finding(f"a row at {begin} that was never a record")
                continue
            for name, value in expected.items():
                shown = dict(row[name]) if name == "properties" else row.get(name)
                if shown != value:
                    raise Finding(f"{name} of the untouched record at {begin}: {value!r:.100} became {shown!r:.100}")
        if len({row["physical_offset"] for row in rows}) != len(rows):
            raise Finding("a record twice")

    def _judge_loss(self, rows: list[dict[str, Any]], sound: list[_Piece], words: list[str]) -> None:
        """An untouched record is a row, or inside of a row for damage, or something was said of it."""
        shown = {row["physical_offset"] for row in rows if row["_corrupt_record"] is None}
        damage = [
            (row["physical_offset"], row["physical_offset"] + len(row["_corrupt_record"]))
            for row in rows
            if row["_corrupt_record"] is not None
        ]
        for each in sound:
            if each.offset in shown or any(begin <= each.offset < end for begin, end in damage):
                continue
            if not words:
                raise Finding(f"the untouched record at {each.offset} is missing, and nothing was said of it")


def _plain_log() -> tuple[bytes, list[_Piece], list[int]]:
    """Return the bytes of two segments, and a third of zeros."""
    pieces, data = [], bytearray()
    _, _, records = small_log()
    for record in records:
        if len(data) % _SEGMENT + record.size + 8 > _SEGMENT:
            data += blank_record(_SEGMENT - len(data) % _SEGMENT)
        placed = replace(record, physical_offset=len(data))
        pieces.append(_Piece(len(data), len(data), placed.encode(), _row(placed)))
        data += placed.encode()
    whole = bytes(data).ljust(-(-len(data) // _SEGMENT) * _SEGMENT, b"\0")
    return whole, pieces, [each.offset for each in pieces]


def _make_root(directory: Path, folder: str = "commitlog") -> Path:
    shutil.rmtree(directory / "store", ignore_errors=True)
    (directory / "store" / folder).mkdir(parents=True)
    (directory / "store" / "lock").touch()
    return directory / "store"


def _chosen(random: Random, whole: bytes, edges: list[int]) -> tuple[int, bytearray, list[int]]:
    """Choose a segment; return its number, its bytes, and the edges inside of it."""
    number = random.randrange(len(whole) // _SEGMENT)
    segment = bytearray(whole[number * _SEGMENT : (number + 1) * _SEGMENT])
    return number, segment, [edge - number * _SEGMENT for edge in edges if edge // _SEGMENT == number]


def _written(directory: Path, whole: bytes, number: int, segment: bytearray) -> bytes:
    """Write a log with one segment changed; return its bytes."""
    parts = [whole[begin : begin + _SEGMENT] for begin in range(0, len(whole), _SEGMENT)]
    parts[number] = bytes(segment)
    for each, part in enumerate(parts):
        (directory / f"{each * _SEGMENT:020d}").write_bytes(part)
    return b"".join(parts)


def _log(directory: Path) -> Case:
    """Files of a log with the bytes of any mutation in one of its segments."""
    whole, pieces, edges = _plain_log()
    root = _make_root(directory)
    judge = _Judge(root, pieces)

    def run(random: Random) -> None:
        number, segment, inside = _chosen(random, whole, edges)
        mutate_bytes(random, segment, inside)
        if random.random() < 0.05:
            _close(random, segment, inside)
        has_layout = random.random() < 0.9
        if has_layout:
            segment = segment[:_SEGMENT].ljust(_SEGMENT, b"\0")
        judge.judge(_written(root / "commitlog", whole, number, segment), has_layout=has_layout)

    return run


def _close(random: Random, segment: bytearray, edges: list[int]) -> None:
    """Write a blank record that fits the rest of the file over a record, or behind a copy of one."""
    at = random.choice(edges or [0])
    if random.random() < 0.5 and edges:
        piece = segment[random.choice(edges) :][:200]
        segment[at : at + len(piece)] = piece
        at += len(piece)
    if at + 8 <= _SEGMENT:
        segment[at : at + 8] = blank_record(_SEGMENT - at)[:8]


def _dledger(directory: Path) -> Case:
    log = DLedgerLog(_SEGMENT)
    for number in range(20):
        log.append(b"body of entry %d " % number * 5, topic=f"t{number % 3}", term=number // 6, queue_offset=number)
    whole = bytes(log.data).ljust(-(-len(log.data) // _SEGMENT) * _SEGMENT, b"\0")
    pieces = [
        _Piece(record.physical_offset, entry, whole[entry : record.physical_offset + record.size], _row(record))
        for entry, record in zip(log.entries, log.records, strict=True)
    ]
    root = _make_root(directory, "dledger-n0/data")
    judge = _Judge(root, pieces)

    def run(random: Random) -> None:
        number, segment, edges = _chosen(random, whole, log.entries)
        mutate_bytes(random, segment, [*edges, *(edge + 48 for edge in edges)])
        segment = segment[:_SEGMENT].ljust(_SEGMENT, b"\0")
        judge.judge(_written(root / "dledger-n0/data", whole, number, segment), has_layout=True)

    return run


def _compressed_segments(directory: Path) -> Case:
    """A segment that was compressed as a whole expands to its size, or is refused."""
    whole, pieces, _ = _plain_log()
    first = whole[:_SEGMENT]
    packed = {
        "gz": gzip.compress(first),
        "zst": zstandard.ZstdCompressor(write_checksum=True).compress(first),
        "lz4": lz4.frame.compress(first),
    }
    bombs = {
        "gz": gzip.compress(bytes(1 << 26)),
        "zst": zstandard.ZstdCompressor().compress(bytes(1 << 26)),
        "lz4": lz4.frame.compress(bytes(1 << 26)),
    }
    count = sum(each.offset < _SEGMENT for each in pieces)

    def run(random: Random) -> None:
        root = _make_root(directory)
        ending = random.choice(list(packed))
        data = bytearray((bombs if random.random() < 0.05 else packed)[ending])
        mutate_bytes(random, data, (0, 4, 8, len(data) - 8, len(data) - 4))
        (root / "commitlog" / f"{0:020d}.{ending}").write_bytes(data)
        (root / "commitlog" / f"{_SEGMENT:020d}").write_bytes(whole[_SEGMENT : 2 * _SEGMENT])
        with refused(StoreError):
            rows = read_messages(root, columns=["physical_offset", "body"]).read_all().num_rows
            if ending == "gz" and rows < count and bytes(data) != packed[ending]:
                raise Finding(f"{rows} rows of {count} or more, and no error")

    return run


# ---- tar archives

_BLOCK: Final = 512
_FIELDS: Final = (0, 100, 124, 136, 148, 156, 157, 257, 345, 386, 482, 483)
"""Where the fields of a header begin."""

_KINDS: Final = b"LKxgXS013567V\0"
"""Types of members: long names and links, pax, maps of holes, files, links, devices, directories."""


def _archives(directory: Path) -> Case:
    log = LogBuilder(_SEGMENT)
    log.fill(3)
    log.append(b"last")
    log.write(directory / "store")
    bodies = {record.physical_offset: record.body for record in log.records}
    seeds = [_packed(directory / "store", form) for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)]
    logging.getLogger("store_core").propagate = False

    def run(random: Random) -> None:
        data = _mutated(random, random.choice(seeds))
        path = directory / "copy.tar"
        if random.random() < 0.5:
            path, data = directory / "copy.tar.gz", gzip.compress(data, 1)
        path.write_bytes(data)
        with refused(StoreError):
            for row in read_messages(path, columns=["physical_offset", "body"]).read_all().to_pylist():
                if bodies.get(row["physical_offset"]) != row["body"]:
                    raise Finding(f"a message at {row['physical_offset']} that was not in the archive")

    return run


def _packed(root: Path, form: int) -> list[bytes]:
    """Return the members of an archive, each the blocks of its headers and its content, and the archive's end."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as tar:
        for path in sorted(root.rglob("*")):
            member = tar.gettarinfo(path, f"{'a' * 120}/{path.relative_to(root)}")
            with path.open("rb") if path.is_file() else io.BytesIO() as content:
                tar.addfile(member, content)
    data = made.getvalue()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = tar.getmembers()
    begins, end = [member.offset for member in found], found[-1].offset_data + _SEGMENT
    return [*(data[begin:stop] for begin, stop in zip(begins, [*begins[1:], end], strict=True)), data[end:]]


def _mutated(random: Random, members: list[bytes]) -> bytes:
    """Change the headers of one member, and put others before it, or leave it out, or have it twice."""
    parts = list(members)
    number = random.randrange(len(parts) - 1)
    content = len(parts[number]) // _SEGMENT * _SEGMENT
    head, rest = bytearray(parts[number][: len(parts[number]) - content]), parts[number][-content:] if content else b""
    if random.random() < 0.8:
        blocks = range(0, max(len(head), _BLOCK), _BLOCK)
        mutate_bytes(random, head, [block + field for block in blocks for field in _FIELDS])
        head = head[: len(head) // _BLOCK * _BLOCK]
        if random.random() < 0.9:
            _sum_up(head, random.choice(list(blocks)))
            _sum_up(head, 0)
    before = b"".join(_extension(random) for _ in range(random.choice((0, 0, 1, 1, 2, 50))))
    parts[number] = before + bytes(head) + rest
    if random.random() < 0.1:
        parts.insert(number, random.choice(parts[:-1]))
    return b"".join(parts)


def _extension(random: Random) -> bytes:
    """Return a header with something that belongs to the member after it, or to all."""
    size = random.choice((0, 1, 30, 511, 512, 5000, 700_000, 1 << 33))
    made = tarfile.TarInfo(random.choice(("x", "commitlog", f"commitlog/{0:020d}")))
    made.size, made.type = size, bytes([random.choice(_KINDS)])
    head = bytearray(made.tobuf(tarfile.GNU_FORMAT))
    mutate_bytes(random, head, _FIELDS)
    head = head[:_BLOCK].ljust(_BLOCK, b"\0")
    _sum_up(head, 0)
    key = random.choice(("path", "size", "GNU.sparse.map", "GNU.sparse.major", "hdrcharset", f"key{random.random()}"))
    value = random.choice(("1", "-1", "0,4096,8192,1", f"{1 << 70}", "a" * 600, "BINARY", "\udcff"))
    record = f" {key}={value}\n".encode("utf-8", "surrogateescape")
    text = str(len(record) + random.choice((2, 3, 3, 4))).encode() + record
    body = random.choice((text, text * 30, random.randbytes(30), b"%011o\0%011o\0" % (1, 1) * 30))
    return bytes(head) + (body * (min(size, 1 << 20) // len(body) + 1))[: -(-min(size, 1 << 20) // _BLOCK) * _BLOCK]


def _sum_up(head: bytearray, begin: int) -> None:
    """Put the checksum of a header into it."""
    if begin + _BLOCK <= len(head):
        head[begin + 148 : begin + 156] = b" " * 8
        head[begin + 148 : begin + 156] = b"%06o\0 " % sum(head[begin : begin + _BLOCK])


LOG_TARGETS: Final = (
    Target("log", _log, 20_000, 25),
    Target("dledger-log", _dledger, 8_000, 15),
    Target("compressed-segments", _compressed_segments, 6_000, 15),
    Target("archives", _archives, 6_000, 15),
)

# SPDX-License-Identifier: Apache-2.0
"""Tar archives of a log with mutated headers: what is read of them was in them, and no header takes much memory."""

from __future__ import annotations

import gzip
import io
import logging
import tarfile
from typing import TYPE_CHECKING, Final

from store_core import read_messages
from store_core.errors import StoreError
from tests.builders import LogBuilder
from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.target import Case, Finding, Target, refused

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random


_BLOCK: Final = 512
_SEGMENT: Final = 4096
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


ARCHIVE_TARGETS: Final = (Target("archives", _archives, 6_000, 15),)

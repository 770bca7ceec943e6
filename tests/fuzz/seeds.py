# SPDX-License-Identifier: Apache-2.0
"""What is broken: sound logs made without the package, small pieces of golden stores, files of a small store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import lz4.frame

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from tests.builders import FIRST_STORE_TIMESTAMP, Record
from tests.golden_stores import UnpackedStore, golden_stores, stores_of_kind, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator


MOST_BYTES: Final = 4096
"""Bytes of an input: several records, units or entries, and few enough to be read thousands of times a second."""

_GOLDEN: Final = Path(__file__).parents[1] / "golden"
_PIECES: Final = (0.0, 0.3, 0.6)
"""Where in the written part of a file a piece is taken."""


def _unpacked(directory: Path, kind: str = "") -> Iterator[UnpackedStore]:
    stores = stores_of_kind(kind) if kind else golden_stores()
    for store in stores:
        if store.archive.is_relative_to(_GOLDEN):
            yield unpack(store, directory / "golden")


def golden_records(directory: Path, kind: str = "") -> list[bytes]:
    """Return pieces of golden logs that begin with a record, or with an entry where the kind is a DLedger log."""
    pieces = []
    for store in _unpacked(directory, kind):
        data = store.segments[0].read_bytes()
        starts = [0]
        while len(starts) < 400 and (size := int.from_bytes(data[(at := starts[-1]) : at + 4])) > 0:
            starts.append(at + size)
        begins = [starts[int(len(starts) * part)] for part in _PIECES]
        pieces += [data[begin : begin + 1500] for begin in begins]
    return pieces


def golden_pieces(directory: Path, folder: str, unit: int) -> list[bytes]:
    """Return pieces of the files below a folder of golden stores, each of whole units."""
    pieces = []
    for store in _unpacked(directory):
        for path in sorted(each for each in (store.root / folder).rglob("*") if each.is_file())[:6]:
            data = path.read_bytes().rstrip(b"\0")
            for part in _PIECES:
                begin = int(len(data) * part) // unit * unit
                pieces.append(data[begin : begin + 12 * unit])
    return [*dict.fromkeys(piece for piece in pieces if piece)]


def index_files(directory: Path) -> list[bytes]:
    """Return whole index files with ten slots."""
    config = MessageStoreConfig(max_hash_slot_num=10, max_index_num=40, mapped_file_size_commit_log=1 << 14)
    root = directory / "indexed"
    with DefaultMessageStore.open(root, config) as store:
        for number in range(60):
            store.put_message(Message("orders", b"body", keys=[f"k{number % 20}"]))
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def small_log(start_offset: int = 0) -> tuple[bytes, list[int], list[Record]]:
    """Return records of all kinds, one after another, where they start, and what they are.

    Their store times differ, and each body is unlike the others.
    """
    data, starts, records = bytearray(), [], []
    for number in range(24):
        record = Record(
            body=_body(number),
            topic=("orders", "payments", "日本", "t" * 60)[number % 4],
            properties={"TAGS": f"tag{number % 3}", "KEYS": f"key{number}", "UNIQ_KEY": f"AC11{number:028d}"},
            queue_id=number % 2,
            queue_offset=number // 8,
            physical_offset=start_offset + len(data),
            sys_flag=0x101 if number % 12 == 5 else 0,
            store_timestamp=FIRST_STORE_TIMESTAMP + 10 * number,
            version=2 if number % 10 == 7 else 1,
            born_host=("::1", 5) if number % 7 == 3 else ("10.1.2.3", 5555),
            store_host=("2001:db8::1", 10911) if number % 9 == 4 else ("192.168.1.2", 10911),
        )
        starts.append(len(data))
        records.append(record)
        data += record.encode()
    return bytes(data), starts, records


def _body(number: int) -> bytes:
    """Return a body: small, empty, compressed, large, or one that holds a whole record."""
    text = b"body of message %d " % number
    if number % 12 == 5:
        packed: bytes = lz4.frame.compress(text * 20)
        return packed
    if number % 12 == 8:
        return Record(text, topic="decoy").encode()
    return b"" if number % 12 == 10 else text * (1 if number % 5 else 12)

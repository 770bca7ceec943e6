# SPDX-License-Identifier: Apache-2.0
"""Our own view of a store, as `tests.golden_stores.Row`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core import read_messages
from store_core.format.columns import COLUMNS, CORRUPT_RECORD, STORE
from store_core.format.properties import PropertyParser
from store_core.format.record.decode import decode_message
from store_core.format.record.scan import follow_chain
from tests.golden_stores import Row, message_rows, table_rows

if TYPE_CHECKING:
    from pathlib import Path


_ALL_COLUMNS: Final = [column.name for column in COLUMNS if column.name not in {CORRUPT_RECORD, STORE}]


def read_rows(store: Path | list[Path], release: str) -> list[Row]:
    """Read through Arrow, with all columns."""
    return table_rows(read_messages(store, columns=_ALL_COLUMNS, release=release).read_all())


def read_rows_one_by_one(store: Path, release: str) -> list[Row]:
    """Read with the scalar decoder."""
    rows, parser = [], PropertyParser.of_release(release)
    for segment in sorted(store.joinpath("commitlog").iterdir()):
        data, start_offset = memoryview(segment.read_bytes()), int(segment.name)
        starts = follow_chain(data, start_offset=start_offset, verify_crc=True).starts.tolist()
        messages = (decode_message(data, start, start_offset, parser=parser) for start in starts)
        rows += message_rows(messages, segment.name)
    return rows

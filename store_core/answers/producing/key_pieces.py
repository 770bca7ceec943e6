# SPDX-License-Identifier: Apache-2.0
"""Keys of sends, with where they are: divided by their hashes, so that all of a key come together, group by group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from store_core.format.columnar.java_hashes import hash_codes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.answers.producing.sends import Sends

__all__ = ["KeyPieces", "from_bytes", "to_bytes"]

_TOPIC: Final = pa.dictionary(pa.int32(), pa.string())
_SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("hash", pa.int32()),
        ("topic", _TOPIC),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("born", pa.int64()),
    ]
)
_OF_UNIQUE: Final = ("key", "hash", "topic", "physical_offset")
"""What is kept of a unique key: there is one in nearly each message."""


class KeyPieces:
    """Collects the keys of a part of the log.

    Attributes
    ----------
    unique, sharding : list of pyarrow.Table
        Unique keys, and sharding keys with their places in queues.
    """

    def __init__(self) -> None:
        self.unique: list[pa.Table] = []
        self.sharding: list[pa.Table] = []

    def add(self, sends: Sends) -> None:
        """Add the keys of sends; a send without one has no row."""
        self.unique.append(_table(sends.rows, sends.unique_keys, _OF_UNIQUE))
        if sends.sharding_keys.null_count < len(sends.sharding_keys):
            self.sharding.append(_table(sends.rows, sends.sharding_keys, _SCHEMA.names))

    def divided(self, groups: int) -> Iterator[tuple[int, str, pa.Table]]:
        """Yield the number of a group, whether its keys are ``unique`` or ``sharding``, and its rows."""
        for kind, tables in (("sharding", self.sharding), ("unique", self.unique)):
            if not tables:
                continue
            table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
            group = table["hash"].to_numpy().view(np.uint32) % np.uint32(groups)
            for number in range(groups):
                rows = table if groups == 1 else table.filter(pa.array(group == number))
                if rows.num_rows:
                    yield number, kind, rows


def _table(rows: pa.Table, keys: pa.StringArray, names: tuple[str, ...] | list[str]) -> pa.Table:
    if keys.null_count:
        mask = keys.is_valid()
        rows, keys = rows.filter(mask), keys.filter(mask)
    columns = {
        "key": keys,
        "hash": pa.array(hash_codes(keys)),
        "topic": rows["topic"].combine_chunks().dictionary_encode(),
        "born": rows["born_timestamp"].cast(pa.int64()),
    }
    return pa.table([columns.get(name, rows[name] if name in rows.column_names else None) for name in names], names)


def to_bytes(table: pa.Table) -> bytes:
    """Return a table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.Table:
    """Return the table that `to_bytes` made bytes of."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()

# SPDX-License-Identifier: Apache-2.0
"""The view ``rocksdbstore``: index, timers and half messages that RocketMQ 5.4 and later keep in a RocksDB."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import CorruptDatabaseError, StoreNotFoundError
from store_core.files.rocksdb_reader import RocksdbReader
from store_core.queue.rocksdb.store_entry import FAMILIES, STORE_DATABASE, is_place
from store_core.snapshot.store import Store
from store_core.views.view import make_batch, timestamps, without_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from store_core.files.rocksdb_reader import Entries
    from store_core.files.store_path import StorePaths
    from store_core.queue.rocksdb.store_entry import StoreEntry
    from store_core.views.view import ViewOptions

__all__ = ["FamilyPart", "plan"]

_log: Final = logging.getLogger("store_core")

_TIMES: Final = ("due_timestamp", "store_timestamp")
_SHOWN_KEY: Final = 200


@dataclass(frozen=True, slots=True)
class FamilyPart:
    """One column family of the database."""

    database: Path
    family: str

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield a row for each entry, in the order of their keys."""
        most = options.read.max_records_per_batch
        with RocksdbReader.open(self.database) as reader:
            if self.family not in reader.families:
                return
            for piece in reader.entries(self.family):
                found = self._parsed(piece, options)
                for first in range(0, len(found), most):
                    yield _batch(found[first : first + most], options)

    def _parsed(self, piece: Entries, options: ViewOptions) -> list[StoreEntry]:
        parse, found = FAMILIES[self.family], []
        for key, value in piece.items():
            entry = None if is_place(key) else parse(key, value)
            if entry is not None:
                found.append(entry)
            elif not is_place(key):
                self._refuse(key, value, options)
        return found

    def _refuse(self, key: bytes, value: bytes, options: ViewOptions) -> None:
        error = CorruptDatabaseError(
            f"the RocksDB {self.database} has an entry in column family {self.family!r} that is none of RocketMQ's: "
            f"expected those of format {STORE_DATABASE}, found the key {key[:_SHOWN_KEY]!r} with a value of "
            f"{len(value)} bytes. failOnDataLoss=false leaves it out"
        )
        if options.read.fail_on_data_loss:
            raise error
        _log.warning("%s", error)


def plan(paths: StorePaths, options: ViewOptions) -> list[FamilyPart]:
    """Find the database; it is opened when a part is read.

    Raises `StoreNotFoundError`: If there is none, unless `fail_on_data_loss` is off.
    """
    database = Store(paths).root / STORE_DATABASE
    if not database.is_dir():
        without_file(
            StoreNotFoundError(
                f"{database} is missing: expected the RocksDB that a broker of RocketMQ 5.4 or later makes there. With "
                f"failOnDataLoss=false there are no rows"
            ),
            options,
        )
        return []
    return [FamilyPart(database, family) for family in FAMILIES]


def _batch(entries: Sequence[StoreEntry], options: ViewOptions) -> pa.RecordBatch:
    types = {field.name: field.type for field in options.view.schema(options.view.column_names)}

    def column(name: str) -> pa.Array:
        values = [getattr(entry, name) for entry in entries]
        if name not in _TIMES:
            return pa.array(values, types[name])
        is_null = np.array([value is None for value in values], np.bool_)
        times = np.array([value or 0 for value in values], np.int64)
        known = timestamps(times, options, name, lambda row: f"the record at offset {entries[row].physical_offset}")
        return pc.if_else(pa.array(is_null), pa.scalar(None, known.type), known)

    return make_batch(options, {name: lambda name=name: column(name) for name in types})  # type: ignore[misc]

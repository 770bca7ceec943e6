# SPDX-License-Identifier: Apache-2.0
"""The views of small files: ``consumer_offsets``, ``subscription_groups``, ``delay_offsets`` and ``checkpoint``."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import CorruptDatabaseError
from store_core.files.names import CHECKPOINT_FILE, CONFIG_DIRECTORY
from store_core.files.rocksdb_reader import Entries, RocksdbReader
from store_core.files.store_kind import StoreUse
from store_core.queue.store_entry import FAMILIES, STORE_DATABASE, StoreEntry, is_place
from store_core.snapshot.config import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    LIGHT_OFFSETS,
    SUBSCRIPTION_GROUPS,
    Committed,
    ConfigFile,
    SubscriptionGroupConfig,
    camel_case,
    read_checkpoint,
)
from store_core.snapshot.units import QueueBounds, QueueName, compare
from store_core.views.queues import topic_filter
from store_core.views.view import ViewOptions, absent, going_on, make_batch, read_table, row_batches, tell, timestamps
from store_core.views.view_columns import VIEWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from store_core.snapshot.queues import Queues
    from store_core.snapshot.store import Store


_log: Final = logging.getLogger("store_core")

_OF_QUEUES: Final = ("min_offset", "max_offset", "behind", "state")
_PART_ROWS: Final = 1000
"""Offsets in a part: the bounds of their queues take about a tenth of a second."""


@dataclass(frozen=True, slots=True)
class OffsetsPart:
    """Committed offsets that are looked at together."""

    committed: tuple[Committed, ...]  # one for each row
    queues: Queues | None  # if the columns need their bounds
    config_file: str  # the file that has the offsets

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield a row for each committed offset; queues are opened only if the columns need them."""
        if self.queues is None:
            yield from row_batches(options, [self._columns_of(one) for one in self.committed])
            return
        known: dict[QueueName, QueueBounds | None] = {}
        rows = []
        with self.queues as queues:
            for one in self.committed:
                key = (one.topic, one.queue_id)
                if key not in known:
                    known[key] = None
                    with going_on(options):
                        known[key] = queues.bounds(*key)
                then = queues.before(*key, known[key], options.log_end)
                rows.append(self._columns_of(one) | compare(one.offset, known[key], then)._asdict())
        yield from row_batches(options, rows)

    def _columns_of(self, one: Committed) -> dict[str, object]:
        return {
            "consumer_group": one.group,
            "topic": one.topic,
            "queue_id": one.queue_id,
            "committed_offset": one.offset,
            "config_file": self.config_file,
        }


def plan_consumer_offsets(store: Store, options: ViewOptions) -> list[OffsetsPart]:
    """Read the committed offsets; no queue is opened."""
    needs_queues = options.asks_for(*_OF_QUEUES)
    root = store.root_for(StoreUse.READ_QUEUES if needs_queues else StoreUse.READ_LOG)
    chosen = topic_filter(options.read)
    found = read_table(store, CONSUMER_OFFSETS, options)
    light = root / CONFIG_DIRECTORY / LIGHT_OFFSETS.name
    if light.exists():
        _log.warning("%s is not read: the rows are those of %s", light, CONSUMER_OFFSETS.name)
    if found is None:
        return []
    rows = sorted(row for row in found.value.committed if chosen.takes(row.topic, row.queue_id))
    queues = store.queues if needs_queues and rows else None
    groups = (tuple(rows[first : first + _PART_ROWS]) for first in range(0, len(rows), _PART_ROWS))
    return [OffsetsPart(group, queues, found.file) for group in groups]


Row: TypeAlias = "dict[str, object]"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowsPart:
    """Rows that planning has read: the whole file is one small part."""

    rows: tuple[Row, ...]  # by column, with all columns of the view

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        return row_batches(options, self.rows)


def plan_subscription_groups(store: Store, options: ViewOptions) -> list[RowsPart]:
    """Read ``config/subscriptionGroup.json``. Errors as of `store_core.views.view.read_table`."""
    found = read_table(store, SUBSCRIPTION_GROUPS, options)
    if found is None:
        return []
    return [_rows_of(found, (_group(group) for _, group in sorted(found.value.items(), key=lambda item: item[0])))]


def plan_delay_offsets(store: Store, options: ViewOptions) -> list[RowsPart]:
    """Read ``config/delayOffset.json``. Errors as of `store_core.views.view.read_table`."""
    found = read_table(store, DELAY_OFFSETS, options)
    if found is None:
        return []
    return [_rows_of(found, ({"delay_level": level, "offset": at} for level, at in sorted(found.value.items())))]


def _rows_of(found: ConfigFile[T], rows: Iterable[Row]) -> RowsPart:
    return RowsPart(tuple(row | {"config_file": found.file} for row in rows))


def plan_checkpoint(store: Store, options: ViewOptions) -> list[RowsPart]:
    """Read the file ``checkpoint``."""
    root = store.root
    values = read_checkpoint(root, options.read.release)
    if values is None:
        path = root / CHECKPOINT_FILE
        words = "expected the file that a store keeps there; without it a broker takes all its fields for 0"
        tell(absent(root, f"{path} is missing: {words}"), options)
        return []
    return [RowsPart(tuple({"name": name, "value": value} for name, value in values.items()))]


def _group(group: SubscriptionGroupConfig) -> Row:
    """Return a group's row: each column is the field of that name, null if the file lacks it."""
    row: Row = {"group_name": group.group_name}
    for column in VIEWS["subscription_groups"].columns[1:-1]:
        value = getattr(group, column.name) if camel_case(column.name) in group.given else None
        row[column.name] = list(value.items()) if isinstance(value, dict) else value
    return row


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
                error = CorruptDatabaseError(
                    f"the RocksDB {self.database} has an entry in column family {self.family!r} that is none of "
                    f"RocketMQ's: expected those of format {STORE_DATABASE}, found the key {key[:_SHOWN_KEY]!r} with a "
                    f"value of {len(value)} bytes. failOnDataLoss=false leaves it out"
                )
                tell(error, options)
        return found


def plan_rocksdb(store: Store, options: ViewOptions) -> list[FamilyPart]:
    """Find the database; it is opened when a part is read.

    Raises `StoreNotFoundError`: If there is none, unless `fail_on_data_loss` is off.
    """
    database = store.root / STORE_DATABASE
    if not database.is_dir():
        words = "expected the RocksDB that a broker of RocketMQ 5.4 or later makes there"
        tell(absent(store.root, f"{database} is missing: {words}"), options)
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

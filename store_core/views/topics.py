# SPDX-License-Identifier: Apache-2.0
"""The view ``topics``: queues beside the topics that the broker has configured; of the log, single records are read."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.errors import SegmentVanishedError
from store_core.files.config_paths import CONFIG_DIRECTORY
from store_core.files.store_kind import StoreUse
from store_core.format.table_time import table_time
from store_core.snapshot.config import TOPICS, Config
from store_core.snapshot.log import Log
from store_core.store.read.chunk_rows import tell_null_time
from store_core.views.bounds_finder import QueueSource
from store_core.views.config_table import without_file
from store_core.views.queue_listing import (
    ListedQueue,
    QueueKind,
    TopicFilter,
    has_queues,
    list_queues,
    missing_queues,
)
from store_core.views.queue_spans import QueueSpans
from store_core.views.store_root import root_of, whole_log
from store_core.views.view_part import name_text, row_batches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    import pyarrow as pa

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.snapshot.config_tables import TopicConfig
    from store_core.views.queue_bounds import QueueBounds
    from store_core.views.view_options import ViewOptions

__all__ = ["TopicsPart", "plan"]

_log: Final = logging.getLogger("store_core")


_BOUNDS: Final = ("min_offset", "max_offset", "messages")
_TIMES: Final = ("oldest_store_timestamp", "newest_store_timestamp")
_CONFIGURED: Final = ("read_queue_nums", "write_queue_nums", "perm", "attributes", "in_config", "config_file")
_PART_ROWS: Final = 1000
"""Queues in a part: their bounds take about a tenth of a second."""


class _Entry(NamedTuple):
    """What becomes one row: a queue, a configured topic, or both."""

    topic: str
    queue: ListedQueue | None
    configured: TopicConfig | None


@dataclass(frozen=True, slots=True)
class TopicsPart:
    """Queues and topics that are looked at together.

    Attributes
    ----------
    entries : tuple
        One for each row.
    segments : tuple of Segment
        The log's, if the columns need them.
    queues : QueueSource or None
        Where the bounds of queues are found, if the columns need them.
    config_file : str or None
        The file with the configuration of topics, if there is one.
    """

    entries: tuple[_Entry, ...]
    segments: tuple[Segment, ...]
    queues: QueueSource | None
    config_file: str | None

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield a row for each entry."""
        rows = []
        with QueueSpans(self.queues) if self.queues is not None else nullcontext() as spans:
            for entry in self.entries:
                try:
                    rows.append(self._row(entry, spans, options))
                except SegmentVanishedError as error:
                    if options.read.fail_on_data_loss:
                        raise
                    _log.warning("%s", error.problem)
        yield from row_batches(options, rows)

    def _row(self, entry: _Entry, spans: QueueSpans | None, options: ViewOptions) -> dict[str, object]:
        queue = entry.queue
        row: dict[str, object] = dict.fromkeys(options.view.column_names)
        row |= {
            "topic": name_text(entry.topic),
            "in_config": entry.configured is not None if self.config_file is not None else None,
            "in_queues": queue is not None,
        }
        row |= _config_columns(entry.configured, self.config_file)
        if queue is not None:
            row["queue_id"] = queue.queue_id
            if spans is not None:
                row |= self._bounds(spans.of(queue, options.log_end), options, f"{entry.topic}/{queue.queue_id}")
        return row

    def _bounds(self, bounds: QueueBounds, options: ViewOptions, queue: str) -> dict[str, object]:
        found: dict[str, object] = {
            "min_offset": bounds.min_offset,
            "max_offset": bounds.max_offset,
            "messages": bounds.max_offset - bounds.min_offset,
        }
        for column, place in zip(_TIMES, (bounds.first, bounds.last), strict=True):
            if place is not None and options.asks_for(column):
                time = Log(self.segments).time_at(*place)
                found[column] = table_time(time)
                if time is not None and found[column] is None:
                    tell_null_time(options.read, f"queue {name_text(queue)}", column, time)
        return found


def plan(paths: StorePaths, options: ViewOptions) -> list[TopicsPart]:
    """List queues and configured topics; no queue is opened.

    Raises
    ------
    StoreNotFoundError
        If there are neither queues nor a configuration of topics, unless `fail_on_data_loss` is off.
    UnsupportedStoreError
        If the queues are in a RocksDB, and the library that reads it is not installed.
    CorruptRecordError
        If the configuration of topics is broken, and so is its backup.
    """
    root = root_of(paths, StoreUse.READ_QUEUES)
    wanted = TopicFilter.of(options.read)
    found = Config(root, options.read.release).read(TOPICS)
    if found is None:
        _report_missing(root, options)
    needs_queues = options.asks_for(*_BOUNDS, *_TIMES)
    segments = whole_log(root, paths) if needs_queues else ()
    queues = QueueSource.of(root, segments) if needs_queues else None
    configured, file = ({}, None) if found is None else (found.value, found.file)
    entries = _entries(root, wanted, configured, {} if queues is None else queues.unflushed)
    groups = (tuple(entries[first : first + _PART_ROWS]) for first in range(0, len(entries), _PART_ROWS))
    return [TopicsPart(group, segments, queues, file) for group in groups]


def _report_missing(root: Path, options: ViewOptions) -> None:
    if options.asks_for(*_CONFIGURED):
        path = root / CONFIG_DIRECTORY / TOPICS.name
        _log.warning("%s is missing or empty: topics are known by their queues alone", path)
    if not has_queues(root):
        without_file(missing_queues(root), options)


def _entries(
    root: Path,
    wanted: TopicFilter,
    configured: Mapping[str, TopicConfig],
    unflushed: Collection[tuple[str, int]],
) -> list[_Entry]:
    """Return an entry for each requested queue, then those of topics that have none, sorted by topic and queue.

    A queue that only the log has, because its RocksDB was not flushed since it began, is one of them.
    """
    known = dict(wanted.narrowed(configured))
    queues = list(list_queues(root, wanted, {*known, *(topic for topic, _ in unflushed)}))
    listed = {(queue.topic, queue.queue_id) for queue in queues}
    queues += [
        ListedQueue(*name, QueueKind.ROCKSDB, ()) for name in unflushed if name not in listed and wanted.takes(*name)
    ]
    found = [_Entry(queue.topic, queue, configured.get(queue.topic)) for queue in queues]
    if not wanted.queue_ids:
        queued = {entry.topic for entry in found}
        found += [_Entry(topic, None, config) for topic, config in known.items() if topic not in queued]
    return sorted(found, key=_order)


def _order(entry: _Entry) -> tuple[str, int]:
    return entry.topic, -1 if entry.queue is None else entry.queue.queue_id


def _config_columns(config: TopicConfig | None, file: str | None) -> dict[str, object]:
    if config is None:
        return {}
    return {
        "read_queue_nums": config.read_queue_nums,
        "write_queue_nums": config.write_queue_nums,
        "perm": config.perm,
        "attributes": list(config.attributes.items()) if "attributes" in config.given else None,
        "config_file": file,
    }

# SPDX-License-Identifier: Apache-2.0
"""The view ``topics``: queues beside the topics that the broker has configured; of the log, single records are read."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.errors import WITHOUT_SEGMENT, SegmentVanishedError
from store_core.files.config_paths import CONFIG_DIRECTORY
from store_core.files.store_kind import StoreUse
from store_core.format.table_time import table_time
from store_core.snapshot.config import TOPICS, Config
from store_core.snapshot.log import Log
from store_core.snapshot.queues import Queues
from store_core.store.read.chunk_rows import tell_null_time
from store_core.store.read.queued_log import LogBesideQueues
from store_core.views.asked_queues import asked_queues, missing_queues, topic_filter
from store_core.views.config_table import without_file
from store_core.views.store_root import root_of, whole_log
from store_core.views.view_part import name_text, row_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from store_core.files.segment_source import Segment
    from store_core.files.store_path import StorePaths
    from store_core.snapshot.config_tables import TopicConfig
    from store_core.snapshot.units import QueueBounds, QueueName, TopicFilter
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
    queue_id: int | None
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
    queues : Queues or None
        If the columns need their bounds.
    config_file : str or None
        The file with the configuration of topics, if there is one.
    """

    entries: tuple[_Entry, ...]
    segments: tuple[Segment, ...]
    queues: Queues | None
    config_file: str | None

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield a row for each entry."""
        rows = []
        with self.queues or nullcontext():
            for entry in self.entries:
                try:
                    rows.append(self._row(entry, options))
                except SegmentVanishedError as error:
                    if options.read.fail_on_data_loss:
                        raise
                    _log.warning("%s", error.problem)
        yield from row_batches(options, rows)

    def _row(self, entry: _Entry, options: ViewOptions) -> dict[str, object]:
        row: dict[str, object] = dict.fromkeys(options.view.column_names)
        row |= {
            "topic": name_text(entry.topic),
            "in_config": entry.configured is not None if self.config_file is not None else None,
            "in_queues": entry.queue_id is not None,
        }
        row |= _config_columns(entry.configured, self.config_file)
        if entry.queue_id is not None:
            row["queue_id"] = entry.queue_id
            if self.queues is not None:
                queue = f"{entry.topic}/{entry.queue_id}"
                bounds = self.queues.bounds(entry.topic, entry.queue_id, options.log_end)
                if bounds is None:
                    raise SegmentVanishedError(
                        f"queue {name_text(queue)} of {self.queues.root} was there when the view was planned, and is "
                        f"gone: a broker deletes the queues of a deleted topic"
                    ).advised(WITHOUT_SEGMENT)
                row |= self._bounds(bounds, options, queue)
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
    found = Config(root, options.read.release).read(TOPICS)
    needs_bounds = options.asks_for(*_BOUNDS, *_TIMES)
    segments = whole_log(root, paths) if needs_bounds else ()
    with Queues(root, LogBesideQueues(root, segments) if needs_bounds else None) as queues:
        if found is None:
            _report_missing(queues, options)
        configured, file = ({}, None) if found is None else (found.value, found.file)
        entries = _entries(queues, topic_filter(options.read), configured)
    groups = (tuple(entries[first : first + _PART_ROWS]) for first in range(0, len(entries), _PART_ROWS))
    return [TopicsPart(group, segments, queues if needs_bounds else None, file) for group in groups]


def _report_missing(queues: Queues, options: ViewOptions) -> None:
    if options.asks_for(*_CONFIGURED):
        path = queues.root / CONFIG_DIRECTORY / TOPICS.name
        _log.warning("%s is missing or empty: topics are known by their queues alone", path)
    if not queues.exist:
        without_file(missing_queues(queues.root), options)


def _entries(queues: Queues, wanted: TopicFilter, configured: Mapping[str, TopicConfig]) -> list[_Entry]:
    """Return an entry for each requested queue, then those of topics that have none, sorted by topic and queue.

    A queue that only the log has, because its RocksDB was not flushed since it began, is one of them.
    """
    known = wanted.narrowed(configured)
    unflushed = [name for name in queues.unflushed if wanted.takes(*name)]
    listed = asked_queues(queues, wanted, {*known, *(topic for topic, _ in queues.unflushed)})
    names: set[QueueName] = {*(queue.name for queue in listed), *unflushed}
    found = [_Entry(topic, queue_id, configured.get(topic)) for topic, queue_id in names]
    if not wanted.queue_ids:
        queued = {topic for topic, _ in names}
        found += [_Entry(topic, None, config) for topic, config in known.items() if topic not in queued]
    return sorted(found, key=lambda entry: (entry.topic, -1 if entry.queue_id is None else entry.queue_id))


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

# SPDX-License-Identifier: Apache-2.0
"""The view ``consumer_offsets``: what consumer groups have committed, beside the bounds of the queues."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.broker.config_file import CONFIG_DIRECTORY
from store_core.broker.consumer_offset import topic_and_group
from store_core.errors import SegmentVanishedError
from store_core.files.store_kind import StoreUse
from store_core.views.bounds_finder import BoundsFinder, QueueSource
from store_core.views.config_table import read_table
from store_core.views.queue_listing import TopicFilter
from store_core.views.store_root import root_of, whole_log
from store_core.views.view_part import row_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from store_core.broker.config_fields import ConfigFields
    from store_core.files.store_path import StorePaths
    from store_core.views.queue_bounds import QueueBounds
    from store_core.views.view_options import ViewOptions

__all__ = ["OffsetsPart", "plan"]

_log: Final = logging.getLogger("store_core")

_FILE: Final = "consumerOffset.json"
_LIGHT_FILE: Final = "lmqConsumerOffset.json"
"""Kept by a broker of 4.9.3 and later with ``enableLmq``, with offsets of light message queues."""

_OF_QUEUES: Final = ("min_offset", "max_offset", "behind", "state")
_PART_ROWS: Final = 1000
"""Offsets in a part: the bounds of their queues take about a tenth of a second."""


class Committed(NamedTuple):
    """One committed offset."""

    topic: str
    group: str
    queue_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class OffsetsPart:
    """Committed offsets that are looked at together.

    Attributes
    ----------
    committed : tuple
        One for each row.
    queues : QueueSource or None
        Where the bounds of queues are found, if the columns need them.
    """

    committed: tuple[Committed, ...]
    queues: QueueSource | None

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield a row for each committed offset; queues are opened only if the columns need them."""
        if self.queues is None:
            yield from row_batches(options, [_committed_columns(one) for one in self.committed])
            return
        known: dict[tuple[str, int], QueueBounds | None] = {}
        rows = []
        with BoundsFinder(self.queues) as finder:
            for one in self.committed:
                key = (one.topic, one.queue_id)
                if key not in known:
                    known[key] = _bounds(finder, *key, fail_on_data_loss=options.read.fail_on_data_loss)
                rows.append(_committed_columns(one) | compare(one.offset, known[key]))
        yield from row_batches(options, rows)


def _committed_columns(one: Committed) -> dict[str, object]:
    return {
        "consumer_group": one.group,
        "topic": one.topic,
        "queue_id": one.queue_id,
        "committed_offset": one.offset,
    }


def _bounds(finder: BoundsFinder, topic: str, queue_id: int, *, fail_on_data_loss: bool) -> QueueBounds | None:
    try:
        return finder.find(topic, queue_id)
    except SegmentVanishedError as error:
        if fail_on_data_loss:
            raise
        _log.warning("%s", error)
        return None


def plan(paths: StorePaths, options: ViewOptions) -> list[OffsetsPart]:
    """Read the committed offsets; no queue is opened.

    Raises
    ------
    StoreNotFoundError, CorruptRecordError
        As of `store_core.views.config_table.read_table`.
    UnsupportedStoreError
        If the columns need queues, and these are in a RocksDB whose library is not installed.
    """
    needs_queues = options.asks_for(*_OF_QUEUES)
    root = root_of(paths, StoreUse.READ_QUEUES if needs_queues else StoreUse.READ_LOG)
    wanted = TopicFilter.of(options.read)
    found = read_table(root, _FILE, _decode, options)
    if (root / CONFIG_DIRECTORY / _LIGHT_FILE).exists():
        _log.warning("%s is not read: the rows are those of %s", root / CONFIG_DIRECTORY / _LIGHT_FILE, _FILE)
    rows = sorted(row for row in found if wanted.takes(row.topic, row.queue_id))
    queues = QueueSource.of(root, whole_log(root, paths)) if needs_queues and rows else None
    groups = (tuple(rows[first : first + _PART_ROWS]) for first in range(0, len(rows), _PART_ROWS))
    return [OffsetsPart(group, queues) for group in groups]


def compare(committed: int, bounds: QueueBounds | None) -> dict[str, object]:
    """Return the columns that compare a committed offset with its queue; without a queue they are unknown.

    >>> from store_core.views.queue_bounds import QueueBounds
    >>> compare(7, QueueBounds(5, 9))
    {'min_offset': 5, 'max_offset': 9, 'behind': 2, 'state': 'ok'}
    >>> compare(2, QueueBounds(5, 9))["behind"], compare(12, QueueBounds(5, 9))["behind"]
    (4, None)
    """
    if bounds is None:
        return {"min_offset": None, "max_offset": None, "behind": None, "state": "no_queue"}
    first, end = bounds.min_offset, bounds.max_offset
    state = "beyond_end" if committed > end else "below_min" if committed < first else "ok"
    behind = None if committed > end else end - max(committed, first)
    return {"min_offset": first, "max_offset": end, "behind": behind, "state": state}


def _decode(fields: ConfigFields) -> list[Committed]:
    """Return all committed offsets; a key that is no topic and group is left out, as RocketMQ does."""
    found = []
    for key, queues in fields.object("offsetTable").objects():
        pair = topic_and_group(key)
        offsets = queues.offsets()
        if pair is None:
            _log.warning("%s: ignored the offsets of %r: expected topic@group", fields.file, key)
            continue
        found += [Committed(*pair, queue_id, offset) for queue_id, offset in offsets.items()]
    return found

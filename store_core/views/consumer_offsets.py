# SPDX-License-Identifier: Apache-2.0
"""The view ``consumer_offsets``: what consumer groups have committed, beside the bounds of the queues."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.errors import SegmentVanishedError
from store_core.files.config_paths import CONFIG_DIRECTORY
from store_core.files.store_kind import StoreUse
from store_core.snapshot.config import CONSUMER_OFFSETS, LIGHT_OFFSETS
from store_core.snapshot.queues import Queues
from store_core.snapshot.units import compare
from store_core.store.read.queued_log import LogBesideQueues
from store_core.views.asked_queues import topic_filter
from store_core.views.config_table import read_table
from store_core.views.store_root import root_of, whole_log
from store_core.views.view_part import row_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from store_core.files.store_path import StorePaths
    from store_core.snapshot.config_tables import Committed
    from store_core.snapshot.units import QueueBounds, QueueName
    from store_core.views.view_options import ViewOptions

__all__ = ["OffsetsPart", "plan"]

_log: Final = logging.getLogger("store_core")

_OF_QUEUES: Final = ("min_offset", "max_offset", "behind", "state")
_PART_ROWS: Final = 1000
"""Offsets in a part: the bounds of their queues take about a tenth of a second."""


@dataclass(frozen=True, slots=True)
class OffsetsPart:
    """Committed offsets that are looked at together.

    Attributes
    ----------
    committed : tuple
        One for each row.
    queues : Queues or None
        If the columns need their bounds.
    config_file : str
        The file that has the offsets.
    """

    committed: tuple[Committed, ...]
    queues: Queues | None
    config_file: str

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
                    known[key] = _bounds(queues, key, fail_on_data_loss=options.read.fail_on_data_loss)
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


def _bounds(queues: Queues, name: QueueName, *, fail_on_data_loss: bool) -> QueueBounds | None:
    try:
        return queues.bounds(*name)
    except SegmentVanishedError as error:
        if fail_on_data_loss:
            raise
        _log.warning("%s", error.problem)
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
    wanted = topic_filter(options.read)
    found = read_table(root, CONSUMER_OFFSETS, options)
    light = root / CONFIG_DIRECTORY / LIGHT_OFFSETS.name
    if light.exists():
        _log.warning("%s is not read: the rows are those of %s", light, CONSUMER_OFFSETS.name)
    if found is None:
        return []
    rows = sorted(row for row in found.value.committed if wanted.takes(row.topic, row.queue_id))
    queues = Queues(root, LogBesideQueues(root, whole_log(root, paths))) if needs_queues and rows else None
    groups = (tuple(rows[first : first + _PART_ROWS]) for first in range(0, len(rows), _PART_ROWS))
    return [OffsetsPart(group, queues, found.file) for group in groups]

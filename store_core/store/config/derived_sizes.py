# SPDX-License-Identifier: Apache-2.0
"""The configured sizes of a store's queue and index files, inferred from the files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.store_parts import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from store_core.queue.queue_path import QueueRules
from store_core.queue.units.batch_consume_queue_unit import BATCH_UNIT_SIZE
from store_core.queue.units.consume_queue_unit import CQ_STORE_UNIT_SIZE
from store_core.snapshot.index import Index
from store_core.store.config.file_sizes import FileSizes, queues_in

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem

__all__ = ["DerivedSizes"]

_DEFAULTS: Final = QueueRules()
"""RocketMQ's own sizes, which most stores have."""


@dataclass(frozen=True, slots=True)
class DerivedSizes:
    """Configured file sizes; None if they can't be inferred.

    Attributes
    ----------
    consume_queue_file_size, ext_file_size, batch_consume_queue_file_size : int or None
        Bytes.
    batch_topics : frozenset of str
        Topics with batch queues.
    has_ext, has_light : bool
        Whether there is a queue extension, and a light queue.
    """

    consume_queue_file_size: int | None = None
    ext_file_size: int | None = None
    batch_consume_queue_file_size: int | None = None
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    batch_topics: frozenset[str] = frozenset()
    has_ext: bool = False
    has_light: bool = False

    @classmethod
    def find(cls, root: Path, file_system: FileSystem | None = None) -> DerivedSizes:
        """Infer sizes from the files of a store, examining a few of each kind."""
        files = file_system or OsFileSystem()
        usual = _DEFAULTS.max_hash_slot_num, _DEFAULTS.max_index_num
        index = Index(root, files).sizes(usual)
        return cls(
            _usual(root / CONSUME_QUEUE, files, CQ_STORE_UNIT_SIZE),
            _usual(root / CONSUME_QUEUE_EXT, files, CQ_STORE_UNIT_SIZE),
            _usual(root / BATCH_CONSUME_QUEUE, files, BATCH_UNIT_SIZE),
            index.slots if index is not None else None,
            index.entries if index is not None else None,
            frozenset(_directories(root / BATCH_CONSUME_QUEUE, files)),
            any(True for _ in queues_in(root / CONSUME_QUEUE_EXT, files)),
            any(name.startswith("%LMQ%") for name in _directories(root / CONSUME_QUEUE, files)),
        )


def _usual(directory: Path, file_system: FileSystem, unit_size: int) -> int | None:
    sizes = FileSizes.of_queues(directory, file_system, unit_size)
    return sizes.usual if sizes is not None else None


def _directories(directory: Path, file_system: FileSystem) -> list[str]:
    found = ((name, file_system.status(directory / name)) for name in names_in(directory, file_system))
    return [name for name, status in found if status is not None and status.is_directory]

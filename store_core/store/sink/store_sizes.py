# SPDX-License-Identifier: Apache-2.0
"""The file sizes of a store, with which every writer has to continue."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from store_core.errors import InvalidOptionError, SegmentLayoutError
from store_core.files.file_system import names_in
from store_core.files.segment_names import compressed_error, is_compressed_segment
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.queue.index.index_format import index_file_size
from store_core.queue.queue_path import BATCH_CONSUME_QUEUE
from store_core.store.checked_config import with_sizes_of_files
from store_core.store.store_layout import log_paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.store.config.message_store_config import MessageStoreConfig

__all__ = ["batch_topics", "with_sizes_of"]

_SIZES: Final = (
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "mapped_file_size_consume_queue_ext",
    "mapper_file_size_batch_consume_queue",
    "max_hash_slot_num",
    "max_index_num",
)


def with_sizes_of(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> MessageStoreConfig:
    """Return a configuration with the sizes of a store's files, all of which then count as explicit.

    So a commit is refused if another job meanwhile created the store with different sizes.

    Raises
    ------
    InvalidOptionError
        If an explicit size differs, or the sizes of an index can't be determined.
    SegmentLayoutError
        If the files of a log have different sizes.
    UnsupportedStoreError
        If a segment of it is compressed: a store with one can't be opened.
    """
    _check_log(root, config, file_system)
    sized = with_sizes_of_files(root, config, file_system)
    fixed: dict[str, Any] = {name: int(getattr(sized, name)) for name in _SIZES}
    sized = replace(sized, **fixed)
    _check_index(root, sized, file_system)
    return sized


def _sizes(directory: Path, file_system: FileSystem) -> Iterator[int]:
    for name in names_in(directory, file_system):
        status = file_system.status(directory / name)
        if status is not None and not status.is_directory and status.size and name.isdecimal():
            yield status.size


def _check_log(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> None:
    for path in log_paths(root, config, file_system).all_paths:
        packed = [name for name in names_in(path, file_system) if is_compressed_segment(name)]
        if packed:
            raise compressed_error(str(path / packed[0]), more=len(packed) - 1)
        sizes = set(_sizes(path, file_system))
        if len(sizes) > 1:
            raise SegmentLayoutError(f"the segments of {path} have {sorted(sizes)} bytes: expected one size")


def _check_index(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> None:
    if not config.message_index_enable:
        return
    expected = index_file_size(config.queue_rules())
    for size in _sizes(root / INDEX_DIRECTORY, file_system):
        if size != expected:
            raise InvalidOptionError(
                f"the index files of {root} have {size} bytes: expected {expected}, for maxHashSlotNum="
                f"{config.max_hash_slot_num} and maxIndexNum={config.max_index_num}. Give both as its broker has them "
                f"(a file has 40 + 4 * slots + 20 * indexes bytes), or rebuild=queues to leave the index as it is"
            )


def batch_topics(root: Path, file_system: FileSystem) -> tuple[str, ...]:
    """Return the topics with batch queues, by the existing directories."""
    return tuple(names_in(root / BATCH_CONSUME_QUEUE, file_system))

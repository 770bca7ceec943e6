# SPDX-License-Identifier: Apache-2.0
"""The sizes that a store's files have: whoever writes to it has to go on with them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from store_core.errors import InvalidOptionError, SegmentLayoutError
from store_core.files.file_system import names_in
from store_core.queue.index_build import index_file_size
from store_core.queue.index_files import INDEX_DIRECTORY
from store_core.queue.queue_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from store_core.store.derived_sizes import DerivedSizes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from store_core.files.file_system import FileSystem
    from store_core.store.config import MessageStoreConfig

__all__ = ["batch_topics", "with_sizes_of"]

_UNIT: Final = 20
_NAMES: Final = {
    "mapped_file_size_commit_log": "mappedFileSizeCommitLog",
    "mapped_file_size_consume_queue": "mappedFileSizeConsumeQueue",
    "max_hash_slot_num": "maxHashSlotNum",
    "max_index_num": "maxIndexNum",
}


def with_sizes_of(
    root: Path, config: MessageStoreConfig, given: Collection[str], file_system: FileSystem
) -> MessageStoreConfig:
    """Take over the sizes of a store's files.

    Parameters
    ----------
    root : Path
    config : MessageStoreConfig
    given : collection of str
        Its sizes that somebody asked for, by field name.
    file_system : FileSystem

    Raises
    ------
    InvalidOptionError
        If a size that somebody asked for is another one, or the sizes of an index can't be told.
    SegmentLayoutError
        If the files of a log have different sizes.
    """
    derived = DerivedSizes.find(root)
    found = {
        "mapped_file_size_commit_log": _log_size(root, file_system),
        "mapped_file_size_consume_queue": _queue_size(root, file_system),
        "max_hash_slot_num": derived.max_hash_slot_num,
        "max_index_num": derived.max_index_num,
    }
    taken: dict[str, Any] = {name: size for name, size in found.items() if size is not None}
    for name, size in taken.items():
        wanted = getattr(config, name)
        if name in given and _rounded(name, wanted) != size:
            what = f"files of {size} bytes" if "file_size" in name else f"index files with {_NAMES[name]}={size}"
            raise InvalidOptionError(
                f"option {_NAMES[name]} says {wanted}, but the store at {root} has {what}; leave the option out to go "
                f"on with them"
            )
    config = replace(config, **taken)
    _check_index(root, config, file_system)
    return config


def _rounded(name: str, size: int) -> int:
    return -(-size // _UNIT) * _UNIT if name == "mapped_file_size_consume_queue" else size


def _sizes(directory: Path, file_system: FileSystem) -> Iterator[int]:
    for name in names_in(directory, file_system):
        status = file_system.status(directory / name)
        if status is not None and not status.is_directory and status.size and name.isdecimal():
            yield status.size


def _log_size(root: Path, file_system: FileSystem) -> int | None:
    sizes = set(_sizes(root / "commitlog", file_system))
    if len(sizes) > 1:
        raise SegmentLayoutError(f"the segments of {root / 'commitlog'} have {sorted(sizes)} bytes: expected one size")
    return sizes.pop() if sizes else None


def _queue_size(root: Path, file_system: FileSystem) -> int | None:
    for topic in names_in(root / CONSUME_QUEUE, file_system):
        for queue in names_in(root / CONSUME_QUEUE / topic, file_system):
            for size in _sizes(root / CONSUME_QUEUE / topic / queue, file_system):
                return size
    return None


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
    """Give the topics whose queues are batch queues, by the directories that are there."""
    return tuple(names_in(root / BATCH_CONSUME_QUEUE, file_system))

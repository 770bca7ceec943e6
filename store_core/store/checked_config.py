# SPDX-License-Identifier: Apache-2.0
"""Checking a configuration against the store it opens: sizes come from the files, contradictions are refused.

RocketMQ takes sizes from its configuration alone. If they are wrong, it refuses to load log and queues (4.5 and later,
``MappedFileQueue.load``) or takes them for empty (4.3), and reads index files at wrong places (``IndexFile``).

A size contradicts the files if files exist and none has that size. If only some files differ, they are damaged: the
configuration is right, and the store is opened or refused by the rules of its release. Index sizes are inferred from
the files' contents; files from which they can't be inferred are skipped as usual, with a note.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from store_core.errors import InvalidOptionError, StoreNotFoundError
from store_core.files.access import explained_access
from store_core.files.store_kind import StoreUse, check_is_root, dledger_logs, is_root
from store_core.files.store_parts import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from store_core.files.store_path import nothing_at
from store_core.queue.units.batch_consume_queue_unit import BATCH_UNIT_SIZE
from store_core.queue.units.consume_queue_unit import CQ_STORE_UNIT_SIZE
from store_core.snapshot.index import Index
from store_core.store.config.file_sizes import FileSizes
from store_core.store.config.message_store_config import SMALLEST_SEGMENT, DefaultSize, MessageStoreConfig
from store_core.store.store_layout import check_root, log_paths

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.file_system import FileSystem

__all__ = ["check_is_store", "check_is_there", "checked_config", "with_sizes_of_files"]


class _Sizes(NamedTuple):
    """One kind of file: the field that configures its size, and the unit to a multiple of which that is rounded up."""

    field: str
    option: str
    unit: int
    smallest: int
    directory: str


_LOG: Final = _Sizes("mapped_file_size_commit_log", "mappedFileSizeCommitLog", 1, SMALLEST_SEGMENT, "")
_QUEUES: Final = (
    _Sizes(
        "mapped_file_size_consume_queue", "mappedFileSizeConsumeQueue",
        CQ_STORE_UNIT_SIZE, CQ_STORE_UNIT_SIZE, CONSUME_QUEUE,
    ),
    _Sizes(
        "mapped_file_size_consume_queue_ext", "mappedFileSizeConsumeQueueExt", 1, CQ_STORE_UNIT_SIZE, CONSUME_QUEUE_EXT
    ),
    _Sizes(
        "mapper_file_size_batch_consume_queue", "mapperFileSizeBatchConsumeQueue",
        BATCH_UNIT_SIZE, BATCH_UNIT_SIZE, BATCH_CONSUME_QUEUE,
    ),
)  # fmt: skip


def check_is_there(root: Path, config: MessageStoreConfig | None, file_system: FileSystem) -> None:
    """Raise if nothing is at a path, or what can't become a store."""
    with explained_access(root):
        check_is_root(root, file_system, _log_paths(root, config, file_system))
        if file_system.status(root) is None:
            raise StoreNotFoundError(f"there is no store at {root}")


def check_is_store(root: Path, config: MessageStoreConfig | None, file_system: FileSystem) -> None:
    """Raise if there is no store at a path: what is opened there would look like an empty one."""
    check_is_there(root, config, file_system)
    is_store = is_root(root, file_system) or any(dledger_logs(root, file_system))
    if not is_store and all(file_system.status(each) is None for each in _log_paths(root, config, file_system)):
        raise nothing_at([root], ())


def _log_paths(root: Path, config: MessageStoreConfig | None, file_system: FileSystem) -> tuple[Path, ...]:
    return log_paths(root, config, file_system).all_paths if config is not None else ()


def checked_config(
    root: Path,
    config: MessageStoreConfig | None,
    file_system: FileSystem,
    use: StoreUse = StoreUse.OPEN_QUEUES,
    *,
    writes: bool = True,
) -> MessageStoreConfig:
    """Check that a store can be opened or created at a path, and return its configuration; nothing is written."""
    config = config or MessageStoreConfig()
    with explained_access(root):
        check_root(root, config, file_system, use, writes=writes)
        return with_sizes_of_files(root, config, file_system)


def with_sizes_of_files(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> MessageStoreConfig:
    """Return a configuration with the sizes of a store's files.

    * `root`: The store's root; it need not exist.
    * `config`: Sizes set explicitly are kept; see `DefaultSize`.
    """
    taken: dict[str, Any] = {}
    paths = log_paths(root, config, file_system).all_paths
    log = FileSizes.of([paths], file_system, _LOG.smallest)
    _take(taken, _LOG, log, config, root)
    for kind in _QUEUES:
        queues = FileSizes.of_queues(root / kind.directory, file_system, kind.smallest)
        _take(taken, kind, queues, config, root)
    taken |= _index_sizes(root, config, file_system)
    return replace(config, **taken) if taken else config


def _take(taken: dict[str, Any], kind: _Sizes, sizes: FileSizes | None, config: MessageStoreConfig, root: Path) -> None:
    """Use the most common file size unless a size is given; refuse a given size that no file has."""
    if sizes is None:
        return
    value: int = getattr(config, kind.field)
    if isinstance(value, DefaultSize):
        taken[kind.field] = sizes.usual
    elif -(-value // kind.unit) * kind.unit not in sizes.seen:
        raise InvalidOptionError(
            f"option {kind.option} says {value}, but the store at {root} has files of {sizes.usual} bytes: "
            f"expected {value} bytes, found {sizes.example_size} in {sizes.example}. {_advice(kind.field)}"
        )


def _index_sizes(root: Path, config: MessageStoreConfig, file_system: FileSystem) -> dict[str, int]:
    expected = config.max_hash_slot_num, config.max_index_num
    found = Index(root, file_system).sizes(expected)
    taken: dict[str, int] = {}
    if found is None or (found.slots, found.entries) == expected:
        return taken
    fields = (("max_hash_slot_num", "maxHashSlotNum", found.slots), ("max_index_num", "maxIndexNum", found.entries))
    for field, option, size in fields:
        value: int = getattr(config, field)
        if isinstance(value, DefaultSize):
            taken[field] = size
        elif value != size:
            raise InvalidOptionError(
                f"option {option} says {value}, but the store at {root} has index files with {option}={size}: found "
                f"{found.slots} slots and {found.entries} entries in {found.example}. {_advice(field)}"
            )
    return taken


def _advice(field: str) -> str:
    return (
        f"Nothing was changed. Leave the option (field {field} of MessageStoreConfig) out to have the size that the "
        f"files have; if it is right, these are files of another store, or damaged: move them elsewhere"
    )

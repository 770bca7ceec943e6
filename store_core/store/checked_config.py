# SPDX-License-Identifier: Apache-2.0
"""Checking a configuration against the store it opens: sizes come from the files, contradictions are refused.

RocketMQ takes sizes from its configuration alone. If they are wrong, it refuses to load log and queues (4.5 and later,
``MappedFileQueue.load``) or takes them for empty (4.3), and reads index files at wrong places (``IndexFile``).

A size contradicts the files if files exist and none has that size. If only some files differ, they are damaged: the
configuration is right, and the store is opened or refused by the rules of its release. Index sizes are inferred from
the files' contents; files from which they can't be inferred are skipped as usual, with a note.

"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from store_core.errors import InvalidOptionError, StoreNotFoundError
from store_core.files.access import explained_access
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.store_kind import StoreUse, check_is_root, dledger_logs, is_root
from store_core.files.store_parts import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from store_core.files.store_path import nothing_at
from store_core.queue.queue_path import QueueRules
from store_core.queue.units.consume_queue_unit import BATCH_UNIT_SIZE, CQ_STORE_UNIT_SIZE
from store_core.snapshot.index import Index
from store_core.store.config.message_store_config import SMALLEST_SEGMENT, DefaultSize, MessageStoreConfig
from store_core.store.store_layout import check_root, log_paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from store_core.files.file_system import FileSystem

__all__ = ["DerivedSizes", "FileSizes", "check_is_store", "check_is_there", "checked_config", "with_sizes_of_files"]

_QUEUES_LOOKED_AT: Final = 200
"""Maximum queues whose files are examined: all have the same size."""

_LARGEST: Final = 2**31 - 1
"""Bytes; RocketMQ configures it as a 32-bit integer."""


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The sizes of files of one kind."""

    usual: int  # bytes: the most common value of file sizes and of distances between file names
    example: Path  # A file of the usual size, or the first one if none has it
    example_size: int  # bytes of that file
    seen: frozenset[int]  # sizes that files have

    @classmethod
    def of(cls, directories: Iterable[Iterable[Path]], file_system: FileSystem, smallest: int) -> Self | None:
        """Infer the size from files; None if that is not possible.

        Empty files, and files whose names are not offsets, are ignored.

        * `directories`: For each log or queue, its directories, whose files together form one sequence.
        * `smallest`: Minimum bytes of a file.
        """
        votes: Counter[int] = Counter()
        files: dict[Path, int] = {}
        for places in directories:
            found = sorted(_files_in(places, file_system))
            files |= {path: size for _, path, size in found}
            votes.update(size for _, _, size in found)
            votes.update(after - before for (before, _, _), (after, _, _) in pairwise(found))
        sizes = {size: count for size, count in votes.items() if smallest <= size <= _LARGEST}
        if not files or not sizes:
            return None
        usual = max(sizes, key=lambda size: (sizes[size], size))
        example = next((path for path, size in files.items() if size == usual), next(iter(files)))
        return cls(usual, example, files[example], frozenset(files.values()))

    @classmethod
    def of_queues(cls, directory: Path, file_system: FileSystem, unit_size: int) -> Self | None:
        """Infer the size from the queues of one kind, examining only some if there are many."""
        queues = islice(queues_in(directory, file_system), _QUEUES_LOOKED_AT)
        return cls.of(([queue] for queue in queues), file_system, unit_size)


def queues_in(directory: Path, file_system: FileSystem) -> Iterator[Path]:
    """Yield directories that may be queues: ``TOPIC/NUMBER`` below a directory."""
    for topic in names_in(directory, file_system):
        for number in names_in(directory / topic, file_system):
            yield directory / topic / number


def _files_in(directories: Iterable[Path], file_system: FileSystem) -> Iterator[tuple[int, Path, int]]:
    """Yield start offset, path and size of the files that count."""
    for directory in directories:
        for name in names_in(directory, file_system):
            status = file_system.status(directory / name) if name.isdecimal() else None
            if status is not None and not status.is_directory and status.size:
                yield int(name), directory / name, status.size


_DEFAULTS: Final = QueueRules()
"""RocketMQ's own sizes, which most stores have."""


@dataclass(frozen=True, slots=True)
class DerivedSizes:
    """Configured file sizes; None if they can't be inferred.

    * `consume_queue_file_size`, `ext_file_size`, `batch_consume_queue_file_size`: Bytes.
    * `has_ext`, `has_light`: Whether there is a queue extension, and a light queue.
    """

    consume_queue_file_size: int | None = None
    ext_file_size: int | None = None
    batch_consume_queue_file_size: int | None = None
    max_hash_slot_num: int | None = None
    max_index_num: int | None = None
    batch_topics: frozenset[str] = frozenset()  # topics with batch queues
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

# SPDX-License-Identifier: Apache-2.0
"""Sizes of files, as the configuration says or the files show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final, Self

from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.store_parts import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from store_core.queue.queue_path import QueueRules
from store_core.queue.units.batch_consume_queue_unit import BATCH_UNIT_SIZE
from store_core.queue.units.consume_queue_unit import CQ_STORE_UNIT_SIZE
from store_core.snapshot.index import Index

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from store_core.files.file_system import FileSystem

__all__ = ["DerivedSizes", "FileSizes"]

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

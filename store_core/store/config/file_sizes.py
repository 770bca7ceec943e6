# SPDX-License-Identifier: Apache-2.0
"""The configured size of one kind of file, inferred by one vote per file and one per distance between file names."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final, Self

from store_core.files.file_system import names_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from store_core.files.file_system import FileSystem

__all__ = ["FileSizes"]

_QUEUES_LOOKED_AT: Final = 200
"""Maximum queues whose files are examined: all have the same size."""

_LARGEST: Final = 2**31 - 1
"""Bytes; RocketMQ configures it as a 32-bit integer."""


@dataclass(frozen=True, slots=True)
class FileSizes:
    """The sizes of files of one kind.

    Attributes
    ----------
    usual : int
        Bytes: the most common value of file sizes and of distances between file names.
    example : Path
        A file of the usual size, or the first one if none has it.
    example_size : int
        Bytes of that file.
    seen : frozenset of int
        Sizes that files have.
    """

    usual: int
    example: Path
    example_size: int
    seen: frozenset[int]

    @classmethod
    def of(cls, directories: Iterable[Iterable[Path]], file_system: FileSystem, smallest: int) -> Self | None:
        """Infer the size from files; None if that is not possible.

        Empty files, and files whose names are not offsets, are ignored.

        Parameters
        ----------
        directories : iterable of iterable of Path
            For each log or queue, its directories, whose files together form one sequence.
        smallest : int
            Minimum bytes of a file.
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

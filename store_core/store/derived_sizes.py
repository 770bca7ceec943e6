# SPDX-License-Identifier: Apache-2.0
"""The sizes that a store's queue and index files were made with, told by the files themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.queue.consume_queue_unit import CQ_STORE_UNIT_SIZE
from store_core.queue.index_build import INDEX_DTYPE
from store_core.queue.index_files import INDEX_DIRECTORY
from store_core.queue.index_header import INDEX_HEADER_SIZE, IndexHeader
from store_core.queue.queue_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["DerivedSizes"]

_LOOKED_AT: Final = 200
"""Queues that are asked for the size of their files: all have the same."""

_LARGEST: Final = 2**31 - 1
_WORD: Final = np.dtype(">i4")
"""A slot; headers and entries are made of as many bytes."""

_ENTRY_WORDS: Final = INDEX_DTYPE.itemsize // _WORD.itemsize


@dataclass(frozen=True, slots=True)
class DerivedSizes:
    """Sizes of files, None where no file tells.

    Attributes
    ----------
    consume_queue_file_size, ext_file_size, batch_consume_queue_file_size : int or None
        Bytes.
    max_hash_slot_num, max_index_num : int or None
    batch_topics : frozenset of str
        Topics with batch queues.
    has_ext, has_light : bool
        Whether there is an extension, and a light queue.
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
    def find(cls, root: Path) -> DerivedSizes:
        """Look at the files of a store, few of each kind."""
        slots, entries = _index_sizes(root / INDEX_DIRECTORY)
        return cls(
            _file_size(root / CONSUME_QUEUE),
            _file_size(root / CONSUME_QUEUE_EXT),
            _file_size(root / BATCH_CONSUME_QUEUE),
            slots,
            entries,
            frozenset(path.name for path in _directories(root / BATCH_CONSUME_QUEUE)),
            any(True for _ in _queues(root / CONSUME_QUEUE_EXT)),
            any(path.name.startswith("%LMQ%") for path in _directories(root / CONSUME_QUEUE)),
        )


def _directories(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else []


def _queues(directory: Path) -> Iterator[Path]:
    for topic in _directories(directory):
        yield from _directories(topic)


def _file_size(directory: Path) -> int | None:
    """Give the size that most files have, and most distances between their names."""
    votes: Counter[int] = Counter()
    for queue in islice(_queues(directory), _LOOKED_AT):
        files = sorted(path for path in queue.iterdir() if path.name.isdecimal() and path.is_file())
        votes.update(path.stat().st_size for path in files)
        votes.update(int(after.name) - int(before.name) for before, after in pairwise(files))
    sizes = {size: count for size, count in votes.items() if CQ_STORE_UNIT_SIZE <= size <= _LARGEST}
    return max(sizes, key=lambda size: (sizes[size], size), default=None)


def _index_sizes(directory: Path) -> tuple[int | None, int | None]:
    """Give slots and entries of the index files.

    The length alone does not tell: it is the sum of both. But every file except the last is full, so its count is the
    number of entries; and in the last one every slot leads to an entry whose hash leads to the slot.
    """
    files = sorted(path for path in directory.iterdir() if path.name.isdecimal()) if directory.is_dir() else []
    found = [sizes for path in files if (sizes := _sizes_of(path, is_full=path != files[-1])) is not None]
    return found[0] if found else (None, None)


def _sizes_of(path: Path, *, is_full: bool) -> tuple[int, int] | None:
    size = path.stat().st_size
    if not INDEX_HEADER_SIZE < size <= _LARGEST or size % _WORD.itemsize:
        return None
    words = np.memmap(path, _WORD, "r")
    header = IndexHeader.from_bytes(words[: INDEX_HEADER_SIZE // _WORD.itemsize].tobytes())
    table = words[INDEX_HEADER_SIZE // _WORD.itemsize :]
    count = header.index_count
    if is_full and _fits(table, count, count):
        return len(table) - _ENTRY_WORDS * count, count
    most = (len(table) - 1) // _ENTRY_WORDS
    if not 1 < count <= most:
        return None
    fitting = [number for number in _candidates(table, count, most) if _fits(table, number, count)]
    return (len(table) - _ENTRY_WORDS * fitting[0], fitting[0]) if len(fitting) == 1 else None


def _candidates(table: npt.NDArray[np.int32], count: int, most: int) -> list[int]:
    """Give the numbers of entries with which the slot of the last entry leads to it."""
    numbers = np.arange(count, most + 1)
    slots = len(table) - _ENTRY_WORDS * numbers
    hashes = table[slots + _ENTRY_WORDS * (count - 1)].astype(np.int64)
    leads = table[np.abs(hashes) % slots] == count - 1
    found: list[int] = numbers[leads & (hashes >= 0)].tolist()
    return found


def _fits(table: npt.NDArray[np.int32], number: int, count: int) -> bool:
    """Tell whether every slot in use leads to an entry whose hash leads to that slot."""
    slots = len(table) - _ENTRY_WORDS * number
    if slots <= 0 or count <= 1:
        return False
    used = np.flatnonzero(table[:slots])
    entries = table[used].astype(np.int64)
    if not len(used) or entries.min() < 1 or entries.max() >= count:
        return False
    hashes = table[slots + _ENTRY_WORDS * entries].astype(np.int64)
    return bool(((hashes >= 0) & (hashes % slots == used)).all())

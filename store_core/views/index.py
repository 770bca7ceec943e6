# SPDX-License-Identifier: Apache-2.0
"""The view ``index``: the entries of the key index."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import CorruptRecordError, SegmentVanishedError, StoreNotFoundError
from store_core.files.access import explained_access
from store_core.files.file_system import OsFileSystem, names_in
from store_core.files.remote.url_path import remote_file_of
from store_core.files.segment_source import Segment, open_pages
from store_core.files.store_parts import INDEX_DIRECTORY
from store_core.format.columnar.arrow_slices import fixed_array, repeat_text
from store_core.format.java import hash_code, positive_hash
from store_core.queue.index.index_build import INDEX_DTYPE
from store_core.queue.index.index_header import INDEX_HEADER_SIZE
from store_core.store.config.index_listing import ListedIndexFile, index_paths
from store_core.views.config_table import without_file
from store_core.views.store_root import root_of
from store_core.views.view_part import make_batch, timestamps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa

    from store_core.files.store_path import StorePaths
    from store_core.store.read.read_options import ReadOptions
    from store_core.views.view_options import ViewOptions

__all__ = ["EntriesPart", "plan"]

_log: Final = logging.getLogger("store_core")

_PART_BYTES: Final = 32 << 20
"""Maximum bytes of entries in a part, unless the options say otherwise."""

_SLOT_BYTES: Final = 4
_SECOND_MS: Final = 1000
_LAST_BEGIN: Final = 2**62
"""Bound of a header's time, so that adding an entry's seconds stays within 64 bits."""


@dataclass(frozen=True, slots=True)
class EntriesPart:
    """Some entries of one index file.

    Attributes
    ----------
    file : Segment
        Its start offset is 0.
    slots : int
        Slots of the file.
    begin_timestamp : int
        The header's, ms.
    first, stop : int
        Numbers of the entries; the end is exclusive.
    """

    file: Segment
    slots: int
    begin_timestamp: int
    first: int
    stop: int

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield the entries that the options request."""
        try:
            opened = open_pages(self.file)
        except SegmentVanishedError as error:
            if options.read.fail_on_data_loss:
                raise
            _log.warning("%s", error.problem)
            return
        with opened:
            begin = INDEX_HEADER_SIZE + _SLOT_BYTES * self.slots
            opened.load(begin + self.first * INDEX_DTYPE.itemsize, begin + self.stop * INDEX_DTYPE.itemsize)
            stored = opened.raw[begin : begin + self.stop * INDEX_DTYPE.itemsize].view(INDEX_DTYPE)
            hashes = _hashes(options.read)
            for first in range(self.first, self.stop, options.read.max_records_per_batch):
                numbers = np.arange(first, min(first + options.read.max_records_per_batch, self.stop), dtype=np.int32)
                entries = stored[first : first + len(numbers)]
                mask = self._requested(entries, options.read, hashes)
                if options.log_end is not None:
                    mask &= entries["physical_offset"] < options.log_end
                if mask.any():
                    yield self._batch(entries[mask], numbers[mask], options)

    def _times(self, entries: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
        begin = max(min(self.begin_timestamp, _LAST_BEGIN), -_LAST_BEGIN)
        return begin + entries["time_diff"].astype(np.int64) * _SECOND_MS

    def _requested(
        self, entries: npt.NDArray[np.void], read: ReadOptions, hashes: npt.NDArray[np.int32] | None
    ) -> npt.NDArray[np.bool_]:
        mask = np.ones(len(entries), np.bool_)
        if hashes is not None:
            mask &= np.isin(entries["key_hash"], hashes)
        for bound, is_end in ((read.start.physical, False), (read.end.physical, True)):
            if bound is not None:
                mask &= entries["physical_offset"] < bound if is_end else entries["physical_offset"] >= bound
        if read.starting_timestamp is not None:
            mask &= self._times(entries) >= read.starting_timestamp
        if read.ending_timestamp is not None:
            mask &= self._times(entries) < read.ending_timestamp
        return mask

    def _batch(
        self, entries: npt.NDArray[np.void], numbers: npt.NDArray[np.int32], options: ViewOptions
    ) -> pa.RecordBatch:
        def slots() -> npt.NDArray[np.int32]:
            return (np.abs(entries["key_hash"].astype(np.int64)) % self.slots).astype(np.int32)

        return make_batch(
            options,
            {
                "key_hash": lambda: fixed_array(entries["key_hash"].astype(np.int32)),
                "physical_offset": lambda: fixed_array(entries["physical_offset"].astype(np.int64)),
                "store_timestamp": lambda: timestamps(
                    self._times(entries),
                    options,
                    "store_timestamp",
                    lambda row: f"{self.file.path}: the entry of offset {entries['physical_offset'][row]}",
                ),
                "slot": lambda: fixed_array(slots()),
                "previous": lambda: fixed_array(entries["previous_index"].astype(np.int32)),
                "number": lambda: fixed_array(numbers),
                "segment": lambda: repeat_text(self.file.name, len(numbers)),
            },
        )


def plan(paths: StorePaths, options: ViewOptions) -> list[EntriesPart]:
    """Read the headers of the index files, and infer the numbers of slots and entries.

    Raises
    ------
    StoreNotFoundError
        If there is no index, unless `fail_on_data_loss` is off.
    CorruptRecordError
        If a file is not an index file, unless `fail_on_data_loss` is off; then it is left out.
    """
    directory = root_of(paths) / INDEX_DIRECTORY
    if not directory.is_dir():
        without_file(_no_index(directory), options)
    with explained_access(directory):
        return list(_parts(directory, options))


def _parts(directory: Path, options: ViewOptions) -> Iterator[EntriesPart]:
    paths = index_paths(directory)
    for other in sorted(set(names_in(directory, OsFileSystem())) - {path.name for path in paths}):
        _log.warning("ignored %s: the name of an index file is its time, in digits", directory / other)
    expected: tuple[int, int] | None = None
    for path in paths:
        found = _file_of(path, options, expected, is_full=path != paths[-1])
        if found is not None:
            expected = found.slots, found.most_entries
            file = Segment(str(path), 0, found.size, remote=remote_file_of(path))
            begin, end = found.header.begin_timestamp, found.header.index_count
            step = max((options.read.max_partition_bytes or _PART_BYTES) // INDEX_DTYPE.itemsize, 1)
            for first in range(1, end, step):
                yield EntriesPart(file, found.slots, begin, first, min(first + step, end))


def _file_of(
    path: Path, options: ViewOptions, expected: tuple[int, int] | None, *, is_full: bool
) -> ListedIndexFile | None:
    """Return a file with entries; None if it has none, or is left out."""
    if not path.is_file():
        _log.warning("ignored %s: expected an index file, found a directory or nothing", path)
        return None
    try:
        found = ListedIndexFile.read(path, expected, is_full=is_full)
    except FileNotFoundError:
        return None  # deleted since the directory was listed
    if found.is_empty or found.is_sound:
        return None if found.is_empty else found
    error = _not_an_index(found)
    if options.read.fail_on_data_loss:
        raise error
    _log.warning("%s", error)
    return None


def _hashes(read: ReadOptions) -> npt.NDArray[np.int32] | None:
    """Return the hashes of the requested key in the requested topics; None if all entries are requested."""
    if read.key is None:
        return None
    return np.array([positive_hash(hash_code(f"{topic}#{read.key}")) for topic in read.topic], np.int32)


def _no_index(directory: Path) -> StoreNotFoundError:
    return StoreNotFoundError(
        f"no key index: expected a directory {directory}. Give the root of a whole store, or make an index from the "
        f"log: commitlog-rebuild-index {directory.parent} --output DIRECTORY. With failOnDataLoss=false "
        f"there are no rows"
    )


def _not_an_index(file: ListedIndexFile) -> CorruptRecordError:
    return CorruptRecordError(
        "no index file",
        str(file.path),
        0,
        "slots that lead to the entries that the header counts",
        f"{file.size} bytes, and a header that counts {file.header.index_count - 1} entries",
        b"",
        "Move the file elsewhere, or make an index from the log with commitlog-rebuild-index; "
        "failOnDataLoss=false leaves it out",
    )

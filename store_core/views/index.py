# SPDX-License-Identifier: Apache-2.0
"""The view ``index``: the entries of the key index."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import CorruptRecordError
from store_core.files.access import explained_access
from store_core.format.columnar.arrow_slices import fixed_array, repeat_text
from store_core.format.java import hash_code, positive_hash
from store_core.queue.index_format import INDEX_DTYPE
from store_core.views.view import ViewOptions, absent, going_on, make_batch, tell, timestamps

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from store_core.snapshot.index import Index, KeyFile
    from store_core.snapshot.store import Store
    from store_core.store.read.read_options import ReadOptions


_log: Final = logging.getLogger("store_core")

_PART_BYTES: Final = 32 << 20
"""Maximum bytes of entries in a part, unless the options say otherwise."""

_SECOND_MS: Final = 1000
_LAST_BEGIN: Final = 2**62
"""Bound of a header's time, so that adding an entry's seconds stays within 64 bits."""


@dataclass(frozen=True, slots=True)
class EntriesPart:
    """Some entries of one index file, by their numbers; the end is exclusive."""

    file: KeyFile
    first: int
    stop: int

    def batches(self, options: ViewOptions) -> Iterator[pa.RecordBatch]:
        """Yield the entries that the options request."""
        read, most = options.read, options.read.max_records_per_batch
        hashes = None  # of the requested key in the requested topics, if not all entries are requested
        if read.key is not None:
            hashes = np.array([positive_hash(hash_code(f"{topic}#{read.key}")) for topic in read.topic], np.int32)
        with going_on(options):
            for number, window in self.file.windows(self.first, self.stop):
                for at in range(0, len(window), most):
                    entries = window[at : at + most]
                    mask = self._requested(entries, read, hashes)
                    if options.log_end is not None:
                        mask &= entries["physical_offset"] < options.log_end
                    if mask.any():
                        numbers = np.arange(number + at, number + at + len(entries), dtype=np.int32)
                        yield self._batch(entries[mask], numbers[mask], options)

    def _times(self, entries: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
        begin = max(min(self.file.header.begin_timestamp, _LAST_BEGIN), -_LAST_BEGIN)
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
            return (np.abs(entries["key_hash"].astype(np.int64)) % self.file.slots).astype(np.int32)

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
                "segment": lambda: repeat_text(self.file.path.name, len(numbers)),
            },
        )


def plan(store: Store, options: ViewOptions) -> list[EntriesPart]:
    """Read the headers of the index files, and infer the numbers of slots and entries.

    Raises `StoreNotFoundError`: If there is no index, unless `fail_on_data_loss` is off.
    Raises `CorruptRecordError`: If a file is not an index file, unless `fail_on_data_loss` is off; then it is left out.
    """
    index = store.index
    if not index.directory.is_dir():
        words = f"no key index: expected a directory {index.directory}. Give the root of a whole store"
        tell(absent(index.directory.parent, words, made="index"), options)
    with explained_access(index.directory):
        return list(_parts(index, options))


def _parts(index: Index, options: ViewOptions) -> Iterator[EntriesPart]:
    paths = index.paths
    for other in sorted(set(index.names) - {path.name for path in paths}):
        _log.warning("ignored %s: the name of an index file is its time, in digits", index.directory / other)
    for path in paths:
        if not path.is_file():
            _log.warning("ignored %s: expected an index file, found none", path)
    step = max((options.read.max_partition_bytes or _PART_BYTES) // INDEX_DTYPE.itemsize, 1)
    for file in index.files():
        if file.slots:
            for first in range(1, file.stop, step):
                yield EntriesPart(file, first, min(first + step, file.stop))
        elif not file.is_empty:
            tell(_not_an_index(file), options)


def _not_an_index(file: KeyFile) -> CorruptRecordError:
    return CorruptRecordError(
        "no index file",
        str(file.path),
        0,
        "slots that lead to the entries that the header counts",
        f"{file.size} bytes, and a header that counts {file.header.index_count - 1} entries",
        b"",
        "Move the file elsewhere, or make an index from the log with commitlog rebuild index; "
        "failOnDataLoss=false leaves it out",
    )

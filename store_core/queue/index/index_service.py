# SPDX-License-Identifier: Apache-2.0
"""The key index of a store: putting keys into its files, and searching them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.queue.index.index_build import accepted_entries
from store_core.queue.index.index_files import IndexFiles

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.dispatch.dispatch_request import DispatchRequest
    from store_core.queue.index.index_file import IndexFile

__all__ = ["IndexService", "QueryOffsetResult"]

_MOST_PENDING: Final = 1 << 20
"""After this many entries, slots and header are written in any case."""


@dataclass(frozen=True, slots=True)
class QueryOffsetResult:
    """Result of `IndexService.query_offset` (RocketMQ: ``QueryOffsetResult``).

    Attributes
    ----------
    physical_offsets : list of int
        Newest first. The messages may have other keys with the same hash.
    index_last_update_timestamp, index_last_update_physical_offset : int
        Where the last file ends: ms and offset; 0 without files.
    """

    physical_offsets: list[int]
    index_last_update_timestamp: int
    index_last_update_physical_offset: int


class IndexService(IndexFiles):
    """The key index (RocketMQ: ``IndexService``): `IndexFiles` with puts and searches.

    One thread puts at a time; queries, flushes and deletions may run at the same time.
    """

    def build_index(self, request: DispatchRequest) -> None:
        """Put the keys of one message, as `DispatchRequest.index_keys` returns them (``buildIndex``).

        A last file is created if there is none, or it is full, even if the message has no key. Nothing is put for a
        message before the index's end. Everything is written to the file afterwards, by `IndexFile.write_back`.
        """
        if not self.rules.is_index_enabled:
            return
        file = self.last_or_new()
        if file is None or request.physical_offset < max(0, file.end_physical_offset):
            return
        for key in request.index_keys(with_tags=self.rules.features.indexes_tags):
            file = self._put(file, f"{request.topic}#{key}", request)
            if file is None:
                return
        self.write_back_or_fail(file)

    def _put(self, file: IndexFile, key: str, request: DispatchRequest) -> IndexFile | None:
        """Put one key, into a new file if this one is full; return the file used, or None if that failed."""
        last: IndexFile | None = file
        while last is not None:
            try:
                if last.put_key(key, request.physical_offset, request.store_timestamp):
                    return last
            except OSError as error:
                self.fail(error)
                return None
            last = self.last_or_new()
        return None

    def build_indexes(self, batch: DispatchBatch, *, write_back: bool = True) -> None:
        """Put the keys of many messages, as `build_index` one after the other.

        Parameters
        ----------
        batch : DispatchBatch
        write_back : bool
            As for `put_entries`.
        """
        if not self.rules.is_index_enabled:
            return
        keys = batch.index_hashes(with_tags=self.rules.features.indexes_tags)
        self.put_entries(batch.physical_offset, batch.store_timestamp, keys.rows, keys.hashes, write_back=write_back)

    def put_entries(
        self,
        physical_offsets: npt.NDArray[np.int64],
        store_timestamps: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        hash_codes: npt.NDArray[np.int32],
        *,
        write_back: bool = True,
    ) -> None:
        """Put keys of many messages by their hashes.

        Parameters
        ----------
        physical_offsets, store_timestamps : numpy.ndarray
            int64, shape (n,): of each message, with keys or without.
        rows : numpy.ndarray
            int64, shape (k,), ascending: the message of each key.
        hash_codes : numpy.ndarray
            int32, shape (k,): Java's hash of each ``topic#key``.
        write_back : bool
            Write slots and header to the file at the end. The changed slots lie all over the file, so this costs a
            write of 20 MB if a batch has some thousand keys. If False, it is done every million keys, and the caller
            does the rest before a checkpoint or the removal of ``abort`` records these messages as dispatched.
        """
        file = self.last_or_new() if physical_offsets.size and self.rules.is_index_enabled else None
        if file is None:
            return
        offsets = physical_offsets[rows]
        accepted = accepted_entries(offsets, file.end_physical_offset)
        if accepted is not None:
            offsets, rows, hash_codes = offsets[accepted], rows[accepted], hash_codes[accepted]
        if not self._fill(hash_codes, offsets, store_timestamps[rows], write_back=write_back):
            return
        if rows.size and rows[-1] < physical_offsets.size - 1:
            self.last_or_new()  # the next message would call it anyway

    def _fill(
        self,
        hash_codes: npt.NDArray[np.int32],
        offsets: npt.NDArray[np.int64],
        store_timestamps: npt.NDArray[np.int64],
        *,
        write_back: bool,
    ) -> bool:
        """Put all into the last file, and as many new ones as needed; False if that failed."""
        done = 0
        while done < hash_codes.size:
            file = self.last_or_new()
            if file is None:
                return False
            try:
                stop = done + _MOST_PENDING
                done += file.put_entries(hash_codes[done:stop], offsets[done:stop], store_timestamps[done:stop])
                if write_back or file.pending >= _MOST_PENDING:
                    file.write_back()
            except OSError as error:
                self.fail(error)
                return False
        return True

    def query_offset(self, topic: str, key: str, max_num: int, begin: int, end: int) -> QueryOffsetResult:
        """Return the offsets of messages by key (``queryOffset``), from the newest file to the oldest.

        Parameters
        ----------
        max_num : int
            Most offsets to return; limited by ``maxMsgsNumBatch``.
        begin, end : int
            Store times, ms, both included. The index stores them in seconds.

        Raises
        ------
        OSError
            As raised by the system.
        """
        found: list[int] = []
        max_num = min(max_num, self.rules.max_msgs_num_batch)
        files = self.files
        for file in reversed(files):
            header = file.header
            if header.is_time_matched(begin, end):
                try:
                    found += file.select_physical_offsets(f"{topic}#{key}", max_num - len(found), begin, end)
                except FileNotFoundError:
                    break  # deleted meanwhile, as are those before it
            if header.begin_timestamp < begin or len(found) >= max_num:
                break
        last = files[-1].header if files else None
        if last is None:
            return QueryOffsetResult(found, 0, 0)
        return QueryOffsetResult(found, last.end_timestamp, last.end_physical_offset)

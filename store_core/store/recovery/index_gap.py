# SPDX-License-Identifier: Apache-2.0
"""Keys of records that are not in the index, because a recovery began later, or an append left them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.store.dispatch.dispatcher import select_rows
from store_core.store.recovery.log_recovery import follow_log_for_recovery
from store_core.store.recovery.recovery_report import RecoveryDecision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.files.mapped_file import MappedFile
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.index.index_service import IndexService
    from store_core.queue.queue_path import QueueRules

__all__ = ["close_index_gap", "complete_index"]


def close_index_gap(
    index: IndexService, files: Sequence[MappedFile], start: int, rules: QueueRules
) -> RecoveryDecision | None:
    """Index what lies between the end of the index and the file from which an abnormal recovery checks the log.

    RocketMQ dispatches from that file, number `start` of the log's, on only. Keys before it are lost if their index
    file was deleted, see `IndexService.load`, or had not reached the disk: even with ``messageIndexSafe``, since the
    file is chosen by the time of its first record, and the index may end with an earlier record of the same
    millisecond. With ``messageIndexSafe`` they are indexed here; otherwise the decision names what is left out, and the
    command that adds it, because the range may be as long as the records of a whole index file. None if nothing is
    missing, or that can't be known.
    """
    stop = files[start].file_from_offset
    if rules.is_index_enabled and rules.is_index_safe:
        begin = max(index.end_physical_offset, files[0].file_from_offset)
        return _index_again(index, files[:start], begin, stop, rules) if begin < stop else None
    begin, end = index.deleted or (0, 0)
    if begin >= min(end, stop):
        return None
    return RecoveryDecision(
        f"left keys of records from {begin} to {min(end, stop)} out",
        str(index.directory),
        f"files that had them were deleted after the abnormal exit, and the log is indexed again only from {stop} on. "
        f"commitlog rebuild index STORE --since-offset {begin} --replace adds them",
    )


def _index_again(
    index: IndexService, files: Sequence[MappedFile], begin: int, stop: int, rules: QueueRules
) -> RecoveryDecision:
    """Index the records from an offset on; the index itself leaves out those before its end."""

    def take(batch: DispatchBatch) -> None:
        index.build_indexes(batch, write_back=False)

    follow_log_for_recovery([file for file in files if file.end_offset > begin], rules, take)
    return RecoveryDecision(
        f"indexed keys of records from {begin} to {stop}",
        str(index.directory),
        "the index ends before the file from which the log is checked, and messageIndexSafe is set",
    )


def complete_index(index: IndexService, files: Sequence[MappedFile], begin: int, rules: QueueRules) -> bool:
    """Index the records from an offset up to the log's end, as far as they can still be put into the index.

    An index has its entries in the order of the log, and leaves out what is put before its end, as RocketMQ does. So if
    another writer has indexed later records meanwhile, keys before these can't be added any more.

    Parameters
    ----------
    files : sequence of MappedFile
        The segments of the log.
    begin : int
        Physical offset of the first record that was left out.

    Returns
    -------
    bool
        Whether the index has the keys of all records from `begin` on.
    """
    end = index.end_physical_offset
    first: list[bool] = []
    """Whether the index has the first entry that is due; it has all up to its end then."""
    is_end_known = any(file.has_entry(end) for file in index.files)  # which the index would take again

    def take(followed: DispatchBatch) -> None:
        batch = select_rows(followed, followed.physical_offset >= begin)
        if batch is None:
            return
        keys = batch.index_hashes(with_tags=rules.features.indexes_tags)
        if keys.rows.size and not first:
            offset = int(batch.physical_offset[keys.rows[0]])
            first.append(offset >= end or any(file.has_entry(offset) for file in index.files))
        due = select_rows(batch, batch.physical_offset > end) if is_end_known else batch
        if due is not None:
            index.build_indexes(due, write_back=False)

    follow_log_for_recovery([file for file in files if file.end_offset > begin], rules, take)
    index.write_back()
    return index.failure is None and all(first)

# SPDX-License-Identifier: Apache-2.0
"""Choosing the file from which a log is checked when a store is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.format.layout import MIN_HEAD_SIZE, MagicCode
from store_core.format.record.record_head import read_frame, store_timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.files.mapped_file import MappedFile
    from store_core.format.releases.release_rules import ReleaseRules
    from store_core.queue.queue_rules import QueueRules
    from store_core.store.state.store_checkpoint import StoreCheckpoint

__all__ = ["StartFile", "abnormal_start", "normal_start"]

_LAST_FILES: Final = 3


class StartFile(NamedTuple):
    """Index of a file in the list of files, and the rule that selected it."""

    number: int
    why: str


def normal_start(files: Sequence[MappedFile], features: ReleaseRules, queues_cover: int) -> StartFile:
    """Choose the file from which to check a log that was closed cleanly.

    Up to 5.3.1 that is the third last one. From 5.3.2 on it is the newest that starts at or before the offset up to
    which the queues cover the log, or else the oldest. RocketMQ: ``CommitLog.recoverNormally``.
    """
    if not features.recovers_from_queues_cover:
        return StartFile(max(0, len(files) - _LAST_FILES), "after a clean exit the last three files are checked")
    for index in range(len(files) - 1, 0, -1):
        if files[index].file_from_offset <= queues_cover:
            return StartFile(index, f"the queues cover the log up to {queues_cover}, and it is the file of that offset")
    return StartFile(0, f"the queues cover the log up to {queues_cover}, and no later file starts at or before that")


def abnormal_start(files: Sequence[MappedFile], rules: QueueRules, checkpoint: StoreCheckpoint) -> StartFile:
    """Choose the file from which to check a log that was not closed cleanly.

    That is the newest whose first record was not stored later than the checkpoint's times, or else the oldest.
    RocketMQ: ``CommitLog.recoverAbnormally``, ``isMappedFileMatchedRecover``.
    """
    uses_index = rules.is_index_enabled and rules.is_index_safe
    limit = checkpoint.min_timestamp_index if uses_index else checkpoint.min_timestamp
    for index in range(len(files) - 1, -1, -1):
        stored = _first_store_timestamp(files[index], rules.features)
        if stored and stored <= limit:
            return StartFile(index, f"its first record, of {stored}, is not later than the checkpoint's {limit} ms")
    return StartFile(0, f"no file begins with a record that is not later than the checkpoint's {limit} ms")


def _first_store_timestamp(file: MappedFile, features: ReleaseRules) -> int:
    """Read the store time at the start of a file, if the magic code there is that of a message; otherwise 0."""
    view = file.select(0)
    if view is None or len(view) < MIN_HEAD_SIZE:
        return 0
    _, magic = read_frame(view, 0)
    if magic != MagicCode.MESSAGE_V1 and not (magic == MagicCode.MESSAGE_V2 and features.has_message_version_2):
        return 0
    return store_timestamp(view, 0, has_ipv6=features.stores_ipv6_hosts)

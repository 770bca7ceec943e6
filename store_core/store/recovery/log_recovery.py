# SPDX-License-Identifier: Apache-2.0
"""Following a log for recovery, record by record: from which file, and to the log's end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.files.segment_source import Segment
from store_core.format.columns import iso_time
from store_core.format.layout import MAX_HEAD_SIZE, MIN_HEAD_SIZE, MagicCode
from store_core.format.record.scan import StopReason, check_record, read_frame, store_timestamp
from store_core.queue.dispatch.dispatch_reader import WindowReader
from store_core.queue.dispatch.rocketmq_check import Strictness
from store_core.snapshot.log_end import FoundEnd, segment_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from store_core.files.mapped_file import MappedFile
    from store_core.format.release_rules import ReleaseRules
    from store_core.format.segment_view import SegmentView
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest, MessageCheck
    from store_core.queue.queue_path import QueueRules
    from store_core.store.store_state import StoreCheckpoint


@dataclass(slots=True)
class FollowedLog:
    """Result of following a log for recovery: where the log ends, and why."""

    end_offset: int = 0
    """Where the next record goes, as RocketMQ counts (``processOffset``): one past the last record, or the start of the
    next file if a blank record leads there."""
    record_end: int | None = None  # one past the last record; None if none was found
    last_record: int | None = None  # start of the last record; None if none was found
    records: int = 0
    path: Path | None = None  # file that holds the end
    reason: StopReason | None = None  # None if only RocketMQ's check rejects the record
    why: str = ""  # the same in words


def follow_log_for_recovery(
    files: Sequence[MappedFile],
    rules: QueueRules,
    on_batch: Callable[[DispatchBatch], None],
    on_half: Callable[[int], None] | None = None,
) -> FollowedLog:
    """Follow the records of some files, as ``CommitLog.recoverNormally`` and ``recoverAbnormally`` do.

    After a blank record the next file follows, wherever that starts. The first bytes that are not a record end the log.
    Readers find the end differently, by `store_core.format.salvage.find_log_end`: they continue after damage,
    where a recovery truncates.

    * `files`: The file at which recovery starts, and those after it; all count as full.
    * `on_batch`: Called with the records, in order; their bytes are there until the next call.
    * `on_half`: With release 4.3 after an abnormal exit: called with the size of a record whose parts do not add up to
      it. Following then continues right after those parts, but offsets are counted as if after the whole record.
    """
    found = FollowedLog()
    for file in files:
        found.end_offset, found.path = file.file_from_offset, file.path
        if not _follow_file(file.view(), rules, found, on_batch, on_half).is_blank:
            break
    return found


def find_end_of_files(files: Sequence[MappedFile], *, verify_crc: bool) -> FoundEnd:
    """Find where the log in loaded files ends for readers, which, unlike a recovery, continue after damage."""
    by_path = {str(file.path): file for file in files}
    segments = [Segment(path, file.file_from_offset, file.file_size) for path, file in by_path.items()]
    ends = segment_ends(
        segments, verify_crc=verify_crc, open_bytes=lambda segment: by_path[segment.path].segment.source()
    )
    return FoundEnd.of(ends)


def _follow_file(
    segment: SegmentView,
    rules: QueueRules,
    found: FollowedLog,
    on_batch: Callable[[DispatchBatch], None],
    on_half: Callable[[int], None] | None,
) -> MessageCheck:
    start_offset = segment.start_offset
    position = drift = 0
    while True:
        reader = _reader(segment, position, rules)
        for batch, view in reader:
            found.records += len(batch)
            found.last_record = view.start_offset + int(batch.starts[-1]) + drift
            found.record_end = found.last_record + int(batch.message_size[-1])
            on_batch(batch)
        end, position = reader.end, reader.position
        if on_half is None or end.is_success or end.size <= 0:
            break
        on_half(end.size)
        drift += end.size - end.parsed
        position += end.parsed
    found.end_offset = start_offset + position + drift
    found.reason, found.why = _explain(segment, position, end, rules)
    return end


def _reader(segment: SegmentView, position: int, rules: QueueRules) -> WindowReader:
    strictness = Strictness(rules.check_crc, read_body=True, check_dup_info=rules.is_duplication_enabled)
    return WindowReader(segment, position, rules, strictness)


def _explain(
    segment: SegmentView, position: int, end: MessageCheck, rules: QueueRules
) -> tuple[StopReason | None, str]:
    """Return why there is no record at a position, as a reason and in words."""
    if end.is_blank:
        return StopReason.END_OF_FILE, StopReason.END_OF_FILE.value
    if position >= segment.size:
        return StopReason.LIMIT, "the file is full"
    raw = segment.frame(position, with_body=True)
    beyond = segment.size - position - raw.size
    check = check_record(raw.data, 0, None, verify_crc=rules.check_crc, beyond=beyond)
    if check.reason is None or check.reason is StopReason.END_OF_FILE:
        return None, f"release {rules.release} accepts no record like the one there"
    detail = f": expected {check.expected}, found {check.found}" if check.expected else ""
    return check.reason, check.reason.value + detail


_LAST_FILES: Final = 3
_RECOVER_MAX_NUM: Final = 10
"""What ``commitLogRecoverMaxNum`` is taken for if it is not positive."""


class StartFile(NamedTuple):
    """Index of a file in the list of files, and the rule that selected it."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class RecoveryStart:
    """Chooses the file from which a recovery checks a log.

    * `files`: At least one.
    * `max_num`: ``commitLogRecoverMaxNum``, for releases with `ReleaseRules.limits_files_to_recover`.
    """

    files: Sequence[MappedFile]
    rules: QueueRules
    checkpoint: StoreCheckpoint
    max_num: int

    def after_exit(self, queues_cover: int) -> StartFile:
        """Choose the file for a log that was closed cleanly, whose queues cover it up to an offset.

        Up to 5.3.1 that is the third last one. From 5.3.2 on it is the newest that starts at or before the offset up to
        which the queues cover the log, or else the oldest; from 5.3.4 on the newest whose first record is sound and
        says that it lies there. RocketMQ: ``CommitLog.recoverNormally``.
        """
        features = self.rules.features
        if not features.recovers_from_queues_cover:
            last = max(0, len(self.files) - _LAST_FILES)
            return StartFile(last, "after a clean exit the last three files are checked")
        if not features.recovers_from_sound_file:
            return self.by_queues(queues_cover)
        covered = f"the queues cover the log up to {queues_cover}"

        def fits(first: DispatchRequest) -> str | None:
            return covered if first.physical_offset <= queues_cover else None

        return self._sound(fits, f"{covered}, and no later file begins with a sound record at or before that")

    def by_queues(self, queues_cover: int) -> StartFile:
        """Choose the file by the queues alone, as where these are in a RocksDB.

        A broker that ends abnormally loses what it had not flushed of such queues, whatever the checkpoint says.
        RocketMQ: ``CommitLog.isMappedFileMatchedRecover``.
        """
        covered = f"the queues cover the log up to {queues_cover}"
        for index in range(len(self.files) - 1, 0, -1):
            if self.files[index].file_from_offset <= queues_cover:
                return StartFile(index, f"{covered}, and it is the file of that offset")
        return StartFile(0, f"{covered}, and no later file starts at or before that")

    def after_crash(self) -> StartFile:
        """Choose the file for a log that was not closed cleanly.

        That is the newest whose first record was not stored later than the checkpoint's times, or else the oldest. From
        5.3.4 on that record must be sound; from 5.5 on it must not lie, or have been stored, after what is flushed of
        the queues. RocketMQ: ``CommitLog.recoverAbnormally``, ``isMappedFileMatchedRecover``.
        """
        rules, checkpoint = self.rules, self.checkpoint
        if rules.features.recovers_from_sound_file:
            by_flush = rules.features.recovers_from_flushed_queues
            fits = _fits_flushed(checkpoint) if by_flush else _fits_time(checkpoint.min_timestamp)
            return self._sound(fits, "no file begins with a sound record that the checkpoint covers")
        uses_index = rules.is_index_enabled and rules.is_index_safe
        limit = checkpoint.min_timestamp_index if uses_index else checkpoint.min_timestamp
        limited = f"the checkpoint's {iso_time(limit)}"
        for index in range(len(self.files) - 1, -1, -1):
            stored = _first_store_timestamp(self.files[index], rules.features)
            if stored and stored <= limit:
                return StartFile(index, f"its first record, of {iso_time(stored)}, is not later than {limited}")
        return StartFile(0, f"no file begins with a record that is not later than {limited}")

    def _sound(self, fits: Callable[[DispatchRequest], str | None], otherwise: str) -> StartFile:
        """Return the newest file whose first record is sound and fits, or else the oldest of those looked at."""
        files, rules = self.files, self.rules
        most = self.max_num if self.max_num > 0 else _RECOVER_MAX_NUM
        oldest = max(0, len(files) - most) if rules.features.limits_files_to_recover else 0
        is_by_index = rules.is_index_enabled and rules.is_index_safe
        for index in range(len(files) - 1, oldest - 1, -1):
            first = _first_record(files[index], rules)
            if first is None or not first.store_timestamp:
                continue
            if is_by_index and first.store_timestamp > self.checkpoint.index_msg_timestamp:
                continue
            why = fits(first)
            if why is not None:
                return StartFile(index, f"its first record, at {first.physical_offset}, is sound, and {why}")
        limited = f"; no more than the last {len(files) - oldest} files are looked at" if oldest else ""
        return StartFile(oldest, otherwise + limited)


def _fits_time(limit: int) -> Callable[[DispatchRequest], str | None]:
    def fits(first: DispatchRequest) -> str | None:
        stored = first.store_timestamp
        why = f"was stored at {iso_time(stored)}, not later than the checkpoint's {iso_time(limit)}"
        return why if stored <= limit else None

    return fits


def _fits_flushed(checkpoint: StoreCheckpoint) -> Callable[[DispatchRequest], str | None]:
    flushed = checkpoint.logics_physical_offset
    if flushed <= 0:  # no release before 5.5 writes it
        return _fits_time(checkpoint.logics_msg_timestamp)

    def fits(first: DispatchRequest) -> str | None:
        return f"queues are flushed up to {flushed}" if first.physical_offset <= flushed else None

    return fits


def _first_record(file: MappedFile, rules: QueueRules) -> DispatchRequest | None:
    """Return the record at the start of a file; None if there is none that a recovery accepts."""
    found = next(iter(_reader(file.view(), 0, rules)), None)
    return None if found is None else found[0].request(0)


def _first_store_timestamp(file: MappedFile, features: ReleaseRules) -> int:
    """Read the store time at the start of a file, if the magic code there is that of a message; otherwise 0."""
    view = file.select(0, min(MAX_HEAD_SIZE, file.read_position))
    if view is None or len(view) < MIN_HEAD_SIZE:
        return 0
    _, magic = read_frame(view, 0)
    if magic != MagicCode.MESSAGE_V1 and not (magic == MagicCode.MESSAGE_V2 and features.has_message_version_2):
        return 0
    return store_timestamp(view, 0, has_ipv6=features.stores_ipv6_hosts)

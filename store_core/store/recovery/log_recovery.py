# SPDX-License-Identifier: Apache-2.0
"""Following a log for recovery, from which file and to the log's end; and the report of it, in words for operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.files.segment_source import Segment
from store_core.format.columns import iso_time
from store_core.format.layout import MAX_HEAD_SIZE, MIN_HEAD_SIZE, MagicCode
from store_core.format.record.scan import StopReason, check_record, read_frame, store_timestamp
from store_core.format.release import DEFAULT_RELEASE
from store_core.format.words import counted
from store_core.queue.dispatch.dispatch_reader import WindowReader
from store_core.queue.dispatch.rocketmq_check import Strictness
from store_core.snapshot.log_end import FoundEnd, segment_ends
from store_core.store.read.ranges import CheckKind, Coverage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from store_core.files.mapped_file import MappedFile
    from store_core.files.overlay_file_system import FileChange
    from store_core.format.release_rules import ReleaseRules
    from store_core.format.segment_view import SegmentView
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest, MessageCheck
    from store_core.queue.queue_path import QueueRules
    from store_core.store.store_state import StoreCheckpoint


_IN_THE_CONDITIONAL: Final = {
    "checked": "would check",
    "counted": "would count",
    "created": "would create",
    "cut": "would cut",
    "deleted": "would delete",
    "dispatched": "would dispatch",
    "ended": "would end",
    "indexed": "would index",
    "kept": "would keep",
    "left": "would leave",
    "removed": "would remove",
    "stopped": "would stop",
    "truncated": "would truncate",
    "written": "would write",
}
"""First words of decisions and changes, as a dry run says them."""


@dataclass(frozen=True, slots=True)
class RecoveryDecision:
    """One decision of a recovery.

    Attributes
    ----------
    what : str
        What is done, e.g. ``"ended the log at 12345"``.
    where : str
        File, directory or queue.
    why : str
        The rule, and the facts it was applied to.
    """

    what: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.what} in {self.where}: {self.why}"


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The report of opening a store.

    Attributes
    ----------
    last_exit_ok : bool
        Whether the store was closed cleanly, leaving no ``abort`` file.
    is_live : bool
        Whether a broker is writing the store: what is told is as of the moment at which the log was followed.
    files : int
        Segments of the commit log, after recovery.
    records : int
        Number of records checked, from `start_offset` on.
    min_offset, max_offset : int
        Bounds of the log after recovery, physical offsets, as RocketMQ counts (``getMaxPhyOffset``): the next record
        goes to `max_offset`, which is the start of a new file if a blank record closed the previous one.
    recovery_end_offset : int
        One past the last record that this release keeps; see ADR 0005.
    end : FoundEnd
        Where the log ended before anything was truncated, and what followed; the same in all reports.
    coverage : Coverage
        What was checked, and what was not.
    reason : StopReason or None
        Why it ends there; None if there is no file.
    truncated_files : int
        Number of segments after the end, which were deleted.
    notes : tuple of str
        What an operator should know besides `decisions`: files skipped, units refused.
    release : str
        The release whose rules were followed.
    start_offset : int
        Where the check of the log began.
    queues_cover : int
        How far the queues covered the log when they were loaded; -1 if they had no units.
    dispatched : int
        Records dispatched to queues and index while the log was checked.
    caught_up : int
        Bytes of the log dispatched afterwards, before the store was ready.
    reput_from_offset : int
        Where dispatching continues.
    confirm_offset : int
        Confirmed offset that release 5.3 notes in the checkpoint; otherwise -1.
    refused_units : int
        Records that did not get a unit in a queue, see `ConsumeQueueStore.refused`.
    decisions : tuple of RecoveryDecision
        In order.
    refusal : str
        Why the store can't be opened; empty if it can.
    changes : tuple of FileChange
        What opening for writing would do to the store's files. Only for a read-only open or a dry run; not kept for a
        store opened for writing.
    """

    last_exit_ok: bool = True
    is_live: bool = False
    files: int = 0
    records: int = 0
    min_offset: int = -1
    max_offset: int = 0
    recovery_end_offset: int = 0
    end: FoundEnd = field(default_factory=FoundEnd)
    coverage: Coverage = field(default_factory=Coverage)
    reason: StopReason | None = None
    truncated_files: int = 0
    notes: tuple[str, ...] = ()
    release: str = DEFAULT_RELEASE
    start_offset: int = 0
    queues_cover: int = -1
    dispatched: int = 0
    caught_up: int = 0
    reput_from_offset: int = 0
    confirm_offset: int = -1
    refused_units: int = 0
    decisions: tuple[RecoveryDecision, ...] = ()
    refusal: str = ""
    changes: tuple[FileChange, ...] = ()

    @property
    def end_offset(self) -> int:
        """Physical offset one past the last sound record, whatever damage precedes it, before any truncation."""
        return self.end.end_offset

    @property
    def is_refused(self) -> bool:
        """Whether the store can't be opened."""
        return bool(self.refusal)

    @property
    def state(self) -> str:
        """How the store was left, in words."""
        if self.is_live:
            return f"the store is open, its lock is held: this is after a crash when its log ended at {self.end_offset}"
        return f"the store was {'closed' if self.last_exit_ok else 'not closed (there is an abort file)'}"

    def __str__(self) -> str:
        lines = [f"RocketMQ {self.release}: {self.state}"]
        is_done = not self.changes
        lines += ["nothing was changed: opening the store for writing would do this"] * (not is_done)
        lines += [*(_said(each, is_done=is_done) for each in self.decisions), *self.notes]
        if self.refusal:
            return "\n".join([*lines, f"refused: {self.refusal}"])
        lines += [*map(str, self.end.tails), *self._lost()]
        files, records = counted(self.files, "file"), counted(self.records, "record")
        lines.append(f"log {self.min_offset} to {self.max_offset} in {files}, {records} checked")
        return "\n".join([*lines, *self.coverage.lines, *(_said(each, is_done=False) for each in self.changes)])

    def _lost(self) -> list[str]:
        """Return lines for what the recovery truncates although it is readable."""
        if self.recovery_end_offset >= self.end_offset:
            return []
        ends = f"the last sound record ends at {self.end_offset}, and this recovery ends the log at"
        return [f"{ends} {self.recovery_end_offset}: what is between them is truncated, and can be read until then"]


def _said(found: RecoveryDecision | FileChange, *, is_done: bool) -> str:
    """Return what was decided or changed, or what would be."""
    first, blank, rest = str(found).partition(" ")
    return f"{first if is_done else _IN_THE_CONDITIONAL.get(first, first)}{blank}{rest}"


def recovery_coverage(rules: QueueRules, *, is_whole: bool) -> Coverage:
    """Return what a recovery checks, which is what the release checks.

    * `is_whole`: Whether the check begins at the log's first segment.
    """
    earlier = {} if is_whole else {CheckKind.LENGTHS_OF_EARLIER_SEGMENTS: False}
    has_property_crc = rules.features.has_property_crc and rules.check_crc and rules.verify_property_crc
    return Coverage.of(
        {
            CheckKind.SEGMENT_SIZES: True,
            CheckKind.LENGTHS: True,
            **earlier,
            CheckKind.BODY_CHECKSUMS: rules.check_crc,
            CheckKind.PROPERTY_CHECKSUMS: has_property_crc,
            CheckKind.PLACES: False,
            CheckKind.QUEUES: False,
            CheckKind.INDEX: False,
        }
    )


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

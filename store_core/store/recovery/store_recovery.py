# SPDX-License-Identifier: Apache-2.0
"""The steps of a recovery.

============================  ===========================  =========================  =================================
rule                          4.3.0                        4.9.7                      5.3.3
============================  ===========================  =========================  =================================
start file, clean exit        third last                   third last                 newest that the queues reach
start file, ``abort`` left    newest whose first record is not later than the checkpoint's times; else the first
dispatched, clean exit        nothing                      nothing                    records after what queues cover
dispatched, ``abort`` left    every record found           every record found         every record found
queues cut at the log's end   after ``abort`` only         if they reach it           if they reach it
order of cutting              log, queues                  log, queues                queues, log
no segment at all             queues deleted after         queues deleted             queues deleted
                              ``abort`` only
then dispatching starts at    the log's end                where the queues end,      the log's end
                                                           before the store is up
============================  ===========================  =========================  =================================

RocketMQ: ``DefaultMessageStore.load`` and ``recover``, ``CommitLog.recoverNormally`` and ``recoverAbnormally``.

5.3.4, 5.4 and 5.5 do as 5.3.3, except that the start file must begin with a sound record and is one of the last
``commitLogRecoverMaxNum`` (from 5.4 on), that it is chosen by what is flushed of the queues (5.5, after ``abort``), and
that queues are cut by where they reach once everything found is dispatched. 5.4 and 5.5 so rebuild lost queues from
these files only; `store_core.rebuild_consume_queue` rebuilds them whole.

There are three differences. Bytes after the end of the log, or of a queue, in its last file are zeroed. RocketMQ leaves
them, and the restart after next may take them for messages again. And where 4.3.0, after a crash, counts a record of
the wrong size as a message of a topic without a name, that topic's queue is kept in memory: 4.3.0 writes a file that
its next start takes for a queue of the topic "0". And with ``messageIndexSafe`` no key is left out of the index, see
`store_core.store.recovery.store_recovery`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from store_core.errors import RepairRefusedError, SegmentLayoutError, StoreError, UnsupportedStoreError
from store_core.format.record.delayed import SCHEDULE_TOPIC
from store_core.format.record.scan import StopReason
from store_core.format.words import counted
from store_core.snapshot.config import REWOUND
from store_core.store.recovery.log_recovery import (
    FollowedLog,
    RecoveryDecision,
    RecoveryReport,
    RecoveryStart,
    StartFile,
    find_end_of_files,
    follow_log_for_recovery,
    recovery_coverage,
)
from store_core.store.reput import Dispatcher, ReputMessageService, select_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.files.mapped_file import MappedFile
    from store_core.queue.dispatch.dispatch_batch import DispatchBatch
    from store_core.queue.index_service import IndexService
    from store_core.queue.queue_path import QueueRules
    from store_core.snapshot.log_end import FoundEnd
    from store_core.store.put.commit_log import CommitLog
    from store_core.store.store_state import StoreCheckpoint


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
        index.build_indexes(batch)

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

    * `begin`: Physical offset of the first record that was left out.

    Returns: Whether the index has the keys of all records from `begin` on.
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
            index.build_indexes(due)

    follow_log_for_recovery([file for file in files if file.end_offset > begin], rules, take)
    index.write_back()
    return index.failure is None and all(first)


_NAMED_FILES: Final = 5


class RecoveryGate:
    """Passes to the dispatchers only the records that a release dispatches while it checks the log."""

    def __init__(
        self, dispatcher: Dispatcher, rules: QueueRules, checkpoint: StoreCheckpoint, cover: int, *, last_exit_ok: bool
    ) -> None:
        self._dispatcher = dispatcher
        self._rules = rules
        self._confirmed = checkpoint.confirm_physical_offset if rules.features.keeps_confirmed_offset else -1
        self._cover = cover
        self._last_exit_ok = last_exit_ok
        self.left_out: int | None = None

    def take(self, batch: DispatchBatch) -> None:
        """Dispatch the selected records of a batch."""
        if self._last_exit_ok and not self._rules.features.dispatches_in_normal_recovery:
            return
        chosen = select_rows(batch, self._chosen(batch))
        if chosen is not None:
            self._dispatcher.dispatch_batch(chosen, gather=True)

    def _chosen(self, batch: DispatchBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        offsets = batch.physical_offset
        if self._last_exit_ok:
            skipped = (offsets == self._cover) & batch.is_queued
            if skipped.any():
                self.left_out = self._cover
            return offsets > self._cover
        if not self._rules.is_duplication_enabled:
            return np.ones(len(batch), bool)
        if self._rules.features.dispatches_whole_confirmed_records:
            return offsets + batch.message_size <= self._confirmed
        return offsets < self._confirmed


class StoreRecovery:
    """Loads a store and makes log, queues and index end at the same place.

    * `report`: What was found and done so far.
    * `is_live`: Whether a broker is writing the store, and this only shows what a restart would do. Then everything is
      as of the moment at which the log was followed: what it appends meanwhile is neither damage nor cut.
    * `is_prediction`: Whether this says what RocketMQ would do: then a record that it can't dispatch is a reason to
      refuse the store.
    * `cuts_messages`: Whether sound messages behind damage are cut off, as RocketMQ does; else the store is refused.
    """

    def __init__(self, log: CommitLog, checkpoint: StoreCheckpoint, dispatcher: Dispatcher, rules: QueueRules) -> None:
        self._log = log
        self._queues = dispatcher.queues
        self._index = dispatcher.index
        self._checkpoint = checkpoint
        self._dispatcher = dispatcher
        self._rules = rules
        self._decisions: list[RecoveryDecision] = []
        self._notes: list[str] = []
        self._is_cut = False
        self._has_nameless = False
        self.report = RecoveryReport(release=rules.release)
        self.is_live = False
        self.is_prediction = False
        self.cuts_messages = True

    def run(self, *, last_exit_ok: bool) -> RecoveryReport:
        """Load and recover.

        Steps: 1. load the segments; 2. load the queues; 3. read the checkpoint; 4. load the index; 5. find where each
        queue ends; 6. choose the segment from which to check the log; 7. check it, and dispatch by the rule of the
        release; 8. truncate queues and log, and zero what follows their ends; 9. take the next index of each queue
        from the queue.

        The order is such that another recovery can repair what an interrupted one leaves: the log is truncated last
        file first, and the checkpoint never covers what was dispatched before it is on disk.

        * `last_exit_ok`: Whether no ``abort`` file was left.
        """
        self._note(last_exit_ok=last_exit_ok, is_live=self.is_live)
        self._load()
        cover = self._queues.recover()
        self._note(queues_cover=cover)
        if self._log.mapped_file_queue.mapped_files:
            self._recover_log(cover)
        else:
            self._recover_nothing()
        if not self.is_live:
            self._queues.clear_tails()
        if not last_exit_ok or self._is_cut:
            self._bring_to_disk()
        self._recover_queue_offsets()
        if self._rules.features.loads_delay_levels_after_recovery:
            # without files (4.9: ``ScheduleMessageService.correctDelayOffset``)
            for level in range(len(self._rules.delay_levels)):
                self._queues.find_or_create(SCHEDULE_TOPIC, level)
        self._refuse_what_stops_a_broker("fails to load such a store")
        return self.finish()

    def _refuse_what_stops_a_broker(self, what: str) -> None:
        unit = self._queues.stopped_at
        if self.is_prediction and unit is not None:
            raise UnsupportedStoreError(
                f"RocketMQ {self._rules.release} {what}: it can't dispatch the record at {unit.physical_offset} to "
                f"queue {unit.queue_id} of topic {unit.topic[:100]!r}: {unit.reason}. Set "
                f"enableMultiDispatch=false in its configuration, and it loads, without units in light queues"
            )

    def catch_up(self, reput: ReputMessageService) -> RecoveryReport:
        """Set the dispatch position, and dispatch the records that a release dispatches during its start.

        Releases 4.3 and 5.3 continue at the end of the log. In 5.3 with ``recheckReputOffsetFromCq``, and always in
        4.9, what the queues do not cover is dispatched first, and their first indexes are determined again.
        """
        log, features = self._log, self._rules.features
        rechecks = features.has_recheck_of_queues_cover and log.config.recheck_reput_offset_from_cq
        if not (features.dispatches_uncovered_at_start or rechecks):
            is_confirmed = features.starts_dispatch_at_confirmed_offset
            reput.reput_from_offset = log.confirm_offset if is_confirmed else log.max_offset
            return self.finish(reput.reput_from_offset)
        start = reput.reput_from_offset = max(self._queues.max_physical_offset, log.min_offset, 0)
        if reput.behind < 0:
            why = f"a unit ends at {start}, past the log's end; nothing is dispatched until the log has grown past that"
            self._decide("stopped dispatching", "consumequeue", why)
        elif reput.behind:
            dispatched = self._dispatcher.dispatched
            reput.catch_up()
            count, end = self._dispatcher.dispatched - dispatched, reput.reput_from_offset
            release = self._rules.release
            why = f"the queues covered the log up to {start}, and release {release} dispatches the rest before it is up"
            self._decide(f"dispatched {counted(count, 'record')} from {start} to {end}", "consumequeue", why)
            self._note(caught_up=end - start)
            self._refuse_what_stops_a_broker("never comes up with such a store")
        self._recover_queue_offsets()
        return self.finish(reput.reput_from_offset)

    def _note(self, **found: object) -> None:
        self.report = replace(self.report, **found)  # type: ignore[arg-type]  # fields of the report

    def _decide(self, what: str, where: object, why: str) -> None:
        self._decisions.append(RecoveryDecision(what, str(where), why))
        self._note(decisions=tuple(self._decisions))

    def finish(self, reput_from_offset: int = 0) -> RecoveryReport:
        """Complete the report with the current state."""
        queue = self._log.mapped_file_queue
        units = (
            f"no unit for the record at {unit.physical_offset} in queue {unit.queue_id} of topic {unit.topic[:100]!r}: "
            f"{unit.reason}"
            for unit in self._queues.refused
        )
        self._note(
            files=len(queue.mapped_files),
            min_offset=queue.min_offset,
            max_offset=queue.max_offset,
            dispatched=self._dispatcher.dispatched,
            reput_from_offset=reput_from_offset,
            refused_units=self._queues.refused_count,
            notes=(*self._notes, *self._queues.notes, *units),
        )
        return self.report

    def refuse(self, error: StoreError) -> RecoveryReport:
        """Complete the report for a store that can't be opened."""
        self._note(refusal=str(error), notes=(*self._notes, *self._queues.notes))
        return self.report

    def truncate(self, offset: int) -> None:
        """Truncate queues and log at an offset while the store is open, and find the queues' next indexes again."""
        self._queues.truncate_dirty(offset)
        self._log.mapped_file_queue.truncate_dirty_files(offset, clear_tail=True)
        self._checkpoint.confirm_physical_offset = min(self._checkpoint.confirm_physical_offset, offset)
        self._checkpoint.logics_physical_offset = min(self._checkpoint.logics_physical_offset, offset)
        self._queues.clear_tails()
        self._bring_to_disk()
        self._recover_queue_offsets()

    def _bring_to_disk(self) -> None:
        """Flush what a killed process may have left only in memory, which counts as flushed, and all truncations.

        If a truncation were lost, units would reappear that point into messages put since.
        """
        self._queues.flush()
        self._queues.force()
        if not self._rules.features.keeps_flushed_queue_offset:
            self._checkpoint.cover_queues(self._checkpoint.last_put, keeps_offset=False)
        self._log.mapped_file_queue.force(self.report.start_offset)

    # ---- loading

    def _load(self) -> None:
        notes = list(self._log.load())
        notes += self._log.mapped_file_queue.check_self()
        self._queues.load()
        self._checkpoint.load()
        notes += self._index.load(self.report.last_exit_ok, self._checkpoint.index_msg_timestamp)
        self._notes = notes
        if not self._index.is_load_ok:
            raise SegmentLayoutError(f"RocketMQ {self._rules.release} refuses to load such a store: {notes[-1]}")

    # ---- the log

    def _recover_log(self, cover: int) -> None:
        queue = self._log.mapped_file_queue
        files, loaded = queue.mapped_files, queue.loaded_files or queue.mapped_files
        start = self._start_file(loaded, cover)
        first = loaded[start.number]
        self._note(start_offset=first.file_from_offset)
        if start.number:
            self._decide(f"checked the log from {first.file_from_offset} on", first.path, start.why)
        before = sum(file.file_from_offset < first.file_from_offset for file in files)
        gap = None if self.report.last_exit_ok else close_index_gap(self._index, files, before, self._rules)
        if gap is not None:
            self._decide(gap.what, gap.where, gap.why)
        confirmed = self._log.confirm_offset
        found = find_end_of_files(files, verify_crc=self._rules.check_crc)
        end = self._scan(loaded[start.number :], cover)
        kept = end.record_end if end.record_end is not None else min(end.end_offset, found.end_offset)
        if self.is_live:
            found, end = _as_of_now(found, end, kept)
        if kept < found.end_offset and not self.cuts_messages and not self._is_left_by_a_job(end, kept):
            raise RepairRefusedError(
                f"{end.path}: the log is damaged at offset {end.end_offset}: {end.why}. Sound messages follow up "
                f"to {found.end_offset}, and a recovery would cut them off. Nothing was cut, and nothing appended. "
                f"commitlog recover --dry-run lists them, commitlog salvage --into NEW takes them into a new store"
            )
        self._note(records=end.records, reason=end.reason, end=found, recovery_end_offset=kept)
        self._note(coverage=recovery_coverage(self._rules, is_whole=not start.number))
        if self._rules.features.keeps_confirmed_offset:
            self._confirm(end, confirmed if self.report.last_exit_ok else first.file_from_offset)
        if self._rules.features.cuts_queues_by_new_cover:
            cover = self._queues.max_physical_offset
        limit = files[-1].end_offset if self.is_live else end.end_offset  # units of newer records are right
        if self._rules.features.cuts_queues_before_log:
            self._queues.flush()
            self._cut_queues(cover, end, limit)
            self._cut_log(end)
        else:
            self._cut_log(end)
            self._cut_queues(cover, end, limit)

    def _is_left_by_a_job(self, end: FollowedLog, kept: int) -> bool:
        """Return whether what is behind the log's end are segments of a job that died amid its renames."""
        # It had rewound the checkpoint, and its segments are behind a hole: the files before that have no more.
        if end.reason is not StopReason.UNWRITTEN or self._checkpoint.physic_msg_timestamp != REWOUND:
            return False
        files = self._log.mapped_file_queue.mapped_files
        until = [file for file in files if file.file_from_offset <= end.end_offset]
        before_hole = find_end_of_files(until, verify_crc=self._rules.check_crc)
        return before_hole.end_offset <= kept and not before_hole.tails

    def _start_file(self, files: tuple[MappedFile, ...], cover: int) -> StartFile:
        start = RecoveryStart(files, self._rules, self._checkpoint, self._log.config.commit_log_recover_max_num)
        if self._queues.is_in_rocksdb:
            return start.by_queues(cover)
        return start.after_exit(cover) if self.report.last_exit_ok else start.after_crash()

    def _scan(self, files: tuple[MappedFile, ...], cover: int) -> FollowedLog:
        # A release that loads delay levels after recovery gives units of delayed messages the hash of their tags.
        features, last_exit_ok = self._rules.features, self.report.last_exit_ok
        rules = replace(self._rules, delay_levels=()) if features.loads_delay_levels_after_recovery else self._rules
        gate = RecoveryGate(self._dispatcher, rules, self._checkpoint, cover, last_exit_ok=last_exit_ok)
        on_half = self._dispatch_empty if features.goes_on_after_odd_size and not last_exit_ok else None
        end = follow_log_for_recovery(files, rules, gate.take, on_half)
        self._dispatcher.write_back()
        if gate.left_out is not None:
            self._decide(
                f"left out the record at {gate.left_out}",
                "its queue",
                f"queues cover the log up to {cover}, and release {self._rules.release} dispatches only what "
                f"starts after that: the queue's later messages are one index too early",
            )
        return end

    def _dispatch_empty(self, size: int) -> None:
        """Handle a record whose parts do not add up to its size as release 4.3 does after a crash."""
        self._dispatcher.dispatch_nameless(size)
        if not self._has_nameless:
            self._has_nameless = True
            why = (
                f"a record claims {size} bytes and its parts come to others; after a crash release "
                f"{self._rules.release} counts it as a message there, pointing to offset 0. The queue is kept in memory"
            )
            self._decide("counted one message", "queue 0 of the topic with no name", why)

    def _confirm(self, end: FollowedLog, without: int) -> None:
        """Note the start of the last record in the checkpoint, where 5.3 takes it for the confirmed offset.

        * `without`: What is confirmed if there is no record.
        """
        offset = end.last_record if end.last_record is not None else without
        self._checkpoint.confirm_physical_offset = offset
        self._note(confirm_offset=offset)

    def _cut_log(self, end: FollowedLog) -> None:
        """Truncate the log, and record that as a decision if more than its unwritten rest is cut."""
        queue = self._log.mapped_file_queue
        before = queue.mapped_files
        if end.path is not None and end.path not in [file.path for file in before]:
            self._is_cut = True
            why = "it is all zeros; RocketMQ loads it beside its twin with the data, and takes it for the log's end"
            self._decide(f"ended the log at {end.end_offset}", end.path, why)
        elif end.reason is None or end.reason.is_damage:
            self._is_cut = True
            self._decide(f"ended the log at {end.end_offset}", end.path, end.why)
        queue.truncate_dirty_files(end.end_offset, clear_tail=True)
        queue.flushed_where = queue.committed_where = end.end_offset
        gone = before[len(queue.mapped_files) :]
        self._note(truncated_files=len(gone))
        if gone:
            names = ", ".join(file.path.name for file in gone[:_NAMED_FILES])
            more = f" and {len(gone) - _NAMED_FILES} more" if len(gone) > _NAMED_FILES else ""
            where = f"{gone[0].path.parent}: {names}{more}"
            what = f"deleted {counted(len(gone), 'segment')}"
            self._decide(what, where, f"beyond the log's end, {end.end_offset}")

    def _recover_nothing(self) -> None:
        """Recover a store without any segment."""
        features = self._rules.features
        self._note(confirm_offset=self._checkpoint.confirm_physical_offset if features.keeps_confirmed_offset else -1)
        if not len(self._queues):
            return
        if self.report.last_exit_ok and not features.deletes_queues_of_lost_log:
            self._decide(
                f"kept {counted(len(self._queues), 'queue')}",
                "consumequeue",
                f"the log is gone; release {self._rules.release} does not look at that",
            )
            return
        self._queues.destroy_all()
        self._decide(
            f"deleted {counted(len(self._queues), 'queue')}",
            "consumequeue",
            "the log has no segments, so they point nowhere",
        )

    # ---- the queues

    def _cut_queues(self, cover: int, end: FollowedLog, limit: int) -> None:
        by_cover = self._rules.features.cuts_queues_by_cover
        is_cut = cover >= end.end_offset if by_cover else not self.report.last_exit_ok
        if is_cut:
            dropped = self._queues.truncate_dirty(limit)
            if dropped:
                self._is_cut = True
                self._decide(
                    f"cut {counted(len(dropped), 'queue')}",
                    "consumequeue",
                    f"units reached to {cover}, and the log ends at {end.end_offset}",
                )
        elif not by_cover and cover >= end.end_offset:
            self._decide(
                "left the queues as they are",
                "consumequeue",
                f"they reach to {cover}, past the log's end at {end.end_offset}; release "
                f"{self._rules.release} cuts them after a crash only, and serves what they point at",
            )

    def _recover_queue_offsets(self) -> None:
        """Determine each queue's next index, and where it begins, from the queues (``recoverTopicQueueTable``).

        A queue without units starts at 0, whatever the indexes of its messages in the log.
        """
        table, light = self._queues.queue_offsets(), self._queues.light_queue_offsets()
        self._queues.correct_min_offset(self._log.min_offset)
        if self._rules.features.counts_unconfirmed_records and self._rules.is_duplication_enabled:
            self._compensate(table)
        self._log.queue_offsets.replace(table, light)

    def _compensate(self, table: dict[tuple[str, int], int]) -> None:
        """Account for records after the confirmed offset, which are not in a queue yet (``compensateForHA``)."""
        confirmed = max(self._checkpoint.confirm_physical_offset, 0)

        def take(batch: DispatchBatch) -> None:
            later = select_rows(batch, batch.starts + start >= confirmed)
            for request in later.requests() if later is not None else ():
                table[request.topic, request.queue_id] = request.consume_queue_offset + 1

        for file in self._log.mapped_file_queue.mapped_files:
            start = file.file_from_offset
            if file.end_offset > confirmed:
                follow_log_for_recovery([file], self._rules, take)


def _as_of_now(found: FoundEnd, end: FollowedLog, kept: int) -> tuple[FoundEnd, FollowedLog]:
    """Return the ends of a log that grew between finding and following them: where it was followed to, with no tail.

    If readers found sound records after that, it was damage that ended it.
    """
    if found.end_offset > kept:
        return replace(found, tails=()), end
    return replace(found, end_offset=kept, path=str(end.path), tails=()), replace(end, reason=StopReason.UNWRITTEN)

# SPDX-License-Identifier: Apache-2.0
"""Features in which releases differ in putting, dispatching, recovering, getting and cleaning."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from store_core.format.releases.release_field import has

__all__ = ["StoreFeatures"]

_PUT: Final = "Putting"
_LOG: Final = "Log, dispatching and replicas"
_RECOVERY: Final = "Recovery"
_GET: Final = "Getting and cleaning"

_put = partial(has, _PUT)
_log = partial(has, _LOG)
_recovery = partial(has, _RECOVERY)
_get = partial(has, _GET)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class StoreFeatures:
    """A release's features of the store as a whole."""

    # ---- putting
    checks_puts_by_hooks: bool = _put(
        "the broker's hooks check a message, and a store without hooks takes any; before, the store checks it",
        "HookUtils.checkBeforePutMessage, 5.0.0",
    )
    limits_topics_in_bytes: bool = _put(
        "a topic may have 127 bytes, that of a retry topic 255; before, 127 characters",
        "HookUtils.checkBeforePutMessage, 5.x",
    )
    reserves_default_topic: bool = _put(
        "clients may not send to TBW102, the topic of which others are made automatically",
        "TopicConfigManager.isTopicCanSendMessage, 4.3.0",
    )
    takes_long_retry_topics: bool = _put(
        "clients may send to retry topics of up to 255 characters; before, of up to 127",
        "TopicValidator.validateTopic, 5.4.0",
    )
    checks_page_cache_before_message: bool = _put(
        "a busy page cache is reported rather than an illegal message",
        "DefaultMessageStore.asyncPutMessage, 4.9.x",
    )
    reports_long_properties_as_illegal: bool = _put(
        "the store answers MESSAGE_ILLEGAL to properties of over 32,767 characters; before, PROPERTIES_SIZE_EXCEEDED",
        "DefaultMessageStore.checkMessage, 4.7.0 to 4.9.x",
    )
    takes_puts_as_duplicating_slave: bool = _put(
        "a slave with `duplicationEnable` takes messages", "HookUtils.checkBeforePutMessage, 5.x"
    )
    schedules_by_hook: bool = _put(
        "a hook of the broker sends delayed messages to their topic; before, the log does",
        "HookUtils.handleScheduleMessage, 5.0.0",
    )
    stamps_batches_before_lock: bool = _put(
        "members of a batch keep the time when they were encoded", "CommitLog.putMessages, up to 4.9.0"
    )
    puts_under_reentrant_lock: bool = _put(
        "`useReentrantLockWhenPutMessage` is on by default", "MessageStoreConfig, 4.9.1"
    )
    fills_light_lists_by_lmq_switch: bool = _put(
        "`enableLmq` makes puts write the indexes of further queues; before, `enableMultiDispatch` does",
        "CommitLog.DefaultAppendMessageCallback.handlePropertiesForLmqMsg, 5.3.1",
    )
    fills_light_lists_for_plain_names: bool = _put(
        "plain queues among those further queues get an index, too", "MultiDispatch.wrapMultiDispatch, 4.9.3"
    )
    leaves_wait_out_of_light_records: bool = _put(
        "property WAIT is left out of a record that names further queues",
        "MultiDispatch.wrapMultiDispatch, 4.9.3 to 5.1.x",
    )
    sets_light_offsets_from_record: bool = _put(
        "the next index of a further queue is one more than the record's; else it grows by one for each mention",
        "MultiDispatch.updateMultiQueueOffset, 4.9.3",
    )
    limits_light_records: bool = _put(
        "`maxMessageSize` limits the whole of a record that names further queues",
        "CommitLog.DefaultAppendMessageCallback.handlePropertiesForLmqMsg, 5.3.x",
    )
    reports_large_light_records_as_unknown: bool = _put(
        "a message that such indexes make too large is answered with UNKNOWN_ERROR",
        "CommitLog.DefaultAppendMessageCallback.doAppend, 4.9.x",
    )

    # ---- log and dispatching
    flushes_log_by_timer: bool = _log("`flushCommitLogTimed` is on by default", "MessageStoreConfig, 4.9.1")
    has_wake_flush_switches: bool = _log(
        "`wakeFlushWhenPutMessage` and `wakeCommitWhenPutMessage` say whether a put wakes the flush; before, it does",
        "CommitLog.DefaultFlushManager.handleDiskFlush, 5.0.0",
    )
    pools_buffers_with_sync_flush: bool = _log(
        "`transientStorePoolEnable` applies with synchronous flush, too",
        "DefaultMessageStore.isTransientStorePoolEnable, 5.x",
    )
    flushes_checkpoint_by_timer: bool = _log(
        "a thread writes the checkpoint at intervals", "DefaultMessageStore.addScheduleTask, 5.x"
    )
    keeps_confirmed_offset: bool = _log(
        "the checkpoint holds the offsets that are confirmed, and flushed on the master", "StoreCheckpoint, 5.1.1"
    )
    keeps_flushed_queue_offset: bool = _log(
        "the checkpoint holds the offset of a record whose units are flushed, and its time as that of the queues; "
        "before, the time of the last unit put",
        "ConsumeQueueStore.FlushConsumeQueueService.doFlush, 5.5.0",
    )
    dispatches_only_flushed_records: bool = _log(
        "with synchronous flush only what is on disk is dispatched", "CommitLog.getConfirmOffset, 5.3.2"
    )
    stops_dispatch_at_confirmed_offset: bool = _log(
        "no record that ends after the confirmed offset is dispatched",
        "DefaultMessageStore.ReputMessageService.doReput, 5.x",
    )
    moves_dispatch_into_log: bool = _log(
        "if the log's start has passed the dispatch position, dispatching continues at the start",
        "DefaultMessageStore.ReputMessageService.doReput, 4.5.0",
    )
    notifies_on_slave: bool = _log(
        "waiting consumers are notified of messages on a slave, too",
        "DefaultMessageStore.ReputMessageService.doReput, 5.x",
    )
    waits_for_in_sync_replicas: bool = _log(
        "a put waits for `inSyncReplicas` copies, or is refused if there can't be enough; before, for one slave",
        "CommitLog.needHandleHA, 5.0.0",
    )
    skips_replicas_with_duplication: bool = _log(
        "with `duplicationEnable` a put waits for no replica", "CommitLog.needHandleHA, 5.x"
    )
    waits_for_slave_by_slave_timeout: bool = _log(
        "a put waits `slaveTimeout` for a slave; before, `syncFlushTimeout`", "CommitLog.submitReplicaRequest, 4.9.3"
    )

    # ---- recovery
    recovers_from_queues_cover: bool = _recovery(
        "after a clean exit the log is checked from the file up to which queues cover it; before, its last three files",
        "CommitLog.recoverNormally, 5.3.2",
    )
    recovers_from_sound_file: bool = _recovery(
        "the file from which the log is checked must begin with a sound record, and is one of the last "
        "`commitLogRecoverMaxNum`; before, its name and its first store time suffice, and it may be any",
        "CommitLog.recoverNormally, 5.4.0",
    )
    recovers_from_flushed_queues: bool = _recovery(
        "after a crash the log is checked from the file to which queues are flushed by the checkpoint's offset, or its "
        "time of the queues; before, by the times of log and queues less three seconds",
        "ConsumeQueueStore.isMappedFileMatchedRecover, 5.5.0",
    )
    dispatches_in_normal_recovery: bool = _recovery(
        "after a clean exit records after that are dispatched while the log is checked",
        "CommitLog.recoverNormally, 5.3.2",
    )
    dispatches_whole_confirmed_records: bool = _recovery(
        "after a crash with `duplicationEnable` records that end by the confirmed offset are dispatched; before, "
        "those that start below it",
        "CommitLog.recoverAbnormally, 5.x",
    )
    goes_on_after_odd_size: bool = _recovery(
        "after a crash a record whose size is wrong does not end the check, and adds an empty unit",
        "CommitLog.recoverAbnormally, up to 4.3.1",
    )
    loads_delay_levels_after_recovery: bool = _recovery(
        "recovery has no delay levels yet, and creates all queues of the schedule topic at its end",
        "DefaultMessageStore.load, 4.9.2 to 4.9.x",
    )
    dispatches_uncovered_at_start: bool = _recovery(
        "what queues do not cover is dispatched before the store is up", "DefaultMessageStore.start, 4.5.0 to 4.9.x"
    )
    has_recheck_of_queues_cover: bool = _recovery(
        "`recheckReputOffsetFromCq` has that done", "DefaultMessageStore.start, 5.0.0"
    )
    starts_dispatch_at_confirmed_offset: bool = _recovery(
        "dispatching resumes at the confirmed offset; before, at the end of the log", "DefaultMessageStore.start, 5.1.0"
    )
    cuts_queues_by_cover: bool = _recovery(
        "queues that reach past the log's end are cut after any exit; before, after a crash only",
        "CommitLog.recoverNormally, 4.5.0",
    )
    cuts_queues_by_new_cover: bool = _recovery(
        "whether queues reach past the log's end is decided after what the check found was dispatched; before, earlier",
        "CommitLog.recoverNormally, 5.4.0",
    )
    cuts_queues_before_log: bool = _recovery(
        "queues are cut and flushed before the log is", "CommitLog.recoverNormally, 5.2.0"
    )
    deletes_queues_of_lost_log: bool = _recovery(
        "without a segment queues are deleted after any exit; before, after a crash only",
        "CommitLog.recoverNormally, 4.5.0",
    )
    counts_unconfirmed_records: bool = _recovery(
        "with `duplicationEnable` records after the confirmed offset count for the next indexes of their queues",
        "DefaultMessageStore.recoverTopicQueueTable, 5.2.0",
    )

    # ---- getting and cleaning
    restarts_at_min_offset: bool = _get(
        "a get after the end of a queue that starts at 0 is sent back to 0; later, to the end",
        "DefaultMessageStore.getMessage, up to 4.9.3",
    )
    refuses_negative_max_msg_nums: bool = _get(
        "a get of a negative number of messages is an error", "DefaultMessageStore.getMessage, 4.9.x"
    )
    travels_queue_files: bool = _get(
        "a get may look through several files of a queue (`travelCqFileNumWhenGetMessage`)",
        "DefaultMessageStore.getMessage, 5.0.0",
    )
    limits_bytes_of_get: bool = _get(
        "a get ends before the record that would exceed the bytes requested", "DefaultMessageStore.isTheBatchFull, 5.x"
    )
    ends_full_get_at_any_unit: bool = _get(
        "a full get ends at any unit; before, it skips those whose file of the log is gone",
        "DefaultMessageStore.getMessage, 5.x",
    )
    bounds_disk_ratios: bool = _get(
        "`diskSpaceWarningLevelRatio` is kept in 35 to 90, `diskSpaceCleanForciblyRatio` in 30 to 85",
        "DefaultMessageStore.CleanCommitLogService.getDiskSpaceWarningLevelRatio, 5.0.0",
    )
    judges_disk_by_forcible_ratio: bool = _get(
        "a log disk over `diskSpaceCleanForciblyRatio` decides alone; before, one over `diskMaxUsedSpaceRatio`",
        "DefaultMessageStore.CleanCommitLogService.isSpaceToDelete, 5.x",
    )
    has_delete_file_batch_max: bool = _get(
        "`deleteFileBatchMax` limits the segments that are deleted in a round; before, ten are",
        "DefaultMessageStore.CleanCommitLogService.deleteExpiredFiles, 5.0.0",
    )
    corrects_batch_queues: bool = _get(
        "the minimum offset of batch queues is corrected at intervals",
        "DefaultMessageStore.CorrectLogicOffsetService, 5.0.0",
    )

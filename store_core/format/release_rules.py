# SPDX-License-Identifier: Apache-2.0
"""The differences between releases of RocketMQ, each as a named feature: a field with its meaning and source.

`store_core.format.release` defines what each release does. A feature that is not a yes or no holds the
release's value. Each names the Java method that the rule comes from, and the RocketMQ version that introduced or
changed it. They are in groups, by those who ask: records, files, queues and index; putting, dispatching, recovering,
getting and cleaning; what a broker adds.

There is one object per release, so they have no comparison: methods for all features would be most of the time that the
import of this module takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final


def has(area: str, meaning: str, source: str) -> Any:  # noqa: ANN401 -- a field of a dataclass
    """Return the field of a feature that a release either has or lacks; the default is to lack it.

    * `area`: The part of RocketMQ it belongs to.
    * `meaning`: A clause without a full stop.
    * `source`: Java method that the rule comes from, a comma, and the RocketMQ versions that have it.
    """
    return field(default=False, metadata={"area": area, "meaning": meaning, "source": source})


def value(area: str, meaning: str, source: str) -> Any:  # noqa: ANN401 -- a field of a dataclass
    """Return the field of a feature for which each release has a value; parameters as in `has`."""
    return field(metadata={"area": area, "meaning": meaning, "source": source})


_RECORDS: Final = "Records and properties"
_FILES: Final = "Files"

_record = partial(has, _RECORDS)
_file = partial(has, _FILES)
_queue = partial(has, "Consume queues and index")
_put = partial(has, "Putting")
_log = partial(has, "Log, dispatching and replicas")
_recovery = partial(has, "Recovery")
_get = partial(has, "Getting and cleaning")
_pull = partial(has, "Pulling")
_config = partial(has, "Files of the broker")
_delay = partial(has, "Delayed messages")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ReleaseRules:
    """The features of one release."""

    release: str  # its name in options
    judge: str  # the RocketMQ version whose behaviour is followed and tested against

    # ---- records and properties
    splits_properties_at_first_separator: bool = _record(
        "a property's value may hold the byte 1; before, such a property is lost, wholly or from that byte on",
        "MessageDecoder.string2messageProperties, 4.9.1",
    )
    decoded_properties_capacity: int = value(
        _RECORDS,
        "buckets of the map that a properties string is parsed into; the order of rewritten properties depends on it",
        "MessageDecoder.string2messageProperties, 5.1.0",
    )
    writes_null_properties: bool = _record(
        "a property without a value is written as `null`; later it is left out",
        "MessageDecoder.messageProperties2String, up to 4.7.0",
    )
    ends_properties_with_separator: bool = _record(
        "the byte 2 follows the last property, too",
        "MessageDecoder.messageProperties2String, all but 4.9.1 to 5.1.x",
    )
    stores_ipv6_hosts: bool = _record(
        "hosts may be IPv6, which two bits of `sysFlag` mark; before, four bytes of the address are kept",
        "MessageSysFlag, 4.6.0",
    )
    limits_bodies: bool = _record(
        "`maxMessageSize` limits the body, and the record to 64 KiB more; before, it limits the record",
        "MessageExtEncoder.encode, 4.9.4",
    )
    refuses_long_properties_before_append: bool = _record(
        "properties of over 32,767 bytes are refused with PROPERTIES_SIZE_EXCEEDED; before, in the append, with "
        "MESSAGE_ILLEGAL",
        "MessageExtEncoder.encode, 4.9.1",
    )
    gives_members_batch_properties: bool = _record(
        "a batch's own properties follow those of each member",
        "CommitLog.MessageExtBatchEncoder.encode, 4.8.0 to 5.3.3",
    )
    has_message_version_2: bool = _record(
        "records with a two-byte topic length are read, and written for topics of over 127 characters",
        "MessageVersion, 5.1.0",
    )
    has_property_crc: bool = _record(
        "a record may end with its checksum as a property (`enabledAppendPropCRC`, `forceVerifyPropCRC`)",
        "CommitLog.checkMessageAndReturnSize, 5.2.0",
    )
    has_inner_batches: bool = _record(
        "a record may be a batch, with properties INNER_NUM and INNER_BASE",
        "CommitLog.checkMessageAndReturnSize, 5.0.0",
    )
    cancels_timers_by_topic_and_key: bool = _record(
        "a timer is cancelled by its topic, a plus sign and its UNIQ_KEY; later, by its UNIQ_KEY alone, unless "
        "`appendTopicForTimerDeleteKey` is on",
        "TimerMessageStore.buildDeleteKey, 5.3.x",
    )
    has_timer_messages: bool = _record(
        "properties `TIMER_...` send a message to the timer",
        "HookUtils.handleScheduleMessage, 5.0.0",
    )
    has_sql_string_predicates: bool = _record(
        "SQL92 has CONTAINS, STARTSWITH and ENDSWITH; before, these are names of properties",
        "SelectorParser, 5.1.3",
    )

    # ---- files
    passes_over_directories: bool = _file(
        "a directory among a log's or queue's files is skipped when they are loaded",
        "MappedFileQueue.doLoad, 5.1.0",
    )
    ends_loading_at_odd_file: bool = _file(
        "a file of the wrong size ends the list of files that are loaded; later the store is refused",
        "MappedFileQueue.load, up to 4.4.0",
    )
    deletes_empty_last_file: bool = _file(
        "an empty last file is deleted when files are loaded", "MappedFileQueue.doLoad, 5.1.3"
    )
    group_commit_attempts: int = value(
        _FILES,
        "how often a group commit flushes before a put times out",
        "CommitLog.GroupCommitService.doCommit, 5.2.0",
    )
    group_commit_pause_ms: int = value(
        _FILES,
        "ms between these attempts",
        "CommitLog.GroupCommitService.doCommit, 5.2.0",
    )
    notes_process_in_abort_file: bool = _file(
        "`abort` holds the broker's process id, and `abort.bak` what `abort` held before",
        "DefaultMessageStore.createTempFile, 5.0.0",
    )

    # ---- consume queues and index
    has_batch_queues: bool = _queue(
        "topics with `queue.type=BatchCQ` have queues in `batchconsumequeue`", "ConsumeQueueStore.load, 5.0.0"
    )
    has_light_queues: bool = _queue(
        "records may name further queues in property INNER_MULTI_DISPATCH",
        "ConsumeQueue.multiDispatchLmqQueue, 4.9.3",
    )
    keeps_light_queues_from_system_topics: bool = _queue(
        "that property is ignored for retry topics, system topics and delayed messages",
        "MultiDispatchUtils.isNeedHandleMultiDispatch, 5.x",
    )
    passes_over_light_names_with_slash: bool = _queue(
        "a name with a `/` among those further queues is skipped", "ConsumeQueue.multiDispatchLmqQueue, 5.x"
    )
    covers_log_to_record_end: bool = _queue(
        "a queue's last unit covers the log to the end of its record; before, to its start",
        "ConsumeQueue.putMessagePositionInfo, 4.5.0",
    )
    resets_queue_without_files: bool = _queue(
        "a queue without files begins at 0 again when minimum offsets are corrected; before, it keeps its minimum",
        "ConsumeQueue.correctMinOffset, 5.5.1",
    )
    halves_queue_for_min_offset: bool = _queue(
        "a queue's first unit in the log is found by binary search in the first file; before, by reading all its units",
        "ConsumeQueue.correctMinOffset, 5.x",
    )
    searches_time_by_boundary: bool = _queue(
        "an offset is searched by store times of files and units, for the lower or the upper boundary",
        "ConsumeQueue.getOffsetInQueueByTime, 5.1.1",
    )
    keeps_found_offset_in_queue: bool = _queue(
        "an offset found by time lies between the queue's bounds",
        "ConsumeQueueStore.getOffsetInQueueByTime, 5.x",
    )
    checks_record_fits_buffer: bool = _queue(
        "a size that exceeds the bytes left is refused first, even that of a blank record",
        "CommitLog.checkMessageAndReturnSize, 5.3.2",
    )
    refuses_negative_size: bool = _queue(
        "a negative size is refused first, even that of a blank record", "CommitLog.checkMessageAndReturnSize, 5.5.1"
    )
    checks_dup_info: bool = _queue(
        "with `duplicationEnable` property DUP_INFO must have two parts", "CommitLog.checkMessageAndReturnSize, 5.0.0"
    )
    counts_hash_slots_in_use: bool = _queue(
        "an index file's `hashSlotCount` counts slots in use; before, messages", "IndexFile.putKey, 4.7.1"
    )
    indexes_tags: bool = _queue(
        "the index has an entry for a message's tags, too, after those for its keys: `topic#T#TAGS`",
        "IndexService.buildIndex, 5.4.0",
    )
    refuses_directory_in_index: bool = _queue(
        "a directory among index files makes loading the store fail", "IndexService.load, 5.x"
    )
    writes_header_of_unused_index: bool = _queue(
        "an index file that nothing was put into has a header when the store is closed", "IndexService.shutdown, 5.x"
    )

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
        "TopicValidator.validateTopic, 5.3.4",
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
        "the file from which the log is checked must begin with a sound record; before, its name and its first store "
        "time suffice",
        "CommitLog.isMappedFileMatchedRecover, 5.3.4",
    )
    limits_files_to_recover: bool = _recovery(
        "that file is one of the last `commitLogRecoverMaxNum`; before, it may be any",
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
        "CommitLog.recoverNormally, 5.3.4",
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

    # ---- pulling
    rejects_pulls_on_unread_slave: bool = _pull(
        "a slave without `slaveReadEnable` rejects pulls unread", "PullMessageProcessor.rejectRequest, 5.x"
    )
    commits_only_with_result: bool = _pull(
        "a pull that the store can't answer commits no offset", "PullMessageProcessor.processRequest, 5.x"
    )
    commits_offsets_on_slave: bool = _pull(
        "a slave keeps the offsets that pulls commit", "PullMessageProcessor.processRequest, 5.x"
    )
    keeps_pull_offsets: bool = _pull(
        "the broker keeps the offset of each pull", "ConsumerOffsetManager.commitPullOffset, 5.1.0"
    )
    has_server_side_reset: bool = _pull(
        "the broker may send a group to another offset (`useServerSideResetOffset`)",
        "ConsumerOffsetManager.queryThenEraseResetOffset, 5.1.0",
    )
    answers_with_sys_flags: bool = _pull(
        "an answer has the flags of topic and group", "PullMessageProcessor.processRequest, 5.0.0"
    )
    sends_consumers_back_to_master: bool = _pull(
        "a slave sends consumers that keep up back to the master", "DefaultPullMessageResultHandler.handle, 5.x"
    )
    stores_offset_moved_event: bool = _pull(
        "a message in topic OFFSET_MOVED_EVENT reports that a consumer was sent to another offset",
        "PullMessageProcessor.generateOffsetMovedEvent, up to 4.9.x",
    )
    reports_forbidden_type: bool = _pull(
        "a refusal says what is forbidden (`forbiddenType`)", "PullMessageProcessor.processRequest, 5.0.0"
    )
    checks_group_names: bool = _pull(
        "no group is created automatically if its name is too long or has odd characters",
        "SubscriptionGroupManager.findSubscriptionGroupConfig, 5.x",
    )
    reports_wrong_queue_as_parameter: bool = _pull(
        "a pull from a queue that does not exist is answered with INVALID_PARAMETER; before, SYSTEM_ERROR",
        "PullMessageProcessor.processRequest, 5.3.2",
    )
    filters_retries_by_tag: bool = _pull(
        "messages of retry topics are filtered by tag, too", "ExpressionForRetryMessageFilter.isMatchedByCommitLog, 5.x"
    )
    cuts_group_from_retry_topic: bool = _pull(
        "a retry topic may be called `%RETRY%group+topic`", "KeyBuilder.parseGroup, 5.2.0"
    )

    # ---- files in config/
    versions_consumer_offsets: bool = _config(
        "`consumerOffset.json` has a version, and the topics of each group", "ConsumerOffsetManager.encode, 5.0.0"
    )
    writes_pull_offsets: bool = _config(
        "`consumerOffset.json` has the offsets of pulls, too, which no broker reads again",
        "ConsumerOffsetManager.getPullOffsetTable, 5.5.0",
    )
    breaks_lines_at_queue_ids: bool = _config(
        "each number in a table of offsets, and each member of a set, has a line of its own",
        "RemotingSerializable.toJson, 5.4.0",
    )
    escapes_few_characters: bool = _config(
        "of control characters only those below U+0020 are escaped, in lower case", "RemotingSerializable.toJson, 5.4.0"
    )
    breaks_empty_tables: bool = _config("an empty table takes two lines", "RemotingSerializable.toJson, 5.4.0")
    reads_config_by_fastjson_2: bool = _config(
        "files are read by fastjson 2: NUL bytes are blanks, other control characters are not, names need quotes",
        "RemotingSerializable.fromJson, 5.4.0",
    )
    reads_config_strictly: bool = _config(
        "files may have block comments anywhere, and no comma after their last member",
        "RemotingSerializable.fromJson, 5.5.0",
    )
    versions_delay_offsets: bool = _config("`delayOffset.json` has a version", "ScheduleMessageService.encode, 5.0.0")
    has_state_version: bool = _config("a version includes the state of the controller", "DataVersion, 5.0.0")
    has_topic_attributes: bool = _config("topics have attributes", "TopicConfig, 5.0.0")
    has_group_attributes: bool = _config(
        "groups have attributes, a retry policy, a timeout and flags", "SubscriptionGroupConfig, 5.0.0"
    )
    has_forbidden_table: bool = _config(
        "`subscriptionGroup.json` says which topics are forbidden to a group", "SubscriptionGroupManager, 5.0.0"
    )

    keeps_replaced_filters: bool = _config(
        "`consumerFilter.json` and bit maps keep an expression whose newer version does not compile, without its group",
        "ConsumerFilterManager.SubscriptionFilterHandler.register, 5.5.1",
    )

    # ---- delayed messages
    corrects_delay_offsets: bool = _delay(
        "offsets of delay levels are brought within their queues when they are loaded",
        "ScheduleMessageService.correctDelayOffset, 4.9.x",
    )
    goes_back_to_last_delayed: bool = _delay(
        "a level past the end of its queue goes back to the end; before, it stays there",
        "ScheduleMessageService.DeliverDelayedMessageTimerTask.executeOnTimeup, 4.9.x",
    )
    notes_delay_offset_while_waiting: bool = _delay(
        "the offset of a level is kept when its next message is not due",
        "ScheduleMessageService.DeliverDelayedMessageTimerTask.executeOnTimeup, all but 4.9.x",
    )
    notes_delay_offset_after_each: bool = _delay(
        "the offset of a level is kept after each delivery; before, where a round ends",
        "ScheduleMessageService.DeliverDelayedMessageTimerTask.executeOnTimeup, 4.9.x",
    )
    retries_delivery_soon: bool = _delay(
        "a delivery that failed is tried again after 100 ms; before, after ten seconds",
        "ScheduleMessageService.DeliverDelayedMessageTimerTask.executeOnTimeup, 4.9.x",
    )
    drops_delayed_half_messages: bool = _delay(
        "a delayed half message of a transaction is dropped",
        "ScheduleMessageService.DeliverDelayedMessageTimerTask.executeOnTimeup, 4.9.x",
    )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.release!r})"

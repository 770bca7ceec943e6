# SPDX-License-Identifier: Apache-2.0
"""Features in which releases differ in records, files, queues and index."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from store_core.format.releases.release_field import has, value

__all__ = ["RecordFeatures"]

_RECORDS: Final = "Records and properties"
_FILES: Final = "Files"
_QUEUES: Final = "Consume queues and index"

_record = partial(has, _RECORDS)
_file = partial(has, _FILES)
_queue = partial(has, _QUEUES)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class RecordFeatures:
    """A release's features of records, files, consume queues and index."""

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
        "CommitLog.MessageExtBatchEncoder.encode, 4.8.0",
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

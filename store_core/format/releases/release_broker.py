# SPDX-License-Identifier: Apache-2.0
"""Features in which releases differ in what a broker adds to a store."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from store_core.format.releases.release_field import has

__all__ = ["BrokerFeatures"]

_PULL: Final = "Pulling"
_CONFIG: Final = "Files of the broker"
_DELAY: Final = "Delayed messages"

_pull = partial(has, _PULL)
_config = partial(has, _CONFIG)
_delay = partial(has, _DELAY)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class BrokerFeatures:
    """The features of a release's broker."""

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

# SPDX-License-Identifier: Apache-2.0
"""The views and their columns: the one table for Arrow schemas, DataFrame schemas, options and ``docs/views.md``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn

import pyarrow as pa

from store_core.errors import InvalidOptionError
from store_core.format.columns import MAP_TYPE, TIMESTAMP_TYPE, Column, arrow_schema
from store_core.format.words import did_you_mean
from store_core.views.view_names import ALWAYS, VIEW_PLANS

MESSAGES: Final = "messages"
"""The view of the log's records; `store_core.format.columns` has its columns."""


@dataclass(frozen=True, slots=True)
class View:
    """One view of a store."""

    name: str
    doc: str  # what a row is, in Markdown
    columns: tuple[Column, ...]
    hint: str = "select rows by the view's columns"  # what to do in place of an option that it does not take

    @property
    def own_options(self) -> tuple[str, ...]:
        """Options that it takes besides `ALWAYS`, by their names in Python."""
        return VIEW_PLANS[self.name].own_options

    @property
    def options(self) -> tuple[str, ...]:
        """All options that it takes."""
        return (*self.own_options, *ALWAYS)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(column.name for column in self.columns)

    def schema(self, names: tuple[str, ...]) -> pa.Schema:
        """Return the Arrow schema of some columns, by their canonical names."""
        return arrow_schema(names, columns=self.columns)


def _sure(name: str, kind: pa.DataType, doc: str) -> Column:
    return Column(name, kind, nullable=False, default=True, doc=doc)


def _maybe(name: str, kind: pa.DataType, doc: str) -> Column:
    return Column(name, kind, nullable=True, default=True, doc=doc)


_TEXT: Final = pa.string()
_INT: Final = pa.int32()
_LONG: Final = pa.int64()
_FLAG: Final = pa.bool_()

_CONSUME_QUEUE: Final = View(
    "consumequeue",
    "A row is a unit of a consume queue: what RocketMQ follows from a queue offset to a record.",
    (
        _sure("topic", _TEXT, "name of the queue's directory"),
        _sure("queue_id", _INT, "queue of the topic"),
        _sure("queue_offset", _LONG, "by the unit's place; in a batch queue the offset of the batch's first message"),
        _sure("physical_offset", _LONG, "position of the record in the log"),
        _sure("store_size", _INT, "bytes of the record"),
        _sure(
            "tags_code",
            _LONG,
            "as stored: the tags' Java hash, the deliver time of a delayed message in ms, or, up to -2147483649, an "
            "address in `consumequeue_ext`",
        ),
        _sure("kind", _TEXT, "`simple` or `batch`, as files; `rocksdb`, in a RocksDB (`storeType=defaultRocksDB`)"),
        _sure("batch_num", _INT, "messages that the unit stands for: 1 in a simple queue, 0 for a filler"),
        _maybe(
            "store_timestamp",
            TIMESTAMP_TYPE,
            "store time of the record; null in queues of kind simple, which have none",
        ),
        _sure("is_filler", _FLAG, "whether the unit only fills the queue's first file up to its first message"),
        _maybe("segment", _TEXT, "name of the queue's file; null in a RocksDB"),
    ),
    "units hold neither tags nor keys; tags_code is the tags' hash",
)

_INDEX: Final = View(
    "index",
    "A row is an entry of an index file: one key of one message, as a hash.",
    (
        _sure("key_hash", _INT, "absolute Java hash of `topic#key`"),
        _sure("physical_offset", _LONG, "position of the record in the log"),
        _maybe("store_timestamp", TIMESTAMP_TYPE, "store time of the record, rounded down to seconds after the file's"),
        _sure("slot", _INT, "slot whose chain the entry is in"),
        _sure("previous", _INT, "number of the entry before it in the chain; 0 ends the chain"),
        _sure("number", _INT, "number of the entry in its file, from 1"),
        _sure("segment", _TEXT, "name of the index file"),
    ),
    "entries hold hashes, not names: give topic and key together, and compare the messages' keys, as different keys "
    "can share a hash",
)

_SEGMENTS: Final = View(
    "segments",
    "A row is a file of the commit log. `data_end`, `stop_reason`, `last_store_timestamp` and `messages` follow the "
    "chain of the records' lengths; the other columns read no more than a file's first record.",
    (
        _sure("segment", _TEXT, "name of the file"),
        _sure("path", _TEXT, "its absolute path"),
        _sure("start_offset", _LONG, "physical offset of its first byte, from its name"),
        _sure("file_size", _LONG, "bytes of the file"),
        _sure("data_end", _LONG, "physical offset one past the last record that follows its first one without a break"),
        _sure(
            "stop_reason",
            _TEXT,
            "why no record follows there: `END_OF_FILE` and `UNWRITTEN` are regular; `TORN`, `BAD_MAGIC`, `BAD_SIZE`, "
            "`SIZE_MISMATCH`, `WRONG_OFFSET` and `BAD_CRC` are damage, and in a DLedger log `WRONG_INDEX` and "
            "`EARLIER_TERM`",
        ),
        _maybe("first_store_timestamp", TIMESTAMP_TYPE, "store time of the first record; null without one"),
        _maybe("last_store_timestamp", TIMESTAMP_TYPE, "store time of the last record before `data_end`"),
        _sure("messages", _LONG, "records before `data_end`"),
        _sure("is_last", _FLAG, "whether the log ends in this file; files after it are preallocated"),
    ),
    "the view messages reads the records",
)

_TOPICS: Final = View(
    "topics",
    "A row is a queue of a topic, or a topic of `config/topics.json` that has no queue. Messages at or past the log's "
    "end are not counted, since a broker drops them when it loads the store, unless the store is on another machine; "
    "of an open one they are newer than what is shown. To check this, the last records of some queues are read; only "
    "if one is missing is the last file searched for the end of the log. The two store times are those of the first "
    "and the last record of a queue.",
    (
        _sure("topic", _TEXT, "name of the topic"),
        _maybe("queue_id", _INT, "null for a topic that has no queue"),
        _maybe("min_offset", _LONG, "queue offset of the first message that the log still has"),
        _maybe("max_offset", _LONG, "queue offset after the last message"),
        _maybe("messages", _LONG, "messages between the two"),
        _maybe("oldest_store_timestamp", TIMESTAMP_TYPE, "store time at `min_offset`; null if the log has no record"),
        _maybe("newest_store_timestamp", TIMESTAMP_TYPE, "store time of the last message, likewise"),
        _maybe(
            "read_queue_nums", _INT, "queues that consumers see; null, as the next two, for a topic not in the file"
        ),
        _maybe("write_queue_nums", _INT, "queues that producers see"),
        _maybe("perm", _INT, "bits: 1 inherit, 2 write, 4 read, 8 priority"),
        _maybe("attributes", MAP_TYPE, "such as `queue.type`; null in files of 4.x, which have none"),
        _maybe("in_config", _FLAG, "whether `config/topics.json` has the topic; null if that file is missing or empty"),
        _sure("in_queues", _FLAG, "whether the topic has queues"),
        _maybe(
            "config_file",
            _TEXT,
            "the file that has the topic's configuration; its `.bak`, which is older, if a broker would read that",
        ),
    ),
)

_CONFIG_FILE: Final = _sure(
    "config_file",
    _TEXT,
    "the file that says so; its `.bak`, which is older, if a broker would read that",
)

_CONSUMER_OFFSETS: Final = View(
    "consumer_offsets",
    "A row is what a consumer group has committed for a queue, in `config/consumerOffset.json`, beside the queue. "
    "`lmqConsumerOffset.json`, with light message queues, is not read. With `asOf` queues are as they were then, and "
    "committed offsets as they are now: older ones are nowhere.",
    (
        _sure("consumer_group", _TEXT, "name of the group"),
        _sure("topic", _TEXT, "name of the topic"),
        _sure("queue_id", _INT, "queue of the topic"),
        _sure(
            "committed_offset",
            _LONG,
            "queue offset of the next message to consume; one below 0 counts as 0, since a broker then answers that "
            "nothing is committed, and the consumer starts anew",
        ),
        _maybe("min_offset", _LONG, "as in the view `topics`; null without such a queue"),
        _maybe("max_offset", _LONG, "as in the view `topics`; null without such a queue"),
        _maybe(
            "behind",
            _LONG,
            "messages that are there and not consumed; null if unknown: without such a queue, or if the offset is "
            "beyond its end. With `asOf`, what was committed since then counts as consumed",
        ),
        _sure(
            "state",
            _TEXT,
            "`ok`; `below_min`: messages were deleted before they were consumed; `beyond_end`: the queue is shorter, "
            "as after a loss, also with `asOf` as it is now; `no_queue`",
        ),
        _CONFIG_FILE,
    ),
)

_CHECKPOINT: Final = View(
    "checkpoint",
    "A row is a field of the file `checkpoint`: up to where log, queues and index were on disk. Releases up to 4.9 "
    "have the first three, 5.3 and 5.4 all but the last: option `release` decides which are shown.",
    (
        _sure("name", _TEXT, "name of the field, as in docs/FORMAT.md"),
        _sure("value", _LONG, "store time, ms, or physical offset; times are 1 while a job publishes, or if it died"),
    ),
)

_DELAY_OFFSETS: Final = View(
    "delay_offsets",
    "A row is a delay level in `config/delayOffset.json`.",
    (
        _sure("delay_level", _INT, "the level; its messages are in queue level - 1 of `SCHEDULE_TOPIC_XXXX`"),
        _sure("offset", _LONG, "queue offset of the next message to deliver"),
        _CONFIG_FILE,
    ),
)

_SUBSCRIPTION_GROUPS: Final = View(
    "subscription_groups",
    "A row is a consumer group in `config/subscriptionGroup.json`. A field that the file lacks is null.",
    (
        _sure("group_name", _TEXT, "name of the group"),
        _maybe("consume_enable", _FLAG, "whether the group may consume"),
        _maybe("consume_from_min_enable", _FLAG, "whether a new group may start at a queue's first message"),
        _maybe("consume_broadcast_enable", _FLAG, "whether it may consume in broadcast mode"),
        _maybe("consume_message_orderly", _FLAG, "whether it consumes in order (5.x)"),
        _maybe("retry_queue_nums", _INT, "queues of its retry topic"),
        _maybe("retry_max_times", _INT, "how often a message is retried"),
        _maybe("broker_id", _LONG, "broker that its consumers are sent to"),
        _maybe("which_broker_when_consume_slowly", _LONG, "the one for messages no longer in memory"),
        _maybe("notify_consumer_ids_changed_enable", _FLAG, "whether its consumers are told of each other"),
        _maybe("group_sys_flag", _INT, "bits (5.x)"),
        _maybe("consume_timeout_minute", _INT, "minutes (5.x)"),
        _maybe("attributes", MAP_TYPE, "attributes (5.x)"),
        _CONFIG_FILE,
    ),
)

_TIMER_LOG: Final = View(
    "timerlog",
    "A row is a unit of `timerlog/`: a timer of RocketMQ 5, whose message is in the topic `rmq_sys_wheel_timer` until "
    "it is due. Timers in a RocksDB (`timerRocksDBEnable`) are in the view `rocksdbstore`.",
    (
        _maybe("due_timestamp", TIMESTAMP_TYPE, "time of its slot: when it is delivered, or put again if rolled"),
        _maybe(
            "is_pending",
            _FLAG,
            "whether its slot was still to be read when the broker last wrote `config/timercheck`, and no other timer "
            "cancels it; null without that file",
        ),
        _maybe(
            "is_cancelled",
            _FLAG,
            "whether a pending timer of the same time cancels it; false where the log has not both messages, and where "
            "the slot was read; null like `is_pending`",
        ),
        _sure("is_rolled", _FLAG, "whether it is put again then, because it is due later than the wheel reaches"),
        _sure("is_cancelling", _FLAG, "whether it cancels the timer that its property TIMER_DEL_UNIQKEY names"),
        _sure("physical_offset", _LONG, "position of its record in the log"),
        _sure("store_size", _INT, "bytes of the record"),
        _sure("topic_hash", _INT, "Java hash of the topic that it will be delivered to"),
        _maybe("write_timestamp", TIMESTAMP_TYPE, "when it was put, rounded to the wheel's precision"),
        _sure("delay", _INT, "ms from then until it is due"),
        _sure("position", _LONG, "of the unit in the log of timers"),
        _sure("previous_position", _LONG, "of the unit before it in its slot; -1 for the first"),
        _sure("segment", _TEXT, "name of the file"),
    ),
)

_TIMER_WHEEL: Final = View(
    "timerwheel",
    "A row is a slot of `timerwheel` that was ever used: all timers of one time. With `timerWheelSnapshotFlush` the "
    "wheel is the last `timerwheel.NUMBER`. `units`, `state` and the times read `timerlog/`, too.",
    (
        _sure("slot", _INT, "number of the slot"),
        _maybe("due_timestamp", TIMESTAMP_TYPE, "its time"),
        _maybe("is_pending", _FLAG, "as in the view `timerlog`"),
        _sure("timers", _INT, "timers as the slot counts them, less those that cancel"),
        _maybe("units", _LONG, "units of `timerlog/` that it leads to; null if it leads nowhere"),
        _sure(
            "state",
            _TEXT,
            "`ok`; `not_in_log`: its last unit is not there, as is usual where it is not pending; `wrong_time`: that "
            "unit is of another time; `broken`: the chain does not lead to its first unit; `wrong_count`",
        ),
        _sure("first_position", _LONG, "of its first unit in the log of timers"),
        _sure("last_position", _LONG, "of its last one"),
    ),
)

_ROCKSDB_STORE: Final = View(
    "rocksdbstore",
    "A row is an entry of `rocksdbstore/`, where RocketMQ 5.4 and later may keep the key index, pending timers and "
    "open half messages. Needs the extra `rocksdb`. What a kind of entry does not have is null.",
    (
        _sure(
            "kind",
            _TEXT,
            "`index` (`indexRocksDBEnable`); `timer` (`timerRocksDBEnable`); `half`, of a transaction that is neither "
            "committed nor rolled back (`transRocksDBEnable`)",
        ),
        _sure("physical_offset", _LONG, "position of the record in the log"),
        _maybe("topic", _TEXT, "of an index entry; of a half message the topic that it will be in"),
        _maybe("key_type", _TEXT, "of an index entry: `KEYS`, `TAGS` or `UNIQ_KEY`"),
        _maybe("key", _TEXT, "of an index entry: the key, or all tags; null if it is for the UNIQ_KEY alone"),
        _sure("unique_key", _TEXT, "UNIQ_KEY of the message; of a half message the id of its transaction"),
        _maybe("due_timestamp", TIMESTAMP_TYPE, "when a timer is due"),
        _maybe("store_timestamp", TIMESTAMP_TYPE, "of an index entry: store time of the record"),
        _maybe("store_size", _INT, "of a timer and of a half message: bytes of the record"),
        _maybe("check_times", _INT, "of a half message: how often its producer was asked for the outcome"),
    ),
)

VIEWS: Final = {
    view.name: view
    for view in (
        _CONSUME_QUEUE,
        _INDEX,
        _SEGMENTS,
        _TOPICS,
        _CONSUMER_OFFSETS,
        _SUBSCRIPTION_GROUPS,
        _DELAY_OFFSETS,
        _CHECKPOINT,
        _TIMER_LOG,
        _TIMER_WHEEL,
        _ROCKSDB_STORE,
    )
}
"""All views but `MESSAGES`, by name."""


def is_messages(name: object) -> bool:
    """Return whether a view is that of the log's records, whose columns and options are elsewhere."""
    return isinstance(name, str) and name.strip().lower() == MESSAGES


def find_view(name: object) -> View:
    """Return a view by its name, in any case."""
    if not isinstance(name, str):
        _refuse(name, "")
    view = VIEWS.get(name.strip().lower())
    if view is None:
        _refuse(name, did_you_mean(name.strip(), (MESSAGES, *VIEWS)))
    return view


def _refuse(name: object, hint: str) -> NoReturn:
    known = hint or f"the views are {', '.join((MESSAGES, *VIEWS))}"
    raise InvalidOptionError(f"unknown view {name!r}; {known}")

# SPDX-License-Identifier: Apache-2.0
"""What a consumer gets: the units of a queue, the records that they lead to, and the limits of a get.

RocketMQ: ``DefaultMessageStore.getMessage``; 4.x and 5.x test the limits in different order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from store_core.errors import InvalidOptionError
from store_core.files.machine import physical_memory
from store_core.format.filter.message_selector import MessageFilter, MessageSelector
from store_core.format.java import INT_BITS, wrap
from store_core.format.layout import BLANK_SIZE, MIN_RECORD_SIZE, MagicCode
from store_core.format.properties import PropertyParser
from store_core.format.record.decode import decode_message
from store_core.format.record.scan import read_frame, store_timestamp
from store_core.format.release import DEFAULT_RELEASE
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.consume_queue.consume_queue_ext import ConsumeQueueExt, CqExtUnit, is_ext_address
from store_core.queue.consume_queue.queue_search import BoundaryType, LogTimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.format.message import MessageExt
    from store_core.queue.consume_queue.consume_queue import ConsumeQueue
    from store_core.queue.consume_queue_unit import FileUnits, UnitArray
    from store_core.store.message_store_config import MessageStoreConfig
    from store_core.store.store_life import StoreServices, StoreSetup

    AnyQueue: TypeAlias = ConsumeQueue | BatchConsumeQueue


_MAGICS: Final = frozenset((MagicCode.MESSAGE_V1.value, MagicCode.MESSAGE_V2.value))


class LogLookup:
    """Reads records of a commit log at given offsets, returning only what really is a record there.

    RocketMQ takes whatever bytes a unit points to for its record. With files missing, or a unit left over from a
    truncation, it serves a consumer foreign bytes as FOUND; offset 0 even means the oldest remaining file. Here an
    offset outside the log, or without a record of exactly the given size, has no record.
    """

    def __init__(self, queue: MappedFileQueue) -> None:
        self._queue = queue

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest byte; -1 if there is no file."""
        return self._queue.min_offset

    @property
    def max_offset(self) -> int:
        """Physical offset one past the last byte visible to readers."""
        return self._queue.max_offset

    def roll_next_file(self, physical_offset: int) -> int:
        """Return the start of the file after the one that holds an offset (``CommitLog.rollNextFile``)."""
        return physical_offset + self._queue.file_size - physical_offset % self._queue.file_size

    def get_message(self, physical_offset: int, size: int) -> memoryview | None:
        """Return a view of a record (``CommitLog.getMessage``); None if there is none of that size."""
        record = self._select(physical_offset, size) if size >= MIN_RECORD_SIZE else None
        if record is None:
            return None
        found, magic = read_frame(record, 0)
        return record if found == len(record) and magic in _MAGICS else None

    def look_message_by_offset(self, physical_offset: int) -> memoryview | None:
        """Return a view of the record at an offset (``DefaultMessageStore.lookMessageByOffset``), or None."""
        start = self._select(physical_offset, BLANK_SIZE)
        if start is None:
            return None
        size, _ = read_frame(start, 0)
        return self.get_message(physical_offset, size)

    def pickup_store_timestamp(self, physical_offset: int, size: int) -> int:
        """Read the store time of a record, ms; -1 if it is not there (``CommitLog.pickupStoreTimestamp``)."""
        record = self.get_message(physical_offset, size)
        return -1 if record is None else store_timestamp(record, 0)

    def _select(self, physical_offset: int, size: int) -> memoryview | None:
        if physical_offset < 0:
            return None
        file = self._queue.find_mapped_file_by_offset(physical_offset)
        return file.select(physical_offset - file.file_from_offset, size) if file is not None else None


_BLOCK: Final = 40
"""Units read, and converted to Python numbers, at a time; most gets need no more: 32, and the one at which they end."""


class QueueUnit(NamedTuple):
    """One unit of a queue, with its extension resolved."""

    queue_offset: int
    physical_offset: int
    store_size: int
    tags_code: int | None  # None if the unit points to a lost extension; then no filter can decide
    batch_size: int = 1  # messages in the record
    ext: CqExtUnit | None = None


def queue_units(queue: AnyQueue, queue_offset: int) -> Iterator[QueueUnit] | None:
    """Yield the units from an offset to the end of its file; None if there is no unit at the offset.

    In a batch queue the first unit is the one that contains the offset, so it may begin before it.
    """
    units = queue.get_index_buffer(queue_offset)
    if units is None:
        return None
    if isinstance(queue, BatchConsumeQueue):
        return _batch_units(units)
    return _plain_units(queue, units, queue_offset)


def _plain_units(queue: ConsumeQueue, units: UnitArray | FileUnits, first: int) -> Iterator[QueueUnit]:
    for begin in range(0, len(units), _BLOCK):
        for index, (physical_offset, size, tags_code) in enumerate(
            units[begin : begin + _BLOCK].tolist(), first + begin
        ):
            if is_ext_address(tags_code):
                ext = queue.ext.get(tags_code) if isinstance(queue.ext, ConsumeQueueExt) else None
                yield QueueUnit(index, physical_offset, size, ext.tags_code if ext else None, 1, ext)
            else:
                yield QueueUnit(index, physical_offset, size, tags_code)


def _batch_units(units: UnitArray | FileUnits) -> Iterator[QueueUnit]:
    for begin in range(0, len(units), _BLOCK):
        for physical_offset, size, tags_code, _, base, batch_size, _, _ in units[begin : begin + _BLOCK].tolist():
            yield QueueUnit(base, physical_offset, size, tags_code, batch_size)


class GetMessageStatus(Enum):
    """Outcome of a get (RocketMQ: ``GetMessageStatus``)."""

    FOUND = "messages are there"
    NO_MATCHED_MESSAGE = "the filter matches none of the messages examined"
    MESSAGE_WAS_REMOVING = "the queue has units, but the log has no records for them"
    OFFSET_FOUND_NULL = "the queue has no unit at an offset between its first and last"
    OFFSET_OVERFLOW_BADLY = "the offset is beyond the queue's end"
    OFFSET_OVERFLOW_ONE = "the offset is the queue's end: no message yet"
    OFFSET_TOO_SMALL = "the offset is before the queue's first"
    NO_MATCHED_LOGIC_QUEUE = "no such queue"
    NO_MESSAGE_IN_QUEUE = "the queue is empty"
    OFFSET_RESET = "the group's offset was reset on the server"


def _decoded(records: Sequence[memoryview], release: str) -> Iterator[MessageExt]:
    parser = PropertyParser.of_release(release)
    for record in records:
        yield decode_message(record, 0, None, parser=parser, verify_crc=False)


@dataclass(slots=True)
class GetMessageResult:
    """Messages of a queue, as a consumer gets them (RocketMQ: ``GetMessageResult``).

    Attributes
    ----------
    status : GetMessageStatus
    next_begin_offset : int
        Where the next get should begin.
    min_offset, max_offset : int
        Bounds of the queue at the time of the get.
    message_buffers : list of memoryview
        Whole records as the log holds them, not copied; they stay valid when the segment is deleted.
    message_queue_offsets : list of int
        Their offsets in the queue; for an inner batch, the first.
    message_count : int
        Messages in the records; an inner batch has several.
    buffer_total_size : int
        Bytes of the records.
    suggest_pulling_from_slave : bool
        Whether the consumer is so far behind that its messages have likely left the page cache.
    filtered_count : int
        Units and records that the filter left out.
    """

    status: GetMessageStatus
    next_begin_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    message_buffers: list[memoryview] = field(default_factory=list)
    message_queue_offsets: list[int] = field(default_factory=list)
    message_count: int = 0
    buffer_total_size: int = 0
    suggest_pulling_from_slave: bool = False
    filtered_count: int = 0
    release: str = DEFAULT_RELEASE

    @property
    def messages(self) -> list[MessageExt]:
        """The records decoded; as in a broker, bodies are not checked."""
        return list(_decoded(self.message_buffers, self.release))

    def add(self, record: memoryview, queue_offset: int, messages: int) -> None:
        """Add a record."""
        self.message_buffers.append(record)
        self.message_queue_offsets.append(queue_offset)
        self.message_count += messages
        self.buffer_total_size += len(record)


@dataclass(slots=True)
class QueryMessageResult:
    """Messages found by key (RocketMQ: ``QueryMessageResult``).

    The index holds only hashes, so messages with other keys may be among them; clients filter these out.

    Attributes
    ----------
    message_buffers : list of memoryview
        Whole records, in log order.
    index_last_update_timestamp, index_last_update_physical_offset : int
        How far the index extended; 0 if nothing was found.
    """

    message_buffers: list[memoryview] = field(default_factory=list)
    index_last_update_timestamp: int = 0
    index_last_update_physical_offset: int = 0
    release: str = DEFAULT_RELEASE

    @property
    def messages(self) -> list[MessageExt]:
        """The records decoded; bodies are not checked."""
        return list(_decoded(self.message_buffers, self.release))

    @property
    def buffer_total_size(self) -> int:
        """Bytes of the records."""
        return sum(map(len, self.message_buffers))


_LARGEST_TOTAL: Final = 128 * 1024 * 1024
"""Maximum bytes returned by one get (``DefaultMessageStore.MAX_PULL_MSG_SIZE``)."""
_NOWHERE: Final = -(1 << 63)


class MessageGetter:
    """Gets messages of queues, within the limits of a configuration.

    * `physical_memory`: Memory of the machine, bytes: what lies further back in the log than 40 % of it
      (``accessMessageInMemoryMaxRatio``) counts as being on disk.
    """

    def __init__(self, config: MessageStoreConfig, log: LogLookup, physical_memory: int) -> None:
        self.config = config
        self.log = log
        self._memory = int(physical_memory * (config.access_message_in_memory_max_ratio / 100))

    def get(
        self,
        queue: AnyQueue,
        offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult:
        """Get messages of a queue starting at an offset."""
        smallest, largest = queue.min_offset_in_queue, queue.max_offset_in_queue
        status, following = self._outside(offset, smallest, largest)
        if status is not None:
            return self._nothing(status, offset, following, smallest, largest)
        return _Get(self, queue, offset, max_msg_nums, message_filter).result(smallest, largest)

    def nothing_in(self, offset: int, smallest: int) -> GetMessageResult:
        """Return the result for an unknown queue: RocketMQ creates an empty one, whatever the id and offset."""
        return self._nothing(GetMessageStatus.NO_MESSAGE_IN_QUEUE, offset, 0, smallest, 0)

    def _outside(self, offset: int, smallest: int, largest: int) -> tuple[GetMessageStatus | None, int]:
        """Return what is wrong with an offset, and where to continue."""
        if largest == 0:
            return GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0
        if offset < smallest:
            return GetMessageStatus.OFFSET_TOO_SMALL, smallest
        if offset == largest:
            return GetMessageStatus.OFFSET_OVERFLOW_ONE, offset
        if offset > largest:
            restarts = self.config.features.restarts_at_min_offset and smallest == 0
            return GetMessageStatus.OFFSET_OVERFLOW_BADLY, smallest if restarts else largest
        return None, offset

    def _nothing(
        self, status: GetMessageStatus, offset: int, following: int, smallest: int, largest: int
    ) -> GetMessageResult:
        following = self.corrected(offset, following)
        return GetMessageResult(status, following, smallest, largest, release=self.config.release)

    def corrected(self, offset: int, following: int) -> int:
        """Return the next offset, or on a slave the requested one (``nextOffsetCorrection``)."""
        is_trusted = self.config.broker_role != "SLAVE" or self.config.offset_check_in_slave
        return following if is_trusted else offset

    def is_in_memory(self, physical_offset: int, log_end: int) -> bool:
        """Guess whether a record is in the page cache (``estimateInMemByCommitOffset``)."""
        return log_end - physical_offset <= self._memory


class _Get:
    """The state of one get in progress."""

    def __init__(
        self,
        getter: MessageGetter,
        queue: AnyQueue,
        offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None,
    ) -> None:
        self._getter = getter
        self._config = config = getter.config
        self._log = getter.log
        self._features = config.features
        self._queue = queue
        self._offset = offset
        self._most = max_msg_nums
        self._filter = message_filter
        # An ``int`` of Java, in which a huge requested number of messages counts as few.
        asked = wrap(max_msg_nums * queue.unit_dtype.itemsize, INT_BITS)
        self._most_queue_bytes = max(config.max_filter_message_size, asked)
        self._log_end = self._log.max_offset
        self._resume_at = _NOWHERE
        """Start of the log's next file, while records of a deleted file are skipped."""
        self._last_physical = 0
        self._found = GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, offset, release=config.release)

    def result(self, smallest: int, largest: int) -> GetMessageResult:
        """Search the queue, file by file, until there is a message."""
        if self._most < 0 and self._features.refuses_negative_max_msg_nums:
            release = self._config.release
            raise InvalidOptionError(f"max_msg_nums must not be negative with release {release}, found {self._most}")
        found = self._found
        found.min_offset, found.max_offset = smallest, largest
        for _ in range(self._config.travel_cq_file_num_when_get_message if self._features.travels_queue_files else 1):
            if found.buffer_total_size or found.next_begin_offset >= largest:
                break
            if not self._look_through_file(largest):
                break
        found.suggest_pulling_from_slave = not self._getter.is_in_memory(self._last_physical, self._log_end)
        return found

    def _look_through_file(self, largest: int) -> bool:
        found = self._found
        units = queue_units(self._queue, found.next_begin_offset)
        if units is None:
            following = self._queue.roll_next_file(found.next_begin_offset)
            found.status = GetMessageStatus.OFFSET_FOUND_NULL
            found.next_begin_offset = self._getter.corrected(found.next_begin_offset, following)
            return False
        self._resume_at = _NOWHERE  # 5.3.3 keeps nextPhyFileStartOffset for one file of the queue
        take = self._take if self._features.ends_full_get_at_any_unit else self._take_as_4
        for unit in units:
            if found.next_begin_offset >= largest or not take(unit):
                break
        return True

    def _take(self, unit: QueueUnit) -> bool:
        """Process one unit as 5.x does; return False if the get ends before it."""
        if self._is_too_far(unit) or self._is_full(unit) or self._found.buffer_total_size >= _LARGEST_TOTAL:
            return False
        self._last_physical = unit.physical_offset
        self._found.next_begin_offset = unit.queue_offset + unit.batch_size
        if unit.physical_offset >= self._resume_at:
            self._examine(unit)
        return True

    def _take_as_4(self, unit: QueueUnit) -> bool:
        """Process one unit as 4.x does: units of a deleted file are skipped even if the batch is full."""
        if self._is_too_far(unit):
            return False
        self._last_physical = unit.physical_offset
        if unit.physical_offset >= self._resume_at:
            if self._is_full(unit):
                return False
            self._examine(unit)
        self._found.next_begin_offset = unit.queue_offset + 1
        return True

    def _is_too_far(self, unit: QueueUnit) -> bool:
        return (unit.queue_offset - self._offset) * self._queue.unit_dtype.itemsize >= self._most_queue_bytes

    def _is_full(self, unit: QueueUnit) -> bool:
        """Return whether a record would exceed a limit (``isTheBatchFull``); the first never does."""
        found, config = self._found, self._config
        if not found.buffer_total_size or not found.message_count:
            return False
        if found.message_count + unit.batch_size > self._most:
            return True
        size = wrap(found.buffer_total_size + unit.store_size, INT_BITS)
        if self._features.limits_bytes_of_get and size > _LARGEST_TOTAL:
            return True
        if self._getter.is_in_memory(unit.physical_offset, self._log_end):
            most, count = config.max_transfer_bytes_on_message_in_memory, config.max_transfer_count_on_message_in_memory
        else:
            most, count = config.max_transfer_bytes_on_message_in_disk, config.max_transfer_count_on_message_in_disk
        return size > most or found.message_count > count - 1

    def _examine(self, unit: QueueUnit) -> None:
        """Add the record of a unit, unless it is filtered out or gone."""
        wanted = self._filter
        if wanted is not None and not wanted.is_matched_by_consume_queue(unit.tags_code, unit.ext):
            self._leave_out()
            return
        record = self._log.get_message(unit.physical_offset, unit.store_size)
        if record is None:
            self._note(GetMessageStatus.MESSAGE_WAS_REMOVING)
            self._resume_at = self._log.roll_next_file(unit.physical_offset)
        elif wanted is not None and not wanted.is_matched_by_commit_log(record):
            self._leave_out()
        else:
            self._found.add(record, unit.queue_offset, unit.batch_size)
            self._found.status = GetMessageStatus.FOUND
            self._resume_at = _NOWHERE

    def _leave_out(self) -> None:
        self._found.filtered_count += 1
        self._note(GetMessageStatus.NO_MATCHED_MESSAGE)

    def _note(self, status: GetMessageStatus) -> None:
        if not self._found.buffer_total_size:
            self._found.status = status


_ROUNDS: Final = 3


class StoreReading:
    """The read operations of an open store.

    What was put before is dispatched to queues and index first, so that a reader sees it.
    """

    def __init__(self, setup: StoreSetup, services: StoreServices) -> None:
        self.config, self.is_read_only, self.is_batch_topic = setup.config, setup.is_read_only, setup.is_batch_topic
        self.commit_log, self._services, self._clock = services.commit_log, services, setup.clock
        self._records = LogLookup(self.commit_log.mapped_file_queue)
        self._parser = PropertyParser.of_release(setup.config.release)

    @cached_property
    def _getter(self) -> MessageGetter:
        return MessageGetter(self.config, self._records, physical_memory())

    # ---- queues

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log not yet dispatched to queues and index."""
        return self._services.dispatch_behind_bytes

    def dispatch_now(self) -> None:
        """Dispatch all that may be dispatched to queues and index, and wait; a service also does so continuously.

        With synchronous flush and release 5.3 that is what has been flushed, with write buffers what is committed.
        """
        if self.dispatch_behind_bytes > 0 and not self.is_read_only:
            self._services.reput.run_once()

    def get_max_offset_in_queue(self, topic: str, queue_id: int, *, committed: bool = True) -> int:
        """Return the index one past a queue's last readable message; 0 if there is none.

        With ``committed=False``, return the index the next message will get, which may be higher.
        """
        if not committed:
            return self.commit_log.queue_offsets.next_offset(topic, queue_id)
        queue = self._queue(topic, queue_id)
        return queue.max_offset_in_queue if queue is not None else 0

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the index of the first message still in a queue.

        For an unknown queue, which RocketMQ creates on request: 0, or -1 for a batch topic.
        """
        queue = self._queue(topic, queue_id)
        return queue.min_offset_in_queue if queue is not None else self._first_of_unknown(topic)

    def get_message_total_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the number of messages in a queue, by its bounds; 0 for an unknown queue, 1 if of a batch topic."""
        return self.get_max_offset_in_queue(topic, queue_id) - self.get_min_offset_in_queue(topic, queue_id)

    def _queue(self, topic: str, queue_id: int) -> AnyQueue | None:
        self.dispatch_now()
        return self._services.queues.get(topic, queue_id)

    def _first_of_unknown(self, topic: str) -> int:
        return -1 if self.is_batch_topic(topic) else 0

    def _unit(self, topic: str, queue_id: int, queue_offset: int) -> QueueUnit | None:
        queue = self._queue(topic, queue_id)
        units = queue_units(queue, queue_offset) if queue is not None else None
        return next(units, None) if units is not None else None

    # ---- getting

    def get_message(  # noqa: PLR0913 -- RocketMQ's own arguments
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        max_msg_nums: int,
        message_filter: MessageFilter | None = None,
    ) -> GetMessageResult | None:
        """Get messages of a queue starting at an offset; the get is counted in `stats`.

        Parameters
        ----------
        group, topic, queue_id : str, str, int
            The group has no effect.
        offset : int
            In the queue.
        max_msg_nums : int
            Upper bound; byte limits, and messages that are probably not in memory, may reduce it. The first message is
            always returned.
        message_filter : MessageFilter, optional
            E.g. a `MessageSelector`. Tags are matched by hash only, so the consumer has to compare the tags themselves.

        Returns
        -------
        GetMessageResult or None
            None if the store currently can't be read. An unknown queue counts as empty.

        Raises
        ------
        InvalidOptionError
            With release 4.9, as RocketMQ does, if `max_msg_nums` is negative and there is something to get.
        """
        del group
        if not self.commit_log.running_flags.is_readable:
            return None
        begin = self._clock.now_ms()
        queue = self._queue(topic, queue_id)
        if queue is None:
            result = self._getter.nothing_in(offset, smallest=self._first_of_unknown(topic))
        else:
            if isinstance(message_filter, MessageSelector) and message_filter.parser is not self._parser:
                message_filter = replace(message_filter, parser=self._parser)
            result = self._getter.get(queue, offset, max_msg_nums, message_filter)
        is_found = result.status is GetMessageStatus.FOUND
        self.commit_log.stats.add_get(self._clock.now_ms() - begin, result.message_count, is_found=is_found)
        return result

    # ---- one message

    def look_message_by_offset(self, physical_offset: int) -> MessageExt | None:
        """Return the message whose record begins at a physical offset; None if none does."""
        record = self._records.look_message_by_offset(physical_offset)
        if record is None:
            return None
        return decode_message(record, 0, None, parser=self._parser, verify_crc=False)

    def select_one_message_by_offset(self, physical_offset: int, size: int) -> memoryview | None:
        """Return a view of the record of `size` bytes at a physical offset; None if there is none of that size."""
        return self._records.get_message(physical_offset, size)

    # ---- by key

    def query_message(self, topic: str, key: str, max_num: int, begin: int, end: int) -> QueryMessageResult:
        """Find messages by key or unique key, through the index.

        Parameters
        ----------
        topic, key : str
        max_num : int
            How many of the newest to return at most; capped at ``maxMsgsNumBatch``.
        begin, end : int
            Store times in ms, both inclusive; the index has a resolution of one second.
        """
        self.dispatch_now()
        result = QueryMessageResult(release=self.config.release)
        latest = end
        for _ in range(_ROUNDS):
            found = self._services.index.query_offset(topic, key, max_num, begin, latest)
            offsets = sorted(found.physical_offsets)
            if not offsets:
                break
            result.index_last_update_timestamp = found.index_last_update_timestamp
            result.index_last_update_physical_offset = found.index_last_update_physical_offset
            records = [self._records.look_message_by_offset(offset) for offset in offsets]
            if records[0] is not None:
                latest = self._records.pickup_store_timestamp(offsets[0], len(records[0]))
            result.message_buffers += [record for record in records if record is not None]
            if result.message_buffers or latest < begin:
                break
        return result

    # ---- by time

    def get_offset_in_queue_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        """Return the queue offset of the message stored at a time in ms; 0 for a queue that does not exist.

        With release 5.3, `boundary` selects the first message not before the time, or the last one not after it.
        """
        queue = self._queue(topic, queue_id)
        if queue is None:
            return 0
        records = self._records
        log = LogTimes(records.pickup_store_timestamp, records.min_offset)
        return queue.get_offset_in_queue_by_time(timestamp, boundary, log)

    def get_message_store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of a message in a queue, ms; -1 if it is not there."""
        unit = self._unit(topic, queue_id, queue_offset)
        return self._records.pickup_store_timestamp(unit.physical_offset, unit.store_size) if unit is not None else -1

    def get_earliest_message_time(self, topic: str, queue_id: int) -> int:
        """Return the store time of the first message still in a queue, ms; -1 if there is none."""
        queue = self._queue(topic, queue_id)
        return self.get_message_store_timestamp(topic, queue_id, queue.min_offset_in_queue) if queue is not None else -1

    def get_commit_log_offset_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the physical offset of a message in a queue; 0 if it is not there, as RocketMQ does."""
        unit = self._unit(topic, queue_id, queue_offset)
        return unit.physical_offset if unit is not None else 0

# SPDX-License-Identifier: Apache-2.0
"""Processing of pull requests as by a broker, but within this process, without a network; and pulls that wait.

A pull whose offset is moved, because it is not in the queue, is an event.

To read the messages of a queue, from where the group left off::

    with DefaultMessageStore.open(path, read_only=True) as store:
        for message in follow(store, "billing", "orders", 0):
            print(message.queue_offset, message.body)

To keep the consumed offsets, and wait for more messages until the event is set::

    offsets = ConsumerOffsetManager(store.path)
    offsets.load()
    waiting = Waiting()
    for message in follow(store, "billing", "orders", 0, offsets=offsets, waiting=waiting):
        handle(message)              # when the next message is asked for, this one counts as consumed
    offsets.persist()
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TYPE_CHECKING, Final, TypeAlias

from store_core.broker.config_file import write_config
from store_core.broker.consumer_offset import NO_OFFSET, ConsumerOffsetManager
from store_core.broker.pull_checks import (
    CheckedPull,
    PullChecks,
    PullMessageRequest,
    PullMessageResponse,
    PullSysFlag,
    ResponseCode,
)
from store_core.files.machine import Clock, SystemClock
from store_core.files.service_thread import ServiceThread
from store_core.format.filter.message_selector import MessageSelector
from store_core.format.message import Message
from store_core.format.properties import DELAY, KEYS, TAGS, PropertyMap
from store_core.store.get_message import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from store_core.broker.consumer_filter import ExpressionMessageFilter
    from store_core.format.message import MessageExt
    from store_core.store.message_store import DefaultMessageStore
    from store_core.store.message_store_config import BrokerConfig


_LOG: Final = logging.getLogger("store_core")
_LONG_POLLING_SECONDS: Final = 5.0

_QueueKey: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A waiting pull (RocketMQ: ``PullRequest`` of the broker)."""

    request: PullMessageRequest
    message_filter: ExpressionMessageFilter  # messages that it excludes do not end the wait
    deadline: float  # when the wait ends at the latest, by the monotonic clock
    answer: Callable[[], object]  # processes the request again, and delivers the answer


@dataclass(frozen=True, slots=True)
class _Arrival:
    """What is known of a new message; only the queue's end if the service checks on its own."""

    max_offset: int
    tags_code: int | None = None
    msg_store_time: int = 0
    bit_map: bytes = b""
    properties: Mapping[str, str] | None = None


class PullRequestHoldService(ServiceThread):
    """Holds pulls until there are messages for them, or their time is up (RocketMQ: ``PullRequestHoldService``).

    A waiting pull is checked when a message arrives in its queue, and also every 5 s or, if long polling is off, every
    ``shortPollingTimeMills``. So one whose time is up waits up to 5 s longer, and a message that comes between the read
    of the queue and the start of the wait is noticed after up to 5 s: both as in RocketMQ.

    It is a `MessageArrivingListener`: add it to the listeners of a store's `reput_message_service`.

    Parameters
    ----------
    store : DefaultMessageStore
    broker : BrokerConfig
    clock : Clock
    execute : callable, optional
        Runs the processing of a pull that is woken up, e.g. ``ThreadPoolExecutor.submit``; by default it runs in the
        thread that wakes it, which may be the one that dispatches messages.
    on_error : callable, optional
    """

    def __init__(
        self,
        store: DefaultMessageStore,
        broker: BrokerConfig,
        clock: Clock,
        *,
        execute: Callable[[Callable[[], object]], object] | None = None,
        on_error: Callable[[OSError], None] | None = None,
    ) -> None:
        super().__init__(clock, on_error)
        self._store = store
        self._broker = broker
        self._execute = execute
        self._lock = Lock()
        self._held: dict[_QueueKey, list[PullRequest]] = {}

    def __len__(self) -> int:
        """Count the waiting pulls."""
        with self._lock:
            return sum(map(len, self._held.values()))

    def pause(self) -> None:
        """Wait until the next check of the pulls."""
        broker = self._broker
        seconds = _LONG_POLLING_SECONDS if broker.long_polling_enable else broker.short_polling_time_mills / 1000
        self.wait_for_running(seconds)

    def run_once(self) -> None:
        """Check all pulls (``checkHoldRequest``)."""
        with self._lock:
            queues = tuple(self._held)
        for topic, queue_id in queues:
            self._look(topic, queue_id, _Arrival(self._store.get_max_offset_in_queue(topic, queue_id)))

    def suspend_pull_request(
        self,
        request: PullMessageRequest,
        message_filter: ExpressionMessageFilter,
        timeout_millis: int,
        answer: Callable[[], object],
    ) -> None:
        """Make a pull wait, until `timeout_millis` ms have passed and the next check comes."""
        held = PullRequest(request, message_filter, self._clock.monotonic() + timeout_millis / 1000, answer)
        with self._lock:
            self._held.setdefault((request.topic, request.queue_id), []).append(held)

    def notify_message_arriving(  # noqa: PLR0913 -- RocketMQ's own
        self,
        topic: str,
        queue_id: int,
        max_offset: int,
        tags_code: int | None = None,
        msg_store_time: int = 0,
        filter_bit_map: bytes = b"",
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Wake up the pulls that match a new message.

        Parameters
        ----------
        topic : str
        queue_id : int
        max_offset : int
            Index after the message.
        tags_code : int or None
            None if nothing is known of the message; then every pull for a lower offset than `max_offset` is woken up.
        msg_store_time : int
            Ms since 1970.
        filter_bit_map : bytes
            Of the queue's extension.
        properties : mapping of str to str, optional
            Without them a message that expressions do not exclude by the map counts as matching.
        """
        self._look(topic, queue_id, _Arrival(max_offset, tags_code, msg_store_time, filter_bit_map, properties))

    arriving = notify_message_arriving

    def notify_master_online(self) -> None:
        """Wake up all pulls: the master is back (5.x)."""
        with self._lock:
            held, self._held = self._held, {}
        for requests in held.values():
            for request in requests:
                self._wake(request)

    def _look(self, topic: str, queue_id: int, arrival: _Arrival) -> None:
        """Check the pulls of a queue; those that stay come after any added meanwhile, as in RocketMQ."""
        key = (topic, queue_id)
        with self._lock:
            requests = self._held.pop(key, [])
        waiting = [request for request in requests if not self._is_over(request, arrival)]
        if waiting:
            with self._lock:
                self._held.setdefault(key, []).extend(waiting)

    def _is_over(self, held: PullRequest, arrival: _Arrival) -> bool:
        """Wake a pull up if its message has come, or its time is up; return whether it did."""
        wanted = held.request
        newest = arrival.max_offset
        if newest <= wanted.queue_offset:
            newest = self._store.get_max_offset_in_queue(wanted.topic, wanted.queue_id)
        has_come = newest > wanted.queue_offset and _matches(held.message_filter, arrival)
        if not has_come and self._clock.monotonic() < held.deadline:
            return False
        self._wake(held)
        return True

    def _wake(self, held: PullRequest) -> None:
        if self._execute is None:
            self._answer(held)
        else:
            self._execute(lambda: self._answer(held))

    def _answer(self, held: PullRequest) -> None:
        try:
            held.answer()
        except Exception:  # noqa: BLE001 -- the mistake of one consumer must not end the thread that dispatches for all
            wanted = held.request
            _LOG.exception("a pull of %s, queue %d, was woken up and failed", wanted.topic, wanted.queue_id)


def _matches(message_filter: ExpressionMessageFilter, arrival: _Arrival) -> bool:
    """Return whether a message may be for a pull: by the bit map, then by its properties if they are known."""
    if not message_filter.is_matched_by_consume_queue(arrival.tags_code, arrival):
        return False
    return arrival.properties is None or message_filter.is_matched_by_properties(arrival.properties)


OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
"""Topic of the events."""


def offset_moved_event(request: PullMessageRequest, offset_new: int, broker_name: str) -> bytes:
    """Encode a pull whose offset was moved, as fastjson encodes RocketMQ's ``OffsetMovedEvent``.

    4.x stores it, 5.x only logs it.

    * `offset_new`: Where the consumer is sent.
    """
    group, topic, broker = map(write_config, (request.consumer_group, request.topic, broker_name))
    queue = f'{{"brokerName":{broker},"queueId":{request.queue_id},"topic":{topic}}}'
    offsets = f'"offsetNew":{offset_new},"offsetRequest":{request.queue_offset}'
    return f'{{"consumerGroup":{group},"messageQueue":{queue},{offsets}}}'.encode()


_MASTER_ID: Final = 0


class PullMessageProcessor:
    """Answers pull requests (RocketMQ: ``PullMessageProcessor``, ``DefaultPullMessageResultHandler``).

    Not supported: topics whose queues are spread over brokers (static topics), offsets of broadcasting consumers kept
    by the broker, flow control of cold data, hooks and statistics.

    Parameters
    ----------
    store : DefaultMessageStore
        Its configuration determines the release to follow, and the broker's role.
    broker : BrokerConfig
    checks : PullChecks
    offsets : ConsumerOffsetManager
    hold_service : PullRequestHoldService
        Holds pulls that wait for messages.
    clock : Clock
    min_broker_id_in_group : int, optional
        In a broker container of 5.x: the smallest id among the running brokers of this name, 0 if the master runs. By
        default the broker's own id, as for a single broker (5.3.3: ``BrokerController.getMinBrokerIdInGroup``).
    """

    def __init__(  # noqa: PLR0913 -- what a broker is made of
        self,
        store: DefaultMessageStore,
        broker: BrokerConfig,
        checks: PullChecks,
        offsets: ConsumerOffsetManager,
        hold_service: PullRequestHoldService,
        clock: Clock,
        *,
        min_broker_id_in_group: int | None = None,
    ) -> None:
        self._store = store
        self._config = store.config
        self._features = store.config.features
        self._broker = broker
        self._checks = checks
        self._offsets = offsets
        self._hold_service = hold_service
        self._clock = clock
        self._is_in_container = min_broker_id_in_group is not None
        self.min_broker_id_in_group = broker.broker_id if min_broker_id_in_group is None else min_broker_id_in_group

    @property
    def rejects_requests(self) -> bool:
        """Whether a 5.x broker answers all pulls with SYSTEM_BUSY unread: a slave that may not be read does."""
        return self._features.rejects_pulls_on_unread_slave and self._is_slave and not self._broker.slave_read_enable

    def process_request(
        self,
        request: PullMessageRequest,
        *,
        client_host: str = "",
        on_response: Callable[[PullMessageResponse], object] | None = None,
    ) -> PullMessageResponse | None:
        """Answer a pull, or make it wait.

        Parameters
        ----------
        request : PullMessageRequest
        client_host : str
            The requesting client; for the log.
        on_response : callable, optional
            Called with the answer of a pull that had to wait. Without it no pull waits, whatever its flags say.

        Returns
        -------
        PullMessageResponse or None
            None if the pull waits.

        Notes
        -----
        The steps: 1. check permissions and subscription; 2. get messages, or apply a reset of the offset; 3. store the
        offset that the request commits; 4. wait, if there are none and the request may; or note that the offset was
        moved. When its wait ends, a pull is processed again, and then neither waits nor commits.
        """
        if on_response is None:
            return self._process(request, client_host, None, is_first=True)

        def again() -> None:
            response = self._process(request, client_host, None, is_first=False)
            if response is not None:
                on_response(response)

        return self._process(request, client_host, again, is_first=True)

    def _process(
        self, request: PullMessageRequest, client_host: str, again: Callable[[], None] | None, *, is_first: bool
    ) -> PullMessageResponse | None:
        checked = self._checks.check(request)
        if isinstance(checked, PullMessageResponse):
            return checked
        result = self._get(request, checked)
        if result is None and self._features.commits_only_with_result:
            return _without_result()
        self._commit(request, client_host, result, is_first=is_first)
        if result is None:
            return _without_result()
        response = self._compose(request, result, checked)
        if response.code is ResponseCode.PULL_NOT_FOUND and again is not None and request.has(PullSysFlag.SUSPEND):
            broker = self._broker
            patience = request.suspend_timeout_millis if broker.long_polling_enable else broker.short_polling_time_mills
            self._hold_service.suspend_pull_request(request, checked.message_filter, patience, again)
            return None
        if response.code is ResponseCode.PULL_OFFSET_MOVED:
            self._note_moved_offset(request, response, checked)
        return response

    # ---- getting and committing

    def _get(self, request: PullMessageRequest, checked: CheckedPull) -> GetMessageResult | None:
        group, topic, queue_id = request.consumer_group, request.topic, request.queue_id
        if self._features.has_server_side_reset:
            reset = self._offsets.query_then_erase_reset_offset(topic, group, queue_id)
            if reset is not None and self._broker.use_server_side_reset_offset:
                return GetMessageResult(
                    GetMessageStatus.OFFSET_RESET,
                    reset,
                    self._store.get_min_offset_in_queue(topic, queue_id),
                    self._store.get_max_offset_in_queue(topic, queue_id),
                    release=self._config.release,
                )
        return self._store.get_message(
            group, topic, queue_id, request.queue_offset, request.max_msg_nums, checked.message_filter
        )

    def _commit(
        self, request: PullMessageRequest, client_host: str, result: GetMessageResult | None, *, is_first: bool
    ) -> None:
        """Store the group's consumed offset, if the request asks for it; 4.x on masters only."""
        group, topic, queue_id = request.consumer_group, request.topic, request.queue_id
        if self._features.keeps_pull_offsets and result is not None:
            self._offsets.commit_pull_offset(group, topic, queue_id, result.next_begin_offset)
        may_commit = is_first and (self._features.commits_offsets_on_slave or not self._is_slave)
        if may_commit and request.has(PullSysFlag.COMMIT_OFFSET):
            self._offsets.commit_offset(client_host, group, topic, queue_id, request.commit_offset)

    # ---- the answer

    @property
    def _is_slave(self) -> bool:
        return self._config.broker_role == "SLAVE"

    def _compose(
        self, request: PullMessageRequest, result: GetMessageResult, checked: CheckedPull
    ) -> PullMessageResponse:
        response = PullMessageResponse(
            code=ResponseCode.of_status(result.status, request.queue_offset),
            remark=result.status.name,
            next_begin_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            suggest_which_broker_id=self._suggested_broker(result, checked),
            result=result,
        )
        if self._features.answers_with_sys_flags:
            response.topic_sys_flag = checked.topic.topic_sys_flag
            response.group_sys_flag = checked.group.group_sys_flag
        if self._features.sends_consumers_back_to_master:
            self._redirect_to_master(response, result)
        return response

    def _suggested_broker(self, result: GetMessageResult, checked: CheckedPull) -> int:
        """Return the broker to pull from next: as configured for the group, if slaves may be read."""
        if not self._broker.slave_read_enable or self._is_in_container:
            return _MASTER_ID
        if result.suggest_pulling_from_slave:
            return checked.group.which_broker_when_consume_slowly
        return checked.group.broker_id

    def _redirect_to_master(self, response: PullMessageResponse, result: GetMessageResult) -> None:
        """Send consumers that keep up from a slave back to the master, if it is known to be running (5.x).

        In 4.x a slave that may not be read sets PULL_RETRY_IMMEDIATELY, too, but every status of a get overwrites it:
        such a slave answers as a master does.
        """
        is_at_home = self._broker.broker_id == _MASTER_ID or result.suggest_pulling_from_slave
        if is_at_home or self.min_broker_id_in_group != _MASTER_ID:
            return
        response.suggest_which_broker_id = _MASTER_ID
        if result.status is not GetMessageStatus.FOUND:
            response.code = ResponseCode.PULL_RETRY_IMMEDIATELY

    def _note_moved_offset(
        self, request: PullMessageRequest, response: PullMessageResponse, checked: CheckedPull
    ) -> None:
        """Report that a consumer is sent elsewhere: 4.x stores an event; a slave that moves no offsets has it retry."""
        if self._is_slave and not self._config.offset_check_in_slave:
            response.suggest_which_broker_id = checked.group.broker_id
            response.code = ResponseCode.PULL_RETRY_IMMEDIATELY
            return
        event = offset_moved_event(request, response.next_begin_offset, self._broker.broker_name)
        _LOG.warning("the offset of a pull is moved: %s", event.decode())
        if self._features.stores_offset_moved_event:
            # DELAY comes from a call of setDelayTimeLevel(0), between the other two in the Java map's history.
            group, host = request.consumer_group, self._broker.store_host
            properties = PropertyMap({TAGS: group, DELAY: "0", KEYS: group})
            put = self._store.put_message(
                Message(
                    OFFSET_MOVED_EVENT,
                    event,
                    properties=properties,
                    born_timestamp=self._clock.now_ms(),
                    born_host=host,
                    store_host=host,
                )
            )
            if not put.is_ok:
                _LOG.warning("the event is not stored: %s", put.status.name)


def _without_result() -> PullMessageResponse:
    return PullMessageResponse(code=ResponseCode.SYSTEM_ERROR, remark="the store can't be read at the moment")


_CLIENT: Final = "this process"


@dataclass(frozen=True, slots=True)
class Waiting:
    """How to wait for messages at the end of a queue.

    Attributes
    ----------
    seconds : float
        Pause between two checks.
    stop : Event
        Set it, from another thread, to end the waiting and the loop.
    clock : Clock
    """

    seconds: float = 0.1
    stop: Event = field(default_factory=Event)
    clock: Clock = field(default_factory=SystemClock)


def follow(  # noqa: PLR0913 -- which queue, from where, and what of it
    store: DefaultMessageStore,
    group: str,
    topic: str,
    queue_id: int,
    *,
    begin: int | None = None,
    offsets: ConsumerOffsetManager | None = None,
    selector: MessageSelector = MessageSelector.NONE,
    max_msg_nums: int = 32,
    waiting: Waiting | None = None,
) -> Iterator[MessageExt]:
    """Yield the messages of a queue, one after the other.

    Messages deleted from the store are skipped, as by a consumer that is told that its offset has moved. Bodies are as
    stored, and an inner batch is one message.

    Parameters
    ----------
    store : DefaultMessageStore
        E.g. a `DefaultMessageStore`. One opened read-only gets no new messages.
    group, topic : str
    queue_id : int
    begin : int, optional
        Index of the first message to return. By default the group continues where it left off according to `offsets`,
        or else begins with the first existing message.
    offsets : ConsumerOffsetManager, optional
        Records what is consumed, and supplies resets. It is not persisted here.
    selector : MessageSelector
        Only matching messages are returned; tags are also compared as text.
    max_msg_nums : int
        Most messages to get at a time.
    waiting : Waiting, optional
        How to wait at the queue's end; by default the iteration ends there.

    Notes
    -----
    A message counts as consumed once the next one is requested, so one whose handling fails is returned again.
    """
    loop = _Loop(store, group, topic, queue_id, offsets, selector, max_msg_nums)
    loop.position = loop.first_position() if begin is None else begin
    while True:
        result = loop.pull()
        if result is None:
            return
        if result.message_buffers:
            yield from loop.consume(result)
        elif not loop.pass_over(result) and (waiting is None or waiting.clock.wait(waiting.stop, waiting.seconds)):
            return


@dataclass(slots=True)
class _Loop:
    """The position of a loop in its queue."""

    _store: DefaultMessageStore
    _group: str
    _topic: str
    _queue_id: int
    _offsets: ConsumerOffsetManager | None
    _selector: MessageSelector
    _most: int
    position: int = 0

    def first_position(self) -> int:
        """Return where the group left off, or the first message."""
        offset = NO_OFFSET
        if self._offsets is not None:
            offset = self._offsets.query_offset(self._group, self._topic, self._queue_id)
        return self._store.get_min_offset_in_queue(self._topic, self._queue_id) if offset < 0 else offset

    def pull(self) -> GetMessageResult | None:
        """Get the next messages, after applying any reset; None if the store no longer returns any."""
        if self._offsets is not None:
            reset = self._offsets.query_then_erase_reset_offset(self._topic, self._group, self._queue_id)
            self.position = self.position if reset is None else reset
        wanted = None if self._selector.is_all else self._selector
        return self._store.get_message(self._group, self._topic, self._queue_id, self.position, self._most, wanted)

    def consume(self, result: GetMessageResult) -> Iterator[MessageExt]:
        """Yield messages; each one is committed when the next is requested."""
        ends = [*result.message_queue_offsets[1:], result.next_begin_offset]
        for message, end in zip(result.messages, ends, strict=True):
            if self._selector.sql is not None or self._selector.tags.is_matched_by_tags(message.tags):
                yield message
            self._move(end)

    def pass_over(self, result: GetMessageResult) -> bool:
        """Continue where the store says; False if there is nowhere to continue."""
        if result.next_begin_offset == self.position or result.status is GetMessageStatus.NO_MATCHED_LOGIC_QUEUE:
            return False
        if result.status is not GetMessageStatus.NO_MATCHED_MESSAGE:
            _LOG.warning(
                "%s of %s, queue %d, at %d: continues at %d",
                result.status.name, self._topic, self._queue_id, self.position, result.next_begin_offset,
            )  # fmt: skip
        self._move(result.next_begin_offset)
        return True

    def _move(self, offset: int) -> None:
        self.position = offset
        if self._offsets is not None:
            self._offsets.commit_offset(_CLIENT, self._group, self._topic, self._queue_id, offset)

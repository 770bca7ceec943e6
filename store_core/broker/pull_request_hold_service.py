# SPDX-License-Identifier: Apache-2.0
"""Service that holds pulls which wait for messages."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias

from store_core.files.service_thread import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from store_core.broker.consumer_filter import ExpressionMessageFilter
    from store_core.broker.consumer_loop import ReadableStore
    from store_core.broker.pull_checks import PullMessageRequest
    from store_core.files.clock import Clock
    from store_core.store.config.broker_config import BrokerConfig

__all__ = ["PullRequest", "PullRequestHoldService"]

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
    store : ReadableStore
    broker : BrokerConfig
    clock : Clock
    execute : callable, optional
        Runs the processing of a pull that is woken up, e.g. ``ThreadPoolExecutor.submit``; by default it runs in the
        thread that wakes it, which may be the one that dispatches messages.
    on_error : callable, optional
    """

    def __init__(
        self,
        store: ReadableStore,
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

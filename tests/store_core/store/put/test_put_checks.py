# SPDX-License-Identifier: Apache-2.0
"""What is checked, rewritten and added before a message reaches the log, release by release."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from store_core.format.message import AppendMessageStatus, Message, PutMessageStatus
from store_core.format.record.decode import client_batch
from store_core.store.put.put_service import PutService, default_hooks
from tests.golden_replay import StubState
from tests.store_core.store.logs import Log, message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


OK = PutMessageStatus.PUT_OK
ILLEGAL = PutMessageStatus.MESSAGE_ILLEGAL
UNAVAILABLE = PutMessageStatus.SERVICE_NOT_AVAILABLE
BUSY = PutMessageStatus.OS_PAGE_CACHE_BUSY
NOW = 1_700_000_000_500


class Store:
    """A log with its checks."""

    def __init__(self, directory: Path, *, hooks: bool = True, **settings: Any) -> None:  # noqa: ANN401 -- of a configuration
        self.log = Log(directory, settings)
        self.log.clock.wall_ms = NOW
        self.state = StubState(self.log.clock, ("bq",))
        config = self.log.log.config
        self.puts = PutService(self.log.log, self.state, default_hooks(config, self.state) if hooks else [])

    def status(self, sent: Message) -> PutMessageStatus:
        result = self.puts.put(sent)
        assert not hasattr(result, "add_done_callback")
        return result.status

    def batch_status(self, sent: Message) -> PutMessageStatus:
        result = self.puts.put_batch(sent)
        assert not hasattr(result, "add_done_callback")
        return result.status


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., Store]:
    return lambda **settings: Store(tmp_path, **settings)


ALL = pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])


# ---- the store's state


@ALL
@pytest.mark.parametrize(
    ("state", "value", "expected"),
    [("is_shutdown", True, UNAVAILABLE), ("is_writeable", False, UNAVAILABLE), ("is_os_page_cache_busy", True, BUSY)],
)
def test_store_that_is_shut_down_or_not_writeable_or_busy_refuses(
    store: Callable[..., Store], release: str, state: str, value: bool, expected: PutMessageStatus
) -> None:
    refusing = store(release=release)
    setattr(refusing.state, state, value)

    assert expected is refusing.status(message())
    assert expected is refusing.batch_status(client_batch([message()]))


def test_bare_store_of_5_3_checks_none_of_this(store: Callable[..., Store]) -> None:
    bare = store(hooks=False)
    bare.state.is_writeable = False

    assert OK is bare.status(message())


@pytest.mark.parametrize(("release", "expected"), [("4.3", ILLEGAL), ("4.9", BUSY), ("5.3", ILLEGAL)])
def test_order_of_checks_is_that_of_the_release(
    store: Callable[..., Store], release: str, expected: PutMessageStatus
) -> None:
    busy = store(release=release)
    busy.state.is_os_page_cache_busy = True

    assert expected is busy.status(message(topic="t" * 128))


# ---- the message

LARGE: dict[str, Any] = {"mapped_file_size_commit_log": 1 << 17}
EXCEEDED = PutMessageStatus.PROPERTIES_SIZE_EXCEEDED


@pytest.mark.parametrize(
    ("expected", "settings", "sent"),
    [
        (OK, {"release": "4.3"}, message(topic="t" * 127)),
        (ILLEGAL, {"release": "4.3"}, message(topic="t" * 128)),
        (ILLEGAL, {"release": "4.9"}, message(topic="%RETRY%" + "g" * 121)),
        (OK, {"release": "4.9"}, message(topic="é" * 63)),
        (OK, {}, message(topic="t" * 127)),
        (ILLEGAL, {}, message(topic="t" * 128)),
        (ILLEGAL, {}, message(topic="é" * 64)),
        (OK, {}, message(topic="%RETRY%" + "g" * 248)),
        (ILLEGAL, {}, message(topic="%RETRY%" + "g" * 249)),
        *[(UNAVAILABLE, {"release": release, "broker_role": "SLAVE"}, message()) for release in ("4.3", "4.9", "5.3")],
        (OK, {"broker_role": "SLAVE", "duplication_enable": True}, message()),
        # a body that is missing is stored empty
        (OK, {"release": "4.3"}, Message("orders", None)),
        (OK, {"release": "4.9"}, Message("orders", None)),
        (ILLEGAL, {}, Message("orders", None)),
        # few characters and many bytes meet the encoder
        (EXCEEDED, LARGE | {"release": "4.9"}, message(b"", properties_string="é" * 20_000)),
        (EXCEEDED, LARGE | {"release": "4.9"}, message(b"", properties={"a": "é" * 20_000})),
    ],
)
def test_a_message_is_taken_or_refused_as_the_release_has_it(
    store: Callable[..., Store], expected: PutMessageStatus, settings: dict[str, Any], sent: Message
) -> None:
    assert expected is store(**settings).status(sent)


@pytest.mark.parametrize(("release", "expected"), [("4.3", EXCEEDED), ("4.9", ILLEGAL), ("5.3", EXCEEDED)])
@pytest.mark.parametrize(
    "more",
    [{"properties_string": "x" * 32768}, {"properties_string": b"x" * 32768}, {"properties": {"a": "x" * 32768}}],
)
def test_long_properties_are_refused(
    store: Callable[..., Store], release: str, expected: PutMessageStatus, more: dict[str, Any]
) -> None:
    assert expected is store(**LARGE, release=release).status(message(b"", **more))


@pytest.mark.parametrize("hooks", [True, False])
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (message(topic="bq", sys_flag=0x80, properties={"INNER_NUM": "1"}), OK),
        (message(topic="bq", sys_flag=0x80), OK),
        (message(sys_flag=0x80, properties={"INNER_NUM": "1"}), ILLEGAL),
        (message(topic="bq", properties={"INNER_NUM": "1"}), ILLEGAL),
        (message(properties_string="INNER_NUM\x011\x02"), ILLEGAL),
        (message(properties_string="aINNER_NUM\x011\x02"), OK),
    ],
)
def test_inner_batches_belong_to_batch_topics(
    store: Callable[..., Store], hooks: bool, sent: Message, expected: PutMessageStatus
) -> None:
    assert expected is store(hooks=hooks).status(sent)


# ---- delay


@ALL
@pytest.mark.parametrize(("level", "queue_id", "stored"), [(1, 0, "1"), (18, 17, "18"), (99, 17, "18")])
def test_delayed_messages_wait_in_the_queue_of_their_level(
    store: Callable[..., Store], release: str, level: int, queue_id: int, stored: str
) -> None:
    taken = store(release=release)
    taken.status(message(delay_level=level, queue_id=7, tags="TagA"))

    found = taken.log.messages[0]
    assert ("SCHEDULE_TOPIC_XXXX", queue_id) == (found.topic, found.queue_id)
    assert {"DELAY": stored, "REAL_TOPIC": "orders", "REAL_QID": "7", "TAGS": "TagA"} == found.properties


@ALL
@pytest.mark.parametrize(
    ("topic", "sent"),
    [
        # of a transaction's messages only the committed
        ("orders", message(delay_level=3, sys_flag=4)),
        ("orders", message(delay_level=3, sys_flag=12)),
        ("SCHEDULE_TOPIC_XXXX", message(delay_level=3, sys_flag=8)),
        # no level
        ("orders", message(properties={"DELAY": "0"})),
        ("orders", message(properties={"DELAY": "-1"})),
    ],
)
def test_not_every_message_with_a_delay_is_delayed(
    store: Callable[..., Store], release: str, topic: str, sent: Message
) -> None:
    taken = store(release=release)
    taken.status(sent)

    assert topic == taken.log.messages[0].topic


@ALL
@pytest.mark.parametrize("delay", ["soon", "", "1.5", "99999999999"])
def test_delay_that_is_no_number_is_illegal(store: Callable[..., Store], release: str, delay: str) -> None:
    assert ILLEGAL is store(release=release).status(message(properties={"DELAY": delay}))


def test_levels_are_configured(store: Callable[..., Store]) -> None:
    taken = store(message_delay_level="1s 2s")
    taken.status(message(delay_level=5))

    assert 1 == taken.log.messages[0].queue_id


# ---- timers

TIMER_ILLEGAL = PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL


@pytest.mark.parametrize(
    ("status", "properties", "due"),
    [
        (OK, {"TIMER_DELAY_SEC": "10"}, NOW + 10_000 - 500),
        (OK, {"TIMER_DELAY_SEC": "259200"}, NOW + 259_200_000 - 500),
        (OK, {"TIMER_DELAY_MS": "10"}, NOW - 500),
        (OK, {"TIMER_DELAY_MS": "500"}, NOW + 500 - 1000),
        (OK, {"TIMER_DELIVER_MS": str(NOW + 1700)}, NOW + 1500),
        (OK, {"TIMER_DELIVER_MS": "+" + str(NOW + 1)}, NOW - 500),
        # due already
        (OK, {"TIMER_DELIVER_MS": "1"}, None),
        (OK, {"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "1"}, None),
        (TIMER_ILLEGAL, {"TIMER_DELAY_SEC": "259201"}, None),
        (TIMER_ILLEGAL, {"TIMER_DELAY_SEC": "soon"}, None),
        (TIMER_ILLEGAL, {"TIMER_DELIVER_MS": "9" * 19}, None),
        (TIMER_ILLEGAL, {"TIMER_DELIVER_MS": "9" * 20}, None),
        (TIMER_ILLEGAL, {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "k"}, None),
    ],
)
def test_timed_messages_wait_until_a_step_before_they_are_due(
    store: Callable[..., Store], status: PutMessageStatus, properties: dict[str, str], due: int | None
) -> None:
    taken = store()
    waiting = {"TIMER_OUT_MS": str(due), "REAL_TOPIC": "orders", "REAL_QID": "7"}

    assert status is taken.status(message(properties=properties, queue_id=7))
    expected = ("orders", 7, properties) if due is None else ("rmq_sys_wheel_timer", 0, properties | waiting)
    stored = [(each.topic, each.queue_id, dict(each.properties)) for each in taken.log.messages]
    assert ([expected] if status is OK else []) == stored


def test_broker_without_timer_refuses(store: Callable[..., Store]) -> None:
    without = store(timer_wheel_enable=False)

    assert PutMessageStatus.WHEEL_TIMER_NOT_ENABLE is without.status(message(properties={"TIMER_DELAY_SEC": "5"}))


def test_delay_level_wins_over_a_timer(store: Callable[..., Store]) -> None:
    taken = store()
    taken.status(message(delay_level=1, properties={"TIMER_DELAY_SEC": "5", "TIMER_DELAY_MS": "6"}))

    assert {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"} == taken.log.messages[0].properties


def test_timers_mean_nothing_in_4x(store: Callable[..., Store]) -> None:
    taken = store(release="4.9")
    taken.status(message(properties={"TIMER_DELAY_SEC": "5"}))

    assert "orders" == taken.log.messages[0].topic


# ---- hooks


def test_hooks_come_in_their_order_until_one_refuses(tmp_path: Path) -> None:
    log = Log(tmp_path)
    seen = []

    def first(sent: Message) -> Message | PutMessageStatus:
        seen.append(sent.topic)
        return message(topic="rewritten")

    def second(sent: Message) -> Message | PutMessageStatus:
        seen.append(sent.topic)
        return PutMessageStatus.PUT_TO_REMOTE_BROKER_FAIL

    def third(sent: Message) -> Message | PutMessageStatus:
        raise AssertionError(sent)

    result = PutService(log.log, StubState(log.clock), [first, second, third]).put(message())
    assert not hasattr(result, "add_done_callback")
    assert PutMessageStatus.PUT_TO_REMOTE_BROKER_FAIL is result.status
    assert ["orders", "rewritten"] == seen


def test_put_times_and_failures_are_counted(store: Callable[..., Store], caplog: pytest.LogCaptureFixture) -> None:
    taken = store()
    taken.log.disk.before["grow"] = lambda: taken.log.clock.advance(0.6)
    taken.status(message())
    taken.log.disk.before.clear()
    taken.status(message(b"x" * 5000))

    stats = taken.log.log.stats
    assert (600, 1) == (stats.put_message_entire_time_max, stats.put_message_failed_times)
    assert {"[500ms~1s]": 1, "[<=0ms]": 1} == {name: n for name, n in stats.put_message_distribute_time.items() if n}
    assert "a put to orders took 600 ms" in caplog.text


LMQ_53: dict[str, Any] = {"enable_lmq": True}
LMQ_49: dict[str, Any] = {"enable_lmq": True, "enable_multi_dispatch": True, "release": "4.9"}
DISPATCH = "INNER_MULTI_DISPATCH"
OFFSETS = "INNER_MULTI_QUEUE_OFFSET"


def put(log: Log, names: str, **more: Any) -> str | None:  # noqa: ANN401 -- any argument of Message
    """Put a message to light queues, and return the indexes that its record holds."""
    properties = {DISPATCH: names} | more.pop("properties", {})
    assert log.put_message(message(properties=properties, **more)).is_ok
    return log.messages[-1].properties.get(OFFSETS)


@pytest.mark.parametrize(
    ("settings", "names", "indexes", "light", "plain"),
    [
        (LMQ_49, "%LMQ%a,plain", ["0,0", "1,1"], 2, 2),  # other names are queues of their own
        (LMQ_53, "%LMQ%a,plain", ["0,", "1,"], 2, 0),
        (LMQ_49, "%LMQ%a,%LMQ%a", ["0,0", "1,1"], 2, 0),
        (LMQ_53, "%LMQ%a,%LMQ%a", ["0,0", "2,2"], 4, 0),
    ],
)
def test_other_names_and_a_name_that_comes_twice_count_as_the_release_has_it(
    tmp_path: Path, settings: dict[str, Any], names: str, indexes: list[str], light: int, plain: int
) -> None:
    log = Log(tmp_path, settings)

    assert indexes == [put(log, names, queue_id=5) for _ in indexes]
    assert {"%LMQ%a": light} == log.log.queue_offsets.lmq_queues()
    assert plain == log.log.queue_offsets.next_offset("plain", 5)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, "%LMQ%a"),
        ({"enable_lmq": True, "release": "4.9"}, "%LMQ%a"),
        ({"enable_multi_dispatch": True}, "%LMQ%a"),
        (LMQ_53, " "),
    ],
)
def test_property_means_nothing_unless_enabled_and_with_names(
    tmp_path: Path, settings: dict[str, Any], names: str
) -> None:
    log = Log(tmp_path, settings)

    assert put(log, names) is None
    assert {} == log.log.queue_offsets.lmq_queues()


@pytest.mark.parametrize("topic", ["%RETRY%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"])
@pytest.mark.parametrize(("settings", "indexes"), [(LMQ_49, "0"), (LMQ_53, None)])
def test_system_topics_have_no_light_queues_in_5_3(
    tmp_path: Path, topic: str, settings: dict[str, Any], indexes: str | None
) -> None:
    assert indexes == put(Log(tmp_path, settings), "%LMQ%a", topic=topic)


@pytest.mark.parametrize(("settings", "next_offset"), [(LMQ_49, 0), (LMQ_53, 1)])
def test_prepared_messages_move_light_queues_in_5_3_only(
    tmp_path: Path, settings: dict[str, Any], next_offset: int
) -> None:
    log = Log(tmp_path, settings)
    put(log, "%LMQ%a", sys_flag=4)

    assert next_offset == log.log.queue_offsets.next_light_offset("%LMQ%a")


@pytest.mark.parametrize(
    ("settings", "status", "append_status"),
    [
        (LMQ_49, PutMessageStatus.UNKNOWN_ERROR, AppendMessageStatus.UNKNOWN_ERROR),
        (LMQ_53, PutMessageStatus.MESSAGE_ILLEGAL, AppendMessageStatus.PROPERTIES_SIZE_EXCEEDED),
    ],
)
def test_properties_that_grow_too_long_under_the_lock_leave_no_trace(
    tmp_path: Path, settings: dict[str, Any], status: PutMessageStatus, append_status: AppendMessageStatus
) -> None:
    log = Log(tmp_path, settings | {"mapped_file_size_commit_log": 1 << 16})
    put(log, "%LMQ%a")
    before = log.positions
    result = log.put_message(message(properties={DISPATCH: "%LMQ%a", "long": "x" * 32720}))

    assert result.append_message_result is not None
    assert (status, append_status) == (result.status, result.append_message_result.status)
    assert before == log.positions


def test_record_for_light_queues_is_limited_as_a_whole_in_5_3(tmp_path: Path) -> None:
    log = Log(tmp_path, LMQ_53 | {"max_message_size": 200})
    result = log.put_message(message(b"x" * 150, properties={DISPATCH: "%LMQ%a"}))

    assert result.append_message_result is not None
    assert AppendMessageStatus.MESSAGE_SIZE_EXCEEDED is result.append_message_result.status
    assert PutMessageStatus.MESSAGE_ILLEGAL is result.status
    assert {} == log.log.queue_offsets.lmq_queues()


# ---- inner batches


def inner_batch(count: int, number: str | None = None) -> Any:  # noqa: ANN401 -- a Message
    batch = client_batch([message(topic="bq") for _ in range(count)])
    return replace(batch, sys_flag=0xC0, properties={"INNER_NUM": number or str(count)})


@pytest.mark.parametrize("number", ["0", "-3"])
def test_inner_batch_takes_one_index_at_least(tmp_path: Path, number: str) -> None:
    log = Log(tmp_path)
    log.put_message(inner_batch(1, number))

    assert 1 == log.log.queue_offsets.next_offset("bq", 0)


@pytest.mark.parametrize("number", ["two", "-+5", "32768"])
def test_inner_batch_whose_number_is_none_is_refused(tmp_path: Path, number: str) -> None:
    log = Log(tmp_path)

    assert ILLEGAL is log.put_message(inner_batch(1, number)).status


def test_inner_batch_means_nothing_in_4_9(tmp_path: Path) -> None:
    log = Log(tmp_path, {"release": "4.9"})
    log.put_message(inner_batch(2))

    assert "INNER_BASE" not in log.messages[0].properties
    assert 1 == log.log.queue_offsets.next_offset("bq", 0)


def test_number_of_a_plain_message_to_a_batch_topic_counts(tmp_path: Path) -> None:
    log = Log(tmp_path, services={"is_batch_topic": lambda topic: topic == "bq"})
    log.put_message(message(topic="bq", properties={"INNER_NUM": "3"}))

    assert 3 == log.log.queue_offsets.next_offset("bq", 0)

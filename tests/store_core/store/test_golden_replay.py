# SPDX-License-Identifier: Apache-2.0
"""Messages that RocketMQ stored, put here with its clock, make the commit log that RocketMQ wrote, file for file."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import pytest

from store_core.format.message import Message
from store_core.format.record.encode import properties_bytes
from store_core.store.put.put_service import default_hooks
from tests.golden_replay import Put, Replay, StubState, golden_puts
from tests.golden_stores import UnpackedStore, golden_stores

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


pytestmark = pytest.mark.golden

_BY_THE_STORE_ALONE: Final = frozenset(
    {"basic", "batch", "compressed", "crash", "ext", "ipv6", "lmq", "v2topic", "propcrc", "bcq", "aged"}
)
"""In other stores a broker wrote its own records, or the log is damaged, or the first answers are missing."""

REPLAYED: Final = [store.name for store in golden_stores() if store.scenario in _BY_THE_STORE_ALONE]
DELAYED: Final = [store.name for store in golden_stores() if store.scenario == "delay"]


@pytest.mark.parametrize("name", REPLAYED)
def test_same_inputs_make_the_same_commit_log(
    name: str, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    replay = Replay(golden(name), tmp_path)
    for put in golden_puts(replay.store):
        assert put.expected == replay.put(put)

    expected, actual = replay.expected_segments(), replay.segments()
    # Retention has deleted the first files of an aged store.
    assert [name for name in actual if name >= min(expected)] == list(expected)
    for segment, data in expected.items():
        assert data == actual[segment], segment


@pytest.mark.parametrize("name", DELAYED)
def test_delayed_and_timed_messages_are_rewritten_alike(
    name: str, golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    replay = Replay(golden(name), tmp_path)
    hooks = default_hooks(replay.config, StubState(replay.clock))
    rewritten = 0
    for put in golden_puts(replay.store):
        replay.clock.wall_ms = put.line.get("storeTimestamp", 0)
        message: object = put.message
        if replay.config.features.schedules_by_hook:
            for hook in hooks:
                message = hook(message) if isinstance(message, Message) else message
        else:
            message = replay.commit_log.preparation.delayed(put.message)

        assert _after(put) == _described(message, replay)
        rewritten += isinstance(message, Message) and message.topic != put.message.topic
    assert rewritten > 200


def _after(put: Put) -> tuple[object, ...]:
    """Report what RocketMQ made of the message, or how it refused it."""
    if put.line["putStatus"] != "PUT_OK":
        return (put.expected[0],)
    after = put.line["after"]
    return after["topic"], after["queueId"], base64.b64decode(after["propertiesString"] or "")


def _described(message: object, replay: Replay) -> tuple[object, ...]:
    if not isinstance(message, Message):
        return (message,)
    return message.topic, message.queue_id, properties_bytes(message, replay.config.encode_rules)

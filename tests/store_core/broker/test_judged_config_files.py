# SPDX-License-Identifier: Apache-2.0
"""Mutated files of a broker are taken, or refused, as RocketMQ's own ``decode`` does, release by release."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core.broker.consumer_filter_manager import ConsumerFilterManager
from store_core.broker.consumer_offset import ConsumerOffsetManager, DelayOffsetTable
from store_core.broker.subscription_group import SubscriptionGroupManager, TopicConfigManager
from store_core.errors import CorruptRecordError, UnsafeSizeError
from store_core.format.release import RELEASES, Release, rules_of
from store_core.snapshot.config import LIGHT_OFFSETS, REQUEST_MODES
from store_core.snapshot.config_json import ConfigFields, JsonObject, parse_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_CASES: Final = Path(__file__).parents[2] / "golden" / "answers" / "config_files.jsonl.xz"


def offsets(value: JsonObject, release: Release) -> object:
    kept = ConsumerOffsetManager("none", release=release)
    kept.decode(value, "file")
    return {"offsetTable": {key: texts(queues) for key, queues in kept.offset_table().items()}}


def delays(value: JsonObject, release: Release) -> object:
    kept = DelayOffsetTable("none", release=release)
    kept.decode(value, "file")
    return {"offsetTable": texts(kept.offset_table())}


def topics(value: JsonObject, release: Release) -> object:
    kept = TopicConfigManager("none", release=release)
    kept.decode(value, "file")
    configs = {name: kept.select_topic_config(name) for name in kept.topics()}
    found = {
        name: {
            "perm": config.perm,
            "readQueueNums": config.read_queue_nums,
            "writeQueueNums": config.write_queue_nums,
            "topicName": config.topic_name,
            "order": config.order,
            "topicSysFlag": config.topic_sys_flag,
            "topicFilterType": config.topic_filter_type,
        }
        | ({"attributes": dict(config.attributes)} if release.startswith("5") else {})
        for name, config in configs.items()
        if config is not None
    }
    return {"topicConfigTable": found}


def groups(value: JsonObject, release: Release) -> object:
    kept = SubscriptionGroupManager("none", release=release)
    kept.decode(value, "file")
    configs = {name: kept.find_subscription_group_config(name) for name in kept.groups()}
    found = {
        name: {
            "groupName": config.group_name,
            "retryMaxTimes": config.retry_max_times,
            "consumeEnable": config.consume_enable,
            "brokerId": config.broker_id,
        }
        for name, config in configs.items()
        if config is not None
    }
    return {"subscriptionGroupTable": found}


def filters(value: JsonObject, release: Release) -> object:
    kept = ConsumerFilterManager("none", release=release)
    kept.decode(value, "file")
    return "read"


def modes(value: JsonObject, release: Release) -> object:
    return sorted(map(list, REQUEST_MODES.decode(ConfigFields(value, "file"), rules_of(release))))


def light_offsets(value: JsonObject, release: Release) -> object:
    found = LIGHT_OFFSETS.decode(ConfigFields(value, "file"), rules_of(release))
    return sorted([one.topic, one.group, one.offset] for one in found.light)


def texts(table: dict[int, int]) -> dict[str, int]:
    return {str(key): value for key, value in table.items()}


_READERS: Final[dict[str, Callable[[JsonObject, Release], object]]] = {
    "consumerOffset": offsets,
    "delayOffset": delays,
    "topics": topics,
    "subscriptionGroup": groups,
    "consumerFilter": filters,
    "messageRequestMode": modes,
    "lmqConsumerOffset": light_offsets,
}


def judged(kind: str, release: str) -> Iterator[tuple[str, bytes, Any]]:
    """Yield each case of a kind of file with what RocketMQ reads, None if it refuses."""
    with lzma.open(_CASES, "rt", encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            if case["kind"] == kind:
                for releases, answer in case["answers"]:
                    if release in releases:
                        yield case["case"], case["bytes"].encode("latin-1"), answer


@pytest.mark.golden
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", _READERS)
def test_a_file_is_taken_as_the_library_of_its_release_takes_it(kind: str, release: Release) -> None:
    for case, data, answer in judged(kind, release):
        try:
            found = _READERS[kind](parse_config(data, "file", rules_of(release)), release)
        except (CorruptRecordError, UnsafeSizeError):
            found = None

        assert (case, answer) == (case, found)


@pytest.mark.golden
@pytest.mark.parametrize("release", RELEASES)
def test_without_a_release_every_file_is_read_that_one_of_them_reads(release: Release) -> None:
    for case, data, answer in judged("consumerOffset", release):
        if answer is not None:
            assert (case, True) == (case, isinstance(parse_config(data, "file"), dict))

# SPDX-License-Identifier: Apache-2.0
"""The SQL92 consumers of a broker, and the file they are kept in."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from store_core.broker.config_file import ConfigManager, concurrent_map_order, initial_capacity
from store_core.broker.consumer_filter import BloomFilter, BloomFilterData, ConsumerFilterData, calculate_bit_map
from store_core.errors import FilterError
from store_core.format.filter.sql92_parser import Sql92Expression
from store_core.format.java import DEFAULT_CAPACITY
from store_core.format.release import DEFAULT_RELEASE, Release, rules_of
from store_core.snapshot.config import CONSUMER_FILTERS
from store_core.snapshot.config_json import ConfigFields, JsonObject
from store_core.store.message_store_config import BrokerConfig

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from store_core.broker.subscription_group import RegisteredSubscription
    from store_core.files.file_system import FileSystem
    from store_core.files.machine import Clock
    from store_core.queue.dispatch.dispatch_batch import DispatchRequest


_LOG: Final = logging.getLogger("store_core")
_TOPICS_CAPACITY: Final = initial_capacity(256)
_TAG_TYPES: Final = ("", "TAG")
_SQL92: Final = "SQL92"
_ABSENT_MS: Final = 30_000
"""How long before a start its consumers are assumed to have left."""


class ConsumerFilterManager(ConfigManager):
    """Registered expressions by topic and group, in ``config/consumerFilter.json`` (``ConsumerFilterManager``).

    A group that leaves is kept for ``filterDataCleanTimeSpan``, so that messages stored in the meantime have its bits
    when it comes back. Every method may be called by any thread.

    Parameters
    ----------
    root, file_system, clock, release
        Those of `ConfigManager`.
    broker : BrokerConfig, optional
        How long groups are kept, and how large maps are.

    Attributes
    ----------
    bloom_filter : BloomFilter
        Generates the bits of groups.
    """

    name = CONSUMER_FILTERS.name

    def __init__(
        self,
        root: str | os.PathLike[str],
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
        release: Release = DEFAULT_RELEASE,
        broker: BrokerConfig | None = None,
    ) -> None:
        super().__init__(root, file_system, clock, release)
        broker = broker or BrokerConfig()
        self.bloom_filter = BloomFilter(broker.max_error_rate_of_bloom_filter, broker.expect_consumer_num_use_filter)
        self._kept_ms = broker.filter_data_clean_time_span
        self._capacity = _TOPICS_CAPACITY
        self._topics: dict[str, dict[str, ConsumerFilterData]] = {}
        self._replaced: set[tuple[str, str]] = set()  # topics and groups of which an expression is only kept

    # ---- querying

    def get(self, topic: str, group: str) -> ConsumerFilterData | None:
        """Return what a group registered for a topic; None if nothing."""
        with self._lock:
            return None if (topic, group) in self._replaced else self._topics.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> tuple[ConsumerFilterData, ...]:
        """Return what is registered for a topic, in the iteration order of Java's table."""
        with self._lock:
            groups = self._topics.get(topic, {})
            return tuple(groups[group] for group in concurrent_map_order(groups, DEFAULT_CAPACITY))

    def of_group(self, group: str) -> tuple[ConsumerFilterData, ...]:
        """Return what a group registered."""
        with self._lock:
            return tuple(data for topic in self._topics if (data := self.get(topic, group)) is not None)

    def bit_map(self, request: DispatchRequest) -> bytes:
        """Return the map of a message; pass this to `DefaultMessageStore.open` as its `filter_bit_map`."""
        return calculate_bit_map(self.of_topic(request.topic), request.properties, self.bloom_filter)

    # ---- registering

    def register(self, group: str, subscriptions: Iterable[RegisteredSubscription]) -> None:
        """Register the subscriptions of a group's consumers; for all other topics the group counts as having left."""
        named = tuple(subscriptions)
        topics = {subscription.data.topic for subscription in named}
        with self._lock:
            for subscription in named:
                data = subscription.data
                self.register_expression(
                    data.topic, group, data.tags.text, subscription.sub_version, expression_type=data.expression_type
                )
            for left in self.of_group(group):
                if left.topic not in topics and not left.is_dead:
                    self._put(replace(left, dead_time=self._clock.now_ms()))

    def register_expression(
        self, topic: str, group: str, expression: str, client_version: int, *, expression_type: str = _SQL92
    ) -> bool:
        """Register an expression of a group (``ConsumerFilterManager.register``, ``FilterDataMapByTopic.register``).

        A version that is not newer than the registered one changes nothing, except that a group that left is active
        again with the same version. A newer one with the same expression keeps the time of the first registration.
        A broker of 5.5.1 registers nothing for a topic that it does not have, which the caller knows.

        Returns
        -------
        bool
            False if it is older, by tag, or empty, or does not compile; one that does not compile removes an older one.
        """
        if expression_type in _TAG_TYPES or not expression:
            return False
        with self._lock:
            old = self.get(topic, group)
            if old is not None and client_version <= old.client_version:
                is_back = client_version == old.client_version and old.is_dead
                return is_back and self._put(replace(old, dead_time=0))
            bloom = self.bloom_filter.generate(group, topic)
            if old is not None and (
                (old.expression, old.expression_type, old.bloom) == (expression, expression_type, bloom)
            ):
                dead_time = 0 if old.is_dead else old.dead_time
                return self._put(replace(old, client_version=client_version, dead_time=dead_time))
            compiled = self._compiled(topic, group, expression, expression_type)
            if compiled is None:
                if rules_of(self._release).keeps_replaced_filters:
                    self._replaced.add((topic, group))
                else:
                    self._topics.get(topic, {}).pop(group, None)
                return False
            born = self._clock.now_ms()
            return self._put(
                ConsumerFilterData(
                    group, topic, expression, compiled, born, 0, bloom, client_version, expression_type
                )
            )  # fmt: skip

    def _put(self, data: ConsumerFilterData) -> bool:
        self._topics.setdefault(data.topic, {})[data.consumer_group] = data
        self._replaced.discard((data.topic, data.consumer_group))
        return True

    def _compiled(self, topic: str, group: str, expression: str, expression_type: str) -> Sql92Expression | None:
        try:
            if expression_type == _SQL92:
                return Sql92Expression(expression, self._release)
        except FilterError as error:
            _LOG.error("the expression of group %s for %s does not compile: %s", group, topic, error)
        return None

    def unregister(self, group: str) -> None:
        """Record that a group has left, for all topics."""
        with self._lock:
            for data in self.of_group(group):
                if not data.is_dead:
                    self._put(replace(data, dead_time=self._clock.now_ms()))

    def clean(self) -> None:
        """Forget the groups that left ``filterDataCleanTimeSpan`` ago, and topics without any."""
        with self._lock:
            dead_until = self._clock.now_ms() - self._kept_ms
            kept = {
                topic: {
                    group: data
                    for group, data in groups.items()
                    if (topic, group) in self._replaced or not (data.is_dead and data.dead_time <= dead_until)
                }
                for topic, groups in self._topics.items()
            }
            self._topics = {topic: groups for topic, groups in kept.items() if groups}

    # ---- the file

    def encode(self) -> JsonObject:
        """Return the contents of the file, after `clean`."""
        with self._lock:
            self.clean()
            table: JsonObject = {}
            for topic in concurrent_map_order(self._topics, self._capacity):
                groups: JsonObject = {data.consumer_group: _encode(data) for data in self.of_topic(topic)}
                table[topic] = {"groupFilterData": groups, "topic": topic}
            return {"filterDataByTopic": table}

    def decode(self, value: JsonObject, file: str) -> None:
        """Load the registrations of a file, with all groups marked as having left, 30 s ago at most.

        If any have bits of another filter, nothing is loaded, as if the file were missing.
        """
        fields = ConfigFields(value, file).object("filterDataByTopic")
        topics: dict[str, dict[str, ConsumerFilterData]] = {}
        for topic, members in fields.objects():
            groups = members.object("groupFilterData")
            topics[topic] = {group: self._decode(data, topic, group) for group, data in groups.objects()}
        found = [data for groups in topics.values() for data in groups.values()]
        other = next((data for data in found if not self.bloom_filter.is_valid(data.bloom)), None)
        if other is not None:
            note = (
                f"{file} was ignored: group {other.consumer_group!r} has bits of another filter for "
                f"{other.topic!r}; maxErrorRateOfBloomFilter or expectConsumerNumUseFilter has been changed"
            )
            self.notes += (note,)
            return
        with self._lock:
            self._capacity = DEFAULT_CAPACITY
            self._topics, self._replaced = topics, set()

    def _decode(self, fields: ConfigFields, topic: str, group: str) -> ConsumerFilterData:
        topic, group = fields.text("topic", topic), fields.text("consumerGroup", group)
        expression, kind = fields.text("expression", ""), fields.text("expressionType", _SQL92)
        bloom = fields.object("bloomFilterData")
        born, dead = fields.integer("bornTime"), fields.integer("deadTime")
        return ConsumerFilterData(
            group,
            topic,
            expression,
            self._compiled(topic, group, expression, kind),
            born,
            dead or max(born, self._clock.now_ms() - _ABSENT_MS),
            BloomFilterData(bloom.integers("bitPos"), bloom.small_integer("bitNum")) if bloom.members else None,
            fields.integer("clientVersion"),
            kind,
        )


def _encode(data: ConsumerFilterData) -> JsonObject:
    bloom: JsonObject | None = None
    if data.bloom is not None:
        bloom = {"bitNum": data.bloom.bit_num, "bitPos": data.bloom.positions}
    return {
        "bloomFilterData": bloom,
        "bornTime": data.born_time,
        "clientVersion": data.client_version,
        "consumerGroup": data.consumer_group,
        "dead": data.is_dead,
        "deadTime": data.dead_time,
        "expression": data.expression,
        "expressionType": data.expression_type,
        "topic": data.topic,
    }

# SPDX-License-Identifier: Apache-2.0
"""A consumer's filter: its expression, its bits, and the messages it lets through.

They are applied twice, see `store_core.format.filter.message_selector.MessageFilter`. Whatever is unknown matches: the
client compares tags again, and a message too many does less harm than one too few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from store_core.errors import FilterError
from store_core.format.filter.message_selector import TagSubscription, record_properties
from store_core.format.filter.sql92_expression import Sql92Expression
from store_core.format.properties import RETRY_TOPIC, PropertyParser
from store_core.format.record.delayed import RETRY_PREFIX
from store_core.format.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from store_core.format.filter.message_selector import ExtUnit

__all__ = [
    "BloomFilter",
    "BloomFilterData",
    "ConsumerFilterData",
    "ExpressionForRetryMessageFilter",
    "ExpressionMessageFilter",
    "SubscriptionData",
    "calculate_bit_map",
    "murmur3_128",
]

_BYTE: Final = 8
_MASK: Final = (1 << 64) - 1
_INT: Final = 1 << 32
_SIGN: Final = 1 << 31
_BLOCK: Final = 16
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


def _mix_1(key: int) -> int:
    return _rotate(key * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_2(key: int) -> int:
    return _rotate(key * _C2 & _MASK, 33) * _C1 & _MASK


def _finish(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def murmur3_128(data: bytes) -> int:
    """Hash bytes with MurmurHash3 (x64, 128 bits, seed 0), as Guava's ``Hashing.murmur3_128()`` does.

    Returns: The first 64 bits, unsigned: those that ``HashCode.asLong`` returns.
    """
    one = other = 0
    full = len(data) - len(data) % _BLOCK
    for start in range(0, full, _BLOCK):
        one ^= _mix_1(int.from_bytes(data[start : start + 8], "little"))
        one = (_rotate(one, 27) + other) * 5 + 0x52DCE729 & _MASK
        other ^= _mix_2(int.from_bytes(data[start + 8 : start + 16], "little"))
        other = (_rotate(other, 31) + one) * 5 + 0x38495AB5 & _MASK
    one ^= _mix_1(int.from_bytes(data[full : full + 8], "little"))
    other ^= _mix_2(int.from_bytes(data[full + 8 :], "little"))
    one, other = one ^ len(data), other ^ len(data)
    one = one + other & _MASK
    other = other + one & _MASK
    return _finish(one) + _finish(other) & _MASK


def _as_int(value: int) -> int:
    """Return the lower 32 bits as a Java int."""
    value %= _INT
    return value - _INT if value >= _SIGN else value


@dataclass(frozen=True, slots=True)
class BloomFilterData:
    """The bits of one consumer.

    Attributes
    ----------
    positions : tuple of int
        Bit p is in byte ``p // 8``, with the value ``1 << p % 8``.
    bit_num : int
        Bits of the whole map.
    """

    positions: tuple[int, ...]
    bit_num: int


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A bloom filter with `k` bits per consumer in a map of `m` bits (RocketMQ: ``BloomFilter.createByFn``).

    Parameters
    ----------
    error_rate : int
        Percentage of consumers that are falsely found in the map, 1 to 99 (``maxErrorRateOfBloomFilter``).
    consumer_num : int
        How many consumers the map is sized for (``expectConsumerNumUseFilter``).

    Examples
    --------
    >>> BloomFilter().generate("g1", "TopicA").positions
    (19, 13, 46)
    """

    error_rate: int = 20
    consumer_num: int = 32

    def __post_init__(self) -> None:
        if not 1 <= self.error_rate < 100 or self.consumer_num < 1:  # noqa: PLR2004 -- per cent
            raise ValueError(
                "expected an error rate of 1 to 99 per cent and a positive number of consumers, found "
                f"{self.error_rate} and {self.consumer_num}"
            )

    @property
    def k(self) -> int:
        """Bits per consumer."""
        return math.ceil(_log(0.5, self.error_rate / 100))

    @property
    def m(self) -> int:
        """Bits of the map: a multiple of 8."""
        bits = math.ceil(self.consumer_num * _log(2, 1 / (self.error_rate / 100)) * _log(2, math.e))
        return _BYTE * math.ceil(bits / _BYTE)

    def generate(self, group: str, topic: str) -> BloomFilterData:
        """Return the bits of a consumer group that reads a topic."""
        value = murmur3_128(f"{group}#{topic}".encode())
        low, high = _as_int(value), _as_int(value >> 32)
        sums = [_as_int(low + number * high) for number in range(1, self.k + 1)]
        m = self.m
        return BloomFilterData(tuple((~found if found < 0 else found) % m for found in sums), m)

    def is_valid(self, data: BloomFilterData | None) -> bool:
        """Return whether the bits were generated by such a filter."""
        if data is None or data.bit_num != self.m or len(data.positions) != self.k:
            return False
        return all(0 <= position < data.bit_num for position in data.positions)

    @staticmethod
    def is_hit(data: BloomFilterData, bit_map: bytes) -> bool:
        """Return whether all bits of a consumer are set in a map of the length that they require."""
        return all(bit_map[position // _BYTE] >> position % _BYTE & 1 for position in data.positions)

    @staticmethod
    def hash_to(data: BloomFilterData, bit_map: bytearray) -> None:
        """Set the bits of a consumer."""
        for position in data.positions:
            bit_map[position // _BYTE] |= 1 << position % _BYTE


def _log(base: float, value: float) -> float:
    """Return a logarithm with Java's rounding: the quotient of two natural logarithms."""
    return math.log(value) / math.log(base)


@dataclass(frozen=True, slots=True)
class ConsumerFilterData:
    """What a broker stores for a consumer group with an SQL92 filter (RocketMQ: ``ConsumerFilterData``).

    Attributes
    ----------
    compiled : Sql92Expression or None
        None if the expression does not compile, or is of an unknown language: then everything matches.
    born_time : int
        When it was registered, ms since 1970; maps of messages stored until then lack its bits.
    dead_time : int
        When the group left, ms since 1970; 0 while it is connected.
    bloom : BloomFilterData or None
        Its bits.
    client_version : int
        Version of this registration; older ones are ignored.
    """

    consumer_group: str
    topic: str
    expression: str
    compiled: Sql92Expression | None
    born_time: int = 0
    dead_time: int = 0
    bloom: BloomFilterData | None = None
    client_version: int = 0
    expression_type: str = "SQL92"

    @classmethod
    def build(  # noqa: PLR0913 -- who, what, when, and by which rules
        cls,
        consumer_group: str,
        topic: str,
        expression: str,
        born_time: int,
        *,
        bloom_filter: BloomFilter | None = None,
        release: str = DEFAULT_RELEASE,
        client_version: int = 0,
    ) -> Self:
        """Make the registration of an expression.

        Raises
        ------
        FilterError
            If it does not compile. RocketMQ then registers nothing, and serves a pull that carries the expression
            unfiltered.
        """
        bloom = (bloom_filter or BloomFilter()).generate(consumer_group, topic)
        compiled = Sql92Expression(expression, release)
        return cls(consumer_group, topic, expression, compiled, born_time, bloom=bloom, client_version=client_version)

    @property
    def is_dead(self) -> bool:
        """Whether the group has left."""
        return self.dead_time >= self.born_time

    def is_msg_in_live(self, msg_store_time: int) -> bool:
        """Return whether a message was stored after the registration, so that its map counts."""
        return msg_store_time > self.born_time


def calculate_bit_map(
    consumers: Iterable[ConsumerFilterData], properties: Mapping[str, str], bloom_filter: BloomFilter | None = None
) -> bytes:
    """Return the map of a message: the bits of each consumer of its topic whose expression is true.

    With ``enableCalcFilterBitMap`` the broker does this before queues are built; the map is stored in the queue's
    extension.

    * `consumers`: Those of the message's topic, including groups that have left.

    Returns: Empty without any consumer. A consumer without a compiled expression or without bits sets none.

    Notes
    -----
    RocketMQ: ``CommitLogDispatcherCalcBitMap.dispatch``; an expression that fails sets no bits. Bits of another filter
    than `bloom_filter` end the calculation at once, without a map.
    """
    known = list(consumers)
    chosen = bloom_filter or BloomFilter()
    bit_map = bytearray(chosen.m // 8)
    for consumer in known:
        if consumer.compiled is None or consumer.bloom is None or not consumer.compiled.is_match(properties):
            continue
        if not chosen.is_valid(consumer.bloom):
            return b""
        chosen.hash_to(consumer.bloom, bit_map)
    return bytes(bit_map) if known else b""


_TAG_TYPES: Final = ("", "TAG")


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """A consumer's subscription to a topic (RocketMQ: ``SubscriptionData``).

    Attributes
    ----------
    tags : TagSubscription
        For an expression other than tags, only its text is used.
    expression_type : str
        ``"TAG"``, also if empty, or ``"SQL92"``.
    is_class_filter_mode : bool
        Whether a filter server was to decide (until 4.8): then everything matches.
    """

    topic: str
    tags: TagSubscription
    expression_type: str = "TAG"
    is_class_filter_mode: bool = False

    @classmethod
    def build(cls, topic: str, text: str, expression_type: str = "TAG") -> Self:
        """Parse a subscription as clients send it (RocketMQ: ``FilterAPI.build``).

        Raises
        ------
        FilterError
            If it is by tag and consists only of separators; or if an expression is empty.
        """
        if expression_type == "TAG":
            return cls(topic, TagSubscription.parse(text))
        if not text:
            raise FilterError(f"expected an expression of type {expression_type}, found nothing")
        return cls(topic, TagSubscription(text), expression_type)

    @property
    def is_by_tag(self) -> bool:
        """Whether it is by tag."""
        return self.expression_type in _TAG_TYPES


class ExpressionMessageFilter:
    """The filter of a pull (RocketMQ: ``ExpressionMessageFilter``).

    * `subscription`: None matches everything.
    * `filter_data`: The consumer's registration for this topic. None, or one whose expression does not compile, matches
      everything: RocketMQ serves a pull unfiltered if its expression does not compile; better refuse it earlier with
      SUBSCRIPTION_PARSE_FAILED.
    * `bloom_filter`: The broker's.
    * `parser`: How properties of records are read.
    """

    def __init__(
        self,
        subscription: SubscriptionData | None,
        filter_data: ConsumerFilterData | None = None,
        bloom_filter: BloomFilter | None = None,
        parser: PropertyParser = PropertyParser.FIRST_SEPARATOR,
    ) -> None:
        self.subscription = subscription
        self.filter_data = filter_data
        self._bloom_filter = bloom_filter or BloomFilter()
        self._parser = parser

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: ExtUnit | None = None) -> bool:
        """Report from a queue unit whether the message may match.

        Tags are compared by their hash. An expression is looked up in the extension's bit map; without one, with one of
        another length, or if the message was not stored after the registration, it may match.
        """
        subscription = self.subscription
        if subscription is None or subscription.is_class_filter_mode:
            return True
        if subscription.is_by_tag:
            return subscription.tags.is_matched_by_code(tags_code)
        data = self.filter_data
        if data is None or data.compiled is None or data.bloom is None:
            return True
        if ext is None or not data.is_msg_in_live(ext.msg_store_time) or not ext.bit_map:
            return True
        if not self._bloom_filter.is_valid(data.bloom) or len(ext.bit_map) * _BYTE != data.bloom.bit_num:
            return True
        return self._bloom_filter.is_hit(data.bloom, ext.bit_map)

    def is_matched_by_commit_log(self, record: memoryview) -> bool:
        """Report from a record whether the message matches; tags are not compared again."""
        return self._is_matched(lambda: record_properties(record, self._parser))

    def is_matched_by_properties(self, properties: Mapping[str, str]) -> bool:
        """Report the same from the properties alone, which are known when a message arrives."""
        return self._is_matched(lambda: properties)

    def _is_matched(self, properties: Callable[[], Mapping[str, str]]) -> bool:
        subscription = self.subscription
        if subscription is None or subscription.is_class_filter_mode or subscription.is_by_tag:
            return True
        return self.filter_data is None or _is_true(self.filter_data, properties)


class ExpressionForRetryMessageFilter(ExpressionMessageFilter):
    """The filter of a pull if ``filterSupportRetry`` is set (RocketMQ: ``ExpressionForRetryMessageFilter``).

    A message of a ``%RETRY%`` topic is tested with the group's registration for the topic in property RETRY_TOPIC. A
    message without that property matches; RocketMQ fails on it with a NullPointerException.

    * `subscription`, `filter_data`, `bloom_filter`, `parser`: See `ExpressionMessageFilter`.
    * `find_filter_data`: Returns the registration of a group for a topic, None if there is none.
    * `release`: Up to 4.9 retries are tested this way even if the subscription to the retry topic is by tag; in later
      releases they match, as nearly all subscriptions to retry topics are by tag.
    """

    def __init__(  # noqa: PLR0913 -- those of the base class, and what retries need
        self,
        subscription: SubscriptionData | None,
        find_filter_data: Callable[[str, str], ConsumerFilterData | None],
        filter_data: ConsumerFilterData | None = None,
        bloom_filter: BloomFilter | None = None,
        parser: PropertyParser = PropertyParser.FIRST_SEPARATOR,
        *,
        release: str = DEFAULT_RELEASE,
    ) -> None:
        super().__init__(subscription, filter_data, bloom_filter, parser)
        self._find_filter_data = find_filter_data
        self._features = rules_of(release)

    def _is_matched(self, properties: Callable[[], Mapping[str, str]]) -> bool:
        subscription = self.subscription
        if subscription is None or subscription.is_class_filter_mode:
            return True
        is_retry = subscription.topic.startswith(RETRY_PREFIX)
        if not is_retry or (self._features.filters_retries_by_tag and subscription.is_by_tag):
            return super()._is_matched(properties)
        known = properties()
        topic = known.get(RETRY_TOPIC)
        data = None if topic is None else self._find_filter_data(topic, self._group(subscription.topic))
        return data is None or _is_true(data, lambda: known)

    def _group(self, retry_topic: str) -> str:
        """Return the group in the name of its retry topic; in 5.x also from ``%RETRY%group+topic``."""
        name = retry_topic.removeprefix(RETRY_PREFIX)
        parts = name.rstrip("+").split("+")
        has_topic = self._features.cuts_group_from_retry_topic and len(parts) == 2  # noqa: PLR2004 -- group and topic
        return parts[0] if has_topic else name


def _is_true(data: ConsumerFilterData, properties: Callable[[], Mapping[str, str]]) -> bool:
    """Evaluate a registered expression; without one everything matches."""
    return data.compiled is None or data.compiled.is_match(properties())

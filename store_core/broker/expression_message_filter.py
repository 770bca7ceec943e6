# SPDX-License-Identifier: Apache-2.0
"""Filters of a broker's consumers: by their subscription, and by the expressions registered with the broker.

They are applied twice, see `store_core.format.filter.message_selector.MessageFilter`. Whatever is unknown matches: the
client compares tags again, and a message too many does less harm than one too few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store_core.broker.bloom_filter import BloomFilter
from store_core.errors import FilterError
from store_core.format.filter.message_selector import TagSubscription
from store_core.format.properties import PropertyParser
from store_core.format.property_string import RETRY_TOPIC
from store_core.format.record.delayed import RETRY_PREFIX
from store_core.format.record.record_properties import record_properties
from store_core.format.releases.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from store_core.broker.consumer_filter import ConsumerFilterData
    from store_core.format.filter.message_selector import ExtUnit

__all__ = ["ExpressionForRetryMessageFilter", "ExpressionMessageFilter", "SubscriptionData"]

_TAG_TYPES: Final = ("", "TAG")
_BYTE: Final = 8


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

    Parameters
    ----------
    subscription : SubscriptionData or None
        None matches everything.
    filter_data : ConsumerFilterData or None
        The consumer's registration for this topic. None, or one whose expression does not compile, matches everything:
        RocketMQ serves a pull unfiltered if its expression does not compile; better refuse it earlier with
        SUBSCRIPTION_PARSE_FAILED.
    bloom_filter : BloomFilter
        The broker's.
    parser : PropertyParser
        How properties of records are read.
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
        """Report from a record whether the message matches; tags are not compared again.

        Raises
        ------
        CorruptRecordError
            If the bytes are not a record.
        """
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

    Parameters
    ----------
    subscription, filter_data, bloom_filter, parser
        See `ExpressionMessageFilter`.
    find_filter_data : callable
        Returns the registration of a group for a topic, None if there is none.
    release : str
        Up to 4.9 retries are tested this way even if the subscription to the retry topic is by tag; in later releases
        they match, as nearly all subscriptions to retry topics are by tag.
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

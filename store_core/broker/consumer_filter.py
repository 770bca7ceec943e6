# SPDX-License-Identifier: Apache-2.0
"""The filter expressions that consumers registered, and the bits that they set in a message's map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from store_core.broker.bloom_filter import BloomFilter, BloomFilterData
from store_core.format.filter.sql92_expression import Sql92Expression
from store_core.format.releases.release import DEFAULT_RELEASE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["ConsumerFilterData", "calculate_bit_map"]


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

    Parameters
    ----------
    consumers : iterable of ConsumerFilterData
        Those of the message's topic, including groups that have left.

    Returns
    -------
    bytes
        Empty without any consumer. A consumer without a compiled expression or without bits sets none.

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

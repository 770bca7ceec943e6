# SPDX-License-Identifier: Apache-2.0
"""The bloom filter that says of a message which SQL92 consumers it may be for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

__all__ = ["BloomFilter", "BloomFilterData", "murmur3_128"]

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
    """Hash bytes with MurmurHash3 (x64, 128 bits, seed 0), as Guava's ``Hashing.murmur3_128()``.

    Returns
    -------
    int
        The first 64 bits, unsigned: those that ``HashCode.asLong`` gives.
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
    """Take the lower 32 bits as a Java int."""
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
    """A bloom filter of `k` bits a consumer in a map of `m` bits (RocketMQ: ``BloomFilter.createByFn``).

    Parameters
    ----------
    error_rate : int
        Per cent of consumers that are found in the map of others, 1 to 99 (``maxErrorRateOfBloomFilter``).
    consumer_num : int
        How many consumers the map is made for (``expectConsumerNumUseFilter``).

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
        """Bits a consumer."""
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
        """Return whether the bits are of this filter."""
        if data is None or data.bit_num != self.m or len(data.positions) != self.k:
            return False
        return all(0 <= position < data.bit_num for position in data.positions)

    @staticmethod
    def is_hit(data: BloomFilterData, bit_map: bytes) -> bool:
        """Return whether all bits of a consumer are set in a map that is as long as they say."""
        return all(bit_map[position // _BYTE] >> position % _BYTE & 1 for position in data.positions)

    @staticmethod
    def hash_to(data: BloomFilterData, bit_map: bytearray) -> None:
        """Set the bits of a consumer."""
        for position in data.positions:
            bit_map[position // _BYTE] |= 1 << position % _BYTE


def _log(base: float, value: float) -> float:
    """Return a logarithm with Java's rounding: the quotient of two natural ones."""
    return math.log(value) / math.log(base)

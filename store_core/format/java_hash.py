# SPDX-License-Identifier: Apache-2.0
"""Java's ``String.hashCode``, which RocketMQ stores for tags and keys."""

from __future__ import annotations

from typing import Final

__all__ = ["hash_code", "positive_hash", "tags_code"]

_WORD: Final = 1 << 32
_SIGN: Final = 1 << 31


def hash_code(text: str) -> int:
    """Hash a string as Java does: over its UTF-16 code units, in 32 bits, signed.

    Examples
    --------
    >>> hash_code("TagA"), hash_code("中文"), hash_code("😀")
    (2598919, 646394, 1772899)
    """
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) % _WORD
    return value - _WORD if value >= _SIGN else value


def tags_code(tags: str | None) -> int:
    """Return the tags code of a message: the hash of its TAGS, 0 without tags.

    RocketMQ: ``MessageExtBrokerInner.tagsString2tagsCode``; the whole string is hashed, multi-tag topics included.
    """
    return hash_code(tags) if tags else 0


def positive_hash(hash_code: int) -> int:
    """Make a key's hash positive; -2**31, which has no positive, becomes 0 (``IndexFile.indexKeyHashMethod``).

    >>> positive_hash(-3), positive_hash(-(2**31))
    (3, 0)
    """
    return abs(hash_code) if hash_code != -_SIGN else 0

# SPDX-License-Identifier: Apache-2.0
"""The properties string of a record: ``name 1 value 2 name 1 value 2 ...`` in UTF-8.

This module is the readable definition; `store_core.format.columnar.property_columns` parses many records at once.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from store_core.format.releases.release import rules_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "KEYS",
    "KEY_SEPARATOR",
    "NAME_VALUE_SEPARATOR",
    "PROPERTY_CRC",
    "PROPERTY_SEPARATOR",
    "TAGS",
    "UNIQ_KEY",
    "PropertyParser",
    "decode_text",
    "first_property",
    "parse_properties",
    "property_crc_digits",
    "split_keys",
]

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQ_KEY: Final = "UNIQ_KEY"
PROPERTY_CRC: Final = "__CRC32#"

_PAIR: Final = 2
_CRC_DIGITS: Final = 10
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\ufffd".encode()


class PropertyParser(Enum):
    """Which of RocketMQ's two parsers reads a properties string (``MessageDecoder.string2messageProperties``)."""

    FIRST_SEPARATOR = "4.9.1 and later: an item splits at its first separator; both sides must be non-empty"
    EXACT_PAIR = "up to 4.9.0: an item counts if String.split gives exactly two parts"

    @classmethod
    def of_release(cls, release: str) -> PropertyParser:
        """Choose the parser of a release, one of `RELEASES`."""
        return cls.FIRST_SEPARATOR if rules_of(release).splits_properties_at_first_separator else cls.EXACT_PAIR


def decode_text(data: bytes) -> str:
    r"""Decode UTF-8 as Java's ``new String(bytes, UTF_8)`` does: malformed bytes become U+FFFD, nothing raises.

    Java and Python agree on how many U+FFFD replace malformed bytes, except for encoded surrogates: one each in Java.

    Examples
    --------
    >>> decode_text(b"a\xed\xa0\x80b\xe4\xb8") == "a\ufffdb\ufffd"
    True
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")


def parse_properties(text: str, parser: PropertyParser = PropertyParser.FIRST_SEPARATOR) -> dict[str, str]:
    r"""Parse a properties string; if a name occurs twice the last value wins.

    Parameters
    ----------
    text : str
        The properties field, decoded.
    parser : PropertyParser
        The rule of the release to follow.

    Examples
    --------
    >>> parse_properties("TAGS\x01TagA\x02KEYS\x01k1 k2")
    {'TAGS': 'TagA', 'KEYS': 'k1 k2'}
    """
    return dict(_pairs(text, parser))


def first_property(text: str, name: str, parser: PropertyParser = PropertyParser.FIRST_SEPARATOR) -> str | None:
    r"""Return the first value of a property; None without any. `parse_properties` has the last.

    Examples
    --------
    >>> first_property("UNIQ_KEY\x01A1\x02WAIT\x01true\x02UNIQ_KEY\x01B7\x02", "UNIQ_KEY")
    'A1'
    """
    return next((value for each, value in _pairs(text, parser) if each == name), None)


def _pairs(text: str, parser: PropertyParser) -> Iterator[tuple[str, str]]:
    split = _split_first if parser is PropertyParser.FIRST_SEPARATOR else _split_exact
    for item in text.split(PROPERTY_SEPARATOR):
        pair = split(item)
        if pair is not None:
            yield pair


def _split_first(item: str) -> tuple[str, str] | None:
    name, _, value = item.partition(NAME_VALUE_SEPARATOR)
    return (name, value) if name and value else None


def _split_exact(item: str) -> tuple[str, str] | None:
    r"""Split as ``item.split("\x01")`` in Java, which drops empty parts at the end."""
    parts = item.rstrip(NAME_VALUE_SEPARATOR).split(NAME_VALUE_SEPARATOR)
    return (parts[0], parts[1]) if len(parts) == _PAIR else None


def split_keys(keys: str) -> list[str]:
    """Split the KEYS property at blanks; empty keys are dropped (``IndexService.buildIndex``)."""
    return [key for key in keys.split(KEY_SEPARATOR) if key]


def property_crc_digits(crc: int) -> str:
    """Return a CRC as the property ``__CRC32#`` holds it: ten decimal digits, least significant first.

    RocketMQ 5.2.0 and later: ``MessageDecoder.createCrc32``.

    Examples
    --------
    >>> property_crc_digits(1746536646)
    '6466356471'
    """
    return str(crc)[::-1].ljust(_CRC_DIGITS, "0")

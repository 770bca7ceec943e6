# SPDX-License-Identifier: Apache-2.0
"""The properties of a message: how their string is read, and written.

This module is the readable definition; `store_core.format.columnar.property_columns` parses many records at once.

The string normally comes from the producer and is stored as it is. It is built here if a message is given as a map, or
the store itself adds properties.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from store_core.format.java import DEFAULT_CAPACITY, hash_map_capacity, hash_map_order
from store_core.format.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQ_KEY: Final = "UNIQ_KEY"
PROPERTY_CRC: Final = "__CRC32#"
CRC_NAME: Final = f"{PROPERTY_CRC}\x01".encode()
"""What the property CRC begins with, which is the last of a record's properties."""
CRC_DIGITS: Final = 10

_PAIR: Final = 2
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

    >>> decode_text(b"a\xed\xa0\x80b\xe4\xb8") == "a\ufffdb\ufffd"
    True
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")


def parse_properties(text: str, parser: PropertyParser = PropertyParser.FIRST_SEPARATOR) -> dict[str, str]:
    r"""Parse a properties string; if a name occurs twice the last value wins.

    >>> parse_properties("TAGS\x01TagA\x02KEYS\x01k1 k2")
    {'TAGS': 'TagA', 'KEYS': 'k1 k2'}
    """
    return dict(_pairs(text, parser))


def first_property(text: str, name: str, parser: PropertyParser = PropertyParser.FIRST_SEPARATOR) -> str | None:
    r"""Return the first value of a property; None without any. `parse_properties` has the last.

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


def crc_property(crc: int) -> bytes:
    r"""Return the property ``__CRC32#`` of a CRC: ten decimal digits, least significant first.

    RocketMQ 5.2.0 and later: ``MessageDecoder.createCrc32``.

    >>> crc_property(1746536646)
    b'__CRC32#\x016466356471\x02'
    """
    return CRC_NAME + str(crc)[::-1].ljust(CRC_DIGITS, "0").encode() + b"\x02"


DELAY: Final = "DELAY"
WAIT: Final = "WAIT"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
"""Of a retry and a dead letter: the topic of the first message."""
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"

MAX_PROPERTIES_SIZE: Final = 0x7FFF
"""Most bytes the properties field can hold: its length is a signed short."""

CRC_RESERVED: Final = len(CRC_NAME) + CRC_DIGITS + 1
"""Size of the property CRC at the end of a record, in bytes (RocketMQ 5.2: ``CommitLog.CRC32_RESERVED_LEN``)."""


class PropertyMap(dict[str, str | None]):
    """Properties in insertion order, with the initial number of buckets of the Java map they represent.

    * `items`: Name to value; None means no value.
    * `capacity`: 16 for a producer's map; `ReleaseRules.decoded_properties_capacity` for one parsed from a string.
    """

    __slots__ = ("capacity",)

    def __init__(
        self,
        items: Mapping[str, str | None] | Iterable[tuple[str, str | None]] = (),
        capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        super().__init__(items)
        self.capacity = capacity

    @property
    def buckets(self) -> int:
        """Number of buckets that the Java map has now."""
        return hash_map_capacity(tuple(self), self.capacity)

    def without(self, name: str) -> PropertyMap:
        """Return a copy without a name; a Java map keeps its buckets when a key is removed."""
        return PropertyMap(((other, value) for other, value in self.items() if other != name), self.buckets)


def to_utf8(text: str) -> bytes:
    """Encode as Java's ``String.getBytes(UTF_8)``: an unpaired surrogate becomes a question mark, nothing raises."""
    return text.encode("utf-8", "replace")


def ends_with_separator(data: bytes) -> bool:
    """Return whether a properties field ends in the separator that follows a value."""
    return data.endswith(PROPERTY_SEPARATOR.encode())


def format_properties(properties: Mapping[str, str | None], release: str = DEFAULT_RELEASE) -> str:
    r"""Return a properties map as the string a release writes (``MessageDecoder.messageProperties2String``).

    * `properties`: In insertion order; a value of None is omitted, or written as ``null``, as in the release.
    * `release`: One of `RELEASES`; also determines whether a separator follows the last value.

    >>> format_properties({"TAGS": "TagA", "KEYS": "k1 k2"}, "4.9")
    'KEYS\x01k1 k2\x02TAGS\x01TagA'
    """
    features = rules_of(release)
    names = tuple(properties)
    buckets = properties.buckets if isinstance(properties, PropertyMap) else hash_map_capacity(names)
    items = []
    for name in hash_map_order(names, buckets):
        value = properties[name]
        if value is not None or features.writes_null_properties:
            shown = "null" if value is None else value
            items.append(f"{name}{NAME_VALUE_SEPARATOR}{shown}{PROPERTY_SEPARATOR}")
    text = "".join(items)
    return text if features.ends_properties_with_separator else text[:-1]


def parse_decoded_properties(text: str, release: str = DEFAULT_RELEASE) -> PropertyMap:
    """Parse a properties string as a broker of a release does (``MessageDecoder.string2messageProperties``)."""
    properties = parse_properties(text, PropertyParser.of_release(release))
    return PropertyMap(properties.items(), rules_of(release).decoded_properties_capacity)


def delete_property(text: str, name: str) -> str:
    r"""Remove every item of a name from a properties string (RocketMQ 5.2 and later: ``MessageUtils.deleteProperty``).

    An item without a separator after its value takes the rest of the string with it, as in Java.

    >>> delete_property("a\x01b\x02__CRC32#\x011\x02c\x01d", "__CRC32#")
    'a\x01b\x02c\x01d'
    """
    items = text.split(PROPERTY_SEPARATOR)
    kept = [item for item in items if not item.startswith(name + NAME_VALUE_SEPARATOR)]
    if len(kept) == len(items):
        return text
    cut_last = items[-1].startswith(name + NAME_VALUE_SEPARATOR)
    return PROPERTY_SEPARATOR.join([*kept, ""] if cut_last and kept else kept)

# SPDX-License-Identifier: Apache-2.0
"""Writing of a record's properties string; `store_core.format.properties` reads it.

The string normally comes from the producer and is stored as it is. It is built here if a message is given as a map, or
the store itself adds properties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core.format.java import DEFAULT_CAPACITY, hash_map_capacity, hash_map_order
from store_core.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, PropertyParser, parse_properties
from store_core.format.releases.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "CRC_RESERVED",
    "DELAY",
    "INNER_BASE",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "INNER_NUM",
    "MAX_PROPERTIES_SIZE",
    "REAL_QID",
    "REAL_TOPIC",
    "RETRY_TOPIC",
    "TIMER_DELAY_MS",
    "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS",
    "TIMER_DEL_UNIQKEY",
    "TIMER_OUT_MS",
    "WAIT",
    "PropertyMap",
    "delete_property",
    "ends_with_separator",
    "format_properties",
    "parse_decoded_properties",
    "to_utf8",
]

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

CRC_RESERVED: Final = len("__CRC32#") + 1 + 10 + 1
"""Size of the property CRC at the end of a record, in bytes (RocketMQ 5.2: ``CommitLog.CRC32_RESERVED_LEN``)."""


class PropertyMap(dict[str, str | None]):
    """Properties in insertion order, with the initial number of buckets of the Java map they represent.

    Parameters
    ----------
    items : mapping or iterable of pairs
        Name to value; None means no value.
    capacity : int
        16 for a producer's map; `ReleaseRules.decoded_properties_capacity` for one parsed from a string.
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

    Parameters
    ----------
    properties : mapping of str to str or None
        In insertion order; a value of None is omitted, or written as ``null``, as in the release.
    release : str
        One of `RELEASES`; also determines whether a separator follows the last value.

    Examples
    --------
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

    Examples
    --------
    >>> delete_property("a\x01b\x02__CRC32#\x011\x02c\x01d", "__CRC32#")
    'a\x01b\x02c\x01d'
    """
    items = text.split(PROPERTY_SEPARATOR)
    kept = [item for item in items if not item.startswith(name + NAME_VALUE_SEPARATOR)]
    if len(kept) == len(items):
        return text
    cut_last = items[-1].startswith(name + NAME_VALUE_SEPARATOR)
    return PROPERTY_SEPARATOR.join([*kept, ""] if cut_last and kept else kept)

# SPDX-License-Identifier: Apache-2.0
"""What a consumer selects: tags or an expression, on the properties of a record.

A filter is a function of a queue unit and of a record's properties: bytes in memory, independent of consumers. The
store calls it, so it is below the store; the filter of a broker's registered consumers is
`store_core.broker.consumer_filter`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, Self, runtime_checkable

from store_core.errors import FilterError
from store_core.format.filter.sql92_parser import Sql92Expression
from store_core.format.filter.sql92_values import JAVA_BLANKS
from store_core.format.java import INT_BITS, hash_code, wrap
from store_core.format.layout import MIN_RECORD_SIZE, MagicCode
from store_core.format.properties import TAGS, PropertyParser, decode_text, parse_properties
from store_core.format.record.decode import corrupt_record_error
from store_core.format.record.scan import check_record, head_reader, head_shape
from store_core.format.release import DEFAULT_RELEASE

if TYPE_CHECKING:
    from collections.abc import Mapping


_I16: Final = struct.Struct(">h")
_read_kind: Final = head_reader("total_size", "magic_code", "sys_flag")
_V1: Final = MagicCode.MESSAGE_V1.value
_MOST_TOPIC: Final = 127


def record_properties(record: memoryview, parser: PropertyParser = PropertyParser.FIRST_SEPARATOR) -> dict[str, str]:
    """Return the properties of a record; the body is not read.

    * `record`: Format ``B``, from the record's first byte on.

    RocketMQ: ``MessageDecoder.decodeProperties``, which trusts the lengths.
    """
    start, stop = _plain_span(record) or _checked_span(record)
    return parse_properties(decode_text(bytes(record[start:stop])), parser)


def _plain_span(record: memoryview) -> tuple[int, int] | None:
    """Return the properties' span in a V1 record with positive lengths that add up; None: use `_checked_span`."""
    room = len(record)
    if room < MIN_RECORD_SIZE:
        return None
    size, magic, sys_flag = _read_kind(record, 0)
    shape = head_shape(sys_flag)
    if magic != _V1 or not shape.size < size <= room:
        return None
    (body_size,) = shape.read_body_length(record, 0)
    topic_start = shape.size + body_size + 1
    if body_size < 0 or topic_start + _I16.size > size:
        return None
    topic_length = record[topic_start - 1]
    topic_stop = topic_start + topic_length
    if topic_length > _MOST_TOPIC or topic_stop + _I16.size > size:
        return None
    start = topic_stop + _I16.size
    is_whole = start + _I16.unpack_from(record, topic_stop)[0] == size
    return (start, size) if is_whole else None


def _checked_span(record: memoryview) -> tuple[int, int]:
    check = check_record(record, 0, None, verify_crc=False)
    if check.spans is None:
        raise corrupt_record_error(check, record, 0, 0, "<record>")
    return check.spans.properties_start, check.spans.properties_stop


class ExtUnit(Protocol):
    """The part of a queue extension's unit that filters read."""

    @property
    def msg_store_time(self) -> int:
        """Store time of the record, ms since 1970."""

    @property
    def bit_map(self) -> bytes:
        """Bit map of the consumers whose expressions were true; empty if none was computed."""


@runtime_checkable
class MessageFilter(Protocol):
    """Decides in two steps which messages a consumer gets; the second needs the record (Java: ``MessageFilter``)."""

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: ExtUnit | None = None) -> bool:
        """Return from a queue unit whether the message may match.

        * `tags_code`: The 64 bits of the unit; None if they were in an extension that is lost.
        * `ext`: The unit of the extension, if there is one.
        """

    def is_matched_by_commit_log(self, record: memoryview) -> bool:
        """Return from the bytes of the record whether the message matches."""


SUB_ALL: Final = "*"
FILTER_TYPES: Final = ("TAG", "SQL92")
"""Names of the filter languages (RocketMQ: ``ExpressionType``)."""

_SEPARATOR: Final = "||"


@dataclass(frozen=True, slots=True)
class TagSubscription:
    """Tags that a consumer subscribes to; RocketMQ: ``FilterAPI.buildSubscriptionData``, ``SubscriptionData``.

    Attributes
    ----------
    text : str
        As given; ``"*"`` if empty.
    tags : frozenset of str
    codes : frozenset of int
        Java hashes of the tags, with which queue units are compared.
    """

    text: str
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``TagA || TagB``; empty or ``*`` means all messages, blanks alone none.

        Raises
        ------
        FilterError
            If there are only separators.

        Examples
        --------
        >>> sorted(TagSubscription.parse(" TagA||TagB || ").tags)
        ['TagA', 'TagB']
        """
        if text in ("", SUB_ALL):
            return cls(SUB_ALL)
        parts = text.split(_SEPARATOR)
        if not any(parts):
            raise FilterError("expected tags such as TagA || TagB, or * for all messages, found only separators", text)
        tags = frozenset(tag for part in parts if (tag := part.strip(JAVA_BLANKS)))
        return cls(text, tags, frozenset(map(hash_code, tags)))

    @property
    def is_all(self) -> bool:
        """Whether every message is selected."""
        return self.text == SUB_ALL

    def is_matched_by_code(self, tags_code: int | None) -> bool:
        """Return whether a queue unit may be of one of the tags: only its lower 32 bits count, None always matches."""
        return tags_code is None or self.is_all or wrap(tags_code, INT_BITS) in self.codes

    def is_matched_by_tags(self, tags: str | None) -> bool:
        """Return whether a message has one of the tags, as clients check again."""
        return self.is_all or tags in self.tags


@dataclass(frozen=True, slots=True)
class MessageSelector:
    """Selected messages; create it with `by_tag`, `by_sql` or `of`. It can be pickled, and is a `MessageFilter`.

    Attributes
    ----------
    tags : TagSubscription
    sql : Sql92Expression or None
        If given, the tags are ignored.
    parser : PropertyParser
        How the properties of records are parsed.

    Examples
    --------
    >>> MessageSelector.by_tag("TagA || TagB").matches({"TAGS": "TagB"})
    True
    >>> MessageSelector.by_sql("a > 5").matches({"a": "5"})
    False
    """

    tags: TagSubscription = TagSubscription(SUB_ALL)
    sql: Sql92Expression | None = None
    parser: PropertyParser = field(default=PropertyParser.FIRST_SEPARATOR)

    NONE: ClassVar[MessageSelector]
    """Selects every message."""

    @classmethod
    def by_tag(cls, subscription: str) -> Self:
        """Select messages with any of some tags, or all with ``*``.

        As in RocketMQ the store compares hashes, so `get_message` may also return messages whose tags have the same
        hash; `matches` compares the tags.

        Raises
        ------
        FilterError
            If it has only separators.
        """
        return cls(TagSubscription.parse(subscription))

    @classmethod
    def by_sql(cls, expression: str, release: str = DEFAULT_RELEASE) -> Self:
        """Select messages for which an SQL92 expression is true.

        Raises
        ------
        FilterError
            If it does not compile under the rules of the release, one of `RELEASES`.
        """
        return cls(sql=Sql92Expression(expression, release), parser=PropertyParser.of_release(release))

    @classmethod
    def of(cls, filter_type: str, text: str, release: str = DEFAULT_RELEASE) -> Self:
        """Select by an expression in the named language, one of `FILTER_TYPES`.

        Raises
        ------
        FilterError
            If there is no such language, or the text is not valid in it.
        """
        if filter_type not in FILTER_TYPES:
            raise FilterError(f"expected a filter type of {', '.join(FILTER_TYPES)}, found {filter_type!r}")
        return cls.by_sql(text, release) if filter_type == "SQL92" else cls.by_tag(text)

    @property
    def is_all(self) -> bool:
        """Whether every message is selected, so that no message need be read."""
        return self.sql is None and self.tags.is_all

    def matches(self, properties: Mapping[str, str]) -> bool | None:
        """Return whether a message with these properties is selected: only if the result is True.

        Returns
        -------
        bool or None
            None where SQL92 has null: the expression refers to a property that is absent.

        Raises
        ------
        FilterError
            Where RocketMQ has an evaluation error, and omits the message.
        """
        if self.sql is not None:
            return self.sql.evaluate(properties)
        return self.tags.is_matched_by_tags(properties.get(TAGS))

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: ExtUnit | None = None) -> bool:
        """Return whether the message of a queue unit may match; a unit never rules out an expression."""
        del ext
        return self.sql is not None or self.tags.is_matched_by_code(tags_code)

    def is_matched_by_commit_log(self, record: memoryview) -> bool:
        """Return whether a record, which its queue unit did not rule out, matches.

        Raises
        ------
        CorruptRecordError
            If the bytes are not a record.
        """
        return self.sql is None or self.sql.is_match(record_properties(record, self.parser))


MessageSelector.NONE = MessageSelector()

# SPDX-License-Identifier: Apache-2.0
"""Which messages a caller wants: those with some tags, or those that an SQL92 expression is true for.

It stands in `store_core.format`, below the store whose `get_message` takes it: a selector is a function of bytes in
memory, and knows of no consumer. What a broker's registered consumers get is in
`store_core.broker.expression_message_filter`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Self

from store_core.errors import FilterError
from store_core.format.filter.sql92_expression import Sql92Expression
from store_core.format.filter.sql92_values import JAVA_BLANKS
from store_core.format.java_hash import hash_code
from store_core.format.properties import TAGS, PropertyParser
from store_core.format.record.record_properties import record_properties
from store_core.format.releases.release import DEFAULT_RELEASE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.format.filter.message_filter import ExtUnit

__all__ = ["FILTER_TYPES", "MessageSelector", "TagSubscription"]

SUB_ALL: Final = "*"
FILTER_TYPES: Final = ("TAG", "SQL92")
"""Names of the filter languages (RocketMQ: ``ExpressionType``)."""

_SEPARATOR: Final = "||"
_INT: Final = 1 << 32
_SIGN: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class TagSubscription:
    """Tags that a consumer subscribes to; RocketMQ: ``FilterAPI.buildSubscriptionData``, ``SubscriptionData``.

    Attributes
    ----------
    text : str
        As given, ``"*"`` for an empty one.
    tags : frozenset of str
    codes : frozenset of int
        Java hashes of the tags, which queue units are compared with.
    """

    text: str
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``TagA || TagB``; empty or ``*`` stands for all messages, blanks alone for none.

        Raises
        ------
        FilterError
            If there are separators and nothing else.

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
        """Whether every message is wanted."""
        return self.text == SUB_ALL

    def is_matched_by_code(self, tags_code: int | None) -> bool:
        """Return whether a queue unit may belong to one of the tags: its lower 32 bits count, None always matches."""
        if tags_code is None or self.is_all:
            return True
        code = tags_code % _INT
        return (code - _INT if code >= _SIGN else code) in self.codes

    def is_matched_by_tags(self, tags: str | None) -> bool:
        """Return whether a message has one of the tags, which is the question that clients ask again."""
        return self.is_all or tags in self.tags


@dataclass(frozen=True, slots=True)
class MessageSelector:
    """Messages that are wanted; make it with `by_tag`, `by_sql` or `of`. It pickles, and is a `MessageFilter`.

    Attributes
    ----------
    tags : TagSubscription
    sql : Sql92Expression or None
        If it is there, the tags are not looked at.
    parser : PropertyParser
        How the properties of records are read.

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
    """Every message is wanted."""

    @classmethod
    def by_tag(cls, subscription: str) -> Self:
        """Select messages with one of some tags, or all with ``*``.

        As in RocketMQ the store compares hashes, so that `get_message` may also give messages of tags that share
        theirs; `matches` compares the tags.

        Raises
        ------
        FilterError
            If there is no tag in it, but separators.
        """
        return cls(TagSubscription.parse(subscription))

    @classmethod
    def by_sql(cls, expression: str, release: str = DEFAULT_RELEASE) -> Self:
        """Select messages for which an SQL92 expression is true.

        Raises
        ------
        FilterError
            If it does not compile by the rules of the release, one of `RELEASES`.
        """
        return cls(sql=Sql92Expression(expression, release), parser=PropertyParser.of_release(release))

    @classmethod
    def of(cls, filter_type: str, text: str, release: str = DEFAULT_RELEASE) -> Self:
        """Select by the name of the language: one of `FILTER_TYPES`.

        Raises
        ------
        FilterError
            If there is no such language, or the text is not in it.
        """
        if filter_type not in FILTER_TYPES:
            raise FilterError(f"expected a filter type of {', '.join(FILTER_TYPES)}, found {filter_type!r}")
        return cls.by_sql(text, release) if filter_type == "SQL92" else cls.by_tag(text)

    @property
    def is_all(self) -> bool:
        """Whether every message is wanted, so that nothing of it need be looked at."""
        return self.sql is None and self.tags.is_all

    def matches(self, properties: Mapping[str, str]) -> bool | None:
        """Return whether a consumer gets a message with these properties: if the answer is True.

        Returns
        -------
        bool or None
            None where SQL92 has null: the expression asks for a property that is absent.

        Raises
        ------
        FilterError
            Where RocketMQ has an evaluation error, and leaves the message out.
        """
        if self.sql is not None:
            return self.sql.evaluate(properties)
        return self.tags.is_matched_by_tags(properties.get(TAGS))

    def is_matched_by_consume_queue(self, tags_code: int | None, ext: ExtUnit | None = None) -> bool:
        """Return whether the message of a queue unit may match; of an expression the unit knows nothing."""
        del ext
        return self.sql is not None or self.tags.is_matched_by_code(tags_code)

    def is_matched_by_commit_log(self, record: memoryview) -> bool:
        """Return whether a record matches that its queue unit did not rule out.

        Raises
        ------
        CorruptRecordError
            If the bytes are no record.
        """
        return self.sql is None or self.sql.is_match(record_properties(record, self.parser))


MessageSelector.NONE = MessageSelector()

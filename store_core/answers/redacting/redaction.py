# SPDX-License-Identifier: Apache-2.0
"""What is redacted of a message, and its record afterwards: as long as before, with right checksums."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from store_core.broker.topic_kind import TopicKind, kind_of_topic
from store_core.errors import InvalidOptionError
from store_core.format.compression import expand_body
from store_core.format.crc32 import crc32
from store_core.format.layout import field_position, head_dtype
from store_core.format.message import CRC_MASK, body_crc
from store_core.format.properties import PROPERTY_CRC, property_crc_digits
from store_core.format.property_string import CRC_RESERVED
from store_core.format.record.record_head import head_shape, read_sys_flag
from store_core.format.sys_flag import COMPRESSION_MASK, CompressionType, MessageSysFlag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Redaction", "RedactionError", "redacted_record"]

_INT: Final = struct.Struct(">i")
_CRC_AT: Final = field_position(head_dtype(), "body_crc")
_SYS_FLAG_AT: Final = field_position(head_dtype(), "sys_flag")
_CRC_HEAD: Final = f"{PROPERTY_CRC}\x01".encode()
_FILLER: Final = b"*"


class RedactionError(Exception):
    """A message that would have to be redacted, and can't be; the text does not quote it."""


@dataclass(frozen=True)
class Redaction:
    """Which messages are redacted: those whose bodies match a pattern, or those of a key or of some topics.

    Attributes
    ----------
    pattern : bytes or None
        Regular expression; what it matches is replaced. The other two replace whole bodies.
    key : str or None
        One of the keys of a message, or its unique key.
    topics : tuple of str
    """

    pattern: bytes | None = None
    key: str | None = None
    topics: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, pattern: str | bytes | None, text: str | None, key: str | None, topic: Sequence[str] | None
    ) -> Redaction:
        """Make a redaction.

        Raises
        ------
        InvalidOptionError
            If it is not exactly one of them, or the pattern is none, or matches nothing at all.
        """
        if sum(each is not None and each != () for each in (pattern, text, key, topic)) != 1:
            raise InvalidOptionError("expected exactly one of pattern, text, key and topic")
        if text is not None:
            pattern = re.escape(text.encode())
        made = cls(pattern.encode() if isinstance(pattern, str) else pattern, key, tuple(topic or ()))
        try:
            is_empty = made.pattern is not None and made.expression.search(b"") is not None
        except re.error as error:
            raise InvalidOptionError(
                f"pattern: expected a regular expression, found one that fails: {error}"
            ) from error
        if is_empty or key == "" or text == "":
            raise InvalidOptionError("expected what matches something: an empty match replaces nothing")
        return made

    @cached_property
    def expression(self) -> re.Pattern[bytes]:
        """The compiled pattern."""
        return re.compile(b"(?!)" if self.pattern is None else self.pattern, re.DOTALL)

    @property
    def kind(self) -> str:
        """What it goes by, in one word."""
        return "pattern" if self.pattern is not None else "key" if self.key is not None else "topic"

    def chosen_by(self, row: Mapping[str, Any]) -> str | None:
        """Return the topic, or the key, by which the whole body of a message goes; None if it does not."""
        if row["topic"] in self.topics:
            topic: str = row["topic"]
            return topic
        return self.key if self.key is not None and self.key in (*(row["keys"] or ()), row["unique_key"]) else None

    def body_of(self, row: Mapping[str, Any]) -> bytes | None:
        """Return the body that a message gets; None if it stays as it is.

        Parameters
        ----------
        row : mapping
            ``topic``, ``body``, ``sys_flag``, ``keys``, ``unique_key`` and ``properties_string``.

        Raises
        ------
        RedactionError
            If it can't be redacted.
        """
        body: bytes = row["body"]
        if self.pattern is None:
            found = len(body) * _FILLER if self.chosen_by(row) is not None and body.strip(_FILLER) else None
        else:
            found = self._without_matches(row)
        if found is not None:
            _check_body(row)
        return found

    def _without_matches(self, row: Mapping[str, Any]) -> bytes | None:
        body: bytes = row["body"]
        for name in ("topic", "properties_string"):
            value = row[name]
            if self.expression.search(value.encode() if isinstance(value, str) else value):
                what = "its topic matches" if name == "topic" else "its properties match, as keys and tags do"
                raise RedactionError(f"{what}: queues and index depend on that")
        kind = CompressionType.of(row["sys_flag"])
        try:
            content = expand_body(body, kind)
        except ValueError as error:
            raise RedactionError("its body does not expand, so it can't be searched") from error
        if kind is not CompressionType.NONE:
            return len(body) * _FILLER if self.expression.search(content) or self.expression.search(body) else None
        replaced = self.expression.sub(lambda found: len(found[0]) * _FILLER, body)
        return replaced if replaced != body else None


def _check_body(row: Mapping[str, Any]) -> None:
    if row["sys_flag"] & MessageSysFlag.INNER_BATCH_FLAG:
        raise RedactionError("its body is a batch of messages, each with properties of its own")
    if kind_of_topic(row["topic"]) is TopicKind.OP:
        raise RedactionError("its body says which transactions are settled")


def redacted_record(record: bytes, body: bytes) -> bytes:
    """Return a record with another body of the same length: not compressed, with right checksums.

    Parameters
    ----------
    record : bytes
        A sound one.
    body : bytes

    Raises
    ------
    RedactionError
        If the checksum over the whole record is wrong already.
    """
    data = bytearray(record)
    flag = read_sys_flag(data, 0)
    begin = head_shape(flag).size
    has_crc = data[-CRC_RESERVED:].startswith(_CRC_HEAD)
    if has_crc and data[-CRC_RESERVED:] != _crc_property(data):
        raise RedactionError("the checksum over its whole record is wrong already")
    data[begin : begin + len(body)] = body
    _INT.pack_into(data, _CRC_AT, body_crc(body))
    if flag & MessageSysFlag.COMPRESSED_FLAG:
        _INT.pack_into(data, _SYS_FLAG_AT, flag & ~(MessageSysFlag.COMPRESSED_FLAG | COMPRESSION_MASK))
    if has_crc:
        data[-CRC_RESERVED:] = _crc_property(data)
    return bytes(data)


def _crc_property(data: bytearray) -> bytes:
    crc = crc32(memoryview(data)[:-CRC_RESERVED]) & CRC_MASK
    return f"{PROPERTY_CRC}\x01{property_crc_digits(crc)}\x02".encode()

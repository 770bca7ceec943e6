# SPDX-License-Identifier: Apache-2.0
"""What is redacted of a message, its record afterwards, and the jobs that rewrite and search a copy."""

from __future__ import annotations

import hashlib
import re
import struct
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from store_core.answers.message_reads import ScanCounts, messages_and_damage
from store_core.broker.topic_kind import TopicKind, kind_of_topic
from store_core.errors import InvalidOptionError
from store_core.files.file_system import OpenFile, OsFileSystem, write_all
from store_core.format.compression import expand_body
from store_core.format.layout import COMPRESSION_MASK, CompressionType, MessageSysFlag, field_position, head_dtype
from store_core.format.properties import CRC_NAME, CRC_RESERVED, crc_property
from store_core.format.record.scan import body_crc, head_shape, read_sys_flag
from store_core.store.new_directory import digest_of_file, first_match
from store_core.store.parts import EachPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from store_core.store.read.ranges import ReadRange
    from store_core.store.read.read_options import ReadOptions


_INT: Final = struct.Struct(">i")
_CRC_AT: Final = field_position(head_dtype(), "body_crc")
_SYS_FLAG_AT: Final = field_position(head_dtype(), "sys_flag")
_FILLER: Final = b"*"


class RedactionError(Exception):
    """A message that would have to be redacted, and can't be; the text does not quote it."""


@dataclass(frozen=True)
class Redaction:
    """Which messages are redacted: those whose bodies match a pattern, or those of a key or of some topics."""

    pattern: bytes | None = None  # Regular expression; what it matches is replaced. The other two replace whole bodies.
    key: str | None = None  # one of the keys of a message, or its unique key
    topics: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, pattern: str | bytes | None, text: str | None, key: str | None, topic: Sequence[str] | None
    ) -> Redaction:
        """Make a redaction."""
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
            raise InvalidOptionError(
                "expected a pattern, text or key that matches at least one character, found one that matches none"
            )
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

        * `row`: ``topic``, ``body``, ``sys_flag``, ``keys``, ``unique_key`` and ``properties_string``.
        """
        body: bytes = row["body"]
        if self.pattern is None:
            found = len(body) * _FILLER if self.chosen_by(row) is not None and body.strip(_FILLER) else None
        else:
            found = self._without_matches(row)
        if found is not None:
            if row["sys_flag"] & MessageSysFlag.INNER_BATCH_FLAG:
                raise RedactionError("its body is a batch of messages, each with properties of its own")
            if kind_of_topic(row["topic"]) is TopicKind.OP:
                raise RedactionError("its body says which transactions are settled")
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


def redacted_record(record: bytes, body: bytes) -> bytes:
    """Return a sound record with another body of the same length: not compressed, with right checksums."""
    data = bytearray(record)
    flag = read_sys_flag(data, 0)
    begin = head_shape(flag).size
    has_crc = data[-CRC_RESERVED:].startswith(CRC_NAME)
    if has_crc and data[-CRC_RESERVED:] != _crc_of(data):
        raise RedactionError("the checksum over its whole record is wrong already")
    data[begin : begin + len(body)] = body
    _INT.pack_into(data, _CRC_AT, body_crc(body))
    if flag & MessageSysFlag.COMPRESSED_FLAG:
        _INT.pack_into(data, _SYS_FLAG_AT, flag & ~(MessageSysFlag.COMPRESSED_FLAG | COMPRESSION_MASK))
    if has_crc:
        data[-CRC_RESERVED:] = _crc_of(data)
    return bytes(data)


def _crc_of(record: bytearray) -> bytes:
    return crc_property(body_crc(memoryview(record)[:-CRC_RESERVED]))


REDACT_COLUMNS: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "keys",
    "unique_key",
    "properties_string",
    "body",
    "sys_flag",
    "magic_code",
)
"""Columns that are read."""

MOST_ROWS: Final = 1000
"""Rows of a table of the report; all messages are counted."""

_NAMES: Final = ("topic", "queue_id", "queue_offset", "physical_offset")

Row = dict[str, Any]


@dataclass(slots=True)
class Redacted:
    """What was done in a range, or would have to be done.

    * `messages`, `bytes`, `expanded`: Messages that were redacted, bytes of their bodies that were replaced, and how
      many of them were compressed.
    * `rows`, `refused_rows`: The first of both.
    """

    counts: ScanCounts = field(default_factory=ScanCounts)
    messages: int = 0
    bytes: int = 0
    expanded: int = 0
    refused: int = 0  # messages that can't be redacted
    chosen: set[str] = field(default_factory=set)
    """Topics of the redaction that have messages here, or its key if one has it."""
    rows: list[Row] = field(default_factory=list)
    refused_rows: list[Row] = field(default_factory=list)

    @classmethod
    def of(cls, parts: Iterable[Redacted]) -> Redacted:
        """Add up what was done in some ranges."""
        done = cls()
        for each in parts:
            done.join(each)
        return done

    def join(self, other: Redacted) -> None:
        """Add what was done in a later range."""
        self.counts += other.counts
        for name in ("messages", "bytes", "expanded", "refused"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.chosen |= other.chosen
        self.rows = [*self.rows, *other.rows][:MOST_ROWS]
        self.refused_rows = [*self.refused_rows, *other.refused_rows][:MOST_ROWS]


@dataclass(frozen=True)
class RedactJob(EachPart["ReadRange", Redacted]):
    """Redacts the messages of each range of a copy. Twice is as good as once."""

    options: ReadOptions
    redaction: Redaction

    def run(self, part: ReadRange) -> Redacted:
        """Redact the messages of a range."""
        from store_core.store.read.message_reader import read_range

        done = Redacted()
        with closing(OsFileSystem().open(Path(part.segment.path))) as file:
            for batch in read_range(part, self.options):
                messages, damage = messages_and_damage(batch, part)
                done.counts += ScanCounts.of(messages, damage)
                for row in _rows(messages):
                    self._redact(row, file, part.segment.start_offset, done)
        return done

    def _redact(self, row: Row, file: OpenFile, start_offset: int, done: Redacted) -> None:
        place = {name: row[name] for name in _NAMES}
        chosen = self.redaction.chosen_by(row)
        if chosen is not None:
            done.chosen.add(chosen)
        position = row["physical_offset"] - start_offset
        try:
            body = self.redaction.body_of(row)
            if body is None:
                return
            record = redacted_record(file.read(row["store_size"], position), body)
        except RedactionError as error:
            done.join(Redacted(refused=1, refused_rows=[{**place, "reason": str(error)}]))
            return
        write_all(file, memoryview(record), position)
        replaced = sum(old != new for old, new in zip(row["body"], body, strict=True))
        was_compressed = bool(row["sys_flag"] & MessageSysFlag.COMPRESSED_FLAG)
        shown = {**place, "bytes": replaced, "was_compressed": was_compressed}
        shown["digest"] = hashlib.sha256(record).hexdigest()
        done.join(Redacted(messages=1, bytes=replaced, expanded=was_compressed, rows=[shown]))


def _rows(messages: pa.RecordBatch) -> Iterator[Row]:
    columns = {name: messages.column(name).to_pylist() for name in REDACT_COLUMNS}
    columns["body"] = pc.fill_null(messages.column("body"), b"").to_pylist()
    return (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))


@dataclass(frozen=True, slots=True)
class SearchedFile:
    """A file of the copy."""

    path: str  # below the root
    size: int
    digest: str  # SHA-256, in hexadecimal digits
    found: int | None  # where in it the pattern was found
    is_name: bool  # whether it was found in its path


@dataclass(frozen=True)
class FileJob(EachPart[str, SearchedFile]):
    """Searches and digests each file of a copy, by its path below the root."""

    root: Path
    redaction: Redaction

    def run(self, part: str) -> SearchedFile:
        """Search a file."""
        path, expression = self.root / part, self.redaction.expression
        found = first_match(path, expression)
        is_name = expression.search(part.encode(errors="surrogateescape")) is not None
        return SearchedFile(part, path.stat().st_size, digest_of_file(path), found, is_name)

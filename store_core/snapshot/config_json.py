# SPDX-License-Identifier: Apache-2.0
"""The JSON of a broker's files, read as the broker's own library takes it, and checked access to what it says."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from store_core.errors import CorruptRecordError, UnsafeSizeError
from store_core.format.words import without_controls

if TYPE_CHECKING:
    from store_core.format.release_rules import ReleaseRules


JsonKey: TypeAlias = str | int
JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[JsonKey, JsonValue] | None"
JsonObject: TypeAlias = "dict[JsonKey, JsonValue]"

_MAX_DEPTH: Final = 64
_LONG_NUMBER: Final = re.compile(r"[0-9]{19}")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_ADVICE: Final = "Correct the file by hand"

_LINE_COMMENT: Final = r"//[^\n]*+(?:\n|\Z)"
_COMMENT: Final = rf"{_LINE_COMMENT}|/\*(?s:.*?)\*/"
_OPEN_COMMENT: Final = r"/\*(?s:.*)\Z"
_NUMBER_END: Final = r"[BSLFD]?(?![\w.$])"
_SHORT: Final = {"b": "\b", "f": "\f", "F": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SHORT_OR_SELF: Final = {**{mark: mark for mark in "\"'/\\"}, **_SHORT, **{str(n): chr(n) for n in range(8)}}
_SELF_IN_FASTJSON_2: Final = {mark: mark for mark in "#&'()*+,-./:<=>@[]^_`{|}~"}


@dataclass(frozen=True, slots=True)
class _Dialect:
    """What a library takes for JSON: patterns of what may stand where, as its scanners skip and read characters.

    A crash leaves NUL bytes where a file's last pages were not written, and people edit these files by hand: what the
    broker reads nevertheless has to be read here, or offsets of long ago come from the backup.
    """

    head: re.Pattern[str]
    tail: re.Pattern[str]
    before_key: re.Pattern[str]
    before_colon: re.Pattern[str]
    before_value: re.Pattern[str]
    before_object: re.Pattern[str]
    after_value: re.Pattern[str]
    after_number: re.Pattern[str]
    text: re.Pattern[str]
    name: re.Pattern[str]
    number: re.Pattern[str]
    words: Mapping[str, JsonValue]
    escapes: Mapping[str, str]
    takes_more_commas: bool
    takes_last_comma: bool
    takes_any_comma_after_object: bool


def _blanks(characters: str, *others: str) -> re.Pattern[str]:
    return re.compile(f"(?:{'|'.join((f'[{characters}]++', *others))})*+")


def _text(other_end: str) -> re.Pattern[str]:
    body = rf"(?:[^{{0}}\\{other_end}]++|\\.)*+"
    return re.compile("|".join(f"{quote}{body.format(quote)}{quote}" for quote in "\"'"), re.DOTALL)


def _words(**others: JsonValue) -> dict[str, JsonValue]:
    return {"true": True, "false": False, "null": None, **others}


_FEW: Final = r" \t\r\n\f\x08"

# JSONLexerBase of fastjson 1.2: nextToken skips all control characters, skipWhitespace (before keys and colons) few.
# Character 0x1A ends its input; it is a control character only between tokens.
_CONTROLS: Final = _blanks(r"\x00-\x20\x7f", _COMMENT)
_FASTJSON_1: Final = _Dialect(
    head=_CONTROLS,
    tail=_blanks(r"\x00-\x20\x7f", _COMMENT, _OPEN_COMMENT),
    before_key=_blanks(_FEW, _COMMENT),
    before_colon=_blanks(_FEW),
    before_value=_CONTROLS,
    before_object=_CONTROLS,
    after_value=_CONTROLS,
    after_number=_CONTROLS,
    text=_text(r"\x1a"),
    name=re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*+"),
    number=re.compile(
        rf"[+-]?[0-9]{{1,400}}+(?P<fraction>(?:\.[0-9]{{0,400}}+)?(?:[eE][+-]?[0-9]{{1,3}})?){_NUMBER_END}"
    ),
    words=_words(NULL=None, Null=None, undefined=None, NaN=None),
    escapes=_SHORT_OR_SELF,
    takes_more_commas=True,
    takes_last_comma=True,
    takes_any_comma_after_object=False,
)


def _fastjson_2(comment: str, *, takes_last_comma: bool) -> _Dialect:
    """Return what JSONReaderUTF16 of fastjson 2 takes: NUL is a blank for it, but not around a colon."""
    few, some = _FEW + r"\xa0", _FEW + r"\xa0\x00"
    return _Dialect(
        head=_blanks(_FEW + r"\x00", _COMMENT),
        tail=_blanks(some, r"\x1a(?s:.*)\Z", comment, _OPEN_COMMENT if comment is _COMMENT else comment),
        before_key=_blanks(some, comment),
        before_colon=_blanks(few),
        before_value=_blanks(some, comment),
        before_object=_blanks(few),
        after_value=_blanks(some, comment),
        after_number=_blanks(few),
        text=_text(""),
        name=re.compile(r"(?!)"),
        number=re.compile(
            r"[+-]?(?:[0-9]{1,400}+(?P<fraction>(?:\.[0-9]{0,400}+)?(?:[eE][+-]?[0-9]{0,3})?)|\.[0-9]{1,400}+)"
            + _NUMBER_END
        ),
        words=_words(),
        escapes=_SELF_IN_FASTJSON_2 | _SHORT_OR_SELF,
        takes_more_commas=False,
        takes_last_comma=takes_last_comma,
        takes_any_comma_after_object=True,
    )


_FASTJSON_2_0_43: Final = _fastjson_2(_LINE_COMMENT, takes_last_comma=True)
_FASTJSON_2_0_59: Final = _fastjson_2(_COMMENT, takes_last_comma=False)


_NEWEST_FIRST: Final = (_FASTJSON_2_0_59, _FASTJSON_2_0_43, _FASTJSON_1)


def parse_config(data: bytes, file: str, features: ReleaseRules | None = None) -> JsonObject:
    """Parse a configuration file as a broker's library does (fastjson, or from 5.4 on fastjson 2).

    Among what is no JSON and is taken nevertheless are NUL bytes after its end, comments, single quotes, bare keys,
    and commas before a closing brace. What a broker takes by an accident of its parsers (a missing comma between two
    offsets) is refused. Of duplicate keys the last value wins. An integer key is an `int` if it is bare.

    * `data`: UTF-8, with or without a byte order mark; what is none is replaced, as Java does.
    * `file`: Its name, for errors.
    * `features`: Of the release that reads it. Without it a file is read that the library of any release takes.

    >>> parse_config(b'{"offsetTable":{"orders@billing":{0:5,1:7}}}', "consumerOffset.json")
    {'offsetTable': {'orders@billing': {0: 5, 1: 7}}}
    >>> parse_config(b"{'offsetTable':{'orders@billing':{0:5,}}}" + bytes(9), "consumerOffset.json")
    {'offsetTable': {'orders@billing': {0: 5}}}
    """
    text = data.decode("utf-8-sig", "replace")
    plain = _plain(text)
    if plain is not None:
        return plain
    if features is not None:
        return _JsonParser(text, file, _dialect_of(features)).parse()
    refusals: list[CorruptRecordError] = []
    for dialect in _NEWEST_FIRST:
        try:
            return _JsonParser(text, file, dialect).parse()
        except CorruptRecordError as refused:
            refusals.append(refused)
    raise refusals[0]


def _plain(text: str) -> JsonObject | None:
    """Return what a text says that is plain JSON, by Python's own parser; None if a library might take it otherwise.

    A table of many thousand topics is, and takes a tenth of the time. Offsets have bare keys, and are not.
    """
    if "\\" in text or _LONG_NUMBER.search(text):
        return None
    try:
        value = json.loads(text, parse_float=_refuse, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and _is_shallow(value) else None


def _refuse(text: str) -> None:
    raise ValueError(text)


def _is_shallow(value: JsonObject) -> bool:
    """Return whether a value is nested as deep as a file may be."""
    level: list[Any] = [value]
    for _ in range(_MAX_DEPTH):
        items = (each.values() if isinstance(each, dict) else each for each in level)
        level = [item for some in items for item in some if isinstance(item, dict | list)]
        if not level:
            return True
    return False


def _dialect_of(features: ReleaseRules) -> _Dialect:
    if not features.reads_config_by_fastjson_2:
        return _FASTJSON_1
    return _FASTJSON_2_0_59 if features.reads_config_strictly else _FASTJSON_2_0_43


class _JsonParser:
    """One pass over a text, from token to token."""

    def __init__(self, text: str, file: str, dialect: _Dialect) -> None:
        self._text = text
        self._file = file
        self._dialect = dialect
        self._at = 0

    def parse(self) -> JsonObject:
        """Parse the text, which has to be one object, or null."""
        self._pass(self._dialect.head)
        value: JsonObject = {}
        if self._skip("{"):
            start = self._at
            value = self._object(1)
            if any(isinstance(key, int) for key in value):
                raise self._error("keys with names: the numbers of queues are further inside", start)
        elif self._text.startswith("null", self._at):
            self._at += len("null")
        else:
            raise self._error("'{'")
        self._pass(self._dialect.tail)
        if self._at != len(self._text):
            raise self._error("the end of the file")
        return value

    def _pass(self, pattern: re.Pattern[str]) -> None:
        """Pass what a pattern matches, which may be nothing."""
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match:
            self._at = match.end()
        return match

    def _skip(self, mark: str) -> bool:
        """Skip a mark if it is next; return whether it was."""
        if not self._text.startswith(mark, self._at):
            return False
        self._at += 1
        return True

    def _object(self, depth: int) -> JsonObject:
        """Parse an object after its opening brace."""
        plain = self._take(_PLAIN_OFFSETS)
        if plain:  # most of a large file: what follows would find the same, number by number
            numbers = list(map(int, _DIGITS.findall(plain[0])))
            return dict(zip(numbers[::2], numbers[1::2], strict=True))
        members: JsonObject = {}
        has_more_commas = self._commas()
        while not self._skip("}"):
            start = self._at
            key = self._key()
            if has_more_commas and isinstance(key, int):
                raise self._error("an integer of 32 bits as the key", start)  # only tables of names skip commas
            self._pass(self._dialect.before_colon)
            if not self._skip(":"):
                raise self._error("':'")
            members[key] = value = self._value(depth)
            if isinstance(value, dict) and self._dialect.takes_any_comma_after_object:
                has_more_commas = self._two_commas()
            elif self._skip(","):
                has_more_commas = self._commas()
                if not self._dialect.takes_last_comma and depth == 1 and self._text.startswith("}", self._at):
                    raise self._error("another key after ','")
            elif not self._text.startswith("}", self._at):
                raise self._error("',' or '}'")
        return members

    def _commas(self) -> bool:
        """Pass the blanks before a key or a closing mark, and more commas where the library does; tell of those."""
        self._pass(self._dialect.before_key)
        has_more = False
        while self._dialect.takes_more_commas and self._skip(","):
            has_more = True
            self._pass(self._dialect.before_key)
        return has_more

    def _two_commas(self) -> bool:
        """Pass none, one or two commas; tell of the second."""
        if not self._skip(","):
            return False
        self._pass(self._dialect.before_key)
        has_second = self._skip(",")
        self._pass(self._dialect.before_key)
        return has_second

    def _key(self) -> JsonKey:
        text = self._take(self._dialect.text)
        if text:
            return self._string(text)
        number = self._take(self._dialect.number)
        if number:
            return int(_number(number))
        name = self._take(self._dialect.name)
        if name:
            return name[0]
        raise self._error("a key: a string in quotes, or an integer")

    def _value(self, depth: int) -> JsonValue:
        """Parse what follows a colon, a comma or a bracket, and pass the blanks after it."""
        dialect, start = self._dialect, self._at
        self._pass(dialect.before_value)
        number = self._take(dialect.number)
        if number:
            self._pass(dialect.after_number)
            return _number(number)
        value: JsonValue
        text = self._take(dialect.text)
        if text:
            value = self._string(text)
        elif self._text[self._at : self._at + 1] in ("{", "["):
            value = self._nested(start, depth)
        else:
            value = self._word()
        self._pass(dialect.after_value)
        return value

    def _nested(self, start: int, depth: int) -> JsonValue:
        if depth >= _MAX_DEPTH:
            raise UnsafeSizeError(*self._facts(f"nesting of at most {_MAX_DEPTH} levels"))
        if self._skip("["):
            return self._array(depth + 1)
        blanks = self._dialect.before_object.match(self._text, start)
        if blanks is None or blanks.end() != self._at:
            raise self._error("'{'", start)
        self._skip("{")
        return self._object(depth + 1)

    def _word(self) -> JsonValue:
        word = _WORD.match(self._text, self._at)
        if word is None or word[0] not in self._dialect.words:
            raise self._error("a value")
        self._at = word.end()
        return self._dialect.words[word[0]]

    def _array(self, depth: int) -> list[JsonValue]:
        """Parse an array after its opening bracket."""
        values: list[JsonValue] = []
        self._commas()
        while not self._skip("]"):
            values.append(self._value(depth))
            if self._skip(","):
                self._commas()
            elif not self._text.startswith("]", self._at):
                raise self._error("',' or ']'")
        return values

    def _string(self, match: re.Match[str]) -> str:
        value = match[0][1:-1]
        if "\\" in value:
            value = _ESCAPE.sub(lambda escape: self._unescaped(escape, match.start() + 1), value)
        # Halves of a character, which Java's strings may have, are written as one that stands for it.
        return _SURROGATE.sub("\ufffd", value.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))

    def _unescaped(self, escape: re.Match[str], start: int) -> str:
        code = escape["code"] or escape["short"]
        if code:
            return chr(int(code, 16))
        character = self._dialect.escapes.get(escape[0][1:])
        if character is None:
            raise self._error("characters, or an escape that JSON has", start + escape.start())
        return character

    def _error(self, expected: str, position: int | None = None) -> CorruptRecordError:
        return CorruptRecordError(*self._facts(expected, position))

    def _facts(self, expected: str, position: int | None = None) -> tuple[str, str, int, str, str, bytes, str]:
        """Return the arguments of `CorruptRecordError`; the position defaults to the current one."""
        if position is None:
            position = self._at
        line = self._text.count("\n", 0, position) + 1
        rest = self._text[position : position + 16]
        found = repr(rest) if rest else "the end of the file"
        offset = len(self._text[:position].encode())
        return f"bad JSON in line {line}", self._file, offset, expected, found, rest.encode(), _ADVICE


_PAIR: Final = r"[ \t\r\n]*+-?[0-9]{1,18}:-?[0-9]{1,18}"
_PLAIN_OFFSETS: Final = re.compile(rf"(?:{_PAIR},)*+{_PAIR}[ \t\r\n]*+\}}")
_DIGITS: Final = re.compile(r"-?[0-9]+")
_WORD: Final = re.compile(r"[A-Za-z]+(?![\w.$])")
_ESCAPE: Final = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|x(?P<short>[0-9a-fA-F]{2})|.)", re.DOTALL)


def _number(match: re.Match[str]) -> int | float:
    """Return what a number says: its suffix is the Java type that a writer had."""
    digits = match[0].rstrip("BSLFD")
    try:
        return int(digits)
    except ValueError:
        number = float(re.sub(r"[eE][+-]?$", "", digits))
    return min(max(number, -sys.float_info.max), sys.float_info.max)  # infinity could not be written again


_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_UNSET: Final = (None, "", "null")
"""Values that leave a member at its default, unless it is an offset."""
_FLAGS: Final = {"true": True, "false": False, "1": True, "0": False, "y": True, "n": False}
_I32: Final = range(-(1 << 31), 1 << 31)
_I64: Final = range(-(1 << 63), 1 << 63)


class ConfigValueError(CorruptRecordError):
    """A value of a configuration file, or a key, is not as required; its offset in the file is not known."""

    def __str__(self) -> str:
        text = f"{self.problem} in {self.file}: expected {self.expected}, found {self.found}"
        return f"{text}. {self.advice}" if self.advice else text


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """One object of a configuration file.

    A member that is missing or null has the given default, as in Java. A value of another type is converted where
    fastjson converts it; else every method raises `CorruptRecordError`, naming file and member.

    Attributes
    ----------
    members : mapping
    file : str
    name : str
        Path of the object in the file, e.g. ``"topicConfigTable.orders"``; empty for the whole file.
    """

    members: Mapping[JsonKey, JsonValue]
    file: str
    name: str = ""

    def error(self, key: JsonKey, expected: str) -> CorruptRecordError:
        """Return the error for a member that is not as expected."""
        found = repr(self.members.get(key))
        return ConfigValueError(
            f"bad value of {without_controls(self._path(key))}", self.file, 0, expected, found[:100], b"", _ADVICE
        )

    def _path(self, key: JsonKey) -> str:
        return f"{self.name}.{key}" if self.name else str(key)

    def integer(self, key: JsonKey, default: int = 0, bounds: range = _I64) -> int:
        """Return an integer within Java's bounds; it may be quoted, true or false, or have a fraction."""
        value = self.members.get(key)
        if value in _UNSET:
            return default
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value)
        if isinstance(value, float) and math.isfinite(value):
            value = int(value)
        if not isinstance(value, int) or value not in bounds:
            raise self.error(key, f"an integer from {bounds.start} to {bounds.stop - 1}")
        return int(value)

    def small_integer(self, key: JsonKey, default: int = 0) -> int:
        """Return a 32-bit integer."""
        return self.integer(key, default, _I32)

    def flag(self, key: JsonKey, *, default: bool) -> bool:
        """Return a boolean; it may be quoted, or a number, of which only 1 is true."""
        value = self.members.get(key)
        if value in _UNSET:
            return default
        found = _FLAGS.get(value.lower()) if isinstance(value, str) else value == 1
        if found is None or isinstance(value, Mapping | list):
            raise self.error(key, "true or false")
        return found

    @property
    def given(self) -> frozenset[str]:
        """Members with a name that are not null."""
        return frozenset(key for key, value in self.members.items() if isinstance(key, str) and value is not None)

    def text(self, key: JsonKey, default: str) -> str:
        """Return a string; it may be a number, true or false."""
        value = self.members.get(key)
        if value is None:
            return default
        if isinstance(value, Mapping | list):
            raise self.error(key, "a string")
        return value if isinstance(value, str) else json.dumps(value)

    def object(self, key: JsonKey) -> ConfigFields:
        """Return an object, empty if it is missing."""
        value = self.members.get(key)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self.error(key, "an object")
        return ConfigFields(value, self.file, self._path(key))

    def table(self, key: JsonKey) -> ConfigFields:
        """Return an object that a broker adds to its own: empty if it is missing, and refused if it is null."""
        if key in self.members and self.members[key] is None:
            raise self.error(key, "an object")
        return self.object(key)

    def objects(self) -> Iterator[tuple[str, ConfigFields]]:
        """Yield all members by name; each must be an object."""
        for key, value in self.members.items():
            if value is None:  # Java's concurrent maps hold no null
                raise self.error(key, "an object")
            yield str(key), self.object(key)

    def offsets(self) -> dict[int, int]:
        """Return all members as 32-bit integers (queues or levels) to 64-bit offsets; either may be quoted."""
        return {self._index(key): self.offset(key) for key in self.members}

    def offset(self, key: JsonKey) -> int:
        """Return a 64-bit offset, which has no default; it may be quoted."""
        if self.members.get(key) in _UNSET:
            raise self.error(key, "an offset")
        return self.integer(key)

    def integers(self, key: JsonKey) -> tuple[int, ...]:
        """Return a list of 32-bit integers, empty if it is missing."""
        value = self.members.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise self.error(key, "a list of integers of 32 bits")
        items = ConfigFields(dict(enumerate(value)), self.file, self._path(key))
        return tuple(items.small_integer(index) for index in items.members)

    def texts(self) -> dict[str, str]:
        """Return all members; each must be a string."""
        return {str(key): self.text(key, "") for key in self.members}

    def _index(self, key: JsonKey) -> int:
        value = int(key) if isinstance(key, int) or _INTEGER.fullmatch(key) else None
        if value is None or value not in _I32:
            raise ConfigValueError(
                f"bad key of {without_controls(self.name)}",
                self.file,
                0,
                "an integer of 32 bits",
                repr(key)[:100],
                b"",
                _ADVICE,
            )
        return value

    def others(self, known: frozenset[str]) -> JsonObject:
        """Return the unknown members unchanged, so that writing preserves them; they have names.

        Raises
        ------
        CorruptRecordError
            If one has a number in place of its name.
        """
        number = next((key for key in self.members if isinstance(key, int)), None)
        if number is not None:
            raise self.error(number, "a member with a name")
        return {key: value for key, value in self.members.items() if key not in known}

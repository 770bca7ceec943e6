# SPDX-License-Identifier: Apache-2.0
"""Parser and writer for the near-JSON of a broker's configuration files, as written by fastjson 1.2."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from store_core.errors import CorruptRecordError, UnsafeSizeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.format.releases.release_rules import ReleaseRules

__all__ = ["JsonKey", "JsonObject", "JsonValue", "parse_config", "write_config"]

JsonKey: TypeAlias = str | int
JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[JsonKey, JsonValue] | None"
JsonObject: TypeAlias = "dict[JsonKey, JsonValue]"

_MAX_DEPTH: Final = 64
_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<mark>[{}\[\],:])
      | (?P<text>"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")
      | (?P<number>-?(?:0|[1-9][0-9]{0,18})(?P<fraction>(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?))(?![0-9.eE])
      | (?P<word>true|false|null)(?![A-Za-z0-9_])
      | (?P<end>\Z))""",
    re.VERBOSE,
)
_LONG_INTEGER: Final = re.compile(r"-?[1-9][0-9]{19,}+(?![.eE])")
_BLANKS: Final = re.compile(r"[ \t\r\n]*")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_WORDS: Final[dict[str, JsonValue]] = {"true": True, "false": False, "null": None}
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f\x7f-\x9f\u2028\u2029]')
_ESCAPED_BY_FEW: Final = re.compile(r'["\\\x00-\x1f]')
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ADVICE: Final = "Correct the file by hand"


def parse_config(data: bytes, file: str) -> JsonObject:
    """Parse a configuration file.

    It is JSON, except that integer keys may be bare, as fastjson writes them. Other things that fastjson would accept
    (comments, single quotes, trailing commas) are refused. Of duplicate keys the last value wins, and an integer key is
    an `int` only if it is bare.

    Parameters
    ----------
    data : bytes
        UTF-8, with or without a byte order mark.
    file : str
        Its name, for errors.

    Raises
    ------
    CorruptRecordError
        Names file, byte offset, what was expected and what was found.
    UnsafeSizeError
        If it is nested deeper than 64 levels.

    Examples
    --------
    >>> parse_config(b'{"offsetTable":{"orders@billing":{0:5,1:7}}}', "consumerOffset.json")
    {'offsetTable': {'orders@billing': {0: 5, 1: 7}}}
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = data[error.start : error.start + 1].hex()
        raise CorruptRecordError(
            "not UTF-8", file, error.start, "text", f"byte 0x{found}", data[error.start :][:16], _ADVICE
        ) from None
    return _Parser(text, file).parse()


class _Parser:
    """One pass over the tokens of a text, with a lookahead of one."""

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._ahead = self._scan(0)

    def parse(self) -> JsonObject:
        """Parse the text, which has to be one object."""
        if not self._skip("{"):
            raise self._error("'{'")
        value = self._object(1)
        if self._ahead.lastgroup != "end":
            raise self._error("the end of the file")
        return value

    def _scan(self, position: int) -> re.Match[str]:
        match = _TOKEN.match(self._text, position)
        if match is None:
            blanks = _BLANKS.match(self._text, position)
            start = blanks.end() if blanks else position
            is_long = _LONG_INTEGER.match(self._text, start) is not None
            raise self._error("an integer of at most 64 bits" if is_long else "JSON", start)
        return match

    def _take(self) -> str:
        """Return the current token, and scan the next."""
        token = self._ahead.group().lstrip()
        self._ahead = self._scan(self._ahead.end())
        return token

    def _skip(self, mark: str) -> bool:
        """Skip a mark if it is the current token; return whether it was."""
        if self._ahead["mark"] != mark:
            return False
        self._take()
        return True

    def _object(self, depth: int) -> JsonObject:
        """Parse an object after its opening brace."""
        members: JsonObject = {}
        if self._skip("}"):
            return members
        while True:
            key = self._key()
            if not self._skip(":"):
                raise self._error("':'")
            members[key] = self._value(depth)
            if self._skip("}"):
                return members
            if not self._skip(","):
                raise self._error("',' or '}'")

    def _key(self) -> JsonKey:
        if self._ahead.lastgroup == "text":
            return self._string()
        if self._ahead["number"] and not self._ahead["fraction"]:
            return int(self._take())
        raise self._error("a key: a string in double quotes, or an integer")

    def _value(self, depth: int) -> JsonValue:
        kind = self._ahead.lastgroup
        if kind == "text":
            return self._string()
        if kind == "number":
            return float(self._take()) if self._ahead["fraction"] else int(self._take())
        if kind == "word":
            return _WORDS[self._take()]
        if depth >= _MAX_DEPTH and kind == "mark":
            raise UnsafeSizeError(*self._facts(f"nesting of at most {_MAX_DEPTH} levels"))
        if self._skip("{"):
            return self._object(depth + 1)
        if self._skip("["):
            return self._array(depth + 1)
        raise self._error("a value")

    def _array(self, depth: int) -> list[JsonValue]:
        """Parse an array after its opening bracket."""
        values: list[JsonValue] = []
        if self._skip("]"):
            return values
        while True:
            values.append(self._value(depth))
            if self._skip("]"):
                return values
            if not self._skip(","):
                raise self._error("',' or ']'")

    def _string(self) -> str:
        start = self._ahead.start("text")
        value: str = json.loads(self._take())
        if _SURROGATE.search(value):
            raise self._error("characters", start)
        return value

    def _error(self, expected: str, position: int | None = None) -> CorruptRecordError:
        return CorruptRecordError(*self._facts(expected, position))

    def _facts(self, expected: str, position: int | None = None) -> tuple[str, str, int, str, str, bytes, str]:
        """Return the arguments of `CorruptRecordError`; the position defaults to that of the current token."""
        if position is None:
            position = self._ahead.end() - len(self._ahead.group().lstrip())
        line = self._text.count("\n", 0, position) + 1
        rest = self._text[position : position + 16]
        found = repr(rest) if rest else "the end of the file"
        offset = len(self._text[:position].encode())
        return f"bad JSON in line {line}", self._file, offset, expected, found, rest.encode(), _ADVICE


def write_config(value: JsonValue, indent: int = 0, *, features: ReleaseRules | None = None) -> str:
    r"""Return the text of a value as a broker writes it: fastjson, or from 5.4 on fastjson 2, with ``PrettyFormat``.

    Members with a text key get a line each, indented by tabs; those with an integer key stay on their line, and the
    integer is bare. A list has its elements on separate lines, as a Java ``List``; a tuple on one, as a ``Set`` or an
    array of numbers. A
    member without a value (None) is left out. Members are in the order of the mapping.

    Parameters
    ----------
    value
    indent : int
        Tabs before the lines around it.
    features : ReleaseRules, optional
        What the release does in another way: `ReleaseRules.breaks_lines_at_queue_ids`,
        `ReleaseRules.breaks_empty_tables`, `ReleaseRules.escapes_few_characters`. By default none of them.

    Examples
    --------
    >>> write_config({"offsetTable": {"orders@billing": {0: 5, 1: 7}}})
    '{\n\t"offsetTable":{\n\t\t"orders@billing":{0:5,1:7\n\t\t}\n\t}\n}'
    """
    if isinstance(value, Mapping):
        return _write_object(value, indent, features)
    if isinstance(value, (list, tuple)):
        elements = [write_config(element, indent + 1, features=features) for element in value]
        is_set = isinstance(value, tuple) and not any(isinstance(element, int) for element in value)
        breaks_sets = features is not None and features.breaks_lines_at_queue_ids
        is_broken = breaks_sets if is_set else isinstance(value, list) and bool(value)
        line = "\n" + "\t" * (indent + 1) if is_broken else ""
        return f"[{line}{f',{line}'.join(elements)}{line[:-1]}]"
    if isinstance(value, str):
        if features is not None and features.escapes_few_characters:
            return '"' + _ESCAPED_BY_FEW.sub(lambda match: _escape(match).lower(), value) + '"'
        return '"' + _ESCAPED.sub(_escape, value) + '"'
    return json.dumps(value)


def _write_object(members: Mapping[JsonKey, JsonValue], indent: int, features: ReleaseRules | None) -> str:
    line = "\n" + "\t" * (indent + 1)
    breaks_lines = features is not None and features.breaks_lines_at_queue_ids
    parts = []
    for key, value in members.items():
        if value is not None:
            before = "" if isinstance(key, int) and not breaks_lines else line
            name = str(key) if isinstance(key, int) else write_config(key, features=features)
            parts.append(f"{before}{name}:{write_config(value, indent + 1, features=features)}")
    if not members and features is not None and features.breaks_empty_tables:
        parts.append(line)
    return "{" + ",".join(parts) + (line[:-1] if members or parts else "") + "}"


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04X}"

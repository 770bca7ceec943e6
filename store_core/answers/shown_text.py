# SPDX-License-Identifier: Apache-2.0
"""Text from stores, made safe for terminals, and lines of one."""

from __future__ import annotations

import base64
import json
import os
import shutil
import unicodedata
from decimal import Decimal
from enum import Enum
from typing import Any, Final, NoReturn, TextIO

_SPACES: Final = "Zs"
"""Unicode's category of spaces. Those of East Asian text are as safe as our own, though not `str.isprintable`."""

_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_WHITE_SPACE: Final = frozenset("\n\r\t")
_WIDE: Final = frozenset("WF")
_BYTE: Final = 0x100
_BASIC_PLANE: Final = 0x10000


class BytesStyle(Enum):
    """How bytes are printed where a format has only text."""

    AUTO = "as text where they are text, else in hexadecimal digits"
    HEX = "hexadecimal digits"
    BASE64 = "Base64"
    JSON = "JSON objects and lists as such, all else as `AUTO` has it"


def escape_text(text: str) -> str:
    r"""Replace what could change a terminal, or how other text is shown: controls, ANSI, directions of writing.

    What is replaced is what Unicode does not call printable, except for spaces. A newline is replaced as well, so that
    a row stays on its line.

    >>> escape_text("caf\u00e9 \x1b[31m\u202e")
    'café \\x1b[31m\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(character if _is_safe(character) else _escape(character) for character in text)


def escape_json(text: str) -> str:
    r"""Replace the same characters in a line of JSON by JSON's own escapes, so that its value stays the same.

    >>> escape_json('"\u202e"')
    '"\\u202e"'
    """
    if text.isprintable():
        return text
    return "".join(character if _is_safe(character) else _json_escape(character) for character in text)


def _is_safe(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == _SPACES


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < _BYTE else f"\\u{code:04x}" if code < _BASIC_PLANE else f"\\U{code:08x}"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def text_of(data: bytes, style: BytesStyle) -> str:
    """Return bytes as text.

    >>> text_of(b"one", BytesStyle.AUTO), text_of(bytes([0, 111]), BytesStyle.AUTO)
    ('one', '0x006f')
    """
    if style is BytesStyle.BASE64:
        return base64.b64encode(data).decode("ascii")
    if style is BytesStyle.HEX:
        return data.hex()
    text = plain_text(data)
    return f"0x{data.hex()}" if text is None else text


def json_of(data: bytes) -> dict[str, Any] | list[Any] | None:
    """Return bytes as a JSON object or list; None for other bytes, and for JSON that Python would show otherwise.

    A name that occurs twice, and a number with more digits than a float has, would not.
    """
    if data[:1] not in (b"{", b"["):
        return None
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique, parse_float=_exact, parse_constant=_refused)
        json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ValueError("a name occurs twice")
    return named


def _exact(text: str) -> float:
    number = float(text)
    if Decimal(text) != Decimal(repr(number)):
        raise ValueError(text)
    return number


def _refused(name: str) -> NoReturn:
    """Refuse NaN and infinities, which JSON does not have."""
    raise ValueError(name)


def plain_text(data: bytes) -> str | None:
    """Return bytes as text if they are UTF-8 without control characters, else None; lines and tabs are text."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    is_text = text.isprintable() or all(_is_safe(each) or each in _WHITE_SPACE for each in text)
    return text if is_text else None


def text_width(text: str) -> int:
    """Return how many columns of a terminal a text takes; East Asian characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1


_ERASE: Final = "\x1b[2K"
"""Clears the line of a terminal, however much is on it."""

_shown_lines: list[TerminalLine] = []
"""Those that are on the terminal now: at most one, except in tests."""


def clear_line() -> None:
    """Clear what is shown now, so that something else can be written to the same terminal."""
    for line in tuple(_shown_lines):
        line.close()


class TerminalLine:
    """A line of text on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = False

    def show(self, text: str) -> None:
        """Write a line in place of the last one, cut to the width of the terminal."""
        if self not in _shown_lines:
            _shown_lines.append(self)
        self._is_shown = True
        self._write(text[: self._columns() - 1])

    def close(self) -> None:
        """Clear the line; one that is shown again is as new."""
        if self in _shown_lines:
            _shown_lines.remove(self)
        if self._is_shown:
            self._is_shown = False
            self._write("")

    def _columns(self) -> int:
        """Return the columns of this terminal, which standard output need not be; a longer line can't be cleared."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or shutil.get_terminal_size().columns
        except (OSError, ValueError):  # no terminal, as in a test
            return shutil.get_terminal_size().columns

    def _write(self, text: str) -> None:
        self._stream.write(f"{_ERASE}\r{text}")
        self._stream.flush()

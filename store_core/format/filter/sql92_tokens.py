# SPDX-License-Identifier: Apache-2.0
"""The tokens of RocketMQ's SQL92 filter language.

RocketMQ: ``SelectorParser.jj`` of 4.1.0 and later. The longest match wins; at equal length the keyword wins over the
identifier. The text after an expression is never read, so tokens are read one by one, on demand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from store_core.errors import FilterError
from store_core.format.filter.sql92_values import Long, Value

__all__ = ["END", "MOST_CHARACTERS", "NAME", "NUMBER", "STRING", "STRING_PREDICATES", "Token", "Tokens"]

NAME: Final = "a name"
NUMBER: Final = "a number"
STRING: Final = "a string"
END: Final = "the end of the text"
STRING_PREDICATES: Final = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
"""Keywords since 5.1.3; names before."""

MOST_CHARACTERS: Final = 1 << 20
"""Longer expressions are refused, to bound time and memory. RocketMQ's bound is the size of a request."""

_KEYWORDS: Final = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})
_LITERALS: Final[dict[str, Value]] = {"TRUE": True, "FALSE": False, "NULL": None}
_BLANK: Final = re.compile(r"[ \t\n\r\f]+|/\*.*?\*/", re.DOTALL)
_LINE_COMMENT: Final = re.compile(r"--[^\n\r]*(?:\r\n|[\n\r])")
_FLOAT: Final = re.compile(r"[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+")
_INTEGER: Final = re.compile(r"0|[1-9][0-9]*[lL]?")
_STRING: Final = re.compile(r"'[^']*(?:''[^']*)*'")
_WORD: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_SYMBOL: Final = re.compile(r"<>|>=|<=|[=<>(),+-]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MOST_DIGITS: Final = 19
_MOST_LONG: Final = (1 << 63) - 1
_MOST_INT: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an expression.

    Attributes
    ----------
    kind : str
        A keyword in capitals, a symbol, or `NAME`, `NUMBER`, `STRING`, `END`.
    value : Value
        The value of a literal, the name, or the text of a number that `Tokens.take_literal` has not read yet.
    position : int
        Where it starts in the text, in characters.
    """

    kind: str
    value: Value
    position: int

    @property
    def is_literal(self) -> bool:
        """Whether it is a literal value."""
        return self.kind in (NUMBER, STRING) or self.kind in _LITERALS


class Tokens:
    """The tokens of an expression, one after the other.

    Parameters
    ----------
    has_string_predicates : bool
        Whether CONTAINS, STARTSWITH and ENDSWITH are keywords.

    Attributes
    ----------
    current : Token
        The next token.

    Raises
    ------
    FilterError
        If the text is longer than `MOST_CHARACTERS` or has unpaired surrogates, or no token begins where the next one
        must.
    """

    __slots__ = ("_keywords", "_last_line", "_position", "current", "text")

    def __init__(self, text: str, *, has_string_predicates: bool) -> None:
        if len(text) > MOST_CHARACTERS:
            raise FilterError(f"expected at most {MOST_CHARACTERS} characters, found {len(text)}", text)
        if _SURROGATE.search(text):
            raise FilterError("expected text that UTF-8 can hold, found half of a character", ascii(text))
        self.text = text
        self._keywords = _KEYWORDS | STRING_PREDICATES if has_string_predicates else _KEYWORDS
        self._last_line = max(text.rfind("\n"), text.rfind("\r")) + 1
        self._position = 0
        self.current = self._next()

    def take(self) -> Token:
        """Return the next token, and advance to the one after it."""
        taken = self.current
        self.current = self._next()
        return taken

    def take_literal(self) -> Token:
        """Take the next token, which is a literal, with its value.

        Raises
        ------
        FilterError
            If it is a number that its type can't hold; such a number after an expression is never read.
        """
        token = self.take()
        if token.kind != NUMBER:
            return token
        text = str(token.value)
        read = self._integer if _INTEGER.fullmatch(text) else self._float
        return Token(NUMBER, read(text, token.position), token.position)

    def expect(self, kind: str) -> Token:
        """Take the next token, which must be of this kind.

        Raises
        ------
        FilterError
            If it is of another kind.
        """
        if self.current.kind != kind:
            raise self.error(f"expected {kind}")
        return self.take()

    def error(self, expected: str, found: Token | None = None) -> FilterError:
        """Return the error that a token, by default the next one, is not what is expected."""
        found = found or self.current
        shown = repr(found.value) if found.kind in (NAME, NUMBER, STRING) else found.kind
        return FilterError(f"{expected}, found {shown}", self.text, found.position)

    def _next(self) -> Token:
        self._skip()
        text, start = self.text, self._position
        if start == len(text):
            return Token(END, None, start)
        for pattern, make in _MAKERS:
            match = pattern.match(text, start)
            if match is not None:
                self._position = match.end()
                return make(self, match[0], start)
        raise FilterError(f"expected a word of the language, found {text[start]!r}", text, start)

    def _skip(self) -> None:
        """Skip white space and comments; two dashes in the last line are minus signs."""
        while True:
            match = _BLANK.match(self.text, self._position)
            if match is None and self._position < self._last_line:
                match = _LINE_COMMENT.match(self.text, self._position)
            if match is None:
                return
            self._position = match.end()

    def _word(self, text: str, start: int) -> Token:
        keyword = text.upper()
        if keyword in self._keywords:
            return Token(keyword, _LITERALS.get(keyword), start)
        return Token(NAME, text, start)

    def _symbol(self, text: str, start: int) -> Token:
        return Token(text, None, start)

    def _string(self, text: str, start: int) -> Token:
        return Token(STRING, text[1:-1].replace("''", "'"), start)

    def _number(self, text: str, start: int) -> Token:
        return Token(NUMBER, text, start)

    def _integer(self, text: str, start: int) -> int:
        """Return an int, or a long if needed; the letter L has no effect."""
        digits = text.rstrip("lL")
        value = int(digits) if len(digits) <= _MOST_DIGITS else _MOST_LONG + 1
        if value > _MOST_LONG:
            raise FilterError(f"expected a number up to {_MOST_LONG}, found {digits[:40]}", self.text, start)
        return value if value <= _MOST_INT else Long(value)

    def _float(self, text: str, start: int) -> float:
        value = float(text)
        if value == 0 or value == float("inf"):
            raise FilterError(f"expected a float that is neither 0 nor infinite, found {text[:40]}", self.text, start)
        return value


_MAKERS: Final = (
    (_WORD, Tokens._word),  # noqa: SLF001 -- the table of the class above
    (_FLOAT, Tokens._number),  # noqa: SLF001
    (_INTEGER, Tokens._number),  # noqa: SLF001
    (_STRING, Tokens._string),  # noqa: SLF001
    (_SYMBOL, Tokens._symbol),  # noqa: SLF001
)

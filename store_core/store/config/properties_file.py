# SPDX-License-Identifier: Apache-2.0
"""Parsing Java properties files, the format of a broker's configuration."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["parse_properties_file"]

_BLANKS: Final = " \t\f"
_ENTRY: Final = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties_file(data: bytes) -> dict[str, str]:
    r"""Parse a properties file as ``java.util.Properties.load`` does; for a repeated key the last value wins.

    Values keep trailing blanks, as in Java. The encoding is ISO 8859-1, with ``\uXXXX`` for other characters.

    Examples
    --------
    >>> parse_properties_file(b"# a broker\nflushDiskType = SYNC_FLUSH\ndeleteWhen:04;\\\n  05\n")
    {'flushDiskType': 'SYNC_FLUSH', 'deleteWhen': '04;05'}
    """
    entries = (_ENTRY.fullmatch(line) for line in _logical_lines(data.decode("latin-1")))
    return {_unescape(entry[1]): _unescape(entry[2]) for entry in entries if entry is not None}


def _logical_lines(text: str) -> Iterator[str]:
    """Join lines that end in an odd number of backslashes with the next; drop blank lines and comments."""
    joined = ""
    for line in re.split(r"\r\n|\r|\n", text):
        stripped = line.lstrip(_BLANKS)
        if not joined and (not stripped or stripped[0] in "#!"):
            continue
        joined += stripped
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        yield joined
        joined = ""
    if joined:
        yield joined


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _CONTROLS.get(code, code)

    return _ESCAPE.sub(replaced, text)

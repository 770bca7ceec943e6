# SPDX-License-Identifier: Apache-2.0
"""Checks of read options, alone and in combination, and how errors name an option."""

from __future__ import annotations

import re
from operator import index
from typing import TYPE_CHECKING, Final, NoReturn, SupportsIndex

from store_core.errors import FilterError, InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "check_filter",
    "check_filter_type",
    "check_order",
    "is_integer",
    "listed",
    "parse_integer",
    "refuse_list",
    "refuse_value",
    "shown_option",
]

_ITEM: Final = r"""(?:'[^'\\]*'|"[^"\\]*"|[+-]?[0-9]+)"""
_LIST: Final = re.compile(rf"[\[(]\s*(?:{_ITEM}\s*(?:,\s*{_ITEM}\s*)*,?\s*)?[\])]")
"""A list or tuple as Python prints it, or a list in JSON, of numbers or of texts without escapes."""

_COLLECTION: Final = re.compile(r"(?:\w+\()?[\[({].*['\"].*[\])}]\)?", re.DOTALL)
"""Another collection of texts, as Python prints it."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_LOOKS_LIKE_SQL: Final = re.compile(r"[=<>']|\bIS\s+(?:NOT\s+)?NULL\b", re.IGNORECASE)


def shown_option(name: str) -> str:
    """Return an option's name for a message: the one in the table of options, from which all others follow."""
    head, *tail = name.split("_")
    return f"option {head}{''.join(part.capitalize() for part in tail)}"


def refuse_value(name: str, value: object, expected: str, hint: str = "") -> NoReturn:
    """Raise the error for a value that an option does not accept."""
    raise InvalidOptionError(f"{shown_option(name)}: expected {expected}, found {value!r}{hint}")


def listed(name: str, value: object, expected: str) -> object:
    """Return the list whose text an option has; any other value as it is.

    Spark makes text of all values, of a list in Python that which Python prints.

    * `expected`: What the list would have.
    """
    text = value.strip() if isinstance(value, str) else ""
    if _LIST.fullmatch(text) is not None:
        return [item.strip("'\"") for item in re.findall(_ITEM, text)]
    if _COLLECTION.fullmatch(text) is not None:
        refuse_value(name, value, f"{expected}, or a list of them")
    return value


def refuse_list(name: str, value: object, expected: str) -> None:
    """Refuse the text that Python prints for a list of texts, where one value is expected."""
    if isinstance(value, str) and "'" in value and _LIST.fullmatch(value.strip()) is not None:
        refuse_value(name, value, f"{expected}, not a list")


def is_integer(text: str) -> bool:
    """Return whether a text is an integer."""
    return _INTEGER.fullmatch(text.strip()) is not None


def parse_integer(name: str, value: object, low: int, high: int, expected: str) -> int:
    """Return an integer from text, or from anything usable as a Python index, such as numpy's integers."""
    number = int(value.strip()) if isinstance(value, str) and is_integer(value) else value
    found = _as_index(number)
    if found is None or not low <= found <= high:
        refuse_value(name, value, expected)
    return found


def _as_index(value: object) -> int | None:
    if not isinstance(value, SupportsIndex) or isinstance(value, bool):
        return None
    try:
        return index(value)
    except TypeError:  # an array of numpy has the method, whatever its size
        return None


def check_order(
    kind: str, start: int | None, end: int | None, where: str = "", *, shown: Callable[[int], str] = str
) -> None:
    """Refuse a start after the end.

    * `kind`: What the names of both options end with.
    * `where`: An addition to the error.
    * `shown`: Returns the text of a bound.
    """
    if start is not None and end is not None and start > end:
        first, last = shown_option(f"starting_{kind}"), shown_option(f"ending_{kind}")
        raise InvalidOptionError(f"{first}: expected at most {last}, {shown(end)}, found {shown(start)}{where}")


def check_filter(text: str, filter_type: str, release: str) -> None:
    """Refuse a filter that is not valid in the language of its type."""
    from store_core.format.filter.message_selector import MessageSelector  # noqa: PLC0415 -- most reads have no filter

    try:
        MessageSelector.of(filter_type, text, release)
    except FilterError as error:
        language = f"{shown_option('filter_type')} is {filter_type}"
        raise InvalidOptionError(f"{shown_option('filter')}: {error}; {language}") from error


def check_filter_type(text: str) -> None:
    """Refuse a filter that looks like SQL92 if no filter type was given: as tags it would match no row."""
    if _LOOKS_LIKE_SQL.search(text):
        raise InvalidOptionError(
            f"{shown_option('filter')}: expected tags such as 'TagA || TagB', found {text!r}, which looks like "
            f"SQL92; say which it is "
            f"with {shown_option('filter_type')}: SQL92 or TAG"
        )

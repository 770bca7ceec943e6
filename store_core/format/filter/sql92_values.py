# SPDX-License-Identifier: Apache-2.0
"""Values and operators of RocketMQ's SQL92 filter language.

A property is a string, or None where it is absent; the other types come from literals. RocketMQ 4.3.0, 4.9.7, 5.3.3:
``ComparisonExpression``, ``UnaryExpression``, ``LogicExpression``, which agree.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from store_core.errors import FilterError
from store_core.format.java import INT_BITS, LONG_BITS, parse_java_int

if TYPE_CHECKING:
    from collections.abc import Callable


Value: TypeAlias = bool | int | float | str | None
"""Java's Boolean, Integer or Long (see `Long`), Double, String and null."""


JAVA_BLANKS: Final = "".join(map(chr, range(33)))
"""The characters that ``String.trim`` removes."""


class Long(int):
    """A Java long; a plain int is a Java int. They differ only in how a string compared with them is parsed."""

    __slots__ = ()


_DECIMAL: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)", re.ASCII)
_HEXADECIMAL: Final = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?", re.ASCII
)


# --------------------------------------------------------------------------------------------------- strings as numbers


def _parse_integer(text: str, bits: int) -> int:
    """Parse a string as ``Integer.valueOf`` or ``Long.valueOf`` do."""
    try:
        return parse_java_int(text, bits)
    except ValueError:
        raise FilterError(f"expected a whole number of {bits} bits, found {text[:40]!r}") from None


def _parse_double(text: str) -> float:
    """Parse a string as ``Double.valueOf`` does: surrounding blanks, a suffix ``d`` or ``f``, hexadecimal too."""
    trimmed = text.strip(JAVA_BLANKS)
    if _DECIMAL.fullmatch(trimmed) is not None:
        return float(trimmed.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(trimmed) is None:
        raise FilterError(f"expected a number, found {text[:40]!r}")
    try:
        return float.fromhex(trimmed.rstrip("fFdD"))
    except OverflowError:
        return -math.inf if trimmed.startswith("-") else math.inf


def reads_as_double(text: str) -> bool:
    """Return whether a string is read as a number when compared with a decimal."""
    try:
        _parse_double(text)
    except FilterError:
        return False
    return True


_PARSERS: Final[dict[type, Callable[[str], bool | float]]] = {
    bool: lambda text: text.lower() == "true",
    int: partial(_parse_integer, bits=INT_BITS),
    Long: partial(_parse_integer, bits=LONG_BITS),
    float: _parse_double,
}


# ----------------------------------------------------------------------------------------------------------- comparing


def _compare(left: bool | float | str, right: bool | float | str) -> int:  # noqa: FBT001 -- values of the language
    """Compare two values after converting one to the other's type: less than 0, 0, or more than 0."""
    kind, other = type(left), type(right)
    if kind is not other:
        if kind is str:
            left = _PARSERS[other](str(left))
        elif bool in (kind, other):
            if other is str:
                raise FilterError(f"a boolean on the left can't be compared with a string, found {str(right)[:40]!r}")
            return -1
        elif other is str:
            right = _PARSERS[kind](str(right))
    if isinstance(left, float) or isinstance(right, float):
        return _compare_doubles(float(left), float(right))
    return (left > right) - (left < right)  # type: ignore[operator]  # of one type by now


def _compare_doubles(left: float, right: float) -> int:
    """Compare as ``Double.compare``: NaN equals itself and is above all, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    one, other = _double_rank(left), _double_rank(right)
    return (one > other) - (one < other)


def _double_rank(value: float) -> tuple[bool, float]:
    """Return a rank that orders what ``<`` and ``>`` treat as equal."""
    return math.isnan(value), 0 if math.isnan(value) else math.copysign(1, value)


def equal(left: Value, right: Value) -> bool | None:
    """Return ``left = right``; null if only the left is null, False if only the right is."""
    if left is None:
        return True if right is None else None
    return right is not None and _compare(left, right) == 0


def not_equal(left: Value, right: Value) -> bool | None:
    """Return ``left <> right``."""
    return logical_not(equal(left, right))


def _order(left: bool | float | str, right: bool | float | str) -> int:  # noqa: FBT001 -- values of the language
    """Compare for an ordering: two strings must be numbers."""
    if isinstance(left, str) and isinstance(right, str):
        return _compare_doubles(_parse_double(left), _parse_double(right))
    return _compare(left, right)


def less(left: Value, right: Value) -> bool | None:
    """Return ``left < right``; null if either is."""
    return None if left is None or right is None else _order(left, right) < 0


def less_equal(left: Value, right: Value) -> bool | None:
    """Return ``left <= right``; null if either is."""
    return None if left is None or right is None else _order(left, right) <= 0


def greater(left: Value, right: Value) -> bool | None:
    """Return ``left > right``; null if either is."""
    return None if left is None or right is None else _order(left, right) > 0


def greater_equal(left: Value, right: Value) -> bool | None:
    """Return ``left >= right``; null if either is."""
    return None if left is None or right is None else _order(left, right) >= 0


# --------------------------------------------------------------------------------------------------- logic, predicates


def logical_and(left: Value, right: Value) -> bool | None:
    """Return AND of True, False and null."""
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def logical_or(left: Value, right: Value) -> bool | None:
    """Return OR of True, False and null."""
    if left is True or right is True:
        return True
    return None if left is None or right is None else False


def logical_not(value: Value) -> bool | None:
    """Return NOT of True, False and null."""
    return None if value is None else not value


def boolean_cast(value: Value) -> bool | None:
    """Return a bare property as a truth: null if absent, else False, since it is never a boolean."""
    return None if value is None else value is True


def is_null(value: Value) -> bool:
    """Return ``value IS NULL``."""
    return value is None


def is_not_null(value: Value) -> bool:
    """Return ``value IS NOT NULL``."""
    return value is not None


def negate(value: Value) -> int | float | None:
    """Return a negated number; null for anything else, even a numeric property."""
    if value is None or isinstance(value, bool | str):
        return None
    return Long(-value) if isinstance(value, Long) else -value


def is_in(items: frozenset[str], wanted: bool, value: Value) -> bool | None:  # noqa: FBT001 -- False for NOT IN
    """Return whether a property is one of some strings (if not `wanted`: none of them); null if it is absent."""
    return (value in items) is wanted if isinstance(value, str) else None


def contains(text: str, wanted: bool, value: Value) -> bool:  # noqa: FBT001 -- False for NOT CONTAINS
    """Return whether a string contains `text` (if not `wanted`: does not); always False if it is not a string."""
    return isinstance(value, str) and (text in value) is wanted


def starts_with(text: str, wanted: bool, value: Value) -> bool:  # noqa: FBT001 -- False for NOT STARTSWITH
    """Return whether a string begins with `text`, by the rules of `contains`."""
    return isinstance(value, str) and value.startswith(text) is wanted


def ends_with(text: str, wanted: bool, value: Value) -> bool:  # noqa: FBT001 -- False for NOT ENDSWITH
    """Return whether a string ends with `text`, by the rules of `contains`."""
    return isinstance(value, str) and value.endswith(text) is wanted

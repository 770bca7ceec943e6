# SPDX-License-Identifier: Apache-2.0
"""Operations of SQL92 expressions on a column of strings by Arrow and numpy, without a Python object per string.

Each equals the function of `store_core.format.filter.sql92_values` that it replaces. Functions without a kernel, and
strings that are not plain numbers where numbers are compared, are left to those functions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.format.columnar.arrow_slices import binary_parts, take_rows, true_mask
from store_core.format.filter import sql92_values as values

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from store_core.format.filter.sql92_values import Value

    _Mask = npt.NDArray[np.bool_]

__all__ = ["compare_numbers", "compare_texts", "match_strings", "plain_numbers"]

_MOST_DIGITS: Final = 9
"""Most digits that always fit into a Java int, and convert to a double without rounding."""

_ZERO: Final = ord("0")
_NINE: Final = ord("9")
_MINUS: Final = ord("-")

_TESTS: Final[dict[object, Callable[[pa.StringArray, Any], pa.BooleanArray]]] = {
    values.is_in: lambda strings, items: pc.is_in(strings, value_set=pa.array(sorted(items), pa.string())),
    values.contains: pc.match_substring,
    values.starts_with: pc.starts_with,
    values.ends_with: pc.ends_with,
}

_COMPARISONS: Final[dict[object, Callable[[Any, Any], Any]]] = {
    values.equal: np.equal,
    values.not_equal: np.not_equal,
    values.less: np.less,
    values.less_equal: np.less_equal,
    values.greater: np.greater,
    values.greater_equal: np.greater_equal,
}


def match_strings(function: Callable[[Value], Value], strings: pa.StringArray) -> _Mask | None:
    """Return a function of one string, applied to all; None if there is no kernel for it.

    Returns
    -------
    numpy.ndarray or None
        bool, shape (n,); undefined for null.
    """
    if function in (values.is_null, values.is_not_null, values.boolean_cast):
        return np.full(len(strings), function is values.is_not_null, np.bool_)
    if not isinstance(function, partial) or function.func not in _TESTS:
        return None
    operand, wanted = function.args
    found: _Mask = true_mask(_TESTS[function.func](strings, operand)) == wanted
    return found


def compare_texts(function: Callable[[Value, Value], Value], strings: pa.StringArray, text: str) -> _Mask | None:
    """Return whether strings equal a text, or differ from it; None for any other function."""
    if function not in (values.equal, values.not_equal):
        return None
    found: _Mask = true_mask(pc.equal(strings, text)) == (function is values.equal)
    return found


def compare_numbers(
    function: Callable[[Value, Value], Value],
    numbers: npt.NDArray[np.int64],
    constant: float,
    *,
    constant_is_left: bool,
) -> _Mask:
    """Compare numbers of at most nine digits with a literal of any number type."""
    compare = _COMPARISONS[function]
    found: _Mask = compare(constant, numbers) if constant_is_left else compare(numbers, constant)
    return found


def plain_numbers(strings: pa.StringArray) -> tuple[npt.NDArray[np.int64], _Mask]:
    """Parse the strings that are a number of up to nine digits, optionally after a minus sign.

    Every type of the language parses such a string as the same number.

    Returns
    -------
    numbers : numpy.ndarray
        int64, shape (n,); 0 for the others.
    is_plain : numpy.ndarray
        bool, shape (n,); False for nulls.
    """
    offsets, data, _ = binary_parts(_compact(strings))
    starts, stops = offsets[:-1], offsets[1:]
    data = np.append(data[: offsets[-1]], np.uint8(0))
    others = np.zeros(data.size, np.int32)
    np.cumsum((data[:-1] < _ZERO) | (data[:-1] > _NINE), out=others[1:])
    is_negative = data[starts] == _MINUS
    digits = stops - starts - is_negative
    is_plain = (others[stops] - others[starts] == is_negative) & (digits > 0) & (digits <= _MOST_DIGITS)
    is_plain &= strings.is_valid().to_numpy(zero_copy_only=False)
    numbers = np.zeros(len(strings), np.int64)
    numbers[is_plain] = strings.filter(pa.array(is_plain)).cast(pa.int64()).to_numpy()
    return numbers, is_plain


def _compact(strings: pa.StringArray) -> pa.StringArray:
    """Return an array that starts at offset 0."""
    return take_rows(strings, np.arange(len(strings))) if strings.offset else strings

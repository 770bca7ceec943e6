# SPDX-License-Identifier: Apache-2.0
"""Evaluation of SQL92 expressions on many messages at once.

The program of the expression runs once, on columns instead of values. A column is a list of distinct values and, for
each row, the number of its value; a step runs once per distinct value, or per distinct pair of values, with the same
functions with which `store_core.format.filter.sql92_parser` evaluates one message. Truths have four values: True,
False, null, and failed.

For a property and a literal, operations on a column of strings by Arrow and numpy save the search for distinct values.
Each equals the function of `store_core.format.filter.sql92_values` that it replaces. Functions without one, and strings
that are not plain numbers where numbers are compared, are left to those functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.errors import FilterError
from store_core.format.columnar.arrow_slices import binary_parts, take_rows, true_mask
from store_core.format.columns import MAP_TYPE
from store_core.format.filter import sql92_values as values
from store_core.format.filter.sql92_parser import NEVER, Apply, Copy, DropBelow, Join, Load, Push, Step, StopIf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from store_core.format.filter.sql92_parser import Sql92Expression
    from store_core.format.filter.sql92_values import Value

    _Mask = npt.NDArray[np.bool_]

    _Codes: TypeAlias = npt.NDArray[np.intp]


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

    Returns: bool, shape (n,); undefined for null.
    """
    if function in (values.is_null, values.is_not_null, values.boolean_cast):
        return np.full(len(strings), function is values.is_not_null, np.bool_)
    if not isinstance(function, partial) or function.func not in _TESTS:
        return None
    operand, wanted = function.args
    found: _Mask = true_mask(_TESTS[function.func](strings, operand)) == wanted
    return found


def plain_numbers(strings: pa.StringArray) -> tuple[npt.NDArray[np.int64], _Mask]:
    """Parse the strings that are a number of up to nine digits, optionally after a minus sign.

    Every type of the language parses such a string as the same number.

    Returns: int64, shape (n,); 0 for the others.
    Returns: bool, shape (n,); False for nulls.
    """
    offsets, data, _ = binary_parts(take_rows(strings, np.arange(len(strings))) if strings.offset else strings)
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


_FALSE, _TRUE, _NULL, _ERROR = range(4)
_FAILED: Final = object()
_TRUTHS: Final = [False, True, None, _FAILED]
_TRUTH_CODES: Final = {False: _FALSE, True: _TRUE, None: _NULL, _FAILED: _ERROR}
_SMALL_TABLE: Final = 64
"""Up to this many pairs of values are all evaluated, even those that no row has."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The result of an expression for each row."""

    codes: npt.NDArray[np.intp]
    """intp, shape (rows,): 0 for False, 1 for True, 2 for null, 3 where the evaluation failed."""

    @property
    def matches(self) -> npt.NDArray[np.bool_]:
        """Which rows match: those for which the expression is True. Shape (rows,)."""
        matches: npt.NDArray[np.bool_] = self.codes == _TRUE
        return matches

    @property
    def error_count(self) -> int:
        """Number of rows for which the evaluation failed; RocketMQ logs these, and they do not match."""
        return int(np.count_nonzero(self.codes == _ERROR))

    @property
    def first_error(self) -> int:
        """The first row for which the evaluation failed; -1 if there is none."""
        failed = self.codes == _ERROR
        return int(failed.argmax()) if failed.any() else -1


def evaluate_maps(expression: Sql92Expression, properties: pa.MapArray) -> Verdicts:
    """Evaluate an expression on the properties of many messages.

    * `properties`: Maps of strings, shape (rows,); null has no properties. If a name occurs twice the last value
      counts.
    """
    return evaluate_columns(expression, property_columns(properties, expression.names), len(properties))


def evaluate_columns(expression: Sql92Expression, columns: Mapping[str, pa.StringArray], rows: int) -> Verdicts:
    """Evaluate an expression on columns of properties.

    * `columns`: A column for each of `expression.names`, shape (rows,), null where a message lacks it.
    """
    stack: list[_Column | _Strings] = []
    loaded = {name: _Strings(columns[name]) for name in expression.names}
    for step in expression.program:
        _run(step, stack, loaded)
    found = _column(stack[0])
    codes = np.array([_TRUTH_CODES[value] for value in found.values], np.intp)
    return Verdicts(np.full(rows, codes[0]) if found.codes is None else codes[found.codes])


def property_columns(properties: pa.MapArray, names: Sequence[str]) -> dict[str, pa.StringArray]:
    """Return single properties of maps, as columns of the same length, null where a map lacks the name."""
    if properties.type != MAP_TYPE:
        properties = properties.cast(MAP_TYPE)
    return {name: pc.map_lookup(properties, pa.scalar(name), "last") for name in names}


# -------------------------------------------------------------------------------------------------------- the machine


@dataclass(frozen=True, slots=True)
class _Column:
    """Distinct values, possibly `_FAILED`, and the number of each row's value; None if all rows have the same."""

    values: list[Any]
    codes: _Codes | None


class _Strings:
    """A property, whose distinct values are computed only if an operation has no kernel."""

    def __init__(self, strings: pa.StringArray) -> None:
        self.strings = strings

    @cached_property
    def column(self) -> _Column:
        distinct = self.strings.dictionary_encode()
        codes = distinct.indices.fill_null(len(distinct.dictionary)).to_numpy(zero_copy_only=False)
        return _Column([*distinct.dictionary.to_pylist(), None], codes.astype(np.intp))

    @cached_property
    def is_null(self) -> npt.NDArray[np.bool_]:
        mask: npt.NDArray[np.bool_] = self.strings.is_null().to_numpy(zero_copy_only=False)
        return mask

    @cached_property
    def numbers(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        return plain_numbers(self.strings)

    def truths(self, mask: npt.NDArray[np.bool_], of_null: object) -> _Column:
        """Return a column of the truth for each string, and of the truth for nulls."""
        codes = mask.astype(np.intp)
        codes[self.is_null] = _TRUTH_CODES[of_null]
        return _Column(_TRUTHS, codes)


def _run(step: Step, stack: list[_Column | _Strings], loaded: Mapping[str, _Strings]) -> None:
    """Run one step; `StopIf` only saves work, since `_pair` handles what it skips."""
    match step:
        case Load(name):
            stack.append(loaded[name])
        case Push(value):
            stack.append(_Column([value], None))
        case Copy(depth):
            stack.append(stack[-1 - depth])
        case DropBelow():
            del stack[-2]
        case Apply(function):
            stack[-1] = _applied(function, stack[-1])
        case Join():
            right = stack.pop()
            stack[-1] = _joined(step, stack[-1], right)
        case StopIf():
            pass


def _column(operand: _Column | _Strings) -> _Column:
    return operand.column if isinstance(operand, _Strings) else operand


def _applied(function: Callable[[Any], Any], operand: _Column | _Strings) -> _Column:
    if isinstance(operand, _Strings):
        mask = match_strings(function, operand.strings)
        if mask is not None:
            return operand.truths(mask, function(None))
    column = _column(operand)
    return _truths([_result(function, value) for value in column.values], column.codes)


def _result(function: Callable[[Any], Any], value: object) -> object:
    if value is _FAILED:
        return _FAILED
    try:
        return function(value)
    except FilterError:
        return _FAILED


def _pair(step: Join, left: object, right: object) -> object:
    """Join two values; if the left one decides alone, a failure on the right does not count."""
    if left is _FAILED or (left is step.stop and step.stop is not NEVER):
        return left
    if right is _FAILED:
        return _FAILED
    try:
        return step.function(left, right)  # type: ignore[arg-type]  # values of the language by now
    except FilterError:
        return _FAILED


def _joined(step: Join, left: _Column | _Strings, right: _Column | _Strings) -> _Column:
    """Join two columns: a property and a literal by a kernel, others by distinct pairs."""
    if isinstance(left, _Strings) and isinstance(right, _Column) and right.codes is None:
        found = _with_literal(step, left, right.values[0], literal_is_left=False)
    elif isinstance(right, _Strings) and isinstance(left, _Column) and left.codes is None:
        found = _with_literal(step, right, left.values[0], literal_is_left=True)
    else:
        found = None
    return _joined_pairs(step, _column(left), _column(right)) if found is None else found


def _joined_pairs(step: Join, left: _Column, right: _Column) -> _Column:
    if left.codes is None or right.codes is None:
        results = [_pair(step, one, other) for one in left.values for other in right.values]
        return _truths(results, right.codes if left.codes is None else left.codes)
    width = len(right.values)
    codes = left.codes * width + right.codes
    if len(left.values) * width <= _SMALL_TABLE:
        return _truths([_pair(step, one, other) for one in left.values for other in right.values], codes)
    pairs, codes = np.unique(codes, return_inverse=True)
    ones, others = (part.tolist() for part in np.divmod(pairs, width))
    return _truths(
        [_pair(step, left.values[one], right.values[other]) for one, other in zip(ones, others, strict=True)], codes
    )


def _with_literal(step: Join, operand: _Strings, literal: object, *, literal_is_left: bool) -> _Column | None:
    """Join a property and a literal by kernels; None if there is no kernel."""

    def join(value: object) -> object:
        return _pair(step, literal, value) if literal_is_left else _pair(step, value, literal)

    if isinstance(literal, str):
        if step.function not in (values.equal, values.not_equal):
            return None
        is_same = true_mask(pc.equal(operand.strings, literal))
        return operand.truths(is_same == (step.function is values.equal), join(None))
    if literal is None or not isinstance(literal, int | float) or isinstance(literal, bool):
        return None
    numbers, is_plain = operand.numbers
    compare = _COMPARISONS[step.function]
    found = operand.truths(compare(literal, numbers) if literal_is_left else compare(numbers, literal), join(None))
    rest = np.flatnonzero(~(is_plain | operand.is_null))
    if rest.size and found.codes is not None:
        column = _Strings(take_rows(operand.strings, rest)).column
        truths = np.array([_TRUTH_CODES[join(value)] for value in column.values], np.intp)
        found.codes[rest] = truths[column.codes]
    return found


def _truths(results: list[Any], codes: _Codes | None) -> _Column:
    """Return a column of results; if they are truths, with the four values of truths."""
    if codes is None or not all(result is None or result is _FAILED or isinstance(result, bool) for result in results):
        return _Column(results, codes)
    truths = np.array([_TRUTH_CODES[result] for result in results], np.intp)
    return _Column(_TRUTHS, truths[codes])

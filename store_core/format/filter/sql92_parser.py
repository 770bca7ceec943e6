# SPDX-License-Identifier: Apache-2.0
"""The compiler from the text of an SQL92 expression to its program.

RocketMQ: ``SelectorParser.jj``, and the checks of ``ComparisonExpression``. Binary operators associate to the left, in
levels: OR, AND, equality (``=``, ``<>``, IS NULL), comparison (orderings, BETWEEN, IN, CONTAINS ...), and tightest the
signs and NOT. Operators that wait for their right operand are kept in a list, not on Python's call stack, so that
nesting has no limit; time and memory grow only with the length of the text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from store_core.format.filter.sql92_program import (
    NEVER,
    Apply,
    Copy,
    DropBelow,
    Join,
    Load,
    Program,
    Push,
    Step,
    StopIf,
)
from store_core.format.filter.sql92_tokens import NAME, STRING, STRING_PREDICATES, Token, Tokens
from store_core.format.filter.sql92_values import (
    Value,
    boolean_cast,
    contains,
    ends_with,
    equal,
    greater,
    greater_equal,
    is_in,
    is_not_null,
    is_null,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    negate,
    not_equal,
    starts_with,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["parse"]

_PARENTHESIS, _OR, _AND, _EQUALITY, _COMPARISON, _PREFIX = range(6)
"""Levels of binding, loosest first."""

_LOGIC: Final = {"OR": (_OR, logical_or, True), "AND": (_AND, logical_and, False)}
"""Level, function, and the left operand that decides alone."""

_EQUALITIES: Final = {"=": equal, "<>": not_equal}
_ORDERINGS: Final = {">": greater, ">=": greater_equal, "<": less, "<=": less_equal}
_PREDICATES: Final = {"CONTAINS": contains, "STARTSWITH": starts_with, "ENDSWITH": ends_with}
_NEGATABLE: Final = STRING_PREDICATES | {"BETWEEN", "IN"}
_OF_COMPARISON: Final = _NEGATABLE | {"NOT", *_ORDERINGS}
_OF_EQUALITY: Final = frozenset({*_EQUALITIES, "IS"})
_TO_SECOND_STOP: Final = 2
"""Steps from the stop after the first comparison of BETWEEN to the one before its upper bound."""


class _Kind(Enum):
    LITERAL = "a literal"
    PROPERTY = "a property"
    BOOLEAN = "a comparison or a logic operation"
    OTHER = "a negated value"


@dataclass(frozen=True, slots=True)
class _Operand:
    """A parsed operand: the steps that compute it, and what checks need.

    `start` is the first of its steps, `level` its level of binding.
    """

    kind: _Kind
    start: int
    token: Token
    level: int = _COMPARISON

    @property
    def literal(self) -> Value:
        return self.token.value if self.kind is _Kind.LITERAL else None

    @property
    def is_null(self) -> bool:
        return self.kind is _Kind.LITERAL and self.token.value is None

    @property
    def is_boolean(self) -> bool:
        return self.kind is _Kind.BOOLEAN or self.is_null or isinstance(self.literal, bool)

    @property
    def is_number(self) -> bool:
        return isinstance(self.literal, int | float) and not isinstance(self.literal, bool)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An operator that waits for its right operand; `stop` is the step that may skip that operand."""

    token: Token
    level: int
    left: _Operand
    stop: int = -1
    wanted: bool = True
    low: _Operand | None = None


def parse(text: str, *, has_string_predicates: bool = True) -> Program:
    """Compile an expression.

    Parameters
    ----------
    text : str
        Text after an expression is ignored, as in RocketMQ.
    has_string_predicates : bool
        Whether CONTAINS, STARTSWITH and ENDSWITH are keywords, as since RocketMQ 5.1.3.

    Raises
    ------
    FilterError
        If it does not compile.
    """
    return _Parser(Tokens(text, has_string_predicates=has_string_predicates)).program()


class _Parser:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._steps: list[Step] = []
        self._waiting: list[_Waiting] = []
        self._open = 0

    def program(self) -> Program:
        operand = self._settled(self._primary())
        while operand is None or self._goes_on(operand):
            operand = self._settled(self._primary()) if operand is None else self._extended(operand)
        operand = self._reduced(operand, _OR)
        if self._waiting:
            raise self._tokens.error("expected an operator or )")
        self._as_boolean(operand)
        return tuple(self._steps)

    # ------------------------------------------------------------------------------------------------------- operands

    def _primary(self) -> _Operand:
        """Take signs, NOTs and parentheses, and the name or literal after them."""
        tokens, start = self._tokens, len(self._steps)
        while tokens.current.kind in ("+", "-", "NOT", "("):
            token = tokens.take()
            level = _PARENTHESIS if token.kind == "(" else _PREFIX
            self._open += token.kind == "("
            self._waiting.append(_Waiting(token, level, _Operand(_Kind.OTHER, start, token)))
        if tokens.current.kind == NAME:
            token = tokens.take()
            self._steps.append(Load(str(token.value)))
            return _Operand(_Kind.PROPERTY, start, token)
        if not tokens.current.is_literal:
            raise tokens.error("expected a name, a literal or (")
        token = tokens.take_literal()
        self._steps.append(Push(token.value))
        return _Operand(_Kind.LITERAL, start, token)

    def _as_boolean(self, operand: _Operand) -> None:
        """Convert the operand, whose steps are the last ones, to a truth, or refuse it."""
        if operand.kind is _Kind.PROPERTY:
            self._steps.append(Apply(boolean_cast))
        elif not operand.is_boolean:
            raise self._tokens.error("expected a truth: a comparison, a name, TRUE, FALSE or NULL", operand.token)

    def _check_ordered(self, operand: _Operand) -> None:
        """Refuse to order what is plainly not a number."""
        if operand.kind is _Kind.BOOLEAN or (operand.kind is _Kind.LITERAL and not operand.is_number):
            raise self._tokens.error("expected a name or a number to compare", operand.token)

    # ------------------------------------------------------------------------------------------------------ operators

    def _goes_on(self, operand: _Operand) -> bool:
        """Return whether the next token continues the expression; if not, it and all after it are ignored."""
        kind = self._tokens.current.kind
        if kind in _OF_COMPARISON:
            return operand.level == _COMPARISON
        return kind in _OF_EQUALITY or kind in _LOGIC or (kind == ")" and self._open > 0)

    def _extended(self, operand: _Operand) -> _Operand | None:
        """Take the next operator; None if an operand must follow."""
        token = self._tokens.take()
        if token.kind in _LOGIC:
            level, _, decides = _LOGIC[token.kind]
            operand = self._reduced(operand, level)
            self._as_boolean(operand)
            self._waiting.append(_Waiting(token, level, operand, self._stop_if(decides)))
            return None
        if token.kind in _EQUALITIES:
            self._waiting.append(_Waiting(token, _EQUALITY, self._reduced(operand, _EQUALITY)))
            return None
        if token.kind == "IS":
            return self._null_test(self._reduced(operand, _EQUALITY), token)
        if token.kind == ")":
            operand = self._reduced(operand, _OR)
            self._waiting.pop()
            self._open -= 1
            return self._settled(replace(operand, level=_COMPARISON))
        return self._compared(operand, token)

    def _compared(self, operand: _Operand, token: Token) -> _Operand | None:
        """Continue after an operator of the level of comparisons."""
        wanted = token.kind != "NOT"
        if not wanted:
            token = self._tokens.take()
        if token.kind in _ORDERINGS and wanted:
            self._check_ordered(operand)
            self._waiting.append(_Waiting(token, _COMPARISON, operand, self._stop_if(None)))
            return None
        if token.kind == "BETWEEN":
            self._check_ordered(operand)
            self._steps.append(Copy(0))
            self._waiting.append(_Waiting(token, _COMPARISON, operand, self._stop_if(None), wanted))
            return None
        if token.kind == "IN":
            return self._membership(operand, token, wanted=wanted)
        if token.kind in _PREDICATES:
            return self._predicate(operand, token, wanted=wanted)
        raise self._tokens.error(f"expected {', '.join(sorted(_NEGATABLE))} after NOT", token)

    def _stop_if(self, value: Value) -> int:
        """Reserve a step that skips the operand to come; return its position."""
        self._steps.append(StopIf(value, 0))
        return len(self._steps) - 1

    def _join(self, function: Callable[[Value, Value], Value], stop: int) -> None:
        """Join two operands; the step at `stop`, if any, skips to after this one."""
        placeholder = self._steps[stop] if stop >= 0 else None
        if isinstance(placeholder, StopIf):
            self._steps.append(Join(function, placeholder.value))
            self._steps[stop] = StopIf(placeholder.value, len(self._steps) - stop)
        else:
            self._steps.append(Join(function, NEVER))

    # ------------------------------------------------------------------------------------- operators with one operand

    def _null_test(self, operand: _Operand, token: Token) -> _Operand:
        is_negated = self._tokens.current.kind == "NOT"
        if is_negated:
            self._tokens.take()
        self._tokens.expect("NULL")
        self._steps.append(Apply(is_not_null if is_negated else is_null))
        return _Operand(_Kind.BOOLEAN, operand.start, token, _EQUALITY)

    def _membership(self, operand: _Operand, token: Token, *, wanted: bool) -> _Operand:
        if operand.kind is not _Kind.PROPERTY:
            raise self._tokens.error("expected a name before IN", operand.token)
        self._tokens.expect("(")
        items = [self._tokens.expect(STRING).value]
        while self._tokens.current.kind == ",":
            self._tokens.take()
            items.append(self._tokens.expect(STRING).value)
        self._tokens.expect(")")
        self._steps.append(Apply(partial(is_in, frozenset(map(str, items)), wanted)))
        return _Operand(_Kind.BOOLEAN, operand.start, token)

    def _predicate(self, operand: _Operand, token: Token, *, wanted: bool) -> _Operand:
        """Test whether a string contains another; with an empty one nothing is evaluated, so nothing can fail."""
        text = str(self._tokens.expect(STRING).value)
        if text:
            self._steps.append(Apply(partial(_PREDICATES[token.kind], text, wanted)))
        else:
            self._steps[operand.start :] = [Push(False)]  # noqa: FBT003 -- a value of the language
        return _Operand(_Kind.BOOLEAN, operand.start, token)

    # ------------------------------------------------------------------------------- operators that have both operands

    def _settled(self, operand: _Operand) -> _Operand | None:
        """Apply the signs and comparisons that waited for this operand; None if another must follow."""
        while self._waiting and self._waiting[-1].level >= _COMPARISON:
            waiting = self._waiting.pop()
            if waiting.token.kind == "BETWEEN" and waiting.low is None:
                self._between(waiting, operand)
                return None
            operand = self._applied(waiting, operand)
        return operand

    def _reduced(self, operand: _Operand, level: int) -> _Operand:
        """Apply all operators that bind at least as tight as `level`."""
        while self._waiting and self._waiting[-1].level >= level:
            operand = self._applied(self._waiting.pop(), operand)
        return operand

    def _applied(self, waiting: _Waiting, right: _Operand) -> _Operand:
        kind = waiting.token.kind
        if waiting.level == _PREFIX:
            return self._prefixed(waiting.token, right)
        if kind in _LOGIC:
            self._as_boolean(right)
            self._join(_LOGIC[kind][1], waiting.stop)
        elif kind in _EQUALITIES:
            self._check_equated(waiting.left, right)
            self._join(_EQUALITIES[kind], waiting.stop)
        elif kind in _ORDERINGS:
            self._check_ordered(right)
            self._join(_ORDERINGS[kind], waiting.stop)
        else:
            self._end_between(waiting, right)
        return _Operand(_Kind.BOOLEAN, waiting.left.start, waiting.token)

    def _prefixed(self, token: Token, operand: _Operand) -> _Operand:
        if token.kind == "+":
            return operand
        if token.kind == "NOT":
            self._as_boolean(operand)
        self._steps.append(Apply(logical_not if token.kind == "NOT" else negate))
        return _Operand(_Kind.BOOLEAN if token.kind == "NOT" else _Kind.OTHER, operand.start, token)

    def _check_equated(self, left: _Operand, right: _Operand) -> None:
        """Refuse the literal NULL, and TRUE or FALSE to the left of a string or number."""
        for operand in (left, right):
            if operand.is_null:
                raise self._tokens.error("expected IS NULL or another operand", operand.token)
        if isinstance(left.literal, bool) and right.kind is _Kind.LITERAL and not right.is_boolean:
            raise self._tokens.error(f"expected a boolean to compare with {left.token.kind}", right.token)

    def _between(self, waiting: _Waiting, low: _Operand) -> None:
        """Compare with the lower bound, and continue with the upper one: the value is below the first result."""
        self._check_ordered(low)
        self._tokens.expect("AND")
        self._join(greater_equal if waiting.wanted else less, waiting.stop)
        stop = self._stop_if(not waiting.wanted)
        self._steps.append(Copy(1))
        self._stop_if(None)
        self._waiting.append(replace(waiting, low=low, stop=stop))

    def _end_between(self, waiting: _Waiting, high: _Operand) -> None:
        self._check_ordered(high)
        if waiting.wanted and waiting.low is not None:
            self._check_bounds(waiting.low, high)
        self._join(less_equal if waiting.wanted else greater, waiting.stop + _TO_SECOND_STOP)
        self._join(logical_and if waiting.wanted else logical_or, waiting.stop)
        self._steps.append(DropBelow())

    def _check_bounds(self, low: _Operand, high: _Operand) -> None:
        """Refuse two literal bounds of which the upper one is smaller."""
        if low.is_number and high.is_number and greater(low.literal, high.literal):
            raise self._tokens.error(f"expected an upper bound of at least {low.literal}", high.token)

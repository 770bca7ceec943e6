# SPDX-License-Identifier: Apache-2.0
"""SQL92: from text to a program, and the compiled expression, a pure function of a message's properties.

RocketMQ: ``SelectorParser.jj`` of 4.1.0 and later. The longest match wins; at equal length the keyword wins over the
identifier. The text after an expression is never read, so tokens are read one by one, on demand.

It is a program and not a tree, so that deep nesting can't exhaust Python's own stack, and the same steps run on one
message's values and on columns of them (`store_core.format.filter.sql92_columns`).

RocketMQ: ``SelectorParser.jj``, and the checks of ``ComparisonExpression``. Binary operators associate to the left, in
levels: OR, AND, equality (``=``, ``<>``, IS NULL), comparison (orderings, BETWEEN, IN, CONTAINS ...), and tightest the
signs and NOT. Operators that wait for their right operand are kept in a list, not on Python's call stack, so that
nesting has no limit; time and memory grow only with the length of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from store_core.errors import FilterError
from store_core.format.filter.sql92_values import (
    Long,
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
    reads_as_double,
    starts_with,
)
from store_core.format.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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
_INTEGER: Final = r"0|[1-9][0-9]*[lL]?"
_FLOAT: Final = r"[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
_TOKEN: Final = re.compile(
    rf"(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)|(?P<number>{_FLOAT}|{_INTEGER})|(?P<string>'[^']*(?:''[^']*)*')"
    r"|<>|>=|<=|[=<>(),+-]"
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MOST_DIGITS: Final = 19
_MOST_LONG: Final = (1 << 63) - 1
_MOST_INT: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an expression."""

    kind: str  # A keyword in capitals, a symbol, or `NAME`, `NUMBER`, `STRING`, `END`
    value: Value
    """The value of a literal, the name, or the text of a number that `Tokens.take_literal` has not read yet."""
    position: int  # where it starts in the text, in characters


class Tokens:
    """The tokens of an expression, one after the other.

    * `has_string_predicates`: Whether CONTAINS, STARTSWITH and ENDSWITH are keywords.
    """

    __slots__ = ("_keywords", "_last_line", "_position", "current", "text")

    def __init__(self, text: str, *, has_string_predicates: bool) -> None:
        if len(text) > MOST_CHARACTERS:
            raise FilterError(f"expected at most {MOST_CHARACTERS} characters, found {len(text)}", text)
        if _SURROGATE.search(text):
            raise FilterError("expected text that UTF-8 can hold, found a surrogate alone", ascii(text))
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
        """Take the next token, which is a literal, with its value."""
        token = self.take()
        if token.kind != NUMBER:
            return token
        text = str(token.value)
        read = self._integer if re.fullmatch(_INTEGER, text) else self._float
        return Token(NUMBER, read(text, token.position), token.position)

    def expect(self, kind: str) -> Token:
        """Take the next token, which must be of this kind."""
        if self.current.kind != kind:
            raise self.error(f"expected {kind}")
        return self.take()

    def error(self, expected: str, found: Token | None = None) -> FilterError:
        """Return the error of an unexpected token, by default the next one."""
        found = found or self.current
        shown = repr(found.value) if found.kind in (NAME, NUMBER, STRING) else found.kind
        return FilterError(f"{expected}, found {shown}", self.text, found.position)

    def _next(self) -> Token:
        self._skip()
        text, start = self.text, self._position
        if start == len(text):
            return Token(END, None, start)
        match = _TOKEN.match(text, start)
        if match is None:
            raise FilterError(f"expected a word of the language, found {text[start]!r}", text, start)
        self._position = match.end()
        found = match[0]
        if match.lastgroup == "word":
            keyword = found.upper()
            is_keyword = keyword in self._keywords
            return Token(keyword, _LITERALS.get(keyword), start) if is_keyword else Token(NAME, found, start)
        if match.lastgroup == "string":
            return Token(STRING, found[1:-1].replace("''", "'"), start)
        return Token(NUMBER, found, start) if match.lastgroup == "number" else Token(found, None, start)

    def _skip(self) -> None:
        """Skip white space and comments; two dashes in the last line are minus signs."""
        while True:
            match = _BLANK.match(self.text, self._position)
            if match is None and self._position < self._last_line:
                match = _LINE_COMMENT.match(self.text, self._position)
            if match is None:
                return
            self._position = match.end()

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


NEVER: Final = object()
"""Value of `Join.stop` if no left operand decides alone."""


@dataclass(frozen=True, slots=True)
class Push:
    """Push a literal onto the stack."""

    value: Value


@dataclass(frozen=True, slots=True)
class Load:
    """Push a property onto the stack, null if it is absent."""

    name: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Push a copy of the value that is `depth` below the top of the stack."""

    depth: int


@dataclass(frozen=True, slots=True)
class DropBelow:
    """Remove the value below the top."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Replace the top by a function of it."""

    function: Callable[[Value], Value]


@dataclass(frozen=True, slots=True)
class StopIf:
    """Advance by `skip` steps if the top is exactly this value, so that the right operand is not evaluated."""

    value: Value
    skip: int


@dataclass(frozen=True, slots=True)
class Join:
    """Replace the two topmost values by a function of them."""

    function: Callable[[Value, Value], Value]
    stop: Any = NEVER  # the left operand at which a `StopIf` skips this step; it is the result, whatever the right one


Step: TypeAlias = Push | Load | Copy | DropBelow | Apply | StopIf | Join
Program: TypeAlias = tuple[Step, ...]


def take_step(step: Step, stack: list[Value], properties: Mapping[str, str]) -> int:
    """Run one step; return the distance to the next one, in steps."""
    if isinstance(step, Load):
        stack.append(properties.get(step.name))
    elif isinstance(step, Push):
        stack.append(step.value)
    elif isinstance(step, Join):
        right = stack.pop()
        stack[-1] = step.function(stack[-1], right)
    elif isinstance(step, Apply):
        stack[-1] = step.function(stack[-1])
    elif isinstance(step, Copy):
        stack.append(stack[-1 - step.depth])
    elif isinstance(step, DropBelow):
        del stack[-2]
    elif stack[-1] is step.value:
        return step.skip
    return 1


def run(program: Program, properties: Mapping[str, str]) -> Value:
    """Run a program on the properties of one message.

    Raises `FilterError`: If an operation fails on these values.
    """
    stack: list[Value] = []
    position, end = 0, len(program)
    while position < end:
        position += take_step(program[position], stack, properties)
    return stack[0]


_PARENTHESIS, _OR, _AND, _EQUALITY, _COMPARISON, _PREFIX = range(6)
"""Levels of binding, loosest first."""

_BINARY: Final[dict[str, tuple[int, Callable[[Value, Value], Value], Any]]] = {
    "OR": (_OR, logical_or, True),
    "AND": (_AND, logical_and, False),
    "=": (_EQUALITY, equal, NEVER),
    "<>": (_EQUALITY, not_equal, NEVER),
    ">": (_COMPARISON, greater, None),
    ">=": (_COMPARISON, greater_equal, None),
    "<": (_COMPARISON, less, None),
    "<=": (_COMPARISON, less_equal, None),
}
"""Level, function, and the left operand that decides alone."""

_LOGIC: Final = (logical_and, logical_or)
_PREDICATES: Final = {"CONTAINS": contains, "STARTSWITH": starts_with, "ENDSWITH": ends_with}
_NEGATABLE: Final = STRING_PREDICATES | {"BETWEEN", "IN"}
_ORDERINGS: Final = frozenset(kind for kind, (level, _, _) in _BINARY.items() if level == _COMPARISON)


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
    """An operator that waits for its right operand, and how both are joined.

    `stop` is the step that may skip that operand, -1 if none does; `low` the lower bound, if the operand is the upper
    one of BETWEEN.
    """

    token: Token
    level: int
    left: _Operand
    function: Callable[[Value, Value], Value] | None = None
    stop: int = -1
    low: _Operand | None = None


def parse(text: str, *, has_string_predicates: bool = True) -> Program:
    """Compile an expression.

    * `text`: Text after an expression is ignored, as in RocketMQ.
    * `has_string_predicates`: Whether CONTAINS, STARTSWITH and ENDSWITH are keywords, as since RocketMQ 5.1.3.
    """
    return _Sql92Parser(Tokens(text, has_string_predicates=has_string_predicates)).program()


class _Sql92Parser:
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
        if not (tokens.current.kind in (NUMBER, STRING) or tokens.current.kind in _LITERALS):
            raise tokens.error("expected a name, a literal or (")
        token = tokens.take_literal()
        self._steps.append(Push(token.value))
        return _Operand(_Kind.LITERAL, start, token)

    def _as_boolean(self, operand: _Operand) -> None:
        """Convert the operand, whose steps are the last ones, to a truth, or refuse it."""
        if operand.kind is _Kind.PROPERTY:
            self._steps.append(Apply(boolean_cast))
        elif not operand.is_boolean:
            raise self._tokens.error("expected a condition: a comparison, a name, TRUE, FALSE or NULL", operand.token)

    def _check_ordered(self, operand: _Operand) -> None:
        """Refuse to order what is plainly not a number."""
        if operand.kind is _Kind.BOOLEAN or (operand.kind is _Kind.LITERAL and not operand.is_number):
            raise self._tokens.error("expected a name or a number to compare", operand.token)

    # ------------------------------------------------------------------------------------------------------ operators

    def _goes_on(self, operand: _Operand) -> bool:
        """Return whether the next token continues the expression; if not, it and all after it are ignored."""
        kind = self._tokens.current.kind
        if kind in _ORDERINGS or kind in _NEGATABLE or kind == "NOT":
            return operand.level == _COMPARISON
        return kind in _BINARY or kind == "IS" or (kind == ")" and self._open > 0)

    def _extended(self, operand: _Operand) -> _Operand | None:
        """Take the next operator; None if an operand must follow."""
        token = self._tokens.take()
        if token.kind == ")":
            operand = self._reduced(operand, _OR)
            self._waiting.pop()
            self._open -= 1
            return self._settled(replace(operand, level=_COMPARISON))
        if token.kind == "IS":
            return self._null_test(self._reduced(operand, _EQUALITY), token)
        if token.kind in _BINARY:
            self._wait(operand, token)
            return None
        wanted = token.kind != "NOT"
        if not wanted:
            token = self._tokens.take()
        if token.kind == "BETWEEN":
            self._check_ordered(operand)
            self._steps.append(Copy(0))
            compare = greater_equal if wanted else less
            self._waiting.append(_Waiting(token, _COMPARISON, operand, compare, self._stop_if(None)))
            return None
        if token.kind == "IN":
            return self._membership(operand, token, wanted=wanted)
        if token.kind in _PREDICATES:
            return self._predicate(operand, token, wanted=wanted)
        raise self._tokens.error(f"expected {', '.join(sorted(_NEGATABLE))} after NOT", token)

    def _wait(self, operand: _Operand, token: Token) -> None:
        """Make a binary operator wait for its right operand."""
        level, function, decides = _BINARY[token.kind]
        operand = self._reduced(operand, level)
        if level == _COMPARISON:
            self._check_ordered(operand)
        elif level < _EQUALITY:
            self._as_boolean(operand)
        stop = -1 if decides is NEVER else self._stop_if(decides)
        self._waiting.append(_Waiting(token, level, operand, function, stop))

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
            if waiting.function in (greater_equal, less) and waiting.token.kind == "BETWEEN":
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
        if waiting.function is None:
            if waiting.token.kind == "+":
                return right
            is_not = waiting.token.kind == "NOT"
            if is_not:
                self._as_boolean(right)
            self._steps.append(Apply(logical_not if is_not else negate))
            return _Operand(_Kind.BOOLEAN if is_not else _Kind.OTHER, right.start, waiting.token)
        if waiting.level < _EQUALITY:
            self._as_boolean(right)
        elif waiting.level == _EQUALITY:
            self._check_equated(waiting.left, right)
        elif waiting.function not in _LOGIC:
            self._check_ordered(right)
            if waiting.low is not None:
                self._check_bounds(waiting.low, right)
        self._join(waiting.function, waiting.stop)
        if waiting.level == _COMPARISON and waiting.function in _LOGIC:
            self._steps.append(DropBelow())
        return _Operand(_Kind.BOOLEAN, waiting.left.start, waiting.token)

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
        wanted = waiting.function is greater_equal
        self._join(greater_equal if wanted else less, waiting.stop)
        self._waiting.append(
            replace(waiting, function=logical_and if wanted else logical_or, stop=self._stop_if(not wanted))
        )
        self._steps.append(Copy(1))
        compare, low_bound = (less_equal, low) if wanted else (greater, None)
        self._waiting.append(
            _Waiting(waiting.token, _COMPARISON, waiting.left, compare, self._stop_if(None), low_bound)
        )

    def _check_bounds(self, low: _Operand, high: _Operand) -> None:
        """Refuse two literal bounds of which the upper one is smaller."""
        if low.is_number and high.is_number and greater(low.literal, high.literal):
            raise self._tokens.error(f"expected an upper bound of at least {low.literal}", high.token)


def failure_of(expression: Sql92Expression, properties: Mapping[str, str]) -> str:
    """Return why an expression fails on a message's properties; empty if it does not.

    >>> from store_core.format.filter.sql92_parser import Sql92Expression
    >>> failure_of(Sql92Expression("price > 30"), {"price": "many"})
    "property price: expected a whole number of 32 bits, found 'many'"
    """
    stack: list[Value] = []
    names: list[str] = []
    position = 0
    while position < len(expression.program):
        step = expression.program[position]
        operands = [(name, value) for name, value in zip(names[-2:], stack[-2:], strict=True) if name]
        try:
            position += take_step(step, stack, properties)
        except FilterError as error:
            return _told(operands, error)
        _follow(step, names)
    return ""


def _follow(step: Step, names: list[str]) -> None:
    """Apply to the names of properties what a step does to their values; other values have an empty name."""
    match step:
        case Load(name):
            names.append(name)
        case Push():
            names.append("")
        case Copy(depth):
            names.append(names[-1 - depth])
        case DropBelow():
            del names[-2]
        case Apply():
            names[-1] = ""
        case Join():
            names.pop()
            names[-1] = ""


def _told(operands: list[tuple[str, Value]], error: FilterError) -> str:
    """Return an error's text with the property it is about, and advice if a decimal meets a whole number."""
    for name, value in operands:
        if isinstance(value, str) and error.problem.endswith(f"found {value[:40]!r}"):
            is_decimal = "whole number" in error.problem and reads_as_double(value)
            way_out = "; beside a literal with a decimal point, such as 30.0, it is read as a decimal"
            return f"property {name}: {error.problem}{way_out * is_decimal}"
    return error.problem


class Sql92Expression:
    """An expression, parsed once and evaluated on the properties of many messages; can be pickled.

    Parameters
    ----------
    text : str
        Text after the expression is ignored, as in RocketMQ.
    release : str
        One of `RELEASES`; CONTAINS, STARTSWITH and ENDSWITH are keywords since 5.1.3, and names before.

    Attributes
    ----------
    program : tuple of Step
    names : tuple of str
        Properties that it reads, in the order of the text.

    Raises
    ------
    FilterError
        If the text does not compile.

    Examples
    --------
    >>> expression = Sql92Expression("a > 5 AND TAGS IS NOT NULL")
    >>> expression.evaluate({"a": "6", "TAGS": "TagA"})
    True
    >>> expression.evaluate({"TAGS": "TagA"}) is None
    True
    """

    __slots__ = ("names", "program", "release", "text")

    def __init__(self, text: str, release: str = DEFAULT_RELEASE) -> None:
        self.text = text
        self.release = release
        self.program: Program = parse(text, has_string_predicates=rules_of(release).has_sql_string_predicates)
        self.names = tuple(dict.fromkeys(step.name for step in self.program if isinstance(step, Load)))

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (self.text, self.release)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sql92Expression):
            return NotImplemented
        return (self.text, self.release) == (other.text, other.release)

    def __hash__(self) -> int:
        return hash((self.text, self.release))

    def __repr__(self) -> str:
        return f"Sql92Expression({self.text!r}, {self.release!r})"

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """Evaluate it on a message's properties; the message matches if the result is True.

        Raises
        ------
        FilterError
            Where RocketMQ has an evaluation error, as when a property that is not a number is compared with one.
        """
        found = run(self.program, properties)
        if found is None or isinstance(found, bool):
            return found
        raise FilterError(f"expected true or false as the result, found {found!r}", self.text)

    def is_match(self, properties: Mapping[str, str]) -> bool:
        """Return whether a broker delivers the message to a consumer with this filter: an error counts as no match."""
        try:
            return self.evaluate(properties) is True
        except FilterError:
            return False

# SPDX-License-Identifier: Apache-2.0
"""A compiled expression of RocketMQ's SQL92 filter language, and why it fails on a message.

An expression is a pure function of a message's properties, used by the store, the reader and the broker: so it is in
`store_core.format`, below them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from store_core.errors import FilterError
from store_core.format.filter.sql92_parser import (
    Apply,
    Copy,
    DropBelow,
    Join,
    Load,
    Program,
    Push,
    Step,
    parse,
    run,
    take_step,
)
from store_core.format.filter.sql92_values import Value, reads_as_double
from store_core.format.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def failure_of(expression: Sql92Expression, properties: Mapping[str, str]) -> str:
    """Return why an expression fails on a message's properties; empty if it does not.

    >>> from store_core.format.filter.sql92_expression import Sql92Expression
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

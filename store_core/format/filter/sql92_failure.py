# SPDX-License-Identifier: Apache-2.0
"""The reason why an SQL92 expression fails on a message: which property, and its value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.errors import FilterError
from store_core.format.filter.sql92_program import Apply, Copy, DropBelow, Join, Load, Push
from store_core.format.filter.sql92_values import reads_as_double

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.format.filter.sql92_expression import Sql92Expression
    from store_core.format.filter.sql92_program import Step
    from store_core.format.filter.sql92_values import Value

__all__ = ["failure_of"]


def failure_of(expression: Sql92Expression, properties: Mapping[str, str]) -> str:
    """Return why an expression fails on a message's properties; empty if it does not.

    Examples
    --------
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
            position += step.run(stack, properties)
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

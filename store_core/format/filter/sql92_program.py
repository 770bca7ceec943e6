# SPDX-License-Identifier: Apache-2.0
"""The steps that an SQL92 expression is compiled to: a program for a stack machine.

It is a program and not a tree, so that deep nesting can't exhaust Python's own stack, and the same steps run on one
message's values and on columns of them (`store_core.format.filter.sql92_columns`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from store_core.format.filter.sql92_values import Value

__all__ = ["NEVER", "Apply", "Copy", "DropBelow", "Join", "Load", "Program", "Push", "Step", "StopIf", "run"]

NEVER: Final = object()
"""Value of `Join.stop` if no left operand decides alone."""


@dataclass(frozen=True, slots=True)
class Push:
    """Push a literal onto the stack."""

    value: Value

    def run(self, stack: list[Value], properties: Mapping[str, str]) -> int:
        """Run the step; return the distance to the next one, in steps."""
        del properties
        stack.append(self.value)
        return 1


@dataclass(frozen=True, slots=True)
class Load:
    """Push a property onto the stack, null if it is absent."""

    name: str

    def run(self, stack: list[Value], properties: Mapping[str, str]) -> int:
        """Run the step."""
        stack.append(properties.get(self.name))
        return 1


@dataclass(frozen=True, slots=True)
class Copy:
    """Push a copy of the value that is `depth` below the top of the stack."""

    depth: int

    def run(self, stack: list[Value], properties: Mapping[str, str]) -> int:
        """Run the step."""
        del properties
        stack.append(stack[-1 - self.depth])
        return 1


@dataclass(frozen=True, slots=True)
class DropBelow:
    """Remove the value below the top."""

    def run(self, stack: list[Value], properties: Mapping[str, str]) -> int:
        """Run the step."""
        del properties
        del stack[-2]
        return 1


@dataclass(frozen=True, slots=True)
class Apply:
    """Replace the top by a function of it."""

    function: Callable[[Value], Value]

    def run(self, stack: list[Value], properties: Mapping[str, str]) -> int:
        """Run the step."""
        del properties
        stack[-1] = self.function(stack[-1])
        return 1


@dataclass(frozen=True, slots=True)
class StopIf:
    """Advance by `skip` steps if the top is exactly this value, so that the right operand is not evaluated."""

    value: Value
    skip: int

    def run(self, stack: list[Value], properties: Mapping[str, str]) -> int:
        """Run the step; return the distance to the next one, in steps."""
        del properties
        return self.skip if stack[-1] is self.value else 1


@dataclass(frozen=True, slots=True)
class Join:
    """Replace the two topmost values by a function of them.

    Attributes
    ----------
    stop : Value or NEVER
        The left operand at which a `StopIf` skips this step; it is the result, whatever the right one.
    """

    function: Callable[[Value, Value], Value]
    stop: Any = NEVER

    def run(self, stack: list[Value], properties: Mapping[str, str]) -> int:
        """Run the step."""
        del properties
        right = stack.pop()
        stack[-1] = self.function(stack[-1], right)
        return 1


Step: TypeAlias = Push | Load | Copy | DropBelow | Apply | StopIf | Join
Program: TypeAlias = tuple[Step, ...]


def run(program: Program, properties: Mapping[str, str]) -> Value:
    """Run a program on the properties of one message.

    Raises
    ------
    FilterError
        If an operation fails on these values.
    """
    stack: list[Value] = []
    position, end = 0, len(program)
    while position < end:
        position += program[position].run(stack, properties)
    return stack[0]

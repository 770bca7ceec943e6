# SPDX-License-Identifier: Apache-2.0
"""A compiled expression of RocketMQ's SQL92 filter language.

An expression is a pure function of a message's properties, used by the store, the reader and the broker: so it is in
`store_core.format`, below them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from store_core.errors import FilterError
from store_core.format.filter.sql92_parser import parse
from store_core.format.filter.sql92_program import Load, run
from store_core.format.releases.release import DEFAULT_RELEASE, rules_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.format.filter.sql92_program import Program

__all__ = ["Sql92Expression"]


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
        raise FilterError(f"expected a truth, found {found!r}", self.text)

    def is_match(self, properties: Mapping[str, str]) -> bool:
        """Return whether a broker delivers the message to a consumer with this filter: an error counts as no match."""
        try:
            return self.evaluate(properties) is True
        except FilterError:
            return False

# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed: a decoder, its seeds, and an oracle that judges each case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


Case = Callable[[Random], object]
"""Makes one case by lot, runs it and judges what came out; a result or an exception that is not allowed raises."""


class Finding(Exception):  # noqa: N818 -- what a campaign looks for
    """A result that the oracle of a target does not allow."""


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder that is fuzzed.

    * `prepare`: Makes the seeds, in a directory of its own if it needs one, and returns the function that runs a case.
    * `cases`: Its part of a campaign of a million cases: more where a case takes microseconds.
    * `in_slice`: Cases in `make test`.
    * `seconds`: Wall-clock time of one case after which it has failed; one takes milliseconds.
    """

    name: str
    prepare: Callable[[Path], Case]
    cases: int
    in_slice: int = 100
    seconds: float = 20.0

    def __str__(self) -> str:
        return self.name


@contextmanager
def refused(*kinds: type[Exception]) -> Iterator[None]:
    """Let the exceptions pass that a decoder is documented to raise; nothing else is caught."""
    try:
        yield
    except kinds as error:
        if not str(error):
            raise Finding(f"{type(error).__name__} without a word") from error


def expect(expected: Any, found: Any, what: str) -> None:  # noqa: ANN401 -- whatever is compared
    """Raise a finding if two results differ."""
    if expected != found:
        raise Finding(f"{what}: expected {expected!r:.300}, found {found!r:.300}")

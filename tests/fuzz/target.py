# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed: a decoder, its seeds, and an oracle that judges each case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from tests.fuzz.mutation import mutate_bytes, mutate_text

if TYPE_CHECKING:
    from pathlib import Path


Judge = Callable[[bytes], object]
"""Decodes an input and judges what came out; a result or an exception that is not allowed raises."""

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


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder that gets bytes: by lot, or as a fuzzer chooses them that sees which code they reach.

    * `prepare`: Returns the function that judges an input; it may write in the directory that it is given.
    * `seeds`: Returns the inputs to begin with, in that directory.
    * `cases`, `in_slice`: As a target's.
    * `pieces`: Of the language of a text, which is the input after `head` bytes that choose how it is decoded.
    * `edges`: Where fields begin in an input.
    """

    name: str
    prepare: Callable[[Path], Judge]
    seeds: Callable[[Path], Sequence[bytes]]
    cases: int = 30_000
    in_slice: int = 200
    pieces: Sequence[str] = ()
    head: int = 0
    edges: Callable[[bytes], Sequence[int]] = lambda _: ()

    def target(self) -> Target:
        """Return the target that mutates the seeds by lot."""

        def prepare(directory: Path) -> Case:
            for name in ("seeds", "work"):
                (directory / name).mkdir()
            seeds, judge = self.seeds(directory / "seeds"), self.prepare(directory / "work")
            return lambda random: judge(self._mutated(random, random.choice(seeds)))

        return Target(self.name, prepare, self.cases, self.in_slice)

    def _mutated(self, random: Random, seed: bytes) -> bytes:
        data = bytearray(seed)
        if self.pieces:
            text = mutate_text(random, seed[self.head :].decode("utf-8", "replace"), self.pieces)
            data[:] = random.randbytes(self.head) + text.encode("utf-8", "surrogatepass")
        if not self.pieces or random.random() < 0.2:
            mutate_bytes(random, data, self.edges(seed))
        return bytes(data)


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

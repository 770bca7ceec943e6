# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed: a decoder, its seeds, their mutations by lot, and an oracle that judges each case."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

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


TELLING: Final = (
    0, 1, -1, 2, 4, 7, 8, 20, 46, 48, 88, 90, 91, 92, 100, 112, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000,
    1 << 20, (1 << 30) - 1, 1 << 30, (1 << 31) - 1, -(1 << 31), -626843481, -626843477, -875286124, 0x10, 0x20, 0x30,
)  # fmt: skip
"""Numbers at the edges of what fields may hold."""

_CODES: Final = (">b", ">h", ">i", ">q")
_LONGEST: Final = 200


def telling_number(random: Random, code: str) -> bytes:
    """Draw a number for a field of a `struct` code: one at an edge, or any."""
    size = struct.calcsize(code)
    value = random.choice(TELLING) if random.random() < 0.7 else random.getrandbits(8 * size)
    return (value & ((1 << 8 * size) - 1)).to_bytes(size)


def mutate_bytes(random: Random, data: bytearray, edges: Sequence[int] = (), times: int = 0) -> None:
    """Break bytes in place, in one to four places, often near `edges` such as the starts of fields."""
    for _ in range(times or random.choice((1, 1, 1, 2, 3, 4))):
        _mutate_once(random, data, edges)


def _place(random: Random, data: bytearray, edges: Sequence[int]) -> int:
    if edges and random.random() < 0.6:
        return min(max(random.choice(edges) + random.choice((0, 0, 0, 4, 8, 28, 36, 84, -1, 1)), 0), len(data))
    return random.randrange(len(data) + 1)


def _mutate_once(random: Random, data: bytearray, edges: Sequence[int]) -> None:
    kind, at = random.randrange(9), _place(random, data, edges)
    length = random.randint(1, random.choice((4, 16, _LONGEST)))
    if kind <= 2:
        number = telling_number(random, random.choice(_CODES))
        data[at : at + len(number)] = number[: len(data) - at]
    elif kind == 3 and data:
        data[at % len(data)] ^= 1 << random.randrange(8)
    elif kind == 4:
        data[at : at + length] = bytes(len(data[at : at + length]))
    elif kind == 5:
        data[at : at + length] = random.randbytes(len(data[at : at + length]))
    elif kind == 6:
        del data[at:]
    elif kind == 7:
        source = _place(random, data, edges)
        piece = data[source : source + random.choice((length, 4 * length))]
        data[at : at + len(piece)] = piece
    else:
        _move(random, data, at, length)


def _move(random: Random, data: bytearray, at: int, length: int) -> None:
    """Delete or insert bytes, so that all that follows is elsewhere."""
    if random.random() < 0.5:
        del data[at : at + length]
    else:
        data[at:at] = random.randbytes(length) if random.random() < 0.5 else bytes(length)


def mutate_text(random: Random, text: str, pieces: Sequence[str]) -> str:
    """Change a text in one to four places, with pieces of the language that it is written in."""
    for _ in range(random.choice((1, 1, 2, 3, 4))):
        at, kind = random.randint(0, len(text)), random.randrange(6)
        to = min(at + random.choice((1, 1, 2, 8, 40)), len(text))
        if kind == 0:
            text = text[:at] + text[to:]
        elif kind == 1:
            text = text[:at] + random.choice(pieces) + text[to:]
        elif kind == 2:
            text = text[:at] + random.choice(pieces) + text[at:]
        elif kind == 3:
            text = text[:at] + text[at:to] * random.choice((2, 3, 30)) + text[to:]
        elif kind == 4:
            text = (
                text[:at]
                + chr(random.choice((0, 1, 2, 9, 10, 27, 34, 39, 92, 127, 0xE9, 0xD800, 0xFFFD, 0x1F600)))
                + text[to:]
            )
        else:
            text = (
                text[:at] + str(random.choice((*TELLING, 1 << 63, -(1 << 63) - 1, 10**40, "1e999", "NaN"))) + text[to:]
            )
    return text[:20_000]

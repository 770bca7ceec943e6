# SPDX-License-Identifier: Apache-2.0
"""All decoders of guided fuzzing.

Those of texts are there a second time, with mutations by lots that the fuzzer chooses: it finds which lead to new code.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from tests.fuzz.decoders import DECODERS
from tests.fuzz.target import Decoder, Judge

if TYPE_CHECKING:
    from pathlib import Path


_FRACTION: Final = 16


class GivenRandom(Random):
    """Random numbers that are the bytes of an input; when it is used up, those of a seed, since zeros may never end."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data = data
        self._next = 0

    def getrandbits(self, count: int, /) -> int:
        """Take as many bits, from whole bytes."""
        size = (count + 7) // 8
        if self._next >= len(self._data):
            return super().getrandbits(count)
        taken = self._data[self._next : self._next + size]
        self._next += size
        return int.from_bytes(taken, "little") & ((1 << count) - 1)

    def random(self) -> float:
        """Take two bytes as a fraction of 1."""
        return self.getrandbits(_FRACTION) / (1 << _FRACTION)


def _drawn(decoder: Decoder) -> Decoder:
    target = decoder.target()

    def prepare(directory: Path) -> Judge:
        run = target.prepare(directory)
        return lambda data: run(GivenRandom(data))

    def seeds(_: Path) -> list[bytes]:
        return [Random(f"{target.name}-{number}").randbytes(64) for number in range(4)]

    return Decoder(f"drawn-{target.name}", prepare, seeds)


ALL_DECODERS: Final = (*DECODERS, *(_drawn(decoder) for decoder in DECODERS if decoder.pieces))
"""In the order that the first byte of an input means."""

# SPDX-License-Identifier: Apache-2.0
"""Mutations by lot of bytes, of texts, and of values in a structure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random


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

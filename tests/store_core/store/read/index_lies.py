# SPDX-License-Identifier: Apache-2.0
"""Ways to make the index files of small stores lie."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random


_HEADER, _SLOTS, _ENTRIES = 40, 16, 24
ENTRY = struct.Struct(">iqii")
FIRST = _HEADER + 4 * _SLOTS + ENTRY.size
_COUNT = struct.Struct(">i")
_COUNT_AT = 36


def index_files(root: Path) -> list[Path]:
    """Return the index files of a store, oldest first."""
    return sorted((root / "index").iterdir())


def _change_entry(data: bytearray, count: int, random: Random) -> None:
    """Change a field of an entry, or swap two entries."""
    one, two = (FIRST + ENTRY.size * random.randrange(min(count, _ENTRIES) - 1) for _ in range(2))
    entry, second = list(ENTRY.unpack_from(data, one)), ENTRY.unpack_from(data, two)
    values = {
        0: [0, entry[0] ^ 1 << random.randrange(31), second[0]],
        1: [0, -1, 2**62, entry[1] + random.choice([-1, 1, 100]), second[1]],
        3: [0, -1, entry[3] + 1, second[3], 2**31 - 1],
    }
    field = random.choice([0, 1, 3, None])
    if field is None:
        ENTRY.pack_into(data, two, *entry)
        entry = list(second)
    else:
        entry[field] = random.choice(values[field])
    ENTRY.pack_into(data, one, *entry)


def _change_bytes(data: bytearray, count: int, random: Random) -> None:
    """Change the header, a slot, or bytes of entries."""
    at = FIRST + ENTRY.size * random.randrange(min(count, _ENTRIES) - 1)
    kind = random.randrange(6)
    if kind == 0:
        _COUNT.pack_into(data, _COUNT_AT, random.choice([0, 1, count - 1, count + 1, -1, 2**31 - 1]))
    elif kind == 1:
        _COUNT.pack_into(data, _HEADER + 4 * random.randrange(_SLOTS), random.choice([0, -1, 1, count - 1, count, 99]))
    elif kind == 2:
        data[at:] = data[at + ENTRY.size :] + bytes(ENTRY.size)
    elif kind == 3:
        del data[random.randrange(len(data)) :]
    elif kind == 4:
        data[at : at + 4 * ENTRY.size] = bytes(4 * ENTRY.size)
    else:
        data[random.randrange(_HEADER, len(data))] ^= 1 << random.randrange(8)


def swap_links(data: bytearray, count: int, random: Random) -> None:
    """Swap the links of two entries of one slot, so that each entry still has one link to it.

    One then leads to itself, or to a later entry, and is in no chain, unless the entries are the same.
    """
    places = [FIRST + ENTRY.size * number for number in range(min(count, _ENTRIES) - 1)]
    slot_of = {at: ENTRY.unpack_from(data, at)[0] % _SLOTS for at in places}
    one = random.choice(places)
    two = random.choice([at for at in places if slot_of[at] == slot_of[one]])
    first, second = (ENTRY.unpack_from(data, at) for at in (one, two))
    ENTRY.pack_into(data, one, *first[:3], second[3])
    ENTRY.pack_into(data, two, *second[:3], first[3])


def _change_files(root: Path, other: Path, path: Path, random: Random) -> None:
    """Remove a file, rename it, or put another in its place."""
    kind = random.randrange(4)
    if kind == 0:
        path.unlink()
    elif kind == 1:
        path.rename(path.with_name(f"{random.randrange(10**17):017d}"))
    else:
        path.write_bytes(random.choice(index_files(root) if kind == 2 else index_files(other)).read_bytes())


def lie_in_index(root: Path, other: Path, random: Random) -> None:
    """Change an index file, or the files, in one place."""
    path = random.choice([*index_files(root), root])
    if path == root:
        return
    data = bytearray(path.read_bytes())
    if random.randrange(4) == 0 or len(data) < FIRST + _ENTRIES * ENTRY.size:
        _change_files(root, other, path, random)
        return
    count = max(_COUNT.unpack_from(data, _COUNT_AT)[0], 2)
    random.choice([_change_entry, _change_bytes, swap_links])(data, count, random)
    path.write_bytes(data)

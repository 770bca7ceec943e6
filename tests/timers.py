# SPDX-License-Identifier: Apache-2.0
"""Writes the files of timers with plain `struct`, only from the format's description."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["SLOTS", "UNIT_SIZE", "Timer", "write_timers"]

UNIT_SIZE = 52
SLOTS = 1_209_600
_UNITS_IN_FILE = 78


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that is due at a second."""

    due: int
    write: int
    physical_offset: int = 0
    store_size: int = 100
    magic: int = 1


def _place(number: int) -> int:
    files, unit = divmod(number, _UNITS_IN_FILE)
    return files * (_UNITS_IN_FILE * UNIT_SIZE + 40) + unit * UNIT_SIZE


def write_timers(root: Path, timers: Sequence[Timer], read_until: int) -> None:
    """Write ``timerlog/``, ``timerwheel`` and ``config/timercheck``; times in seconds."""
    slots: dict[int, tuple[int, int, int]] = {}
    log = bytearray()
    for number, timer in enumerate(timers):
        at = _place(number)
        if at > len(log):
            log += struct.pack(">iqI", 40, 0, 0xCBD43194).ljust(40, b"\0")
        first, last, count = slots.get(timer.due, (at, -1, 0))
        log += struct.pack(
            ">iqiqiqiiq", UNIT_SIZE, last, timer.magic, timer.write * 1000, (timer.due - timer.write) * 1000,
            timer.physical_offset, timer.store_size, 0, 0,
        )  # fmt: skip
        slots[timer.due] = first, at, count + (-1 if timer.magic & 4 else 1)
    size = _UNITS_IN_FILE * UNIT_SIZE + 40
    (root / "timerlog").mkdir(parents=True)
    for begin in range(0, max(len(log), 1), size):
        (root / "timerlog" / f"{begin:020d}").write_bytes(bytes(log[begin : begin + size]).ljust(size, b"\0"))
    with (root / "timerwheel").open("wb") as wheel:
        wheel.truncate(SLOTS * 32)
        for due, slot in slots.items():
            wheel.seek(due % SLOTS * 32)
            wheel.write(struct.pack(">qqqii", due, *slot, 0))
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "timercheck").write_bytes(struct.pack(">q", read_until * 1000).ljust(4096, b"\0"))

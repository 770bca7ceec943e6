# SPDX-License-Identifier: Apache-2.0
"""Changes a segment at random moments while another process reads it, and says how the reads ended.

Usage: python -m tests.fuzz.changing_files [--times N] [--seed SEED] [--access read|mapped] [--kinds truncate,...]
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, Literal

from store_core import read_messages
from store_core.errors import SegmentVanishedError, StoreError
from tests.builders import LogBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FOREIGN", "KINDS", "SIGBUS", "WRONG", "campaign"]

Access = Literal["read", "mapped"]

SIGBUS: Final = "SIGBUS"
FOREIGN: Final = "another exception"
WRONG: Final = "a row that was never there"

_SEGMENT: Final = 16 << 20
_MODES: Final = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
_VALID, _NAMED, _OTHER, _FOREIGN, _WRONG = 0, 10, 11, 12, 13
_ENDS: Final = {
    _VALID: "rows that were there",
    _NAMED: "SegmentVanishedError",
    _OTHER: "another error of this package",
    _WRONG: WRONG,
    -signal.SIGBUS: SIGBUS,
}
_READS_AFTER: Final = 2
"""Whole reads after which the change must have been seen, or can't be."""

_PUNCH_HOLE: Final = 3
"""``FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE``."""


def _truncate(path: Path, at: int) -> None:
    os.truncate(path, at)


def _replace(path: Path, at: int) -> None:
    other = path.with_name("other")
    other.write_bytes(bytes(at))
    other.rename(path)


def _unlink(path: Path, at: int) -> None:
    del at
    path.unlink()


def _overwrite(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(Random(at).randbytes(min(1 << 20, _SEGMENT - at)))


def _punch(path: Path, at: int) -> None:
    """Make a hole, as `fallocate --punch-hole` does."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    with path.open("r+b") as file:
        if libc.fallocate(file.fileno(), _PUNCH_HOLE, at, 1 << 20):
            raise OSError(ctypes.get_errno(), "fallocate")


def _rewrite(path: Path, at: int) -> None:
    """Empty a file and write it again, as `cp` over an existing file does."""
    whole = path.read_bytes()
    path.write_bytes(whole[:at])


KINDS: Final[dict[str, Callable[[Path, int], None]]] = {
    "truncate": _truncate,
    "rewrite": _rewrite,
    "replace": _replace,
    "unlink": _unlink,
    "overwrite": _overwrite,
    "punch": _punch,
}
"""What is done to the segment, at a position."""


def _read(root: Path, mode: str, access: Access, expected: dict[int, bytes], changed: Path) -> None:
    """Read all messages again and again, until there is an error or the change is over, and end with a code."""
    logging.disable()
    try:
        after = 0
        while after < _READS_AFTER:
            after += changed.exists()
            for batch in read_messages(
                root,
                columns=["physical_offset", "body"],
                max_records_per_batch=2000,
                mode=mode,  # type: ignore[arg-type]  # one of them
                segment_access=access,
            ):
                _check(batch.to_pydict(), expected)
    except SegmentVanishedError:
        sys.exit(_NAMED)
    except StoreError:
        sys.exit(_OTHER)
    except BaseException as error:  # noqa: BLE001 -- whatever it is, it is what is looked for
        sys.exit(error.code if isinstance(error, SystemExit) else _FOREIGN)
    sys.exit(_VALID)


def _check(rows: dict[str, list[object]], expected: dict[int, bytes]) -> None:
    """End the process if a row is not one that the log had; those for damage have no body."""
    for offset, body in zip(rows["physical_offset"], rows["body"], strict=True):
        if body is not None and expected.get(offset) != body:  # type: ignore[call-overload]  # an integer
            sys.exit(_WRONG)


def campaign(times: int, seed: int, access: Access, kinds: list[str]) -> Counter[tuple[str, str]]:
    """Change the only segment of a log `times` times for each kind; return how often the reads ended how."""
    random, ends = Random(seed), Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory(prefix="changing-files-") as name:
        root = Path(name)
        log = LogBuilder(_SEGMENT)
        log.fill(1, b"x" * 500)
        log.append(b"last")
        log.write(root)
        (root / "lock").touch()
        path = root / "commitlog" / f"{0:020d}"
        whole = path.read_bytes()
        found = read_messages(root, columns=["physical_offset", "body"]).read_all().to_pydict()
        expected = dict(zip(found["physical_offset"], found["body"], strict=True))
        for kind in kinds:
            for number in range(times):
                mode = _MODES[number % len(_MODES)]
                ends[kind, _tried(root, path, random, kind, mode, access, expected)] += 1
                path.write_bytes(whole)
    return ends


def _tried(
    root: Path, path: Path, random: Random, kind: str, mode: str, access: Access, expected: dict[int, bytes]
) -> str:
    changed = root / "changed"
    reader = multiprocessing.get_context("fork").Process(target=_read, args=(root, mode, access, expected, changed))
    reader.start()
    time.sleep(0.05 + random.random() * 0.2)
    KINDS[kind](path, random.randrange(_SEGMENT))
    changed.touch()
    reader.join(60)
    changed.unlink()
    if reader.is_alive():
        reader.kill()
        reader.join()
        return "never ended"
    return _ENDS.get(_VALID if reader.exitcode is None else reader.exitcode, FOREIGN)


def main() -> int:
    """Run the program; return 1 if a read ended in a way that its access rules out."""
    parser = argparse.ArgumentParser(description="Change a segment while it is read.")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--access", choices=("read", "mapped"), default="read")
    parser.add_argument("--kinds", default=",".join(KINDS))
    asked = parser.parse_args()
    ends = campaign(asked.times, asked.seed, asked.access, asked.kinds.split(","))
    for (kind, end), count in sorted(ends.items()):
        print(f"{count:6} {kind:10} {end}")
    bad = {FOREIGN, WRONG, "never ended"} | ({SIGBUS} if asked.access == "read" else set())
    return int(any(end in bad for _, end in ends))


if __name__ == "__main__":
    raise SystemExit(main())

# SPDX-License-Identifier: Apache-2.0
"""Changes a file at random moments while another process reads the store, and says how the reads ended.

Usage: python -m tests.fuzz.changing_files [--times N] [--seed SEED] [--kinds truncate,...]
           [--work scan|look-up|check|recover|info|...] [--file segment|queue]

The reader scans the log, looks up a topic by its queues, or asks for an answer about the whole store. What is changed
is a segment, or the file of a queue: that is derived from the log, so each look-up has all rows of the topic, whatever
becomes of it. Where the program runs as
root, the reader does not, since that may read any file.
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
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, Literal

from store_core import ReadOptions, RebuildOptions, read_range, read_view, rebuild_consume_queue
from store_core.answers import Info, check, diff, export, recover, redact, salvage
from store_core.errors import SegmentVanishedError, StoreError
from store_core.store.read.read_plan import plan_and_walk
from tests.builders import LogBuilder
from tests.store_core.store.read.lookup_stores import ALWAYS, UNIT, write_queues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from tests.builders import Record


Changed = Literal["segment", "queue"]
Work = Literal[
    "scan", "look-up", "check", "recover", "rebuild", "redact", "export", "info", "salvage", "diff", "segments"
]

ROWS: Final = "rows that were there"
SIGBUS: Final = "SIGBUS"
FOREIGN: Final = "another exception"
WRONG: Final = "a row that was never there"
MISSING: Final = "a row is missing"
NEVER: Final = "never ended"

_SEGMENT: Final = 16 << 20
_TOPICS: Final = 8
_TOPIC: Final = "t3"
"""The topic that is looked up."""

_NOBODY: Final = 65534
"""A user who owns no file."""

_MODES: Final = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")


def _beside(write: Callable[[Path, Path], object]) -> Callable[[Path], None]:
    """Return what reads a store, and writes to a new directory."""

    def read(root: Path) -> None:
        with tempfile.TemporaryDirectory() as name:
            write(root, Path(name) / "new")

    return read


ANSWERS: Final[dict[Work, Callable[[Path], object]]] = {
    "check": check,
    "recover": lambda root: recover(root, release=("4.9", "5.3")),
    "rebuild": _beside(lambda root, new: rebuild_consume_queue(root, RebuildOptions(output=new))),
    "redact": _beside(lambda root, new: redact(root, into=new, text="nowhere")),
    "export": _beside(lambda root, new: export(root, into=new)),
    "info": lambda root: Info().ask(root),
    "salvage": salvage,
    "diff": lambda root: diff(root, root),
    "segments": lambda root: read_view(root, "segments").read_all(),
}
"""What reads whole segments, and has no rows to compare."""

_VALID, _NAMED, _OTHER, _FOREIGN, _WRONG, _MISSING = 0, 10, 11, 12, 13, 14
_ENDS: Final = {
    _VALID: ROWS,
    _NAMED: "SegmentVanishedError",
    _OTHER: "another error of this package",
    _WRONG: WRONG,
    _MISSING: MISSING,
    -signal.SIGBUS: SIGBUS,
}
_MOMENTS: Final = (0.02, 0.1)
"""The first and the last second of a change: within a process's first reads, which take 0.05 s or more."""

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
        file.write(Random(at).randbytes(min(1 << 20, path.stat().st_size - at)))


def _punch(path: Path, at: int) -> None:
    """Make a hole, as `fallocate --punch-hole` does."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    with path.open("r+b") as file:
        if libc.fallocate(file.fileno(), _PUNCH_HOLE, at, 1 << 20):
            raise OSError(ctypes.get_errno(), "fallocate")


def _forbid(path: Path, at: int) -> None:
    """Take the permission to read the file."""
    del at
    path.chmod(0)


def _close(path: Path, at: int) -> None:
    """Take the permissions of the file's directory."""
    del at
    path.parent.chmod(0)


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
    "forbid": _forbid,
    "close": _close,
}
"""What is done to the file, at a position."""


def _read(log: ReadLog, mode: str) -> None:
    """Read all messages again and again, until there is an error or the change is over, and end with a code."""
    logging.disable()
    if not os.geteuid():
        os.setuid(_NOBODY)
    try:
        is_over = False
        while not is_over:
            is_over = log.changed.exists()  # then what follows is one whole read of the changed file
            if log.work in ANSWERS:
                ANSWERS[log.work](log.root)
            elif sum(_checked_rows(batch, log.bodies) for batch in log.batches(mode)) < log.least_rows:
                sys.exit(_MISSING)
    except SegmentVanishedError:
        sys.exit(_NAMED)
    except StoreError:
        sys.exit(_OTHER)
    except BaseException as error:  # noqa: BLE001 -- whatever it is, it is what is looked for
        sys.exit(error.code if isinstance(error, SystemExit) else _FOREIGN)
    sys.exit(_VALID)


def _checked_rows(batch: pa.RecordBatch, expected: dict[int, bytes]) -> int:
    """Count rows, or end the process if one is not one that the log had; those for damage have no body."""
    rows = batch.to_pydict()
    for offset, body in zip(rows["physical_offset"], rows["body"], strict=True):
        if body is not None and expected.get(offset) != body:
            sys.exit(_WRONG)
    return len(rows["body"])


class ReadLog:
    """A store that is read, and the file of it that is changed; its one segment is full of the records.

    * `path`, `size`: The file that is changed, and its bytes that are not zeros behind its content.
    * `changed`: Is there when a change is over.
    * `bodies`: By physical offset.
    * `least_rows`: How many rows each read has to have.
    """

    def __init__(self, root: Path, records: list[Record], work: Work, of: Changed) -> None:
        self.root, self.work = root, work
        rows = sum(record.topic == _TOPIC for record in records)
        is_segment = of == "segment"
        self.path = root / ("commitlog" if is_segment else f"consumequeue/{_TOPIC}/0") / f"{0:020d}"
        self.size = _SEGMENT if is_segment else rows * UNIT.size
        self.least_rows = 0 if is_segment else rows
        self.changed = root / "changed"
        self._whole = self.path.read_bytes()
        self.bodies = {record.physical_offset: record.body for record in records}
        if work in ANSWERS:  # what Python imports meanwhile is not there for another user
            ANSWERS[work](root)

    def batches(self, mode: str) -> Iterator[pa.RecordBatch]:
        """Yield all messages, or those of a topic by its queue; only FAILFAST looks anything up."""
        topic = _TOPIC if self.work == "look-up" else None
        options = ReadOptions.parse(
            columns=["physical_offset", "body"],
            topic=topic,
            max_records_per_batch=2000,
            mode="FAILFAST" if topic else mode,
        )
        plan, mapped = plan_and_walk(self.root, options, ALWAYS)
        for part in plan.ranges:
            yield from read_range(part, options, mapped)

    def campaign(self, times: int, seed: int, kinds: list[str]) -> Counter[tuple[str, str]]:
        """Change the file `times` times for each kind; return how often the reads ended how."""
        random, ends = Random(seed), Counter[tuple[str, str]]()
        for kind in kinds:
            for number in range(times):
                ends[kind, _tried(self, random, kind, _MODES[number % len(_MODES)])] += 1
        return ends

    def restore(self) -> None:
        """Undo a change."""
        self.path.parent.chmod(0o755)
        self.path.unlink(missing_ok=True)
        self.path.write_bytes(self._whole)
        self.changed.unlink()


@contextmanager
def made_store() -> Iterator[tuple[Path, list[Record]]]:
    """Make a store that another user can read: one full segment, and its queues."""
    with tempfile.TemporaryDirectory(prefix="changing-files-") as name:
        root, log = Path(name), LogBuilder(_SEGMENT)
        while log.end < _SEGMENT:
            log.append(b"x" * 500, topic=f"t{len(log.records) % _TOPICS}")
        log.write(root)
        write_queues(root, log.records, units_per_file=10_000)
        (root / "lock").touch()
        (root / "lock").chmod(0o666)
        root.chmod(0o755)
        yield root, log.records


def _tried(log: ReadLog, random: Random, kind: str, mode: str) -> str:
    reader = multiprocessing.get_context("fork").Process(target=_read, args=(log, mode))
    reader.start()
    time.sleep(random.uniform(*_MOMENTS))
    KINDS[kind](log.path, random.randrange(log.size))
    log.changed.touch()
    reader.join(60)
    log.restore()
    if reader.is_alive():
        reader.kill()
        reader.join()
        return NEVER
    return _ENDS.get(_VALID if reader.exitcode is None else reader.exitcode, FOREIGN)


def main() -> int:
    """Run the program; return 1 if a read ended as none may."""
    parser = argparse.ArgumentParser(description="Change a file of a store while it is read.")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--work", choices=("scan", "look-up", *ANSWERS), help="what is read")
    parser.add_argument("--file", choices=("segment", "queue"), default="segment", help="what is changed")
    asked = parser.parse_args()
    work: Work = asked.work or ("look-up" if asked.file == "queue" else "scan")
    with made_store() as store:
        ends = ReadLog(*store, work, asked.file).campaign(asked.times, asked.seed, asked.kinds.split(","))
    for (kind, end), count in sorted(ends.items()):
        print(f"{count:6} {kind:10} {end}")
    return int(any(end in bad_ends(work, asked.file) for _, end in ends))


def bad_ends(work: Work, of: Changed) -> set[str]:
    """Return how no read may end while a file is changed.

    A look-up trusts queues: rows of units that are lost while it reads are missing, and `check` finds the units.
    """
    if (work, of) == ("look-up", "queue"):
        return {*_ENDS.values(), FOREIGN, NEVER} - {ROWS, MISSING}
    return {FOREIGN, WRONG, NEVER, SIGBUS}


if __name__ == "__main__":
    raise SystemExit(main())

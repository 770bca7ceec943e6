# SPDX-License-Identifier: Apache-2.0
"""Truncates a segment at random moments while another process reads it, and says how the reads ended.

Usage: python -m tests.fuzz.truncation [--times N] [--seed SEED]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from store_core import read_messages
from store_core.errors import SegmentVanishedError, StoreError
from tests.builders import LogBuilder

_SEGMENT = 16 << 20
_NAMED, _OTHER, _FOREIGN = 10, 11, 12


def _read(root: Path) -> None:
    """Read all messages again and again, until there is an error, and end with a code for its kind."""
    while True:
        try:
            for _ in read_messages(root, columns=["physical_offset", "body"], max_records_per_batch=2000):
                pass
        except SegmentVanishedError:
            sys.exit(_NAMED)
        except StoreError:
            sys.exit(_OTHER)
        except BaseException:  # noqa: BLE001 -- whatever it is, it is what is looked for
            sys.exit(_FOREIGN)


def main() -> int:
    """Run the program; return 1 if a read ended with an exception that is not ours."""
    parser = argparse.ArgumentParser(description="Truncate a segment while it is read.")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    random, ends = Random(asked.seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="truncation-") as name:
        root = Path(name)
        log = LogBuilder(_SEGMENT)
        log.fill(1, b"x" * 500)
        log.append(b"last")
        log.write(root)
        path = root / "commitlog" / f"{0:020d}"
        whole = path.read_bytes()
        for _ in range(asked.times):
            ends[_tried(root, path, random)] += 1
            path.write_bytes(whole)
    for end, count in ends.most_common():
        print(f"{count:6} {end}")
    return 1 if ends["another exception"] else 0


def _tried(root: Path, path: Path, random: Random) -> str:
    reader = multiprocessing.get_context("fork").Process(target=_read, args=(root,))
    reader.start()
    time.sleep(0.05 + random.random() * 0.2)
    os.truncate(path, random.randrange(_SEGMENT))
    reader.join(30)
    if reader.is_alive():
        reader.kill()
        reader.join()
        return "never ended"
    codes = {_NAMED: "SegmentVanishedError", _OTHER: "another error of this package", -signal.SIGBUS: "SIGBUS"}
    return codes.get(reader.exitcode or 0, "another exception")


if __name__ == "__main__":
    raise SystemExit(main())

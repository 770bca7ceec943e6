# SPDX-License-Identifier: Apache-2.0
"""The process in which libFuzzer runs: it chooses inputs by the code that they reach, and decoders get them.

Usage: python -m tests.fuzz.guided.harness DIRECTORY SECONDS SEED [LIBFUZZER OPTION ...]

DIRECTORY gets `corpus`, which other processes may share, `findings`, and a report for this process.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import atheris

from tests.fuzz.guided.judged import Judged
from tests.fuzz.limits import limit_memory, say_nothing

_REPORT_EVERY: Final = 5.0
"""Seconds: a kill loses no more than the numbers since."""

_MOST_INPUTS: Final = 150_000
"""Inputs after which another process goes on: libFuzzer's own memory grows by some 3 KB with each."""


def main() -> None:
    """Run until the time is over; libFuzzer does not return."""
    directory, seconds, seed, *options = sys.argv[1:]
    say_nothing()
    with atheris.instrument_imports(include=["store_core"], enable_loader_override=False):
        from tests.fuzz.guided.campaign import ALL_DECODERS  # noqa: PLC0415 -- imports below are instrumented
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 -- faster, if it is there
    with tempfile.TemporaryDirectory(prefix="guided-", dir=memory) as made:
        judges = []
        for decoder in ALL_DECODERS:
            work = Path(made, decoder.name)
            work.mkdir()
            judges.append((decoder.name, decoder.prepare(work)))
        judged = Judged(Path(directory), judges)
        until = time.monotonic() + float(seconds)
        report_at = 0.0
        inputs = 0

        def take(data: bytes) -> None:
            nonlocal report_at, inputs
            judged.take(data)
            inputs += 1
            now = time.monotonic()
            is_over = now >= until or inputs >= _MOST_INPUTS
            if now >= report_at or is_over:
                report_at = now + _REPORT_EVERY
                judged.report()
            if is_over:
                shutil.rmtree(made, ignore_errors=True)
                os._exit(0)  # libFuzzer has no way to end without an exit of its own

        limit_memory()
        atheris.Setup([sys.argv[0], f"-seed={seed}", *options, str(Path(directory, "corpus"))], take)
        atheris.Fuzz()


if __name__ == "__main__":
    main()

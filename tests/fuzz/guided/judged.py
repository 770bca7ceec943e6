# SPDX-License-Identifier: Apache-2.0
"""What came of inputs: how many each decoder got, in which time, and which of them it may not have failed on."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.fuzz.limits import told_of, too_long

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fuzz.target import Judge


@dataclass(slots=True)
class Judged:
    """Inputs that are given to decoders; the first byte of each chooses one.

    A finding does not end the process: it is written down, once for each place in the code.

    * `directory`: Gets the report, and in `findings` an input for each.
    * `judges`: Name and function of each decoder.
    * `seconds`: Processor time of an input after which it has failed.
    """

    directory: Path
    judges: list[tuple[str, Judge]]
    seconds: float = 20.0
    executions: Counter[str] = field(default_factory=Counter)
    nanoseconds: Counter[str] = field(default_factory=Counter)
    findings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        signal.signal(signal.SIGVTALRM, too_long)

    def take(self, data: bytes) -> None:
        """Give an input to its decoder."""
        name, judge = self.judges[data[0] % len(self.judges) if data else 0]
        begin = time.process_time_ns()
        signal.setitimer(signal.ITIMER_VIRTUAL, self.seconds)
        try:
            judge(data[1:])
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is what is looked for
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            self._note(name, data, error)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self.executions[name] += 1
        self.nanoseconds[name] += time.process_time_ns() - begin

    def _note(self, name: str, data: bytes, error: Exception) -> None:
        """Keep an input, unless another one failed at the same place."""
        frames = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-3:]]
        place = hashlib.sha256(f"{name} {type(error).__name__} {frames}".encode()).hexdigest()[:12]
        if place not in self.findings:
            self.findings[place] = f"{name}: {told_of(error)}"
            (self.directory / "findings" / f"{name}-{place}").write_bytes(data)

    def report(self) -> None:
        """Write the numbers so far."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        found = {
            "executions": self.executions,
            "seconds": {name: spent / 1e9 for name, spent in self.nanoseconds.items()},
            "cpu": used.ru_utime + used.ru_stime,
            "memory": used.ru_maxrss * 1024,
            "findings": self.findings,
        }
        path = self.directory / f"report-{os.getpid()}"
        path.with_suffix(".new").write_text(json.dumps(found), encoding="utf-8")
        path.with_suffix(".new").replace(path.with_suffix(".json"))

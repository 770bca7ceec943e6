# SPDX-License-Identifier: Apache-2.0
"""The registry of all targets, with those whose second case does what no case may do, to test that it is noticed."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Final

from tests.fuzz.decoders import DECODERS
from tests.fuzz.limits import MEMORY
from tests.fuzz.log_targets import LOG_TARGETS
from tests.fuzz.store_targets import STORE_TARGETS
from tests.fuzz.target import Case, Finding, Target

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random


TARGETS: Final = (
    *(decoder.target() for decoder in DECODERS),
    *LOG_TARGETS,
    *STORE_TARGETS,
)


def target_named(name: str) -> Target:
    """Return a target by its name."""
    found = {target.name: target for target in (*TARGETS, *FAULTY_TARGETS)}
    if name not in found:
        raise SystemExit(f"no target {name!r}: there are {', '.join(map(str, TARGETS))}")
    return found[name]


def _second(fault: Callable[[], object]) -> Callable[[Path], Case]:
    """Return a target's function whose second case in a process is a fault."""

    def prepare(_: Path) -> Case:
        calls = iter(range(3))

        def run(_: Random) -> None:
            if next(calls) == 1:
                fault()

        return run

    return prepare


def _fail() -> None:
    raise Finding("wrong")


FAULTY_TARGETS: Final = (
    Target("fails", _second(_fail), 1),
    Target("needs-memory", _second(lambda: bytearray(2 * MEMORY)), 1),
    Target("dies", _second(lambda: os.kill(os.getpid(), signal.SIGKILL)), 1),
    Target("hangs", _second(lambda: time.sleep(60)), 1, seconds=0.2),
)

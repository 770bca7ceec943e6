# SPDX-License-Identifier: Apache-2.0
"""Runs the project's checks, some at a time, and reports the result and duration of each.

Usage: run_checks.py [NAME ...]     (without a name, the checks of `make test`)
The output of a check is shown as a whole when it ends. All checks run, even after one has failed; the exit code is 1
if any did.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHON: Final = sys.executable
PROGRAMS: Final = Path(PYTHON).parent
AT_ONCE: Final = 4
"""For two cores: those with Spark, RocketMQ or downloads wait for other processes and for the end of pauses."""

SECONDS_BETWEEN_REPORTS: Final = 30.0
SHOWN: Final = 60
"""The most characters of a line that are shown as progress."""

PERCENTAGE: Final = re.compile(r"\[ *(\d+)%\]$", re.MULTILINE)
"""How pytest says how far it is."""

ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
    "PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "pycache"),
    "OPENBLAS_NUM_THREADS": "1",
}
"""The checks start hundreds of Python processes: what one has compiled, the others take from the cache, and none waits
for threads of linear algebra, which nothing here needs."""

MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- where Linux has a file system in memory
IN_MEMORY: Final = ("answers", "core", "reads")
"""Checks whose files are there if it has room: they sync thousands of times, and see no disk."""
ROOM: Final = 8 << 30
"""Bytes that have to be free there: a check leaves up to 1 GiB of files until it ends."""

PYTEST: Final = (PYTHON, "-m", "pytest")
IN_NO_RUN: Final = "interop or soak"
READS: Final = ("tests/store_core/store/read",)
ANSWERS: Final = tuple(f"tests/store_core/{folder}" for folder in ("answers", "broker", "command", "kills", "views"))

SESSIONS: Final = tuple(
    f"tests/connector/test_{name}.py" for name in ("clusters", "session", "sessions", "troubled_jobs")
)
"""Tests that start Spark in processes of their own, for which they wait."""

# In the order in which they start: cheap ones first, so that their errors appear early; then the longest ones, so that
# none of them runs alone at the end, and those that wait at the side of those that compute.
CHECKS: Final[dict[str, Sequence[str | Path]]] = {
    "format": [PROGRAMS / "ruff", "format", "--check", "."],
    "lint": [PROGRAMS / "ruff", "check", "."],
    "types": [PYTHON, "-m", "mypy"],
    "imports": [PROGRAMS / "lint-imports"],
    "weight": [PYTHON, "tools/thermometer.py"],
    "docs": [PYTHON, "tools/generate_docs.py", "--check"],
    "connector": [*PYTEST, "tests/connector", *(f"--ignore={path}" for path in SESSIONS)],
    "sessions": [*PYTEST, *SESSIONS],
    "answers": [*PYTEST, *ANSWERS],
    "interop": [*PYTEST, "tests/interop"],
    "core": [*PYTEST, "tests/store_core", *(f"--ignore={folder}" for folder in (*READS, *ANSWERS))],
    "notebooks": [*PYTEST, "tests/notebooks"],
    "others": [
        *PYTEST,
        *(f"--ignore=tests/{folder}" for folder in ("connector", "store_core", "interop", "notebooks")),
    ],
    "reads": [*PYTEST, *READS],
    "lowest": [
        "make",
        "test-lowest",
        "TESTS=tests/test_golden.py::test_read_messages_gives_what_rocketmq_reads tests/connector/test_sessions.py",
    ],
    "wheel": [PYTHON, "tools/check_wheel.py"],
    "bench": [
        PYTHON,
        "tests/benchmarks/run.py",
        "core",
        "memory",
        "checksums",
        "--megabytes",
        "8",
        "--runs",
        "1",
    ],
}

# For work in progress, see `make check`.
QUICK_CHECKS: Final[dict[str, Sequence[str | Path]]] = {
    "quick": [
        *PYTEST,
        "tests/store_core/format",
        "tests/store_core/files",
        "--hypothesis-profile=quick",
        "-m",
        f"not (slow or golden or {IN_NO_RUN})",
    ],
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a check.

    Attributes
    ----------
    name : str
    is_passed : bool
    seconds : float
        Wall-clock time, whatever else ran meanwhile.
    output : str
        What it printed, including errors.
    """

    name: str
    is_passed: bool
    seconds: float
    output: str

    def __str__(self) -> str:
        """Return the check's line in the summary."""
        return f"{self.name:9} {'passed' if self.is_passed else 'FAILED'} {self.seconds:7.1f} s"


def place_of_files(name: str) -> Path | None:
    """Return where a check makes its directory of files, if not where the system has such."""
    if name not in IN_MEMORY or "TMPDIR" in ENVIRONMENT or not os.access(MEMORY, os.W_OK):
        return None
    is_fit = shutil.disk_usage(MEMORY).free >= ROOM and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    return MEMORY if is_fit else None


def run(name: str, log: Path) -> Outcome:
    """Run one check, and capture its output in a file that can be read meanwhile; its files go when it ends.

    Each has a directory of its own: runs of pytest that share one fail where two of them remove what older ones left.
    """
    started = time.monotonic()
    with (
        log.open("wb") as output,
        tempfile.TemporaryDirectory(prefix=f"{name}-", dir=place_of_files(name), ignore_cleanup_errors=True) as files,
    ):
        Path(files).chmod(0o1777)  # as that of the system: some tests read as another user
        ended = subprocess.run(
            (CHECKS | QUICK_CHECKS)[name],
            cwd=ROOT,
            env=ENVIRONMENT | {"TMPDIR": files},
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return Outcome(name, ended.returncode == 0, time.monotonic() - started, text_of(log))


def text_of(log: Path) -> str:
    """Return what a check has printed so far."""
    return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""


def progress_of(log: Path) -> str:
    """Return how far a check is: the last percentage it printed, or else its last line."""
    text = text_of(log)
    percentages = PERCENTAGE.findall(text)
    lines = text.strip().splitlines()
    return f"{percentages[-1]} %" if percentages else lines[-1][:SHOWN] if lines else "started"


def outcomes(names: Sequence[str], seconds: float = SECONDS_BETWEEN_REPORTS) -> Iterator[Outcome | str]:
    """Run the named checks, and yield the outcome of each when it ends, and a line of progress where nothing ends.

    None starts after an interruption.
    """
    with tempfile.TemporaryDirectory(prefix="checks-") as directory, ThreadPoolExecutor(AT_ONCE) as pool:
        logs = {name: Path(directory, name) for name in names}
        pending = {pool.submit(run, name, log) for name, log in logs.items()}
        try:
            while pending:
                ended, pending = wait(pending, seconds, return_when=FIRST_COMPLETED)
                for future in ended:
                    outcome = future.result()
                    del logs[outcome.name]
                    yield outcome
                if not ended:
                    yield ", ".join(f"{name}: {progress_of(log)}" for name, log in logs.items() if log.exists())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def main(names: list[str]) -> int:
    """Run the named checks, print each one's output and a summary line, and return the exit code."""
    known = CHECKS | QUICK_CHECKS
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such check: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    started = time.monotonic()
    ended: dict[str, Outcome] = {}
    for outcome in outcomes(names or list(CHECKS)):
        if isinstance(outcome, str):
            print(f"... after {(time.monotonic() - started) / 60:.1f} min: {outcome}", flush=True)
            continue
        ended[outcome.name] = outcome
        print(f"==> {outcome.name}\n{outcome.output}==> {outcome}", flush=True)
    print("==> summary")
    for name in names or CHECKS:
        print(ended[name])
    print(f"{'together':16} {time.monotonic() - started:7.1f} s")
    return 0 if all(outcome.is_passed for outcome in ended.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

# SPDX-License-Identifier: Apache-2.0
"""Runs the project's checks one after the other, and says what each was and how long it took.

Usage: run_checks.py [NAME ...]     (all of them without a name)
Every check runs, also after one has failed; the exit code is 1 if any did.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHON: Final = sys.executable
PROGRAMS: Final = Path(PYTHON).parent

# Each process runs whole files. Spark keeps both cores busy by itself, so its tests share one process and one session.
TWO_PROCESSES: Final = ("--numprocesses=2", "--dist=loadfile")
SPARK: Final = "spark"
ELSEWHERE: Final = "interop or soak"

# Cheap ones first; the tests last, so that their closing lines are the last thing on the screen.
CHECKS: Final[dict[str, list[str | Path]]] = {
    "format": [PROGRAMS / "ruff", "format", "--check", "."],
    "lint": [PROGRAMS / "ruff", "check", "."],
    "types": [PYTHON, "-m", "mypy"],
    "imports": [PROGRAMS / "lint-imports"],
    "docs": [PYTHON, "tools/generate_docs.py", "--check"],
    "wheel": [PYTHON, "tools/check_wheel.py"],
    "bench": [PYTHON, "tests/benchmarks/run.py", "core", "memory", "checksums", "--megabytes", "8", "--runs", "1"],
    "lowest": [
        "make",
        "test-lowest",
        "TESTS=tests/test_golden.py tests/connector/test_source.py tests/connector/test_sessions.py",
    ],
    "notebooks": [PYTHON, "-m", "pytest", "tests/notebooks"],
    "core": [PYTHON, "-m", "pytest", "--ignore=tests/notebooks", "-m", f"not ({SPARK} or {ELSEWHERE})", *TWO_PROCESSES],
    "tests": [PYTHON, "-m", "pytest", "--ignore=tests/notebooks", "-m", f"{SPARK} and not ({ELSEWHERE})"],
}


def run(name: str) -> tuple[bool, float]:
    """Run one check; tell whether it passed, and the seconds it took."""
    print(f"==> {name}", flush=True)
    started = time.monotonic()
    passed = subprocess.run(CHECKS[name], cwd=ROOT, check=False).returncode == 0
    return passed, time.monotonic() - started


def main(names: list[str]) -> int:
    """Run the named checks, print a line for each, and return the exit code."""
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        print(f"no such check: {', '.join(unknown)}; there are {', '.join(CHECKS)}", file=sys.stderr)
        return 2
    results = {name: run(name) for name in names or CHECKS}
    print("==> summary")
    for name, (passed, seconds) in results.items():
        print(f"{name:8} {'passed' if passed else 'FAILED'} {seconds:7.1f} s")
    return 0 if all(passed for passed, _ in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

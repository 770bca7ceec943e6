# SPDX-License-Identifier: Apache-2.0
"""What figures depend on besides the code: machine, load, versions, and the commit."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

_PACKAGES: Final = ("numpy", "pyarrow", "pyspark", "isal")
_FIGURES: Final = "docs/benchmarks.json"
_UNKNOWN: Final = "unknown"


def describe_run() -> dict[str, object]:
    """Return the circumstances of a run that begins now, for its file of figures."""
    return {
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "load": os.getloadavg()[0],
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
    }


def _commit() -> str:
    """Return the commit of the checkout, with ``-dirty`` if files differ from it, other than published figures."""
    try:
        commit = _git("describe", "--always", "--abbrev=12")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", f":(exclude,top){_FIGURES}")
    except (OSError, subprocess.CalledProcessError):
        return _UNKNOWN
    return f"{commit}-dirty" if changed else commit


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(  # noqa: S603 -- constant arguments
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def processor() -> str:
    """Return the name of this machine's processor, as the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None

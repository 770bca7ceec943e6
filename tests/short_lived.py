# SPDX-License-Identifier: Apache-2.0
"""The many Java and Python processes that tests start, each for seconds only, and their environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path


JVM_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""The compiler that optimizes is most of the time of a JVM that lives for seconds, and saves nothing within them.

A tenth of what is left is proving again that the classes of Spark's own jars are sound.
"""

_SETTINGS: Final = ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS")
"""What Spark's scripts read for drivers, for the JVM that starts another, and for masters and workers."""


def prepare_environment() -> None:
    """Let all Java processes of Spark that are started from here on start quickly; what somebody has set stays."""
    for name in _SETTINGS:
        os.environ.setdefault(name, JVM_OPTIONS)


def quick_starts() -> dict[str, str]:
    """Return only those variables that make processes start quickly."""
    return {name: os.environ[name] for name in (*_SETTINGS, "PYTHONPYCACHEPREFIX") if name in os.environ}


def clean_environment() -> dict[str, str]:
    """Return the environment without what Python and Spark read in it, but with `quick_starts`."""
    others = (each for each in os.environ.items() if not each[0].startswith(("PYTHON", "SPARK", "PYSPARK")))
    return dict(others) | quick_starts()


def run_python(code: str, directory: Path, **environment: str) -> str:
    """Run code in a fresh interpreter, away from the source tree; return what it prints."""
    done = subprocess.run(  # noqa: S603 -- our own code
        [sys.executable, "-c", code],
        cwd=directory,
        env={**clean_environment(), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_SECONDS = 240


@cache
def sample_demo() -> subprocess.CompletedProcess[str]:
    """Run the demo with no argument, in a new directory and an interpreter that has not loaded the format."""
    with tempfile.TemporaryDirectory(prefix="anywhere-") as anywhere:
        return subprocess.run(
            [sys.executable, "-m", "pyspark_commitlog.demo"],
            cwd=anywhere,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )

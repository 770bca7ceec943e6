# SPDX-License-Identifier: Apache-2.0
"""Processes of Spark: jobs submitted as users do, child processes found, killed and waited for."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyspark

from tests.short_lived import JVM_OPTIONS

_PROCESSES = Path("/proc")


def descendants(process: int) -> list[int]:
    """Return all processes below one, parents first."""
    children: dict[int, list[int]] = {}
    for path in _PROCESSES.iterdir():
        if path.name.isdecimal():
            with suppress(OSError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(path.name))
    found = [process]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def command_of(process: int) -> str:
    """Return the words of a process's command line; nothing if it has ended."""
    try:
        words = (_PROCESSES / str(process) / "cmdline").read_bytes()
    except OSError:
        return ""
    return words.replace(b"\0", b" ").decode("utf-8", "replace")


def kill(processes: list[int]) -> None:
    """Kill processes; some may have ended already."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def wait_for_end(processes: list[int]) -> None:
    """Wait until processes have ended; they need not be children of this one."""
    for process in processes:
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(process)
            select.select([handle], [], [])
            os.close(handle)


ROOT = Path(__file__).parents[2]
JOBS = ROOT / "jobs"
SPARK_BIN = Path(pyspark.__file__).parent / "bin"
SECONDS = 240
CLUSTER = "local-cluster[2,1,1024]"
"""Spark's own cluster, with its master and workers in the driver, and executors that are processes of their own."""

SETTINGS = {
    "spark.driver.host": "localhost",
    "spark.ui.enabled": "false",
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
}


def environment() -> dict[str, str]:
    """Return the environment of a process that runs Spark with this tree's packages and settings."""
    path = os.pathsep.join(map(str, (ROOT / "connector", ROOT)))
    conf = str(ROOT / "spark-conf")
    return os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": conf}


def run_program(folder: Path, *command: str | Path, seconds: int | None = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a program in `folder` until it ends; its exit code and output are in the result."""
    return subprocess.run(  # noqa: S603 -- our own programs, and Spark's launcher
        command, env=environment(), cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
    )


def submit(job: str, folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a job of `JOBS` until it ends."""
    settings = [word for setting in SETTINGS.items() for word in ("--conf", "=".join(setting))]
    return run_program(folder, SPARK_BIN / "spark-submit", "--master", "local[2]", *settings, JOBS / job, *arguments)

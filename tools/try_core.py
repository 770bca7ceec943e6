# SPDX-License-Identifier: Apache-2.0
"""Uses the installed package without PySpark, and prints the number of messages of the sample store.

Usage: try_core.py
check_wheel.py runs this in an environment that has numpy, pyarrow and the wheel, and not the command's library.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pyspark_commitlog
import store_core
from pyspark_commitlog.sample import orders_store

PROGRAMS: Final = Path(sys.executable).parent
FAILED: Final = 3


class CoreError(Exception):
    """The installed package does not work as it should without PySpark."""


def said(command: list[str | Path], code: int) -> str:
    """Run a command that must end with this exit code; return its output, of both streams."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != code:
        raise CoreError(f"{command} ended with {done.returncode}, expected {code}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def check_demo(release: str) -> None:
    """Check that the demo prints its help, its version, and what to install."""
    command: list[str | Path] = [sys.executable, "-m", "pyspark_commitlog.demo"]
    if "usage:" not in said([*command, "--help"], 0):
        raise CoreError("the demo's --help shows no usage")
    if not said([*command, "--version"], 0).strip().endswith(f" {release}"):
        raise CoreError(f"the demo's --version does not say {release}")
    text = said(command, FAILED)
    if "pip install 'pyspark>=" not in text or "Traceback" in text:
        raise CoreError(f"the demo does not say what to install: {text}")


def check_library() -> None:
    """Check that `commitlog` says in one line which library to install."""
    text = said([PROGRAMS / "commitlog", "--help"], FAILED)
    if "pip install 'click>=" not in text or text.count("\n") != 1:
        raise CoreError(f"commitlog does not say what to install: {text}")


def main() -> int:
    """Try everything, print the number of messages, and return the exit code."""
    release = version("pyspark-commitlog")
    if importlib.util.find_spec("pyspark") is not None:
        raise CoreError("this environment has PySpark")
    if hasattr(pyspark_commitlog, "DefaultSource"):
        raise CoreError("there is a data source without PySpark")
    if {store_core.__version__, pyspark_commitlog.__version__} != {release}:
        raise CoreError(f"the packages do not say version {release}")
    with tempfile.TemporaryDirectory(prefix="commitlog-core-") as directory:
        store = orders_store(directory)
        check_library()
        check_demo(release)
        print(store_core.read_messages(store).read_all().num_rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

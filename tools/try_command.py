# SPDX-License-Identifier: Apache-2.0
"""Uses the installed command `commitlog` without PySpark, and prints how many messages it counts in the sample store.

Usage: try_command.py
check_wheel.py runs this in an environment that has numpy, pyarrow, click and the wheel.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark_commitlog.sample import orders_store

PROGRAM: Final = Path(sys.executable).parent / "commitlog"


class CommandError(Exception):
    """The installed command does not work as it should."""


def printed(*words: str | Path) -> list[str]:
    """Run the command, which must end well and say nothing on standard error; return the lines that it prints."""
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    if done.returncode or done.stderr:
        raise CommandError(f"commitlog {words} ended with {done.returncode}: {done.stderr}")
    return done.stdout.splitlines()


def main() -> int:
    """Try the command, print the number of messages, and return the exit code."""
    if importlib.util.find_spec("pyspark") is not None:
        raise CommandError("this environment has PySpark")
    with tempfile.TemporaryDirectory(prefix="commitlog-command-") as directory:
        store = orders_store(directory)
        messages = int(json.loads(printed("count", store, "--format=jsonl")[0])["messages"])
        if len(printed("cat", store, "--format=jsonl")) != messages:
            raise CommandError(f"cat did not print the {messages} messages")
        if len(printed("head", store, "-n", "3")) != 4:  # noqa: PLR2004 -- the line of names, and three
            raise CommandError("head did not print a table")
        printed("cat", store, "--output", Path(directory) / "messages.parquet")
    print(messages)
    return 0


if __name__ == "__main__":
    sys.exit(main())

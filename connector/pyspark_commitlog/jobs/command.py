# SPDX-License-Identifier: Apache-2.0
"""Runs a command: turns whatever goes wrong into an exit code and one paragraph on standard error."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

from pyspark_commitlog import MINIMUM_PYSPARK
from store_core import __version__
from store_core.command.exit_code import INTERRUPTED, NO_READER, ExitCode, failure_of
from store_core.command.main import let_output_go, watch_standard_output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["add_version", "run_command"]

_SPARK: Final = ("pyspark", "py4j")


def run_command(name: str, run: Callable[[], ExitCode]) -> int:
    """Run a command, and write to standard error why it failed, if it does.

    * `name`: What the paragraph begins with.

    Returns: The exit code. An unexpected error is shown with its traceback and is `ExitCode.FAILED`, because Python's
    own exit code, 1, stands for findings. As of the program `commitlog`, ^C and a closed pipe have codes of their own.
    """
    if sys.stdout is sys.__stdout__:  # not in a notebook or a test
        watch_standard_output()
    logging.getLogger("store_core").addHandler(logging.NullHandler())  # what it logs is in the report
    try:
        code = run()
        sys.stdout.flush()
        return int(code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        let_output_go()
        return NO_READER
    except Exception as error:  # noqa: BLE001 -- a bug is not a finding
        code, text = _end(error)
        sys.stderr.write(f"{name}: {text}\n")
        return int(code)


def _end(error: Exception) -> tuple[ExitCode, str]:
    """Choose the exit code and the message for whatever a command raised."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _SPARK:
        return ExitCode.FAILED, (
            f"this command runs on Spark, and PySpark is not installed for {sys.executable}: "
            f"pip install 'pyspark>={MINIMUM_PYSPARK}'"
        )
    return failure_of(error)


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add ``--version`` to a command."""
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")

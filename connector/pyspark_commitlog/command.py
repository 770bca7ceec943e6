# SPDX-License-Identifier: Apache-2.0
"""The command line `commitlog` on Spark: what the jobs are."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from store_core.command.console import Console
from store_core.command.main import watch_standard_output
from store_core.command.program import program

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command of `commitlog` with the session that runs, or with a new one.

    Parameters
    ----------
    arguments : sequence of str, optional
        What is typed after `commitlog`, without ``--spark``; by default the arguments of this process.

    Returns
    -------
    int
        The exit code, see `store_core.command.exit_code`.
    """
    if sys.stdout is sys.__stdout__:  # not in a notebook or a test
        watch_standard_output()
    around = replace(Console.here(), is_on_spark=True)
    try:
        program.main(None if arguments is None else [*arguments], prog_name="commitlog", obj=around)
    except SystemExit as end:
        return int(end.code or 0)
    return 0  # not reached: click exits by itself

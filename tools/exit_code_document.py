# SPDX-License-Identifier: Apache-2.0
"""The text of ``docs/exit-codes.md``."""

from __future__ import annotations

from typing import Final

from store_core.command.exit_code import ExitCode


def markdown_document() -> str:
    """Return the text of ``docs/exit-codes.md``."""
    rows = [f"| {code.value} | {code.meaning} |" for code in ExitCode]
    return "\n".join([*_INTRODUCTION, *rows, *_REMARKS, ""])


_INTRODUCTION: Final = (
    "<!-- Generated from the table of exit codes by `make docs`; do not edit. -->",
    "# Exit codes",
    "",
    "`commitlog`, `python -m pyspark_commitlog.demo` and the jobs for `spark-submit`, in `jobs/` or installed as",
    "`pyspark-commitlog.py` and so on, end with the same codes:",
    "",
    "| code | meaning |",
    "|---:|---|",
)
_REMARKS: Final = (
    "",
    "An error is one paragraph on standard error, or under `spark-submit`, which merges both, on standard output; it",
    "names what is wrong, where, and what to do. If two codes fit, a command ends with the one to act on first: with 1",
    "rather than 5 if a log is damaged and its queues differ.",
    "",
    "There are two more, those that shells use: 130 if ^C ended the command, as it ends `tail --follow`, and 141 if",
    "whoever read its output closed it, as `head` does.",
    "",
    "Times in messages and reports are in UTC, such as `2023-11-14T22:18:19.500Z`; `--time-zone` of `commitlog`",
    "shows them in another zone.",
)

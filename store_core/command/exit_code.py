# SPDX-License-Identifier: Apache-2.0
"""The exit codes of all commands: one table for the commands, their ``--help`` and ``docs/exit-codes.md``."""

from __future__ import annotations

import textwrap
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from store_core.answers.verdict import Verdict

if TYPE_CHECKING:
    from typing import Self

__all__ = ["ExitCode", "exit_code_help", "markdown_document"]

_HELP_WIDTH: Final = 100
_WRONG_USAGE: Final = (
    "wrong usage: a wrong argument, option, column or row; or no such store, topic or group; or, where one message is "
    "asked about, no such message"
)

_REFUSED: Final = (
    "refused: the store is open elsewhere, is of an unsupported kind, has more of something than is safe, or data "
    "would be lost"
)


class ExitCode(IntEnum):
    """The exit codes of commands.

    Attributes
    ----------
    meaning : str
        A clause for users, without a full stop.
    """

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """Make a member from its number and its meaning."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    DONE = 0, "success: the work is done, or nothing needs attention"
    FINDINGS = 1, "findings: something differs, or rows were left out; the report names them"
    USAGE = 2, _WRONG_USAGE
    FAILED = 3, "failed: something can't be read or written, there is no suitable Java, or Spark failed"
    REFUSED = 4, _REFUSED
    DAMAGED = 5, "done, but the log is damaged"

    @classmethod
    def of(cls, verdict: Verdict) -> ExitCode:
        """Return the code for what an answer found."""
        return _CODES[verdict]


_CODES: Final = {
    Verdict.CLEAN: ExitCode.DONE,
    Verdict.FINDINGS: ExitCode.FINDINGS,
    Verdict.DAMAGED: ExitCode.DAMAGED,
    Verdict.REFUSED: ExitCode.REFUSED,
}


def exit_code_help(remark: str) -> str:
    """Return the part of a command's ``--help`` that explains its exit codes.

    Parameters
    ----------
    remark : str
        What else the codes mean for this command; ends with a full stop.
    """
    lines = ["exit codes:"]
    for code in ExitCode:
        lines += textwrap.wrap(code.meaning, _HELP_WIDTH, initial_indent=f"  {code.value}  ", subsequent_indent=" " * 5)
    return "\n".join([*lines, *textwrap.wrap(remark, _HELP_WIDTH), ""])


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

# SPDX-License-Identifier: Apache-2.0
"""How a command ends: its exit code, and what its error says."""

from __future__ import annotations

import errno
import re
import textwrap
import traceback
from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, Final, Self

from store_core.errors import (
    FilterError,
    InvalidOptionError,
    RepairRefusedError,
    StoreError,
    StoreLockedError,
    StoreNotFoundError,
    UnsafeSizeError,
    UnsupportedStoreError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from store_core.answers.report import Verdict


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
    """The exit codes of commands."""

    meaning: str  # A clause for users, without a full stop

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
        """Return the code for what an answer found, which has its name but where all is well."""
        return cls.DONE if verdict.name == "CLEAN" else cls[verdict.name]


def exit_code_help(remark: str) -> str:
    """Return the part of a command's ``--help`` that explains its exit codes.

    * `remark`: What else the codes mean for this command; ends with a full stop.
    """
    lines = ["exit codes:"]
    for code in ExitCode:
        lines += textwrap.wrap(code.meaning, _HELP_WIDTH, initial_indent=f"  {code.value}  ", subsequent_indent=" " * 5)
    return "\n".join([*lines, *textwrap.wrap(remark, _HELP_WIDTH), ""])


INTERRUPTED: Final = 130
"""What shells use for a program that ^C ended."""

NO_READER: Final = 141
"""What shells use for a program whose pipe was closed, as by ``head``."""

ERROR_CODES: Final[Mapping[type[StoreError], ExitCode]] = {
    FilterError: ExitCode.USAGE,
    InvalidOptionError: ExitCode.USAGE,
    StoreNotFoundError: ExitCode.USAGE,
    UnsupportedStoreError: ExitCode.REFUSED,
    StoreLockedError: ExitCode.REFUSED,
    RepairRefusedError: ExitCode.REFUSED,
    UnsafeSizeError: ExitCode.REFUSED,
}
"""Exit codes by error; all other errors mean that the command could not read the store."""

_SPARK: Final = ("pyspark", "py4j")
_OF_SPARK: Final = ("PySparkException", "Py4JError")

_NUMBERED: Final = re.compile(r"\[Errno (\d+)\] ([^:]+)(?:: (['\"])(.+?)\3.*)?", re.DOTALL)
FREE_SPACE: Final = "Free some space, and run this again"

_OF_NO_PATH: Final = {
    errno.ENOENT: ("the working directory is gone", "Change to one that exists"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), ("what is written has no room", FREE_SPACE)),
}
_WAYS_ON: Final = {
    errno.ENOENT: "Check the path",
    errno.EACCES: "Run this as a user with permission, or change the permissions",
    errno.EPERM: "Run this as a user with permission, or change the permissions",
    errno.EROFS: "Give a path on a writable disk",
    errno.ENOSPC: FREE_SPACE,
    errno.EDQUOT: FREE_SPACE,
    errno.EFBIG: "Raise the limit on the size of files (ulimit -f), and run this again",
}


def failure_of(error: Exception, words: Sequence[str] = ()) -> tuple[ExitCode, str]:
    """Choose the exit code and the message for an error of a command.

    Any error that is neither raised on purpose nor by the system is a bug: it is `ExitCode.FAILED` with its traceback,
    because Python's own exit code, 1, stands for findings. But among `words`, the arguments, may be one with bytes that
    are no UTF-8, which only a path or a topic may have: that is wrong usage.
    """
    if any(kind.__name__ in _OF_SPARK and kind.__module__.split(".")[0] in _SPARK for kind in type(error).__mro__):
        end: tuple[ExitCode, str] = import_module("pyspark_commitlog.spark_errors").end_of(error)
        return end
    is_deliberate = isinstance(error, StoreError | OSError)
    if not is_deliberate or isinstance(error.__cause__, UnicodeEncodeError):
        odd = [word for word in words if word != word.encode("utf-8", "ignore").decode()]
        if odd:
            return ExitCode.USAGE, f"expected arguments in UTF-8, found {odd[0]!r}"
    if not is_deliberate:
        text = "".join(traceback.format_exception(error)).rstrip()
        return ExitCode.FAILED, f"this is a bug in the program; please report it with the following traceback\n{text}"
    code = next((code for kind, code in ERROR_CODES.items() if isinstance(error, kind)), ExitCode.FAILED)
    return code, system_words(str(error))


def told_error(error: Exception) -> StoreError | None:
    """Return an error that says itself what it is about, as one of the system about a file does; None for a bug."""
    if isinstance(error, OSError) and error.filename is not None:
        return StoreError(system_words(str(error)))
    return error if isinstance(error, StoreError) else None


def system_words(text: str) -> str:
    """Return an error of the operating system as a sentence that begins with the path; other texts as they are.

    >>> system_words("[Errno 28] No space left on device: '/data/store/lock'")
    '/data/store/lock: No space left on device. Free some space, and run this again'
    >>> system_words("[Errno 28] No space left on device")
    'what is written has no room: No space left on device. Free some space, and run this again'
    """
    found = _NUMBERED.fullmatch(text)
    number = int(found[1]) if found else 0
    if found is None or not (found[4] or number in _OF_NO_PATH):
        return text
    what, way_on = (found[4], _WAYS_ON.get(number)) if found[4] else _OF_NO_PATH[number]
    return f"{what}: {found[2]}" + (f". {way_on}" if way_on else "")

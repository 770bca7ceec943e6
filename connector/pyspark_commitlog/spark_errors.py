# SPDX-License-Identifier: Apache-2.0
"""Readable messages from errors of Spark and of the operating system."""

from __future__ import annotations

import errno
import re
from typing import Final

__all__ = ["quoted_error", "spark_words", "system_words"]

_AROUND: Final = re.compile(r"\s*(?:\n\tat |\n== |\n\nJVM stacktrace:|\n\nDriver stacktrace:).*", re.DOTALL)
"""Where the stack trace begins, or the place in PySpark's or this project's code that made the call."""

_CALL: Final = re.compile(r"\AAn error occurred while calling \S+\n: (?:[\w$]+\.)*[\w$]+: ")

_QUOTED: Final = re.compile(r"\bstore_core\.errors\.(\w+): (.+)")


_OF_SYSTEM: Final = re.compile(r"^(\w+Error): (\[Errno \d+\] .+)", re.MULTILINE)
_NUMBERED: Final = re.compile(r"\[Errno (\d+)\] ([^:]+): (['\"])(.+?)\3.*", re.DOTALL)
_WAYS_ON: Final = {
    errno.ENOENT: "Check the path",
    errno.EACCES: "Run this as a user with permission, or change the permissions",
    errno.EPERM: "Run this as a user with permission, or change the permissions",
    errno.EROFS: "Give a path on a writable disk",
    errno.ENOSPC: "Free some space, and run this again",
    errno.EDQUOT: "Free some space, and run this again",
}
_LAST_LINE: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+((?:[\w]+\.)*\w+: .+)")


def quoted_error(text: str) -> tuple[str, str] | None:
    """Return the class and the message of the Python error that a Spark error quotes after its traceback.

    One of our own errors if there is one, else one of the operating system; None if there is neither.
    """
    found = _QUOTED.search(text) or _OF_SYSTEM.search(text)
    return None if found is None else (found[1], found[2])


def spark_words(error: Exception) -> str:
    """Return the message of an error, without class names, stack traces and places in code.

    For a Python error in a task this is the last line of its traceback.
    """
    text = str(error)
    of_python = _LAST_LINE.search(text)
    return of_python[1] if of_python else _AROUND.sub("", _CALL.sub("", text)).strip()


def system_words(text: str) -> str:
    """Return an error of the operating system as a sentence that begins with the path; other texts as they are.

    Examples
    --------
    >>> system_words("[Errno 28] No space left on device: '/data/store/lock'")
    '/data/store/lock: No space left on device. Free some space, and run this again'
    """
    found = _NUMBERED.fullmatch(text)
    if found is None:
        return text
    way_on = _WAYS_ON.get(int(found[1]))
    return f"{found[4]}: {found[2]}" + (f". {way_on}" if way_on else "")

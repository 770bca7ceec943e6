# SPDX-License-Identifier: Apache-2.0
"""Readable messages from errors of Spark."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["quoted_error", "spark_words"]

_AROUND: Final = re.compile(r"\s*(?:\n\tat |\n== |\n\nJVM stacktrace:|\n\nDriver stacktrace:).*", re.DOTALL)
"""Where the stack trace begins, or the place in PySpark's or this project's code that made the call."""

_CALL: Final = re.compile(r"\AAn error occurred while calling \S+\n: (?:[\w$]+\.)*[\w$]+: ")

_QUOTED: Final = re.compile(r"\bstore_core\.errors\.(\w+): (.+)")


_OF_SYSTEM: Final = re.compile(r"^(\w+Error): (\[Errno \d+\] .+)", re.MULTILINE)
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

# SPDX-License-Identifier: Apache-2.0
"""Readable messages from errors of Spark, and the exit codes of commands that they end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from store_core.command.exit_code import ERROR_CODES, ExitCode, system_words

if TYPE_CHECKING:
    from collections.abc import Iterator


_NO_PATH: Final = "PATH_NOT_FOUND"
"""Spark's name for an error that corresponds to `StoreNotFoundError`."""

_CODES: Final = {kind.__name__: code for kind, code in ERROR_CODES.items()} | {_NO_PATH: ExitCode.USAGE}

_AROUND: Final = re.compile(r"\s*(?:;\n'?[A-Z]\w+[ (\[]|\n\tat |\n== |\n\n(?:JVM|Driver) stacktrace:).*", re.DOTALL)
"""Where the stack trace begins, Spark's plan of the query, or the place in PySpark's or our code that made the call."""

_CALL: Final = re.compile(r"\AAn error occurred while calling \S+\n: (?:[\w$]+\.)*[\w$]+: ")

_QUOTED: Final = re.compile(r"\bstore_core\.errors\.(\w+): (.+)")
_OF_SYSTEM: Final = re.compile(r"^(\w+Error): (\[Errno \d+\] .+)", re.MULTILINE)
_LAST_LINE: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)+((?:[\w]+\.)*\w+: .+)")


def end_of(error: Exception) -> tuple[ExitCode, str]:
    """Choose the exit code and the message for an error of Spark; it, or a cause of it, quotes ours as text."""
    from pyspark_commitlog.write.typed_rows import wrong_row  # noqa: PLC0415 -- PySpark need not be installed

    texts = [str(each) for each in _causes(error)]
    row = wrong_row("\n".join(texts))
    if row is not None:
        return ExitCode.USAGE, row
    quoted = next((found for text in texts if (found := quoted_error(text))), None)
    name, text = quoted or (_condition(error), spark_words(error))
    return _CODES.get(name, ExitCode.FAILED), system_words(text)


def _condition(error: Exception) -> str:
    """Return Spark's name for an error; empty if it has none."""
    condition = getattr(error, "getCondition", None)  # of a PySparkException
    return (condition() or "") if callable(condition) else ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes: for a failed commit, Spark's own error says only that the job was aborted."""
    while error is not None:
        yield error
        error = error.__cause__ or getattr(error, "_cause", None)  # where PySpark keeps the cause that Java reported


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

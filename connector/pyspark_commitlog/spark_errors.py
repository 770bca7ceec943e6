# SPDX-License-Identifier: Apache-2.0
"""What an error of Spark's says to a person."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["quoted_error", "spark_words"]

_AROUND: Final = re.compile(r"\s*(?:\n\tat |\n== |\n\nJVM stacktrace:|\n\nDriver stacktrace:).*", re.DOTALL)
"""Where the stack begins, or the place in PySpark's or this project's code that the call came from."""

_CALL: Final = re.compile(r"\AAn error occurred while calling \S+\n: (?:[\w$]+\.)*[\w$]+: ")

_QUOTED: Final = re.compile(r"\bstore_core\.errors\.(\w+): (.+)")


def quoted_error(text: str) -> tuple[str, str] | None:
    """Find the error of ours that a text of Spark's quotes, with Python's traceback above: its class and its words."""
    found = _QUOTED.search(text)
    return None if found is None else (found[1], found[2])


def spark_words(error: Exception) -> str:
    """Give the text of an error without classes, stacks and places in code around it."""
    return _AROUND.sub("", _CALL.sub("", str(error))).strip()

# SPDX-License-Identifier: Apache-2.0
"""Where a job's text output and its JSON report go."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from store_core.files.access import naming

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["words_beside", "write_json", "write_text"]


def words_beside(target: str | None) -> TextIO:
    """Return the stream for text: standard output, or standard error if the report goes to standard output."""
    return sys.stderr if target == "-" else sys.stdout


def write_json(report: Mapping[str, object], target: str | None) -> None:
    """Write a report to a file, to standard output for ``-``, or nowhere for None.

    Raises
    ------
    OSError
        If the file can't be written.
    """
    if target is not None:
        write_text(json.dumps(report, indent=1) + "\n", target)


def write_text(text: str, target: str) -> None:
    """Write text to a file, or to standard output for ``-``.

    Raises
    ------
    OSError
        If the file can't be written.
    """
    if target == "-":
        sys.stdout.write(text)
    else:
        with naming(Path(target)):
            Path(target).write_text(text, encoding="utf-8")

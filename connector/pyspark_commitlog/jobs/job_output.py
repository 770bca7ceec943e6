# SPDX-License-Identifier: Apache-2.0
"""Where a job's words and its report in JSON go."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["words_beside", "write_json"]


def words_beside(target: str | None) -> TextIO:
    """Return where words go: standard output, unless the report goes there."""
    return sys.stderr if target == "-" else sys.stdout


def write_json(report: Mapping[str, object], target: str | None) -> None:
    """Write a report to a file, to standard output for ``-``, or nowhere for None.

    Raises
    ------
    OSError
        As the system says.
    """
    text = json.dumps(report, indent=1) + "\n"
    if target == "-":
        sys.stdout.write(text)
    elif target is not None:
        Path(target).write_text(text, encoding="utf-8")

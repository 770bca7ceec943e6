# SPDX-License-Identifier: Apache-2.0
"""A report in JSON that goes to a file, or to standard output in place of words."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from store_core.errors import InvalidOptionError, StoreError
from store_core.files.access import naming

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["STANDARD_OUTPUT", "check_report", "words_beside", "write_json", "write_text"]

STANDARD_OUTPUT: Final = "-"


def check_report(option: str, target: str | None) -> None:
    """Refuse a report file that can't be written; None and ``-`` do not name files."""
    if target is None or target == STANDARD_OUTPUT:
        return
    path = Path(target).absolute()
    if path.is_dir():
        raise InvalidOptionError(f"{option} {target}: it is a directory: expected a file for the report")
    if not path.parent.is_dir():
        raise InvalidOptionError(
            f"{option} {target}: there is no directory {path.parent}. Create it, or give another file"
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise StoreError(
            f"{option} {target}: it can't be written: permission denied, or a read-only disk. Run this as a user with "
            f"permission, change the permissions, or give another path"
        )


def words_beside(target: str | None) -> TextIO:
    """Return the stream for text: standard output, or standard error if the report goes to standard output."""
    return sys.stderr if target == STANDARD_OUTPUT else sys.stdout


def write_json(report: Mapping[str, object], target: str | None) -> None:
    """Write a report to a file, to standard output for ``-``, or nowhere for None."""
    if target is not None:
        write_text(json.dumps(report, indent=1) + "\n", target)


def write_text(text: str, target: str) -> None:
    """Write text to a file, or to standard output for ``-``."""
    if target == STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        with naming(Path(target)):
            Path(target).write_text(text, encoding="utf-8")

# SPDX-License-Identifier: Apache-2.0
"""New files, which appear when they are complete, and reports in files."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

import click

from store_core.errors import InvalidOptionError, StoreError
from store_core.files.access import naming

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def _unfinished(target: Path) -> Path:
    return Path(f"{target}.part")


def _refusal(unfinished: Path, option: str) -> click.UsageError:
    return click.UsageError(
        f"{unfinished} exists: a run is writing it, or was killed. If none is running, delete it, or give another "
        f"{option}"
    )


def check_new(option: str, target: Path | None) -> None:
    """Refuse a file that exists, or that can't be made or is in a store, before anything is read."""
    if target is None:
        return
    if target.exists():
        raise click.UsageError(f"{target} exists already: delete it first, or give another {option}")
    if (unfinished := _unfinished(target)).exists():
        raise _refusal(unfinished, option)
    if not target.absolute().parent.is_dir():
        raise click.UsageError(f"there is no directory {target.absolute().parent}: make it, or give another {option}")
    from store_core.files.names import COMMIT_LOG

    root = next((each for each in target.resolve().parents if (each / COMMIT_LOG).is_dir()), None)
    if root is not None:
        raise click.UsageError(f"{target} is in the store {root}, where nothing is written: give another {option}")


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """Provide a file that appears under its name when it is complete, and not at all otherwise."""
    unfinished = _unfinished(target)
    try:
        stream = unfinished.open("xb")
    except FileExistsError:  # of a run that began with this one
        raise _refusal(unfinished, "file") from None
    try:
        with naming(target), stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        unfinished.unlink()
        raise
    unfinished.rename(target)


def write_new_json(target: Path | None, document: Mapping[str, object]) -> None:
    """Write a document to a new file, or nowhere for None."""
    if target is not None:
        write_new(target, json.dumps(document, indent=1) + "\n")


def write_new(target: Path, text: str) -> None:
    """Write text to a new file."""
    with new_file(target) as stream:
        stream.write(text.encode("utf-8", "backslashreplace"))


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


def stream_for_text(target: str | None) -> TextIO:
    """Return the stream for text: standard output, or standard error if the report goes to standard output."""
    return sys.stderr if target == STANDARD_OUTPUT else sys.stdout


def write_json(report: Mapping[str, object], target: str | None) -> None:
    """Write a report to a file, to standard output for ``-``, or nowhere for None."""
    if target is None:
        return
    text = json.dumps(report, indent=1) + "\n"
    if target == STANDARD_OUTPUT:
        sys.stdout.write(text)
    else:
        with naming(Path(target)):
            Path(target).write_text(text, encoding="utf-8")

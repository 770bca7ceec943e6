# SPDX-License-Identifier: Apache-2.0
"""Files that a command makes: they appear when they are complete, and never in place of another one."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from store_core.files.access import naming

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["check_new", "new_file", "write_new", "write_new_json"]

_UNFINISHED: Final = ".part"


def check_new(option: str, target: Path | None) -> None:
    """Refuse a file that exists, or that can't be made or is in a store, before anything is read."""
    if target is None:
        return
    if target.exists():
        raise click.UsageError(f"{target} exists already: delete it first, or give another {option}")
    if not target.absolute().parent.is_dir():
        raise click.UsageError(f"there is no directory {target.absolute().parent}: make it, or give another {option}")
    from store_core.files.store_parts import COMMIT_LOG

    root = next((each for each in target.resolve().parents if (each / COMMIT_LOG).is_dir()), None)
    if root is not None:
        raise click.UsageError(f"{target} is in the store {root}, where nothing is written: give another {option}")


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """Provide a file that appears under its name when it is complete, and not at all otherwise."""
    unfinished = Path(f"{target}{_UNFINISHED}")
    stream = unfinished.open("xb")
    try:
        with naming(target), stream:
            yield stream
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

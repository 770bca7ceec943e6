# SPDX-License-Identifier: Apache-2.0
"""The environment of a document's blocks: a copy of the example stores, one namespace, and the last output."""

from __future__ import annotations

import io
import os
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


_ROOTS: Final = ("/data/", "/mnt/", "/tmp/first-look")  # noqa: S108 -- nothing is made there
_ELLIPSIS: Final = "..."


@dataclass(slots=True)
class World:
    """What the blocks of one document share.

    Attributes
    ----------
    directory : Path
        Where the blocks run; it stands for the paths ``/data`` and ``/mnt`` in the documents.
    spark : SparkSession
    namespace : dict
        Namespace of the Python blocks; it has `spark`, as in a notebook.
    printed : str or None
        Output of the previous block, or the text of its error; None if it has been compared already.
    error_at : str
        Place of the block that raised `printed`, until a block of output shows it; else empty.
    replaced : dict of str to str
        Other names in the documents, and what stands for them here, such as the address of a server.
    """

    directory: Path
    spark: SparkSession
    namespace: dict[str, Any] = field(default_factory=dict)
    printed: str | None = None
    error_at: str = ""
    replaced: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.namespace |= {"__name__": "document", "spark": self.spark}

    def inside(self, text: str) -> str:
        """Replace the paths of a document by those of the test."""
        for shown, found in self.replaced.items():
            text = text.replace(shown, found)
        for root in _ROOTS:
            text = text.replace(root, f"{self.directory}{root}")
        return text

    def outside(self, text: str) -> str:
        """Replace the paths of the test by those of the document."""
        return text.replace(f"file:{self.directory}", "file:").replace(str(self.directory), "")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Work in the directory, and capture output."""
        before, output = os.getcwd(), io.StringIO()  # noqa: PTH109 -- to go back to
        os.chdir(self.directory)
        try:
            with redirect_stdout(output), redirect_stderr(output):
                yield
        finally:
            os.chdir(before)
            self.printed = self.outside(output.getvalue())


def matches(shown: str, printed: str, *, somewhere: bool = False) -> bool:
    """Return whether a document's text matches the output; ``...`` stands for anything.

    Trailing blanks, and empty lines at the beginning and end, are ignored.
    """
    wanted, found = _lines(shown), _lines(printed)
    pieces = wanted.split(_ELLIPSIS)
    position = found.find(pieces[0]) if somewhere else (0 if found.startswith(pieces[0]) else -1)
    for piece in pieces:
        position = found.find(piece, position) if position >= 0 else -1
        if position < 0:
            return False
        position += len(piece)
    return somewhere or not pieces[-1] or (found.endswith(pieces[-1]) and (len(pieces) > 1 or wanted == found))


def _lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())

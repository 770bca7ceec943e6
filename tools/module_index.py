# SPDX-License-Identifier: Apache-2.0
"""Generates ``docs/modules.md``: each module with the first sentence of its docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tools.thermometer import limits_as_markdown

if TYPE_CHECKING:
    from collections.abc import Iterator


ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = (ROOT / "store_core", ROOT / "connector" / "pyspark_commitlog")

_HEAD: Final = """\
# Modules

Each module of the two packages, folder by folder, with the first sentence of its docstring. For a guided tour of the
code see `ARCHITECTURE.md`.

## Weight

What the code may weigh: `tools/thermometer.py` measures it, and a limit only ever falls.
"""
_ROLE: Final = re.compile(r"``([^`]*)``")


def markdown_document() -> str:
    """Return the whole document."""
    return "\n".join(
        [_HEAD, limits_as_markdown(), "", *(_section(folder) for package in PACKAGES for folder in _folders(package))]
    )


def _folders(package: Path) -> Iterator[Path]:
    """Yield the package and its subpackages, parents first."""
    yield package
    yield from sorted(path.parent for path in package.rglob("__init__.py") if path.parent != package)


def _section(folder: Path) -> str:
    """Return a heading, the folder's description, and a line for each of its modules."""
    modules = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    lines = [f"* `{path.stem}`: {_first_sentence(path)}" for path in modules]
    name = folder.relative_to(ROOT).as_posix().removeprefix("connector/")
    return "\n".join([f"## {name}", "", _first_sentence(folder / "__init__.py"), "", *lines, ""])


def _first_sentence(path: Path) -> str:
    """Return the first line of a module's docstring, as Markdown.

    Raises
    ------
    ValueError
        If the module has none.
    """
    documentation = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if not documentation:
        raise ValueError(f"{path.relative_to(ROOT)} begins with no docstring: say in a sentence what the module is")
    return _ROLE.sub(r"`\1`", documentation.partition("\n\n")[0].replace("\n", " "))

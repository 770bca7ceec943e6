# SPDX-License-Identifier: Apache-2.0
"""Sections of numpydoc are for the names that the reference lists: inside, a docstring is a line, and units."""

from __future__ import annotations

import ast
import re
from inspect import isclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"store_core": ROOT / "store_core", "pyspark_commitlog": ROOT / "connector" / "pyspark_commitlog"}
LISTED = re.compile(r"^\.\. auto\w+:: ([\w.]+)", re.MULTILINE)
SECTION = re.compile(r"^(?:Attributes|Parameters|Returns|Yields|Raises|Warns)\n-+$", re.MULTILINE)


def listed_names() -> set[tuple[str, str]]:
    """Modules and names of what the reference lists, with the classes that these inherit from."""
    names: set[tuple[str, str]] = set()
    for page in (ROOT / "docs" / "api").glob("*.md"):
        for name in LISTED.findall(page.read_text(encoding="utf-8")):
            found: Any = resolve_name(name)
            names |= {(each.__module__, each.__qualname__) for each in (found.__mro__ if isclass(found) else [found])}
    return names


def module_of(package: str, path: Path) -> str:
    return ".".join((package, *(part for part in path.with_suffix("").parts if part != "__init__")))


def sections_inside(path: Path, module: str, listed: set[tuple[str, str]]) -> list[str]:
    """Definitions with a section that are neither listed nor a public method of a listed class."""
    found: list[str] = []

    def visit(holder: ast.AST, prefix: str, *, is_listed: bool) -> None:
        for node in ast.iter_child_nodes(holder):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef):
                visit(node, prefix, is_listed=is_listed)
                continue
            name = f"{prefix}{node.name}"
            is_public = (module, name) in listed or (is_listed and not re.match(r"_(?!_init__)", node.name))
            if not is_public and SECTION.search(ast.get_docstring(node) or ""):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {name}")
            visit(node, f"{name}.", is_listed=is_public and isinstance(node, ast.ClassDef))

    visit(ast.parse(path.read_text(encoding="utf-8")), "", is_listed=False)
    return found


def test_only_what_the_reference_lists_has_sections() -> None:
    listed = listed_names()
    found = [
        each
        for package, folder in PACKAGES.items()
        for path in sorted(folder.rglob("*.py"))
        for each in sections_inside(path, module_of(package, path.relative_to(folder)), listed)
    ]
    assert not found, "names that docs/api does not list: a line, and units as `* `name`: ...`"


def test_a_section_inside_is_found() -> None:
    reader = ROOT / "store_core" / "store" / "read" / "read_messages.py"
    found = sections_inside(reader, "store_core.store.read.read_messages", set())
    assert any(each.endswith(" read_messages") for each in found)

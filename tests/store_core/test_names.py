# SPDX-License-Identifier: Apache-2.0
"""The names of `store_core` are there, and cost nothing until they are looked up."""

from __future__ import annotations

import ast
import compileall
import inspect
import re
import shutil
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

import store_core
import store_core.answers
import store_core.broker
from tests.builders import LogBuilder
from tests.short_lived import run_python

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


PACKAGES = (store_core, store_core.answers, store_core.broker)


def homes(package: ModuleType) -> dict[str, str]:
    """Return the module of each public name, as the package's source says it."""
    imports = [node for node in ast.walk(ast.parse(inspect.getsource(package))) if isinstance(node, ast.ImportFrom)]
    return {name.name: str(each.module) for each in imports for name in each.names if name.name in package.__all__}


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package in PACKAGES for name in package.__all__], ids=str
)
def test_a_name_is_that_of_the_module_that_has_it(package: ModuleType, name: str) -> None:
    assert getattr(package, name) is getattr(import_module(homes(package)[name]), name)
    assert name in dir(package)


def test_names_are_found_in_an_archive_and_without_sources(tmp_path: Path) -> None:
    compiled = tmp_path / "compiled"
    package = compiled / "few"
    package.mkdir(parents=True)
    (package / "home.py").write_text("there = 'found'")
    (package / "__init__.py").write_text(
        "from store_core.lazy_names import lazy_names\n\n"
        "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from few.home import there\n\n"
        "__getattr__ = lazy_names(__name__)\n"
    )
    archive = shutil.make_archive(str(tmp_path / "archive"), "zip", compiled)
    compileall.compile_dir(package, legacy=True, quiet=1)
    for source in package.glob("*.py"):
        source.unlink()

    for place in (archive, str(compiled)):
        code = f"import sys; sys.path.insert(0, {place!r}); import few; print(few.__file__, few.there)"

        assert re.fullmatch(f"{place}.* found", run_python(code, tmp_path))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'store_core' has no attribute 'read_mesages'"):
        store_core.read_mesages  # type: ignore[attr-defined]  # noqa: B018 -- a mistake that mypy finds, too


def imported(directory: Path, code: str) -> set[str]:
    """Return which of the expensive packages a fresh interpreter has imported after running the code."""
    expensive = (
        "numpy",
        "pyarrow",
        "pandas",
        "multiprocessing.connection",
        "store_core.broker",
        "store_core.store.rebuild",
    )
    listing = f"import sys; print(*(name for name in {expensive} if name in sys.modules))"
    return set(run_python(f"{code}; {listing}", directory).split())


def test_importing_the_package_imports_nothing_expensive(tmp_path: Path) -> None:
    assert set() == imported(tmp_path, "import store_core")


def test_reading_imports_no_pandas_where_it_is_installed(tmp_path: Path) -> None:
    """Arrow imports it, 0.4 s in each new process, to tell its objects from others: lists, and arrays of numpy."""
    log = LogBuilder()
    for number in (1, 2, 3):
        log.append(
            b"body", topic="TopicA", properties={"KEYS": "a" * number, "TAGS": "b"}, born_host=("10.0.0.1", number)
        )
    store = log.write(tmp_path)
    reads = [
        f"assert read_messages({str(store)!r}, {options}).read_all().num_rows == {rows}"
        for options, rows in {
            "": 3,
            "topic='TopicA', mode='PERMISSIVE'": 3,
            "columns=['msg_id', 'property.KEYS', 'compression', 'transaction_type']": 3,
            "key='of no message'": 0,
            "topic='of no message'": 0,
        }.items()
    ]

    assert run_python("import pandas", tmp_path) == ""
    assert "pandas" not in imported(tmp_path, "; ".join(["from store_core import read_messages", *reads]))


@pytest.mark.parametrize("name", ["read_messages", "DefaultMessageStore"])
def test_looking_a_name_up_imports_what_it_needs_and_no_more(name: str, tmp_path: Path) -> None:
    assert {"numpy", "pyarrow"} == imported(tmp_path, f"from store_core import {name}")

# SPDX-License-Identifier: Apache-2.0
"""The project's tools: the runner of checks, the thermometer, rules of docstrings, and budgets of property tests."""

from __future__ import annotations

import ast
import re
import sys
import tempfile
from inspect import isclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import settings

from tests.budgets import budget
from tools import run_checks
from tools.thermometer import WORDS, Weight, complaints, read_limits


def code_of(source: str) -> list[str]:
    return [sys.executable, "-c", source]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide three checks: one that passes, one that fails and writes to both streams, one that ends by a signal."""
    told = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
    ended = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    monkeypatch.setattr(
        run_checks, "CHECKS", {"good": code_of("print('fine')"), "bad": code_of(told), "killed": code_of(ended)}
    )


@pytest.mark.usefixtures("checks")
def test_every_check_runs_and_one_that_fails_makes_the_whole_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == run_checks.main([])

    shown = capsys.readouterr().out
    assert "==> good\nfine\n==> good      passed" in shown
    assert "==> bad\nout\nerr\n==> bad       FAILED" in shown
    summary = shown.partition("==> summary\n")[2].splitlines()
    assert ["good passed", "bad FAILED", "killed FAILED"] == [" ".join(line.split()[:2]) for line in summary[:3]]


@pytest.mark.usefixtures("checks")
def test_named_checks_alone_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run_checks.main(["good"])
    assert "bad" not in capsys.readouterr().out


@pytest.mark.usefixtures("checks")
def test_a_name_that_is_none_is_told_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == run_checks.main(["good", "godo"])

    told = capsys.readouterr()
    assert ("", True) == (told.out, told.err.startswith("no such check: godo; there are good, bad, killed, quick"))


@pytest.mark.usefixtures("checks")
def test_two_checks_run_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the file that the other one makes."""
    waits = (
        "import pathlib, sys; me, other = map(pathlib.Path, sys.argv[1:]); me.touch()\nwhile not other.exists(): pass"
    )
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    both = {"one": [*code_of(waits), one, two], "two": [*code_of(waits), two, one]}
    monkeypatch.setattr(run_checks, "CHECKS", both)

    assert 0 == run_checks.main([])


@pytest.mark.usefixtures("checks")
def test_progress_is_reported_while_nothing_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check ends when the file is made, and the file is made when its progress was reported."""
    waits = "import pathlib, sys\nprint('.. [  7%]', flush=True)\nwhile not pathlib.Path(sys.argv[1]).exists(): pass"
    monkeypatch.setattr(run_checks, "CHECKS", {"slow": [*code_of(waits), str(tmp_path / "end")]})
    reported = []

    for outcome in run_checks.outcomes(["slow"], seconds=0.01):
        reported.append(outcome if isinstance(outcome, str) else outcome.name)
        if outcome == "slow: 7 %":
            (tmp_path / "end").touch()

    assert "slow: 7 %" in reported
    assert reported[-1] == "slow"


def test_each_check_has_a_directory_of_files_that_goes_with_it_and_some_have_it_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two runs of pytest in one directory remove the files of older ones at the same time, and one fails by it."""
    assert {*run_checks.IN_MEMORY} <= {*run_checks.CHECKS}
    makes = {"makes": code_of("import tempfile; print(tempfile.mkdtemp(), end='')")}
    for name, value in {"CHECKS": makes, "IN_MEMORY": makes, "MEMORY": tmp_path, "ROOM": 0}.items():
        monkeypatch.setattr(run_checks, name, value)
    monkeypatch.delitem(run_checks.ENVIRONMENT, "TMPDIR", raising=False)

    assert 0 == run_checks.main([])
    assert f"==> makes\n{tmp_path}/makes-" in capsys.readouterr().out
    assert [] == [*tmp_path.iterdir()]
    assert (tmp_path, None) == (run_checks.place_of_files("makes"), run_checks.place_of_files("others"))
    monkeypatch.setattr(run_checks, "ROOM", 1 << 60)
    assert run_checks.place_of_files("makes") is None
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert 0 == run_checks.main(["makes"])
    assert f"==> makes\n{tmp_path}/makes-" in capsys.readouterr().out
    assert [] == [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("text", "progress"),
    [("", "started"), ("one\ntwo\n", "two"), ("... [  3%]\n.... [ 12%]\n...", "12 %"), ("x" * 99, "x" * 60)],
)
def test_progress_is_the_last_percentage_or_the_last_line(text: str, progress: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)

    assert progress == run_checks.progress_of(tmp_path / "log")


def test_a_share_is_of_the_profile_s_budget() -> None:
    assert round(settings().max_examples * 2.5) == budget(2.5).max_examples
    assert 5 == budget(0).max_examples
    assert settings().derandomize is budget(1).derandomize


def test_every_figure_has_a_limit() -> None:
    limits = read_limits()

    assert list(WORDS) == list(limits)


@pytest.mark.parametrize("name", WORDS)
def test_a_figure_beyond_its_limit_is_told(name: str) -> None:
    limits = dict.fromkeys(WORDS, 5)
    told = list(complaints(limits | {name: 6}, limits, limits))

    assert [f"{name}: expected at most 5, found 6 ({WORDS[name]})"] == told


def test_a_limit_that_has_risen_is_told() -> None:
    before = dict.fromkeys(WORDS, 5)
    told = list(complaints(before, before | {"lines": 6}, before))

    assert ["lines: a limit only falls, and this one was 5 and is 6"] == told


def test_code_is_what_is_neither_blank_nor_comment_nor_docstring(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""Of two\n\nlines."""\n\nimport os\nfrom re import (\n    sub,\n)\n\n# Why.\nX = os.sep, sub\n')

    assert Weight(path, lines=11, code=5, imports=4, docstrings=3) == Weight.of(path)


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

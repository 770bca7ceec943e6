# SPDX-License-Identifier: Apache-2.0
"""Notebooks run from top to bottom, reproduce their committed outputs, and contain nothing specific to a machine.

One execution, by nbmake's runner, serves both checks: `pytest --nbmake notebooks` would run them all a second time and
find less, because it compares nothing. `make notebooks` gives each a kernel of its own.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING, Final

import pytest

pytest.importorskip("nbmake", reason="the lowest versions are tested without extras")

import nbformat

from tools.run_notebooks import KERNEL, NOTEBOOKS, clean, execute, names

if TYPE_CHECKING:
    from pathlib import Path

    from nbformat import NotebookNode

# What differs from run to run in cells that measure; their plots and figures are those of the committed run.
_TIMED: Final = "timing"
# How often each thing is measured. A test does it once: those figures are not compared here.
_ROUNDS: Final = "count=3"
# Jupyter's own command, between two notebooks: the next one begins without names.
_FORGET: Final = "%reset -f"
# Paths of a machine: temporary directories, homes.
_LOCAL: Final = re.compile(r"/(tmp|home|root|Users|work|private|var)/")

notebooks = pytest.mark.parametrize("path", names([]), ids=lambda path: path.stem)


def _read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call,no-any-return]


def _code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _said(cell: NotebookNode) -> list[str]:
    """Return the text of a cell's outputs; of plots only that they are there, since some show speeds."""
    return [
        output.text if output.output_type == "stream" else _shown(output.get("data", {})) for output in cell.outputs
    ]


def _shown(data: dict[str, str]) -> str:
    return "a picture" if {"image/png", "text/html"} & set(data) else data.get("text/plain", "nothing")


def _in_one_round(path: Path) -> list[NotebookNode]:
    text = path.read_text(encoding="utf-8").replace(_ROUNDS, "count=1")
    return _code_cells(nbformat.reads(text, as_version=4))  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[NotebookNode]]:
    """Execute all notebooks, one after the other in one kernel, and return the cells of each.

    In kernels of their own, half of the time is that of eight Java processes that start.
    """
    directory = tmp_path_factory.mktemp("notebooks")
    directory.joinpath("store").symlink_to(NOTEBOOKS / "store")
    joined = nbformat.v4.new_notebook(metadata={"kernelspec": KERNEL})  # type: ignore[no-untyped-call]
    for path in names([]):
        joined.cells += [*_in_one_round(path), nbformat.v4.new_code_cell(_FORGET)]  # type: ignore[no-untyped-call]
    for number, cell in enumerate(joined.cells):
        cell.id = f"cell-{number}"
    nbformat.write(joined, directory / "all.ipynb")  # type: ignore[no-untyped-call]
    cells = iter(execute(directory / "all.ipynb").cells)
    return {path: list(takewhile(lambda cell: cell.source != _FORGET, cells)) for path in names([])}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)  # the first one waits for all
@notebooks
def test_a_notebook_says_again_what_is_committed(path: Path, executed: dict[Path, list[NotebookNode]]) -> None:
    committed = _in_one_round(path)

    assert [cell.source for cell in committed] == [cell.source for cell in executed[path]]
    for before, after in zip(committed, executed[path], strict=True):
        if _TIMED not in before.metadata.get("tags", []):
            assert _said(before) == _said(after), before.source


@notebooks
def test_a_notebook_is_committed_executed_and_clean(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    notebook = _read(path)

    assert {"kernelspec": KERNEL, "language_info": {"name": "python"}} == notebook.metadata
    assert clean(_read(path)) == notebook
    assert not _LOCAL.findall(text)
    assert not [
        cell.source for cell in _code_cells(notebook) for output in cell.outputs if output.output_type == "error"
    ]
    assert any(cell.outputs for cell in _code_cells(notebook))


@notebooks
def test_a_notebook_starts_spark_in_the_one_way_that_needs_no_activated_environment(path: Path) -> None:
    first = _code_cells(_read(path))[0].source

    assert first.startswith("from pyspark_commitlog import spark_session\n\nspark = spark_session(")
    assert not [cell for cell in _code_cells(_read(path)) if "SparkSession" in cell.source]


def test_the_notebook_that_measures_does_so_once_in_a_test() -> None:
    assert ["04_performance"] == [path.stem for path in names([]) if _ROUNDS in path.read_text(encoding="utf-8")]


def test_the_stories_are_there() -> None:
    first = ["01_explore", "02_incident", "03_append", "04_performance", "05_follow", "06_consumers"]
    assert [*first, "07_lake", "08_cluster"] == [path.stem for path in names([])]


def test_a_cell_s_pieces_of_text_are_one_and_standard_error_is_none() -> None:
    notebook = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        metadata={"papermill": {"duration": 1}},
        cells=[
            nbformat.v4.new_code_cell(  # type: ignore[no-untyped-call]
                "1",
                execution_count=7,
                metadata={"execution": {"started": "now"}, "tags": ["timing"]},
                outputs=[
                    nbformat.v4.new_output("stream", name="stdout", text="a\n"),  # type: ignore[no-untyped-call]
                    nbformat.v4.new_output("stream", name="stderr", text="warning\n"),  # type: ignore[no-untyped-call]
                    nbformat.v4.new_output("stream", name="stdout", text="b\n"),  # type: ignore[no-untyped-call]
                    nbformat.v4.new_output("display_data", data={"text/plain": ""}),  # type: ignore[no-untyped-call]
                    nbformat.v4.new_output("execute_result", data={"text/plain": "1"}, execution_count=7),  # type: ignore[no-untyped-call]
                ],
            )
        ],
    )

    cell = clean(notebook).cells[0]
    assert ["a\nb\n", "1"] == _said(cell)
    assert {"tags": ["timing"]} == cell.metadata
    assert cell.execution_count is None
    assert cell.outputs[-1].execution_count is None


def test_names_choose_by_their_beginning() -> None:
    assert [NOTEBOOKS / "02_incident.ipynb"] == names(["02"])

# SPDX-License-Identifier: Apache-2.0
"""Executes the notebooks in place, and leaves of them what a reader needs.

Usage: run_notebooks.py [NAME ...]     (all of them without a name; `01` is enough for a name)
What differs from run to run is removed: how often and when cells ran, standard error with what Java says there, and
bars of progress.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import nbformat
from nbformat import NotebookNode
from nbmake.nb_run import NotebookRun

if TYPE_CHECKING:
    from nbmake.nb_result import NotebookResult

ROOT: Final = Path(__file__).resolve().parent.parent
NOTEBOOKS: Final = ROOT / "notebooks"
SECONDS: Final = 300
KERNEL: Final = {"display_name": "Python 3", "language": "python", "name": "python3"}


class NotebookError(Exception):
    """A cell has failed."""


def execute(path: Path) -> NotebookNode:
    """Execute a notebook from its own directory, as Jupyter does; gives it with its new outputs, cleaned.

    Raises
    ------
    NotebookError
        If a cell has failed.
    """
    result = _run(path)
    if result.error is not None:
        raise NotebookError(f"{path.name}, cell {result.error.failing_cell_index}: {result.error.summary}")
    return clean(result.nb)


def _run(path: Path) -> NotebookResult:
    """Let nbmake execute a notebook; a kernel that did not come up is started once more.

    Jupyter looks for free ports, lets them go, and has the kernel bind them: another program, for example a Spark
    session that starts at the same time, may have taken one.
    """
    try:
        return NotebookRun(path, SECONDS).execute()
    except RuntimeError as error:
        if "Kernel didn't respond" not in str(error):
            raise
        return NotebookRun(path, SECONDS).execute()


def clean(notebook: NotebookNode) -> NotebookNode:
    """Remove what is not the same in each run, in place."""
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = {"tags": tags} if tags else {}
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = _outputs(cell.outputs)
    return notebook


def _outputs(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join what was printed in several pieces; leave out standard error and what is left of progress bars."""
    kept: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream":
            if output.name == "stderr":
                continue
            if kept and kept[-1].output_type == "stream":
                kept[-1].text += output.text
                continue
        if set(output.get("data", {})) == {"text/plain"} and not output.data["text/plain"].strip():
            continue
        if "execution_count" in output:
            output.execution_count = None
        kept.append(output)
    return kept


def names(arguments: list[str]) -> list[Path]:
    """List the notebooks whose names begin so, all of them by default."""
    return [
        path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if not arguments or path.name.startswith(tuple(arguments))
    ]


def main(arguments: list[str]) -> int:
    """Execute the named notebooks, a line each; return the exit code."""
    for path in names(arguments):
        started = time.monotonic()
        try:
            notebook = execute(path)
        except NotebookError as error:
            print(error, file=sys.stderr)
            return 1
        nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
        print(f"{path.name}: {time.monotonic() - started:.0f} s, {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

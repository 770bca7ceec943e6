# SPDX-License-Identifier: Apache-2.0
"""Executes the notebooks in place, and removes from them what differs from run to run.

Usage: run_notebooks.py [NAME ...]     (without a name, all of them; `01` is enough for a name)
Removed are execution counts and times, standard error, with Java's messages, and progress bars.
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
    """Execute a notebook in its own directory, as Jupyter does; return it with its new outputs, cleaned.

    Raises
    ------
    NotebookError
        If a cell has failed.
    """
    result = _run(path)
    if result.error is not None:
        # The summary is the last line, which for an error of Spark's isn't the one that tells the cause.
        raise NotebookError(f"{path.name}, cell {result.error.failing_cell_index}: {result.error.trace}")
    return clean(result.nb)


def _run(path: Path) -> NotebookResult:
    """Execute a notebook with nbmake; a kernel that did not start is started once more.

    Jupyter finds free ports, releases them, and lets the kernel bind them: another program, for example a Spark session
    that starts at the same time, may have taken one in between.
    """
    try:
        return NotebookRun(path, SECONDS).execute()
    except RuntimeError as error:
        if "Kernel didn't respond" not in str(error):
            raise
        return NotebookRun(path, SECONDS).execute()


def clean(notebook: NotebookNode) -> NotebookNode:
    """Remove what differs from run to run, in place."""
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = {"tags": tags} if tags else {}
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = _outputs(cell.outputs)
    return notebook


def _outputs(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join output that was printed in several pieces; leave out standard error and remains of progress bars."""
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
    """Return the notebooks whose names begin with the arguments; without arguments, all of them."""
    return [
        path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if not arguments or path.name.startswith(tuple(arguments))
    ]


def main(arguments: list[str]) -> int:
    """Execute the named notebooks, with one line of output each; return the exit code."""
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

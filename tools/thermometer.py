# SPDX-License-Identifier: Apache-2.0
"""Measures the weight of the product, and compares it with limits that only ever fall.

Usage: thermometer.py [--lower]

The limits are in ``weight_limits.json`` beside this file, and in ``docs/modules.md``. A figure beyond its limit is an
error, and so is a limit that was lower in an earlier commit. With --lower the figures become the limits, where they
are lower; afterwards `make docs`.

Journeys run in an interpreter each, on the sample store: which modules a user's call enters (a function of theirs is
called, in any thread) and which it imports. `df.write` is run by the writer's own classes, as `commitlog append` does
it in one process, so none of them starts a JVM.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType


ROOT: Final = Path(__file__).resolve().parent.parent
LIMITS: Final = Path(__file__).with_name("weight_limits.json")
PRODUCT: Final = ("store_core", "connector/pyspark_commitlog", "jobs")
MODULES: Final = ("store_core", "pyspark_commitlog")
"""Packages whose modules a journey imports."""

WORDS: Final = {
    "lines": "lines of the product, with blank ones",
    "modules": "modules",
    "small_modules": "modules with fewer than 60 lines of code",
    "import_percent": "lines of imports, in percent of the lines of code",
    "docstring_percent": "lines of docstrings, in percent of all lines",
    "rows_entered": "rows of a local store (`read_messages`): modules entered",
    "rows_imported": "rows of a local store: modules imported",
    "write_entered": "`df.write`, staging and commit: modules entered",
    "write_imported": "`df.write`, staging and commit: modules imported",
    "rebuild_entered": "rebuild of queues and index: modules entered",
    "rebuild_imported": "rebuild of queues and index: modules imported",
    "lag_entered": "`commitlog lag`: modules entered",
    "lag_imported": "`commitlog lag`: modules imported",
}
"""Each figure that has a limit, and what it says. Code is what is neither blank, comment nor docstring."""


def rows(store: Path) -> None:
    """Read all rows of a local store."""
    from store_core import read_messages

    read_messages(store).read_all()


def write(store: Path) -> None:
    """Stage and commit rows as `df.write` does whose DataFrame has one partition."""
    import pyarrow as pa

    from pyspark_commitlog.append import LocalRows, append_here
    from pyspark_commitlog.write.options import WriteOptions

    batch = pa.RecordBatch.from_pydict({"topic": ["orders"] * 3, "body": [b"a", b"b", b"c"], "keys": ["1", "2", "3"]})
    options = WriteOptions.from_spark({"path": str(store)})
    append_here(LocalRows(batch.schema, iter([batch])), options)


def rebuild(store: Path) -> None:
    """Rebuild consume queues and key index into another directory."""
    from store_core import RebuildOptions, rebuild_consume_queue

    rebuild_consume_queue(store, RebuildOptions(output=store.with_name("rebuilt"), with_index=True))


def lag(store: Path) -> None:
    """Ask how far consumers are behind."""
    from store_core.command import main

    sys.argv = ["commitlog", "lag", str(store)]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main.main()
        except SystemExit as ended:
            if ended.code:
                raise


JOURNEYS: Final[dict[str, Callable[[Path], None]]] = {"rows": rows, "write": write, "rebuild": rebuild, "lag": lag}


@dataclass(frozen=True, slots=True)
class Weight:
    """The lines of one module: all of them, and how many are code, imports and docstrings."""

    path: Path
    lines: int
    code: int
    imports: int
    docstrings: int

    @classmethod
    def of(cls, path: Path) -> Weight:
        """Measure a module."""
        text = path.read_text(encoding="utf-8")
        imports: set[int] = set()
        docstrings: set[int] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports.update(_lines_of(node))
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                docstrings.update(_lines_of(node))
        lines = text.splitlines()
        written = {number for number, line in enumerate(lines, 1) if line.strip() and line.strip()[0] != "#"}
        return cls(path, len(lines), len(written - docstrings), len(imports), len(docstrings))


def _lines_of(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def weights() -> list[Weight]:
    """Measure every module of the product."""
    return [Weight.of(path) for folder in PRODUCT for path in sorted(ROOT.glob(f"{folder}/**/*.py"))]


def figures_of_lines(found: list[Weight]) -> dict[str, int]:
    """Return the figures that the text of the modules gives."""
    lines, code, imports, docstrings = (
        sum(getattr(each, name) for each in found) for name in ("lines", "code", "imports", "docstrings")
    )
    return {
        "lines": lines,
        "modules": len(found),
        "small_modules": sum(each.code < 60 for each in found),  # noqa: PLR2004 -- as `WORDS` says
        "import_percent": round(100 * imports / code),
        "docstring_percent": round(100 * docstrings / lines),
    }


def travel(journey: str, store: Path) -> dict[str, list[str]]:
    """Run a journey in this process, and return the modules that it entered and imported."""
    files: set[str] = set()
    importing = threading.local()

    def note(frame: FrameType, event: str, _: object) -> None:
        # What runs while a module is imported, such as the making of a table, is not entered by the journey.
        depth = getattr(importing, "depth", 0)
        if frame.f_code.co_name == "<module>":
            importing.depth = depth + {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not depth:
            files.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        JOURNEYS[journey](store)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    imported = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in MODULES}
    entered = [name for name, module in imported.items() if getattr(module, "__file__", None) in files]
    return {"entered": sorted(entered), "imported": sorted(imported)}


def journeys() -> Iterator[tuple[str, dict[str, list[str]]]]:
    """Run each journey in an interpreter of its own, on a fresh copy of the sample store."""
    from pyspark_commitlog.sample import orders_store

    for name in JOURNEYS:
        with tempfile.TemporaryDirectory(prefix="thermometer-") as directory:
            command = [sys.executable, __file__, "--journey", name, str(orders_store(directory))]
            done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, text=True, check=True)
            yield name, json.loads(done.stdout)


def read_limits(text: str | None = None) -> dict[str, int]:
    """Return the limits in a text, by default of the file."""
    limits = json.loads(LIMITS.read_text(encoding="utf-8") if text is None else text)
    return {str(name): int(limit) for name, limit in limits.items()}


def lowest_before() -> dict[str, int]:
    """Return the lowest limits of all commits that this clone has; none without git."""
    lowest: dict[str, int] = {}
    path = LIMITS.relative_to(ROOT).as_posix()
    for commit in _git("log", "--format=%H", "--", path).split():
        for name, limit in read_limits(_git("show", f"{commit}:{path}") or "{}").items():
            lowest[name] = min(limit, lowest.get(name, limit))
    return lowest


def _git(*arguments: str) -> str:
    try:
        return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True).stdout  # noqa: S607
    except (OSError, subprocess.CalledProcessError):
        return ""


def limits_as_markdown() -> str:
    """Return the limits as a table, for `docs/modules.md`."""
    limits = read_limits()
    return "\n".join(["| | at most |", "|---|---|", *(f"| {WORDS[name]} | {limits[name]:,} |" for name in WORDS)])


def complaints(figures: Mapping[str, int], limits: Mapping[str, int], before: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for each figure beyond its limit, and for each limit that has risen."""
    for name, words in WORDS.items():
        limit = limits[name]
        if figures[name] > limit:
            yield f"{name}: expected at most {limit:,}, found {figures[name]:,} ({words})"
        if limit > before.get(name, limit):
            yield f"{name}: a limit only falls, and this one was {before[name]:,} and is {limit:,}"


def grown() -> Iterator[str]:
    """Yield the modules that gained the most lines since the commit that set the limits."""
    commit = _git("log", "-1", "--format=%H", "--", LIMITS.relative_to(ROOT).as_posix()).strip()
    stat = _git("diff", "--numstat", "--no-renames", commit, "--", *(f"{folder}/*.py" for folder in PRODUCT))
    changes = [line.split("\t") for line in stat.splitlines()]
    growth = {path: int(added) - int(deleted) for added, deleted, path in changes}
    for path in sorted(growth, key=lambda path: -growth[path])[:10]:
        yield f"{growth[path]:+6} {path}"


def main() -> int:
    """Run as the command line says, and return the exit code."""
    parser = argparse.ArgumentParser(description="Measures the weight of the product, and compares it with its limits.")
    parser.add_argument("--lower", action="store_true", help="write lower figures down as limits")
    parser.add_argument("--journey", nargs=2, metavar=("NAME", "STORE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.journey:
        print(json.dumps(travel(options.journey[0], Path(options.journey[1]))))
        return 0
    found = weights()
    figures = figures_of_lines(found)
    for name, modules in journeys():
        figures |= {f"{name}_{kind}": len(names) for kind, names in modules.items()}
    limits = read_limits()
    print(f"{statistics.median(each.code for each in found):.0f} lines of code in the module at the median")
    for name, words in WORDS.items():
        print(f"{figures[name]:7,} of {limits[name]:7,}  {words}")
    if options.lower:
        lower = {name: min(figures[name], limits[name]) for name in WORDS}
        LIMITS.write_text(json.dumps(lower, indent=2) + "\n", encoding="utf-8")
        return 0
    wrong = list(complaints(figures, limits, lowest_before()))
    if wrong:
        print("\n".join([*wrong, "What grew since the limits were set:", *grown()]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "connector")]
    sys.exit(main())

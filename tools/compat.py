# SPDX-License-Identifier: Apache-2.0
"""Runs a slice of the tests with every supported PySpark and Python, and writes docs/compatibility.md.

Usage: compat.py [PYTHON/PYSPARK ...]     (3.12/4.2: only these cells; the others keep their results)

Each cell has its own environment in .cache/compat, with the packages of requirements/dev.lock except PySpark. A cell
whose interpreter is not on this machine is `not run`, and only a cell whose tests all passed is `passed`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
CACHE: Final = ROOT / ".cache" / "compat"
RESULTS: Final = CACHE / "results.json"
DOCUMENT: Final = ROOT / "docs" / "compatibility.md"

PYTHONS: Final = ("3.11", "3.12", "3.13")
PYSPARKS: Final = ("4.1", "4.2", "4.3")
SLICE: Final = (
    "tests/test_golden.py",
    "tests/connector/test_package.py",
    "tests/connector/test_progress.py",
    "tests/connector/test_sessions.py",
    "tests/connector/test_streams.py",
)
# PySpark 4.1 leaves the closing of its sockets to the garbage collector.
OPTIONS: Final = {"4.1": ("-W", "ignore:unclosed <socket:ResourceWarning")}

NOT_RUN: Final = "not run"
_ASKED: Final = "import ensurepip, platform, ssl, sys, venv; print(platform.python_version(), sys.implementation.name)"
_HEAD: Final = """\
# Compatibility

<!-- Written by `make compat`. -->

Which PySpark works with which Python. Each pair ran a slice of the tests in an environment of its own: golden
stores, how Spark finds the data source, the progress bar, streams from and into a store, and each Spark operation
(reading, options, SQL, errors, writing, the commands), in a classic session and with Spark Connect. The other
packages are those of `requirements/dev.lock`. `not run` means that there was no such interpreter, or that the pair
has not been run yet.
"""
_TAIL: Final = """
`make test` runs all tests on the newest PySpark here, and a part of this slice on the lowest versions that
`pyproject.toml` allows, with Python 3.11. On PySpark 4.0 the first use of `format("commitlog")` reports which version
is needed, and which was found. Before 4.0 Spark does not support data sources in Python, and does not find `commitlog`.

On which rules the releases of RocketMQ differ: [Releases of RocketMQ](FORMAT.md#releases-of-rocketmq).

## Streams

| | PySpark 4.1 | PySpark 4.2 and 4.3 |
|---|---|---|
| `spark.readStream`, filters, columns, checkpoints, data loss | yes | yes |
| `trigger(availableNow=True)` | in one batch | in as many as the limits call for |
| `maxOffsetsPerTrigger`, `maxBytesPerTrigger`, `minOffsetsPerTrigger` | refused: no start of a batch is given | yes |
| `bytes_behind` | None: Spark reports the batch's end as that of the log | yes |

## Spark Connect

The server finds the data source as any session does, if the package is installed where the server runs; a client
needs only PySpark.

| | |
|---|---|
| `spark.read`, its options, schemas, SQL | as in a classic session |
| `df.write`, `spark.readStream`, `df.writeStream` | as in a classic session |
| `commitlog append --spark` | as in a classic session, on the machine of the server |
| `spark_progress` | shows what the server reports, every two seconds (`spark.connect.progress.reportInterval`) |
| `commitlog rebuild --spark`, answers on Spark | refused at once: they need RDDs, which Spark Connect does not have |

Paths are paths on the server. Use absolute ones: a session has its own working directory there.
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """A pair of PySpark and Python versions."""

    python: str
    pyspark: str

    @property
    def environment(self) -> Path:
        """Path of the cell's virtual environment."""
        return CACHE / f"python{self.python}-pyspark{self.pyspark}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a cell.

    Attributes
    ----------
    python, pyspark : str
        The versions that ran; empty if none did.
    passed, failed, skipped : int
        Tests; errors count as failures.
    problem : str
        Why no tests ran; empty if they did.
    """

    python: str = ""
    pyspark: str = ""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    problem: str = ""

    @property
    def is_passed(self) -> bool:
        """Whether tests ran and all of them passed."""
        return not self.problem and self.passed > 0 and self.failed == 0

    def __str__(self) -> str:
        """Return the text for a table cell."""
        if self.problem:
            return self.problem
        counts = [(self.passed, "passed"), (self.failed, "failed"), (self.skipped, "skipped")]
        told = ", ".join(f"{count} {name}" for count, name in counts if count or name == "passed")
        return f"{'passed' if self.is_passed else '**failed**'}: {told}"


def interpreters(version: str) -> Iterator[Path]:
    """Yield programs that may be this Python: those on the PATH, then those of pyenv."""
    name = f"python{version}"
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        yield Path(directory, name)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/{name}"), reverse=True)


def find_interpreter(version: str) -> tuple[Path, str] | None:
    """Find a working CPython of this version; return its path and its full version."""
    for program in interpreters(version):
        if not program.is_file():
            continue
        done = subprocess.run([program, "-c", _ASKED], capture_output=True, text=True, check=False)
        found, _, name = done.stdout.strip().partition(" ")
        if done.returncode == 0 and name == "cpython" and found.startswith(f"{version}."):
            return program, found
    return None


def uv() -> str:
    """Return the path of uv; if there is none, install it where tools/lock.sh does."""
    found = shutil.which("uv")
    if found is not None:
        return found
    home = ROOT / ".venv-lock"
    if not (home / "bin" / "uv").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run([home / "bin" / "python", "-m", "pip", "install", "--quiet", "uv"], check=True)
    return str(home / "bin" / "uv")


def write_constraints() -> Path:
    """Write the versions of requirements/dev.lock, except PySpark's."""
    lines = (ROOT / "requirements" / "dev.lock").read_text(encoding="utf-8").splitlines()
    pins = [line.removesuffix(" \\") for line in lines if re.match(r"[a-z0-9]", line) and "==" in line]
    path = CACHE / "constraints.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{pin}\n" for pin in pins if not pin.startswith("pyspark==")), encoding="utf-8")
    return path


def build_pyspark(version: str) -> Path:
    """Build the newest PySpark of a release, once for all Pythons: uv itself would keep 1.5 GB for each build."""
    wheels = CACHE / "wheels"
    if not list(wheels.glob(f"pyspark-{version}.*.whl")):
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            wheels,
        ]
        subprocess.run([*command, f"pyspark=={version}.*"], check=True)
    return wheels


def install(cell: Cell, interpreter: Path) -> Path:
    """Make the cell's environment, or bring it up to date; return its Python."""
    python = cell.environment / "bin" / "python"
    if not python.exists():
        subprocess.run([uv(), "venv", "--quiet", "--python", interpreter, cell.environment], check=True)
    groups = ["--group", "test", "--group", "connect"]
    wanted = [f"pyspark[connect]=={cell.pyspark}.*", *groups, "--editable", ".[progress]"]
    into: list[str | Path] = ["--python", python, "--constraints", write_constraints()]
    into += ["--find-links", build_pyspark(cell.pyspark), "--only-binary", "pyspark"]
    command = [uv(), "pip", "install", "--quiet", *into, *wanted]
    subprocess.run(command, cwd=ROOT, check=True)
    return python


def version_of_pyspark(python: Path) -> str:
    """Return the version of an environment's PySpark."""
    code = "import importlib.metadata as m; print(m.version('pyspark'))"
    return subprocess.run([python, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def run_tests(cell: Cell, python: Path) -> tuple[int, int, int]:
    """Run the slice; return the numbers of tests that passed, failed and were skipped."""
    report = CACHE / f"{cell.environment.name}.xml"
    report.unlink(missing_ok=True)
    options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", *OPTIONS.get(cell.pyspark, ())]
    # Do not test another installation's Spark scripts, or modules on another path.
    clean = {
        name: value for name, value in os.environ.items() if name not in {"SPARK_HOME", "PYTHONPATH", "PYTHONHOME"}
    }
    subprocess.run([python, "-m", "pytest", *options, *SLICE], cwd=ROOT, env=clean, check=False)
    if not report.exists():
        return 0, 1, 0
    suite = ET.parse(report).getroot().find("testsuite")  # noqa: S314 -- pytest wrote it just now
    if suite is None:
        return 0, 1, 0
    total, failures, errors, skipped = (
        int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    )
    return total - failures - errors - skipped, failures + errors, skipped


def run(cell: Cell) -> Outcome:
    """Run the tests of a cell."""
    print(f"==> Python {cell.python}, PySpark {cell.pyspark}", flush=True)
    found = find_interpreter(cell.python)
    if found is None:
        return Outcome(problem=NOT_RUN)
    try:
        python = install(cell, found[0])
        pyspark = version_of_pyspark(python)
    except subprocess.CalledProcessError:
        return Outcome(found[1], problem="**not installable**")
    return Outcome(found[1], pyspark, *run_tests(cell, python))


def document(outcomes: dict[Cell, Outcome]) -> str:
    """Return the document for all cells; cells without an outcome were not run."""

    def row(pyspark: str) -> list[str]:
        found = (outcomes.get(Cell(python, pyspark), Outcome(problem=NOT_RUN)) for python in PYTHONS)
        return [f"PySpark {_version(outcomes, pyspark=pyspark)}", *map(str, found)]

    heads = ["with", *(f"Python {_version(outcomes, python=each)}" for each in PYTHONS)]
    table = [heads, ["---"] * len(heads), *map(row, PYSPARKS)]
    return _HEAD + "\n" + "".join(f"| {' | '.join(row)} |\n" for row in table) + _TAIL


def _version(outcomes: dict[Cell, Outcome], python: str = "", pyspark: str = "") -> str:
    """Return the full version that ran, or the release if none did."""
    for cell, outcome in outcomes.items():
        if cell.python == python and outcome.python:
            return outcome.python
        if cell.pyspark == pyspark and outcome.pyspark:
            return outcome.pyspark
    return python or pyspark


def chosen(names: Sequence[str]) -> list[Cell]:
    """Return the named cells, or all if none is named."""
    cells = [Cell(*pair) for pair in product(PYTHONS, PYSPARKS)]
    known = {f"{cell.python}/{cell.pyspark}": cell for cell in cells}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no such cell: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names] or cells


def keep(outcomes: dict[Cell, Outcome]) -> dict[Cell, Outcome]:
    """Add outcomes to the saved ones, and return all."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    kept |= {f"{cell.python}/{cell.pyspark}": asdict(outcome) for cell, outcome in outcomes.items()}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return {Cell(*name.split("/")): Outcome(**outcome) for name, outcome in kept.items()}


def main() -> int:
    """Run cells, write the document when all have run, and return the exit code."""
    parser = argparse.ArgumentParser(description="Runs a slice of the tests with each PySpark and Python.")
    parser.add_argument("cells", nargs="*", metavar="PYTHON/PYSPARK", help="for instance 3.12/4.2; all by default")
    cells = chosen(parser.parse_args().cells)
    outcomes: dict[Cell, Outcome] = {}
    for cell in cells:
        outcomes = keep({cell: run(cell)})
        print(f"Python {cell.python}, PySpark {cell.pyspark}: {outcomes[cell]}", flush=True)
    if all(cell in outcomes for cell in chosen([])):
        DOCUMENT.write_text(document(outcomes), encoding="utf-8")
        print(f"wrote {DOCUMENT.relative_to(ROOT)}")
    return 0 if all(outcomes[cell].is_passed or outcomes[cell].problem == NOT_RUN for cell in cells) else 1


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""The tables that ``docs/benchmarks.md`` shows, kept in ``docs/benchmarks.json``, and what their figures depend on.

A table has ``command``, ``began``, ``commit``, ``machine``, ``versions``, ``load`` (at its beginning and end), and
``rows``. A row has ``name``, ``least``, ``median``, and where it applies ``ratio`` and ``median_ratio`` to another row,
``unit`` (``s`` if it has none), ``load``, ``group``, and what it is to reach: ``target`` (the most that the ratio may
be), ``at_least`` (the least), or ``most`` (of the figure itself).
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


PUBLISHED: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.json"


def publish(tables: Mapping[str, Mapping[str, Any]], path: Path = PUBLISHED) -> None:
    """Replace tables by those of the same names; all others stay as they are."""
    all_tables = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    all_tables.update(tables)
    made = path.with_suffix(".made")
    made.write_text(json.dumps(all_tables, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    made.replace(path)


def published_rows(table: str, path: Path = PUBLISHED) -> list[dict[str, Any]]:
    """Return the rows of a table; a KeyError if there is no such table."""
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))[table]["rows"]
    return rows


_PACKAGES: Final = ("numpy", "pyarrow", "pyspark", "isal")
_FIGURES: Final = "docs/benchmarks.json"
_UNKNOWN: Final = "unknown"


def describe_run() -> dict[str, object]:
    """Return the circumstances of a run that begins now, for its file of figures."""
    return {
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "load": os.getloadavg()[0],
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}},
    }


def _commit() -> str:
    """Return the commit of the checkout, with ``-dirty`` if files differ from it, other than published figures."""
    try:
        commit = _git("describe", "--always", "--abbrev=12")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", f":(exclude,top){_FIGURES}")
    except (OSError, subprocess.CalledProcessError):
        return _UNKNOWN
    return f"{commit}-dirty" if changed else commit


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(  # noqa: S603 -- constant arguments
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def processor() -> str:
    """Return the name of this machine's processor, as the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None

# SPDX-License-Identifier: Apache-2.0
"""Delta and Iceberg judge exports into their tables: each message once over kills, and differences are found.

Their newest releases are built for Spark 4.1, so the exports run in an environment of its own with the PySpark of that.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import read_messages
from tests.builders import LogBuilder
from tests.store_core.answers.test_store_export import fill

if TYPE_CHECKING:
    from collections.abc import Callable

    Action = Callable[[Path, Path, str], Any]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3600)]

_ROOT: Final = Path(__file__).parents[2]
_PACKAGES: Final = ("pyspark==4.1.*", "numpy", "pyarrow")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with the Spark that tables are built for."""
    directory = tmp_path_factory.mktemp("spark-4.1")
    venv.create(directory, with_pip=True)
    subprocess.run([directory / "bin" / "pip", "install", "-q", *_PACKAGES], check=True)  # noqa: S603 -- our own command
    return directory / "bin" / "python"


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("jars")
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy-dependencies"
    pom = Path(__file__).with_name("lake_tables.pom.xml")
    maven = shutil.which("mvn") or "mvn"
    subprocess.run([maven, "-q", "-B", "-f", pom, goal, f"-DoutputDirectory={directory}"], check=True)  # noqa: S603
    return directory


@pytest.fixture(params=["delta", "iceberg"])
def action(request: pytest.FixtureRequest, python: Path, jars: Path) -> Action:
    """Return what does an action of `tests.interop.lake_exporting` in a process of its own; None if that was killed."""

    def run(store: Path, place: Path, what: str) -> Any:  # noqa: ANN401 -- what JSON has
        place.mkdir(exist_ok=True)
        command = [python, "-m", "tests.interop.lake_exporting", request.param, jars, store, place, what]
        found = {"PYTHONPATH": f"{_ROOT}:{_ROOT / 'connector'}", "PATH": "/usr/bin:/bin", "PYSPARK_PYTHON": str(python)}
        done = subprocess.run(command, cwd=_ROOT, env=found, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode == -signal.SIGKILL:
            return None
        assert 0 == done.returncode, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture
def log() -> LogBuilder:
    made = LogBuilder(1024)
    fill(made, 30)
    return made


def expected_rows(store: Path) -> list[list[Any]]:
    messages = read_messages(store).read_all().to_pylist()
    return [
        [each["physical_offset"], each["topic"], f"{each['store_timestamp']:%Y-%m-%d}", each["body"].hex().upper()]
        for each in messages
    ]


def test_a_table_gets_what_is_new_and_its_proof_finds_a_row_that_is_there_twice(
    action: Action, log: LogBuilder, tmp_path: Path
) -> None:
    store, found = tmp_path / "store", []
    for count in (0, 0, 25):
        fill(log, count)
        shutil.rmtree(store, ignore_errors=True)
        log.write(store)
        found.append(action(store, tmp_path / "place", "export"))

    assert [(1, 30), (None, 0), (2, 25)] == [(each["number"], each["messages"]) for each in found]
    assert expected_rows(store) == action(store, tmp_path / "place", "rows")
    assert 0 == action(store, tmp_path / "place", "prove")["differences"]
    action(store, tmp_path / "place", "plant")
    assert 1 == action(store, tmp_path / "place", "prove")["differences"]


def test_each_message_is_there_once_whenever_the_process_is_killed(
    action: Action, log: LogBuilder, tmp_path: Path
) -> None:
    """The process is killed at calls of the ledger from the first to the last, and while the table is written."""
    store = log.write(tmp_path / "store")
    calls = action(store, tmp_path / "whole", "export")["calls"]
    killed = 0
    for kill in ("append", *map(str, range(calls, 0, -max(1, calls // 8)))):
        place = tmp_path / kill
        killed += action(store, place, kill) is None
        assert 30 == action(store, place, "export")["all_messages"]
        assert expected_rows(store) == action(store, place, "rows")
        assert 0 == action(store, place, "prove")["differences"]

    assert killed > 8


def test_the_jars_are_refused_by_name_in_a_newer_spark(jars: Path, log: LogBuilder, tmp_path: Path) -> None:
    """Once there are jars for the Spark of this project, they can judge in its own environment."""
    store = log.write(tmp_path / "store")
    for kind in ("delta", "iceberg"):
        command = [sys.executable, "-m", "tests.interop.lake_exporting", kind, jars, store, tmp_path / kind, "export"]
        found = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(command, cwd=_ROOT, env=found, capture_output=True, text=True, check=False)  # noqa: S603
        assert 0 != done.returncode
        assert f"format {kind} does not work in this session: its jar is built for another Spark than" in done.stderr

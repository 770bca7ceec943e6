# SPDX-License-Identifier: Apache-2.0
"""A standalone cluster of two workers in directories of their own reads stores, and says what a worker lacks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from store_core import read_messages
from tests.connector.submitting import ROOT, SECONDS, SPARK_BIN, environment
from tests.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.golden_stores import Golden

pytestmark = [pytest.mark.golden, pytest.mark.spark, pytest.mark.soak]

PROGRAM = Path(__file__).with_name("cluster_trial.py")
_DEPLOY = "org.apache.spark.deploy"
_HIDING = """import sys
sys.path[:] = [path for path in sys.path if not path.startswith({root!r}) or "site-packages" in path]
sys.meta_path[:] = [each for each in sys.meta_path if "__editable__" not in getattr(each, "__module__", "")]
"""
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")


@contextmanager
def started(log: Path, folder: Path, *command: str | Path, hidden: Path | None = None) -> Iterator[None]:
    """Run a part of the cluster; with an empty directory in the place of one that it is not to see."""
    folder.mkdir()
    words = [str(SPARK_BIN / "spark-class"), *map(str, command)]
    if hidden is not None:
        words = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden), *words]
    variables = {name: value for name, value in environment().items() if name not in ("PYTHONPATH", "SPARK_CONF_DIR")}
    with log.open("w") as output:
        process = subprocess.Popen(  # noqa: S603 -- Spark's own launcher
            words,
            cwd=folder,
            env=variables | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(folder / "work")},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def found_in(log: Path, pattern: re.Pattern[str]) -> str:
    """Wait until a line is in a log."""
    for _ in range(600):
        match = pattern.search(log.read_text())
        if match is not None:
            return match[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-2000:])


@contextmanager
def cluster(scratch: Path, hidden: Path | None = None) -> Iterator[str]:
    """Run a master and two workers, of which the second does not see a directory."""
    log = scratch / "master.log"
    address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with started(log, scratch / "master", f"{_DEPLOY}.master.Master", *address):
        url = found_in(log, _MASTER)
        worker = (f"{_DEPLOY}.worker.Worker", "--cores", "1", "--memory", "1g", "--host", "127.0.0.1")
        with (
            started(scratch / "one.log", scratch / "one", *worker, "--webui-port", "0", url, hidden=hidden),
            started(scratch / "two.log", scratch / "two", *worker, "--webui-port", "0", url, hidden=hidden),
        ):
            registered = re.compile(r"(Successfully registered) with master")
            found_in(scratch / "one.log", registered)
            found_in(scratch / "two.log", registered)
            yield url


def tried(master: str, store: Path | str, folder: Path, *settings: str, python: str = sys.executable) -> str:
    """Run the program on a cluster, and return what it says."""
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, PROGRAM, master, store, python, *settings],
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    return done.stdout


def test_shared_directory_is_read_by_all_workers(golden: Golden, tmp_path: Path) -> None:
    store = golden("5.3.3/tx").root
    rows = read_messages(store).read_all().num_rows
    with cluster(tmp_path) as master:
        told = tried(master, store, tmp_path)
        assert f"rows {rows}\n" in told
        assert "directories 2\n" in told
        assert "verdict " in told


def test_object_store_is_read_by_all_workers(golden: Golden, tmp_path: Path) -> None:
    store = golden("5.3.3/tx").root
    with ObjectStore() as server, cluster(tmp_path) as master:
        url = server.upload(store, "clustered")
        settings = [f"{name}={value}" for name, value in server.settings.items()]
        told = tried(master, url, tmp_path, *settings)
    assert f"rows {read_messages(store).read_all().num_rows}\n" in told
    assert "directories 2\n" in told


def test_workers_without_the_path_say_so_in_one_line(golden: Golden, tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can hide a directory from a process")
    store = golden("5.3.3/tx").root
    with cluster(tmp_path, hidden=store.parent) as master:
        told = tried(master, store, tmp_path)
    assert re.search(r"error .*does not exist on \S+, which was to read .*Every worker has to see the store", told)


def _without_package(folder: Path) -> Path:
    """Make a Python that, in an executor, has everything but this project."""
    path = folder / "python"
    hide = folder / "hide"
    hide.mkdir()
    (hide / "sitecustomize.py").write_text(_HIDING.format(root=str(ROOT)))
    hiding = f'[ -z "$SPARK_EXECUTOR_DIRS" ] || export PYTHONPATH="{hide}:$PYTHONPATH"'
    path.write_text(f'#!/bin/sh\n{hiding}\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


def test_workers_without_the_package_say_so_in_one_line(golden: Golden, tmp_path: Path) -> None:
    store = golden("5.3.3/tx").root
    with cluster(tmp_path) as master:
        told = tried(master, store, tmp_path, python=str(_without_package(tmp_path)))
    assert re.search(r"(?s)error .*No module named '(pyspark_commitlog|store_core)", told)

# SPDX-License-Identifier: Apache-2.0
"""Clusters read stores, rebuild them while processes die, and run the scripts in ``jobs/``."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from store_core import read_messages
from tests.connector.called import rebuild_here
from tests.connector.processes import CLUSTER, JOBS, ROOT, SPARK_BIN, environment, run_program, submit
from tests.connector.spark_trial import RULES
from tests.connector.stores import SMALL, append_rows
from tests.object_store import ObjectStore
from tests.store_core.rebuilt import index_files, queue_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.golden_stores import Golden


pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("spark_trial.py")
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


def tried(kind: str, master: str, folder: Path, *words: str | Path) -> str:
    """Run the program on a cluster, and return what it says."""
    done = run_program(folder, sys.executable, PROGRAM, kind, master, *words)
    assert 0 == done.returncode, done.stderr[-4000:]
    return done.stdout


def read_by(master: str, store: Path | str, folder: Path, *settings: str, python: str = sys.executable) -> str:
    return tried("read", master, folder, store, python, *settings)


@pytest.mark.golden
@pytest.mark.soak
def test_shared_directory_is_read_by_all_workers(golden: Golden, tmp_path: Path) -> None:
    store = golden("5.3.3/tx").root
    rows = read_messages(store).read_all().num_rows
    with cluster(tmp_path) as master:
        told = read_by(master, store, tmp_path)
        assert f"rows {rows}\n" in told
        assert "directories 2\n" in told
        assert "verdict " in told


@pytest.mark.golden
@pytest.mark.soak
def test_object_store_is_read_by_all_workers(golden: Golden, tmp_path: Path) -> None:
    store = golden("5.3.3/tx").root
    with ObjectStore() as server, cluster(tmp_path) as master:
        url = server.upload(store, "clustered")
        settings = [f"{name}={value}" for name, value in server.settings.items()]
        told = read_by(master, url, tmp_path, *settings)
    assert f"rows {read_messages(store).read_all().num_rows}\n" in told
    assert "directories 2\n" in told


@pytest.mark.golden
@pytest.mark.soak
def test_workers_without_the_path_say_so_in_one_line(golden: Golden, tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can hide a directory from a process")
    store = golden("5.3.3/tx").root
    with cluster(tmp_path, hidden=store.parent) as master:
        told = read_by(master, store, tmp_path)
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


@pytest.mark.golden
@pytest.mark.soak
def test_workers_without_the_package_say_so_in_one_line(golden: Golden, tmp_path: Path) -> None:
    store = golden("5.3.3/tx").root
    with cluster(tmp_path) as master:
        told = read_by(master, store, tmp_path, python=str(_without_package(tmp_path)))
    assert re.search(r"(?s)error .*No module named '(pyspark_commitlog|store_core)", told)


# ---- processes that die


@pytest.mark.golden
@pytest.mark.slow
def test_the_result_is_the_same_when_an_executor_dies_and_a_task_fails_after_writing(
    golden: Golden, tmp_path: Path
) -> None:
    store = golden("5.3.3/propcrc")
    accidents = ("kill", "fail", "speculate")
    told = tried("rebuild", CLUSTER, tmp_path, store.root, tmp_path / "target", tmp_path, *accidents)

    assert "462 records" in told
    assert (tmp_path / "kill").exists()
    assert (tmp_path / "fail").exists()
    rebuild_here(store.root, tmp_path / "expected", RULES)
    assert queue_files(tmp_path / "expected") == queue_files(tmp_path / "target")
    assert index_files(tmp_path / "expected") == index_files(tmp_path / "target")
    assert {"consumequeue", "index"} == {path.name for path in (tmp_path / "target").iterdir()}


# ---- scripts


NUMBERS = range(300)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_submitted_job_makes_the_queues_and_index_that_were_lost(tmp_path: Path) -> None:
    store, report = tmp_path / "store", tmp_path / "report.json"
    topics = [f"topic{number % 3}" for number in NUMBERS]
    bodies = [f"body {number}" for number in NUMBERS]
    append_rows(
        store, [pa.record_batch({"topic": topics, "body": bodies, "keys": [[body] for body in bodies]})], **SMALL
    )
    queues, index = queue_files(store), index_files(store)
    assert len(queues) > 3
    assert index

    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    sizes = ["--consume-queue-file-size", "2000", "--hash-slot-num", "100", "--index-num", "1000"]
    options = ["--with-index", *sizes, "--replace", "--json", str(report)]
    rebuilt = submit("rebuild_consume_queue.py", tmp_path, store, *options)

    assert 0 == rebuilt.returncode, rebuilt.stderr[-4000:]
    assert "300 records" in rebuilt.stdout
    assert 300 == json.loads(report.read_text())["records"]
    assert (queues, index) == (queue_files(store), index_files(store))


USAGES = {
    "append": "Usage: commitlog append [OPTIONS] STORE\n",
    "commitlog": "Usage: commitlog [OPTIONS] COMMAND [ARGS]...\n",
    "rebuild_consume_queue": "Usage: commitlog rebuild [OPTIONS] queues|index|both STORE\n",
    "rebuild_index": "Usage: commitlog rebuild [OPTIONS] queues|index|both STORE\n",
}


@pytest.mark.parametrize("name", USAGES)
def test_a_script_runs_its_command(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(JOBS / f"{name}.py"), run_name="__main__")

    assert not ended.value.code
    assert capsys.readouterr().out.startswith(USAGES[name])


def test_every_script_is_tested_here() -> None:
    assert sorted(USAGES) == sorted(path.stem for path in JOBS.glob("*.py"))

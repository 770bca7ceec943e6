# SPDX-License-Identifier: Apache-2.0
"""Rebuilds by workers that are separate processes, some of which die."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING

import pytest

from tests.connector.cluster_rebuild import RULES
from tests.connector.rebuilding import rebuild_here
from tests.connector.submitting import SECONDS, SPARK_BIN, environment, submit
from tests.store_core.rebuilt import index_files, queue_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.golden_stores import UnpackedStore

pytestmark = [pytest.mark.golden, pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("cluster_rebuild.py")
LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %m%n
"""


def run(master: str, store: Path, scratch: Path, *accidents: str) -> str:
    command: list[str | Path] = [sys.executable, PROGRAM, master, store, scratch / "target", scratch, *accidents]
    done = subprocess.run(  # noqa: S603 -- our own program
        command, env=environment(), cwd=scratch, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert 0 == done.returncode, done.stderr[-4000:]
    return done.stdout


def check(store: UnpackedStore, scratch: Path) -> None:
    rebuild_here(store.root, scratch / "expected", RULES)

    assert queue_files(scratch / "expected") == queue_files(scratch / "target")
    assert index_files(scratch / "expected") == index_files(scratch / "target")
    assert {"consumequeue", "index"} == {path.name for path in (scratch / "target").iterdir()}


def test_the_result_is_the_same_when_an_executor_dies_and_a_task_fails_after_writing(
    golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    store = golden("5.3.3/propcrc")
    told = run("local-cluster[2,1,1024]", store.root, tmp_path, "kill", "fail", "speculate")

    assert "462 records" in told
    assert (tmp_path / "kill").exists()
    assert (tmp_path / "fail").exists()
    check(store, tmp_path)


@contextmanager
def standalone_master(folder: Path) -> Iterator[str]:
    """Start a master and a worker of Spark's own cluster, and return the master's URL."""
    started: list[subprocess.Popen[str]] = []

    def start(pattern: str, name: str, *arguments: str) -> str:
        conf = folder / "conf"
        conf.mkdir(exist_ok=True)
        conf.joinpath("log4j2.properties").write_text(LOG4J)
        command: list[str | Path] = [
            SPARK_BIN / "spark-class",
            f"org.apache.spark.deploy.{name}",
            "--host",
            "localhost",
            "--webui-port",
            "0",
            *arguments,
        ]
        process = subprocess.Popen(  # noqa: S603 -- Spark's own launcher
            command,
            env=environment() | {"SPARK_CONF_DIR": str(conf)},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return _told(process, pattern)

    try:
        master = start(r"Starting Spark master at (spark://\S+)", "master.Master", "--port", "0")
        resources = ("--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"))
        start(r"(Successfully registered with master)", "worker.Worker", *resources, master)
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(SECONDS)


def _drain(stream: IO[str]) -> None:
    with stream:
        for _ in stream:
            pass


def _told(process: subprocess.Popen[str], pattern: str) -> str:
    """Read what a process logs until a pattern appears; the rest is read and dropped."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        found = re.search(pattern, line)
        if found is not None:
            Thread(target=_drain, args=(process.stderr,), daemon=True).start()
            return found[1]
    raise AssertionError("".join(lines[-30:]))


def test_a_job_submitted_to_a_standalone_cluster_gives_the_same(
    golden: Callable[[str], UnpackedStore], tmp_path: Path
) -> None:
    store = golden("5.3.3/tx")
    copy = shutil.copytree(store.root, tmp_path / "store")
    with standalone_master(tmp_path) as master:
        target = ("--output", tmp_path / "target")
        done = submit(master, tmp_path, "rebuild_consume_queue.py", copy, "--with-index", *target)

    assert 0 == done.returncode, done.stderr[-4000:]
    assert "323 records" in done.stdout
    (tmp_path / "target" / "rebuilt.json").unlink()
    check(store, tmp_path)

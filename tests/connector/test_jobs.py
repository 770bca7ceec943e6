# SPDX-License-Identifier: Apache-2.0
"""The scripts in ``jobs/``, submitted by ``spark-submit``; their output and effect are tested with their commands."""

from __future__ import annotations

import json
import runpy
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.connector.submitting import JOBS, submit
from tests.connector.written import SMALL, append_rows
from tests.store_core.rebuilt import index_files, queue_files

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]  # a submitted job

NUMBERS = range(300)
NAMES = [
    "append",
    "commitlog",
    "rebuild_consume_queue",
    "rebuild_index",
]


def test_a_submitted_job_on_a_cluster_makes_the_queues_and_index_that_were_lost(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", NAMES)
def test_a_script_runs_its_command(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(JOBS / f"{name}.py"), run_name="__main__")

    assert not ended.value.code
    assert capsys.readouterr().out.startswith(USAGES[name])


def test_every_script_is_tested_here() -> None:
    assert NAMES == sorted(path.stem for path in JOBS.glob("*.py"))

# SPDX-License-Identifier: Apache-2.0
"""The scripts in ``jobs/``, submitted by ``spark-submit``; their output and effect are tested with their commands."""

from __future__ import annotations

import json
import runpy
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.connector.submitting import JOBS, submit
from tests.connector.written import SMALL, rows_of
from tests.store_core.rebuilt import index_files, queue_files

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]  # two submitted jobs

CLUSTER = "local-cluster[2,1,1024]"
"""Spark's own cluster, with its master and workers in the driver, and executors that are processes of their own."""

NUMBERS = range(300)
NAMES = [
    "append",
    "commitlog",
    "rebuild_consume_queue",
    "rebuild_index",
]


def test_what_a_submitted_job_appends_a_job_on_a_cluster_indexes_anew(tmp_path: Path) -> None:
    store, rows, report = tmp_path / "store", tmp_path / "rows.json", tmp_path / "report.json"
    lines = [{"topic": f"topic{number % 3}", "body": f"body {number}", "keys": [f"k{number}"]} for number in NUMBERS]
    rows.write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"topic": None, "body": "refused"}]))
    options = [f"--write-option={name}={value}" for name, value in {**SMALL, "badRows": "skip"}.items()]
    appended = submit("local[2]", tmp_path, "append.py", store, "--json", rows, *options, "--report", report)

    assert 1 == appended.returncode, appended.stderr[-4000:]  # a row was left out
    assert {"records": 300, "left_out": 1}.items() <= json.loads(report.read_text()).items()
    assert [line["body"] for line in lines] == [row["body"].decode() for row in rows_of(store, "body")]
    queues, index = queue_files(store), index_files(store)
    assert len(queues) > 3
    assert index

    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    sizes = [
        "--consume-queue-file-size",
        SMALL["mappedFileSizeConsumeQueue"],
        "--hash-slot-num",
        SMALL["maxHashSlotNum"],
    ]
    options = ["--with-index", *sizes, "--index-num", SMALL["maxIndexNum"], "--replace", "--json", str(report)]
    rebuilt = submit(CLUSTER, tmp_path, "rebuild_consume_queue.py", store, *options)

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

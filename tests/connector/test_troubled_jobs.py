# SPDX-License-Identifier: Apache-2.0
"""Jobs that lose executors, workers or drivers, are cancelled or run twice: nothing is there twice, nothing stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.connector.submitting import environment
from tests.connector.troubled_jobs import JOBS, trouble

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(0)]

_PROGRAM: Final = Path(__file__).with_name("troubled_jobs.py")
_CLUSTER: Final = "local-cluster[2,1,1024]"
_TROUBLES: Final = ("executors", "workers", "cancel", "twice", "driver")
_SEED: Final = 23
_WARM_SECONDS: Final = 0.5
"""What a job is likely to take in the session of all tests."""


def run(master: str, folder: Path, rounds: int, *pairs: str) -> list[str]:
    """Run the program with jobs and their troubles, and return its lines, one for each."""
    command: list[str | Path] = [sys.executable, _PROGRAM, master, folder / "jobs", str(rounds), str(_SEED), *pairs]
    done = subprocess.run(  # noqa: S603 -- our own program
        command, env=environment(), cwd=folder, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr[-4000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("pair", ["export:cancel", "append:twice"])
def test_an_export_that_is_cancelled_and_an_append_that_runs_twice_leave_each_message_once(
    pair: str, spark: SparkSession, tmp_path: Path
) -> None:
    ends = trouble(spark, tmp_path, pair, 1, _SEED, _WARM_SECONDS)

    # A cancelled job may have been done before, and one of two that append is refused while the other writes.
    assert ends in ([{"0 done": 1}, {"1 done": 1}] if "cancel" in pair else [{"1 done": 1}, {"2 done": 1}])


@pytest.mark.soak
@pytest.mark.parametrize("name", JOBS)
def test_each_job_bears_each_trouble(name: str, tmp_path: Path) -> None:
    assert len(_TROUBLES) == len(run(_CLUSTER, tmp_path, 10, *(f"{name}:{kind}" for kind in _TROUBLES)))

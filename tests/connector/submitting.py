# SPDX-License-Identifier: Apache-2.0
"""Submits jobs as users do: by the ``spark-submit`` of the environment's PySpark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from tests.short_lived import JVM_OPTIONS

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "jobs"
SPARK_BIN = Path(pyspark.__file__).parent / "bin"
SECONDS = 240
_CLUSTER = "local-cluster[2,1,1024]"
"""Spark's own cluster, with its master and workers in the driver, and executors that are processes of their own."""

SETTINGS = {
    "spark.driver.host": "localhost",
    "spark.ui.enabled": "false",
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
}


def environment() -> dict[str, str]:
    """Return the environment of a process that runs Spark with this tree's packages and settings."""
    path = os.pathsep.join(map(str, (ROOT / "connector", ROOT)))
    conf = str(ROOT / "spark-conf")
    return os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": conf}


def submit(job: str, folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a job of `JOBS` in `folder` on a cluster until it ends; its exit code and output are in the result."""
    command: list[str | Path] = [SPARK_BIN / "spark-submit", "--master", _CLUSTER]
    for setting in SETTINGS.items():
        command += ["--conf", "=".join(setting)]
    command += [JOBS / job, *arguments]
    return subprocess.run(  # noqa: S603 -- Spark's own launcher, and our own job
        command, env=environment(), cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
    )

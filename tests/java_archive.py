# SPDX-License-Identifier: Apache-2.0
"""Writes an archive of the classes that Spark loads for what the tests do, which their Java processes map: FILE."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.connector.session_answers import Questions
from tests.connector.stores import mixed_log
from tests.short_lived import JVM_OPTIONS


def main(archive: Path) -> None:
    """Ask a session some questions, and let its Java write what it has loaded when it ends."""
    written = archive.with_suffix(".part")
    archive.parent.mkdir(exist_ok=True)
    # Java archives no class path with directories, and a session without this variable has only jars in it.
    os.environ.pop("SPARK_CONF_DIR", None)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_SUBMIT_OPTS"] = f"{JVM_OPTIONS} -Xlog:disable -XX:ArchiveClassesAtExit={written}"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "OFF")
    spark = builder.config("spark.driver.host", "localhost").getOrCreate()
    process: Any = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as directory:
        store = mixed_log().write(Path(directory, "store"))
        ask = Questions(spark, str(store), Path(directory))
        for question in (ask.rows, ask.sql, ask.appended, ask.streamed):
            question()
        spark.stop()
    process.stdin.close()
    process.wait()
    written.replace(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

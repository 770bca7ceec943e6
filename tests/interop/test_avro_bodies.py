# SPDX-License-Identifier: Apache-2.0
"""Bodies in Avro are read by Spark's own package, as the cookbook says.

Its release 4.2.0, the newest that Maven found when this was written, works with PySpark 4.3, too. Of Spark's package
for Protobuf there was none, so that is not executed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.builders import LogBuilder

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

_ROOT: Final = Path(__file__).parents[2]
SCHEMA: Final = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "order", "type": "string"}, {"name": "items", "type": "int"}],
}
PROGRAM: Final = """
import sys
from pyspark.sql.avro.functions import from_avro
from pyspark_commitlog import spark_session

store, jar, schema = sys.argv[1:]
spark = spark_session(master="local[1]", config={"spark.jars": jar, "spark.driver.host": "localhost"})
messages = spark.read.format("commitlog").option("columns", "body").load(store)
print("\\n".join(messages.select(from_avro("body", schema).alias("body")).select("body.*").toJSON().collect()))
"""


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    maven = shutil.which("mvn") or "mvn"
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy"
    asked = ["-Dartifact=org.apache.spark:spark-avro_2.13:4.2.0", f"-DoutputDirectory={tmp_path / 'jars'}"]
    subprocess.run([maven, "-q", "-B", goal, *asked], check=True, cwd=tmp_path)  # noqa: S603 -- our own command
    (found,) = tmp_path.joinpath("jars").iterdir()
    return found


def encoded(order: str, items: int) -> bytes:
    """Return a record of the schema as Avro writes it: a length and its bytes, and a number, each as a zigzag."""
    return bytes([2 * len(order), *order.encode(), 2 * items])


def test_from_avro_reads_bodies(tmp_path: Path, jar: Path) -> None:
    orders = [(f"o-{number}", number) for number in range(20)]
    log = LogBuilder(4096)
    for order, items in orders:
        log.append(encoded(order, items), topic="orders")
    log.write(tmp_path / "store")
    command: list[str | Path] = [sys.executable, "-c", PROGRAM, tmp_path / "store", jar, json.dumps(SCHEMA)]
    done = subprocess.run(command, cwd=_ROOT, env=os.environ, capture_output=True, text=True, check=False)  # noqa: S603

    assert 0 == done.returncode, done.stderr
    found = [json.loads(row) for row in done.stdout.splitlines()]
    assert [{"order": order, "items": items} for order, items in orders] == found

# SPDX-License-Identifier: Apache-2.0
"""Exports a store into a table, or proves it, in a session with the jars of Delta and Iceberg.

Run as ``python -m tests.interop.lake_exporting KIND JARS STORE PLACE ACTION``: the ledger is ``PLACE/lake``, and a
warehouse of Iceberg is ``PLACE/warehouse``. Actions are ``export``, ``prove``, ``rows`` (the table as JSON lines),
``plant`` (a row of the table is there twice), ``CALL`` (a number: the process exports, and kills itself just before
that call on a path in the lake), and ``append`` (as that, once a file of rows is in the table).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from pyspark_commitlog import answers
from tests.store_core.kills.campaign import Fate

TABLE: Final = "judged.db.messages"

_SETTINGS: Final = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    },
    "iceberg": {
        "spark.sql.catalog.judged": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.judged.type": "hadoop",
    },
}


def session(kind: str, jars: Path, place: Path) -> SparkSession:
    """Return a session in which a format works."""
    names = [str(path) for path in sorted(jars.glob(f"{kind}*.jar"))]
    builder = SparkSession.builder.master("local[1]").config("spark.jars", ",".join(names))
    common = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1", "spark.driver.host": "localhost"}
    for name, value in {**common, **_SETTINGS[kind]}.items():
        builder = builder.config(name, value)
    return builder.config("spark.sql.catalog.judged.warehouse", str(place / "warehouse")).getOrCreate()


def rows_of(spark: SparkSession, kind: str, lake: Path) -> DataFrame:
    """Return the table."""
    return spark.table(TABLE) if kind == "iceberg" else spark.read.format("delta").load(str(lake))


def plant(spark: SparkSession, kind: str, lake: Path) -> None:
    """Append a row that is there."""
    row = rows_of(spark, kind, lake).limit(1)
    if kind == "iceberg":
        row.writeTo(TABLE).append()
    else:
        row.write.format("delta").mode("append").save(str(lake))


def die_in_append(place: Path) -> None:
    """Kill this process once a file of rows is where tables are."""
    while not any("_staged" not in path.parts for path in place.rglob("*.parquet")):
        threading.Event().wait(0.005)
    os.kill(os.getpid(), signal.SIGKILL)


def run(kind: str, jars: Path, store: Path, place: Path, action: str) -> Any:  # noqa: ANN401 -- what JSON has
    """Do an action; return what is printed."""
    spark, lake = session(kind, jars, place), place / "lake"
    to: dict[str, Any] = {"kind": kind, "table": TABLE if kind == "iceberg" else None}
    if action == "rows":
        rows = rows_of(spark, kind, lake).selectExpr("physical_offset", "topic", "cast(day as string) day", "hex(body)")
        return sorted(map(list, rows.collect()))
    if action == "plant":
        return plant(spark, kind, lake)
    if action == "prove":
        return answers.prove(spark, store, lake, **to).report.to_json()
    fate = Fate(lake, int(action) if action.isdigit() else 0)
    fate.watch()
    if action == "append":
        threading.Thread(target=die_in_append, args=(place,), daemon=True).start()
    return answers.export(spark, store, lake, **to).report.to_json() | {"calls": fate.calls}


if __name__ == "__main__":
    _, given_kind, *paths, given_action = sys.argv
    given_jars, given_store, given_place = map(Path, paths)
    found = run(given_kind, given_jars, given_store, given_place, given_action)
    os.write(1, (json.dumps(found, default=str) + "\n").encode())

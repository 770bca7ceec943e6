# SPDX-License-Identifier: Apache-2.0
"""Whether Spark runs already, told without importing PySpark, which need not be installed."""

from __future__ import annotations

import os
import sys

__all__ = ["is_spark_running"]


def is_spark_running() -> bool:
    """Return whether Spark runs already: a session, a driver of ``spark-submit``, or a Spark Connect server."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ:
        return True
    sql = sys.modules.get("pyspark.sql")
    return sql is not None and sql.SparkSession.getActiveSession() is not None

# SPDX-License-Identifier: Apache-2.0
"""Exports the messages of a RocketMQ store as Parquet, by topic and day, each exactly once; and proves it.

Usage: spark-submit [OPTIONS OF SPARK] export.py STORE --into DIRECTORY [--topic TOPIC] [--prove] [--json FILE] [--help]
"""

import sys

from pyspark_commitlog.lake_cli import export

if __name__ == "__main__":
    sys.exit(export())

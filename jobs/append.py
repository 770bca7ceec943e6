# SPDX-License-Identifier: Apache-2.0
"""Appends rows, or messages of another store, to a RocketMQ store: all of them, or none.

Usage: spark-submit [OPTIONS OF SPARK] append.py STORE (--parquet|--json|--csv|--from-store) PATH [--help]
"""

import sys

from pyspark_commitlog.append_cli import append

if __name__ == "__main__":
    sys.exit(append())

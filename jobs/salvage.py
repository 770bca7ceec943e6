# SPDX-License-Identifier: Apache-2.0
"""Takes every message of a damaged RocketMQ log that proves itself, into a new store or Parquet.

Usage: spark-submit [OPTIONS OF SPARK] salvage.py STORE [--into PATH] [--format FORMAT] [--json FILE] [--help]
"""

import sys

from pyspark_commitlog.answers_cli import salvage

if __name__ == "__main__":
    sys.exit(salvage())

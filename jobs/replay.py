# SPDX-License-Identifier: Apache-2.0
"""Appends messages of a RocketMQ store again, such as dead letters: chosen and edited by SQL, once.

Usage: spark-submit [OPTIONS OF SPARK] replay.py STORE --id NAME [--where SQL] [--edit COLUMN=SQL] [--help]
"""

import sys

from pyspark_commitlog.life_cli import replay

if __name__ == "__main__":
    sys.exit(replay())

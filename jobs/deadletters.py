# SPDX-License-Identifier: Apache-2.0
"""Tells which messages of a RocketMQ store consumers gave up, why, and where their first messages are.

Usage: spark-submit [OPTIONS OF SPARK] deadletters.py STORE [--group GROUP] [--json FILE] [--html FILE] [--help]
"""

import sys

from pyspark_commitlog.life_cli import deadletters

if __name__ == "__main__":
    sys.exit(deadletters())

# SPDX-License-Identifier: Apache-2.0
"""Checks that a RocketMQ store is whole: commit log, consume queues and key index against each other.

Usage: spark-submit [OPTIONS OF SPARK] check.py STORE [--topic TOPIC] [--release R] [--json FILE] [--help]
"""

import sys

from pyspark_commitlog.answers_cli import check

if __name__ == "__main__":
    sys.exit(check())

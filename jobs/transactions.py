# SPDX-License-Identifier: Apache-2.0
"""Tells how the transactions of a RocketMQ store ended, and which did not.

Usage: spark-submit [OPTIONS OF SPARK] transactions.py STORE [--older-than SECONDS] [--at TIME] [--json FILE] [--help]
"""

import sys

from pyspark_commitlog.life_cli import transactions

if __name__ == "__main__":
    sys.exit(transactions())

# SPDX-License-Identifier: Apache-2.0
"""Tells when the delayed messages of a RocketMQ store are due, and which will not be delivered.

Usage: spark-submit [OPTIONS OF SPARK] delays.py STORE [--late-after SECONDS] [--at TIME] [--json FILE] [--help]
"""

import sys

from pyspark_commitlog.life_cli import delays

if __name__ == "__main__":
    sys.exit(delays())

# SPDX-License-Identifier: Apache-2.0
"""Tells what happened to a message of a RocketMQ store, from its send to its last copy.

Usage: spark-submit [OPTIONS OF SPARK] trace.py STORE WHAT [--json FILE] [--html FILE] [--help]
"""

import sys

from pyspark_commitlog.life_cli import trace

if __name__ == "__main__":
    sys.exit(trace())

# SPDX-License-Identifier: Apache-2.0
"""Compares the commit logs of two RocketMQ stores, such as master and slave.

Usage: spark-submit [OPTIONS OF SPARK] diff.py A B [--by WHAT] [--same-extent] [--json FILE] [--help]
"""

import sys

from pyspark_commitlog.answers_cli import diff

if __name__ == "__main__":
    sys.exit(diff())

# SPDX-License-Identifier: Apache-2.0
"""Rebuilds the key index of a RocketMQ store from its commit log.

Usage: spark-submit [OPTIONS OF SPARK] rebuild_index.py STORE [--replace] [--verify] [--help]
"""

import sys

from pyspark_commitlog.rebuild.cli import rebuild_index

if __name__ == "__main__":
    sys.exit(rebuild_index())

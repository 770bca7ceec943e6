# SPDX-License-Identifier: Apache-2.0
"""Rebuilds the consume queues of a RocketMQ store from its commit log.

Usage: spark-submit [OPTIONS OF SPARK] rebuild_consume_queue.py STORE [--replace] [--verify] [--help]
"""

import sys

from pyspark_commitlog.rebuild.cli import rebuild_consume_queue

if __name__ == "__main__":
    sys.exit(rebuild_consume_queue())

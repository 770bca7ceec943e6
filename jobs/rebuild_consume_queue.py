# SPDX-License-Identifier: Apache-2.0
"""`commitlog rebuild queues` on Spark: spark-submit [OPTIONS OF SPARK] rebuild_consume_queue.py STORE ... [--help]."""

import sys

from pyspark_commitlog.command import main

if __name__ == "__main__":
    sys.exit(main(["rebuild", "queues", *sys.argv[1:]]))

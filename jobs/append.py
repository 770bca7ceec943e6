# SPDX-License-Identifier: Apache-2.0
"""`commitlog append` on Spark: spark-submit [OPTIONS OF SPARK] append.py STORE ... [--help]."""

import sys

from pyspark_commitlog.command import main

if __name__ == "__main__":
    sys.exit(main(["append", *sys.argv[1:]]))

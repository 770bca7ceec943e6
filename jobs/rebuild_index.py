# SPDX-License-Identifier: Apache-2.0
"""`commitlog rebuild index` on Spark: spark-submit [OPTIONS OF SPARK] rebuild_index.py STORE ... [--help]."""

import sys

from pyspark_commitlog.command import main

if __name__ == "__main__":
    sys.exit(main(["rebuild", "index", *sys.argv[1:]]))

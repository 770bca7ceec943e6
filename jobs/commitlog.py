# SPDX-License-Identifier: Apache-2.0
"""Run any command of `commitlog` on Spark: spark-submit jobs/commitlog.py NAME STORE ..."""

import sys

from pyspark_commitlog.command import main

if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Says what a RocketMQ broker can't tell of its producers: clocks, duplicates, order, sizes.

Usage: spark-submit [OPTIONS OF SPARK] producers.py STORE [--top N] [--json FILE] [--html FILE] [--help]
"""

import sys

from pyspark_commitlog.usage_cli import producers

if __name__ == "__main__":
    sys.exit(producers())

# SPDX-License-Identifier: Apache-2.0
"""Says who uses the disk of a RocketMQ broker: bytes by topic, queue, tags, producer and day.

Usage: spark-submit [OPTIONS OF SPARK] bill.py STORE [--top N] [--json FILE] [--html FILE] [--help]
"""

import sys

from pyspark_commitlog.usage_cli import bill

if __name__ == "__main__":
    sys.exit(bill())

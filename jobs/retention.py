# SPDX-License-Identifier: Apache-2.0
"""Says what a RocketMQ broker will delete, when, and which messages nobody has consumed by then.

Usage: spark-submit [OPTIONS OF SPARK] retention.py STORE [--days N] [--config FILE] [--json FILE] [--help]
"""

import sys

from pyspark_commitlog.consumers_cli import retention

if __name__ == "__main__":
    sys.exit(retention())

# SPDX-License-Identifier: Apache-2.0
"""Says how far the consumer groups of a RocketMQ broker are behind: messages, bytes and age.

Usage: spark-submit [OPTIONS OF SPARK] lag.py STORE [--group GROUP] [--messages N] [--as-of TIME] [--json FILE] [--help]
"""

import sys

from pyspark_commitlog.consumers_cli import lag

if __name__ == "__main__":
    sys.exit(lag())

# SPDX-License-Identifier: Apache-2.0
"""Shows what a RocketMQ release would truncate, rebuild or refuse if it opened a store; nothing is changed.

Usage: spark-submit [OPTIONS OF SPARK] recover.py STORE --dry-run [--release NAME|all] [--json FILE] [--help]
"""

import sys

from pyspark_commitlog.answers_cli import recover

if __name__ == "__main__":
    sys.exit(recover())

# SPDX-License-Identifier: Apache-2.0
"""Makes queues and index of a RocketMQ store right again: plans by default, and does what a plan says.

Usage: spark-submit [OPTIONS OF SPARK] repair.py STORE [--plan FILE | --apply FILE] [--json FILE] [--help]
"""

import sys

from pyspark_commitlog.answers_cli import repair

if __name__ == "__main__":
    sys.exit(repair())

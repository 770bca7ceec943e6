# SPDX-License-Identifier: Apache-2.0
"""Copies a RocketMQ store without what must not be in it: bodies are replaced by filler of the same length.

Usage: spark-submit [OPTIONS OF SPARK] redact.py STORE --into PATH (--pattern|--text|--key|--topic) WHAT [--json FILE]
"""

import sys

from pyspark_commitlog.lake_cli import redact

if __name__ == "__main__":
    sys.exit(redact())

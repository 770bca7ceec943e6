# SPDX-License-Identifier: Apache-2.0
"""``make demo`` without a store, run once for all tests that look at what it shows."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import cache

from tests.short_lived import clean_environment

_SECONDS = 240


@cache
def sample_demo() -> subprocess.CompletedProcess[str]:
    """Run the demo with no argument, in a new directory and an interpreter that has not loaded the format."""
    with tempfile.TemporaryDirectory(prefix="anywhere-") as anywhere:
        return subprocess.run(
            [sys.executable, "-m", "pyspark_commitlog.demo"],
            cwd=anywhere,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )

# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks, see `tests.benchmarks.parts`.

A process that a measured call starts imports its main module, too, so that is this one, which imports nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

if __name__ == "__main__":
    from tests.benchmarks.parts import main

    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Code in an interpreter of its own, which has imported nothing yet."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.short_lived import clean_environment

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["run_python"]


def run_python(code: str, directory: Path, **environment: str) -> str:
    """Run code in a fresh interpreter, away from the source tree; return what it prints."""
    done = subprocess.run(  # noqa: S603 -- our own code
        [sys.executable, "-c", code],
        cwd=directory,
        env={**clean_environment(), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()

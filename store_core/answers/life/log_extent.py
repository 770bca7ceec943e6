# SPDX-License-Identifier: Apache-2.0
"""What reports say of the bytes of a log that are missing between its files."""

from __future__ import annotations

from typing import Final

from store_core.answers.report_schema import Fact

__all__ = ["MISSING_BYTES", "missing_line"]

MISSING_BYTES: Final = Fact(
    "missing_bytes", "bytes of segments that are missing from the log: their records are in no table"
)


def missing_line(missing_bytes: int) -> str:
    """Return what a report says of missing files."""
    return f"{missing_bytes:,} bytes of the log are missing: what was in them is not counted"

# SPDX-License-Identifier: Apache-2.0
"""What PySpark offers to sources of streams: limits of a batch came with 4.2, and 4.1 has only their absence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_LIMITS: bool
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        HAS_LIMITS: Final = True
    except ImportError:  # PySpark 4.1, which never asks for a limit
        HAS_LIMITS: Final = False
        ReadLimit = ReadAllAvailable = ReadMaxRows = SupportsTriggerAvailableNow = type("Absent", (), {})

__all__ = ["HAS_LIMITS", "ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]

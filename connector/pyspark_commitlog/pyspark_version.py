# SPDX-License-Identifier: Apache-2.0
"""Checks that PySpark is recent enough for this package."""

from __future__ import annotations

import pyspark

from pyspark_commitlog import MINIMUM_PYSPARK

__all__ = ["require_pyspark"]


def require_pyspark() -> None:
    """Refuse a PySpark that lacks what a Python data source needs."""
    found = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if found < tuple(int(part) for part in MINIMUM_PYSPARK.split(".")):
        from store_core.errors import StoreError  # noqa: PLC0415 -- see pyspark_commitlog.source

        raise StoreError(
            f"format 'commitlog' needs PySpark {MINIMUM_PYSPARK} or later, found {pyspark.__version__}; "
            f"pip install 'pyspark>={MINIMUM_PYSPARK}', on the workers as well"
        )

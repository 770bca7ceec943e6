# SPDX-License-Identifier: Apache-2.0
"""The classes by which PySpark knows writers and their messages; without PySpark this process is what writes."""

from __future__ import annotations

try:
    from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
except ModuleNotFoundError:
    DataSourceArrowWriter = WriterCommitMessage = object  # type: ignore[misc,assignment]  # no Spark asks for them

__all__ = ["DataSourceArrowWriter", "WriterCommitMessage"]

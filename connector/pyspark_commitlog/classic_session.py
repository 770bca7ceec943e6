# SPDX-License-Identifier: Apache-2.0
"""The requirement of a session with a ``sparkContext``, which Spark Connect lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_commitlog.progress.stages import is_connect
from store_core.errors import UnsupportedStoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["no_context_error", "require_classic"]


def require_classic(spark: SparkSession, what: str) -> None:
    """Refuse a Spark Connect session.

    Raises
    ------
    UnsupportedStoreError
        If the session is one.
    """
    if is_connect(spark):
        raise no_context_error(what, "this is a Spark Connect session; run the command in a Python process without one")


def no_context_error(what: str, found: str) -> UnsupportedStoreError:
    """Return the error that something can't be done in a session, with why."""
    return UnsupportedStoreError(
        f"{what} needs a session with a sparkContext, because it works on RDDs: {found}, with --master of spark-submit "
        f"or SparkSession.builder.master(...)"
    )

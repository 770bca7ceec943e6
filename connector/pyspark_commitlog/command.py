# SPDX-License-Identifier: Apache-2.0
"""The command line `commitlog` with Spark as the engine: what ``jobs/commitlog.py`` submits."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from store_core.command.failure import EndedError
from store_core.command.surroundings import Surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark_commitlog.engine import SparkEngine

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the parts of an answer are tasks of the session that runs, or of a new one.

    Returns
    -------
    int
        The exit code, see `store_core.command.exit_code`.
    """
    from store_core.command.program import program

    around = replace(Surroundings.here(), engine=_session_engine)
    try:
        program.main(None if arguments is None else [*arguments], prog_name="commitlog", obj=around)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@contextmanager
def _session_engine(name: str) -> Iterator[SparkEngine]:
    """Provide a session as the engine of a command; what Spark raises ends the command as our own errors do."""
    from pyspark_commitlog.jobs.command import end_of_spark

    try:
        from pyspark_commitlog.engine import SparkEngine
        from pyspark_commitlog.java import require_java
        from pyspark_commitlog.jobs.job_session import job_session
        from pyspark_commitlog.progress import spark_progress

        require_java()
        with job_session(f"commitlog-{name}", needs_context=True) as spark, spark_progress(spark):
            yield SparkEngine(spark, name)
    except Exception as error:
        end = end_of_spark(error)
        if end is None:
            raise
        raise EndedError(*end) from error

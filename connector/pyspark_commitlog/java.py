# SPDX-License-Identifier: Apache-2.0
"""The Java that Spark runs in, and its messages at the start."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_spark_running() -> bool:
    """Return whether Spark runs already: a session, a driver of ``spark-submit``, or a Spark Connect server."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ:
        return True
    sql = sys.modules.get("pyspark.sql")
    return sql is not None and sql.SparkSession.getActiveSession() is not None


_LOG4J: Final = Path(__file__).with_name("quiet-log4j2.properties")
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_CONFIGURATIONS: Final = ("log4j2.properties", "log4j2.xml", "log4j2.yaml", "log4j2.json", "log4j.properties")
_INCUBATOR: Final = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
"""Java's warning about a module that Spark 4.3 asks for; no option of Java silences it."""


def quiet_log4j() -> str:
    """Return the Java option that silences Spark's log, for ``spark.driver.extraJavaOptions``.

    It has to be set before the session starts, because Spark prints a greeting on stderr. Errors are raised anyway.
    """
    return f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"


_QUERY_LOGS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def quiet_queries() -> None:
    """Silence the logs to which PySpark writes thousands of characters before it raises an error of a query.

    One that exists already is left alone: somebody wants it.
    """
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 -- commands whose help is asked for need no PySpark

    for name in _QUERY_LOGS:
        if name not in logging.root.manager.loggerDict:
            log = PySparkLogger.getLogger(name)
            log.handlers = [logging.NullHandler()]  # in place of the one that writes to standard error


@contextmanager
def quiet_start(told: tuple[str, ...] = ()) -> Iterator[None]:
    """Silence the Java process that a session starts within the context, as long as that process lives.

    Spark's log is off, unless it is configured: below ``spark-submit``, with a log4j configuration in
    ``SPARK_SUBMIT_OPTS``, or with a log4j file in ``SPARK_CONF_DIR`` or in the ``conf`` of ``SPARK_HOME`` nothing
    changes. Everything else that Java writes to stderr is passed on, except for the lines listed here.

    * `told`: Lines that have been printed already.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        yield  # spark-submit has started Java
        return
    before = os.environ.get(_OPTIONS)
    if not _has_log4j():
        # Java uses the last of several, and spark.driver.extraJavaOptions comes after these.
        os.environ[_OPTIONS] = f"{before or ''} {quiet_log4j()}".strip()
    try:
        with _filtered_stderr({_INCUBATOR, *(f"{line}\n".encode() for line in told)}):
            yield
    finally:
        if before is None:
            os.environ.pop(_OPTIONS, None)
        else:
            os.environ[_OPTIONS] = before


def _has_log4j() -> bool:
    if "log4j" in os.environ.get(_OPTIONS, ""):
        return True
    conf = spark_configuration()
    return conf is not None and any((conf / name).exists() for name in _CONFIGURATIONS)


def spark_configuration() -> Path | None:
    """Return the directory of Spark's configuration files; None if the environment names none."""
    home = os.environ.get("SPARK_HOME")
    conf = os.environ.get("SPARK_CONF_DIR") or (str(Path(home, "conf")) if home else None)
    return None if conf is None else Path(conf)


@contextmanager
def _filtered_stderr(dropped: set[bytes]) -> Iterator[None]:
    """Redirect stderr of processes started in the context to a pipe, from which a thread copies lines to stderr."""
    sys.stderr.flush()
    stderr = os.dup(2)
    receives, sends = os.pipe()
    threading.Thread(target=_copy, args=(receives, stderr, dropped), name="java-stderr", daemon=True).start()
    os.dup2(sends, 2)
    os.close(sends)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)


def _copy(receives: int, stderr: int, dropped: set[bytes]) -> None:
    """Copy lines until the last process that writes to the pipe has ended."""
    with open(receives, "rb") as lines:
        for line in lines:
            if line not in dropped:
                os.write(stderr, line)
    os.close(stderr)


MINIMUM_JAVA: Final = 17
_ADVICE: Final = f"Spark needs Java {MINIMUM_JAVA} or later; install a JDK, or set JAVA_HOME to one"
_SECONDS: Final = 30
"""How long a Java may take to report its version."""


class JavaNotFoundError(StoreError):
    """There is no Java that can start Spark."""


def require_java() -> None:
    """Refuse to go on without a Java for Spark; a Spark that runs, or whose own files choose a Java, is not checked."""
    conf = spark_configuration()
    if is_spark_running() or (conf is not None and (conf / "spark-env.sh").exists()):
        return
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    if shutil.which(java) is None:
        raise JavaNotFoundError(f"{java} does not exist. {_ADVICE}")
    found = _version_text(java)
    version = re.search(r'version "(?:1\.)?(\d+)', found)  # Java 8 calls itself 1.8
    if version is None:
        raise JavaNotFoundError(f"{java} -version reports no version: {found.strip()!r}. {_ADVICE}")
    if int(version[1]) < MINIMUM_JAVA:
        raise JavaNotFoundError(f"{java} is Java {version[1]}. {_ADVICE}")


def _version_text(java: str) -> str:
    """Return a Java's report of its version, or why there is none."""
    try:
        answer = subprocess.run(  # noqa: S603 -- the user's Java
            [java, "-version"], capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return answer.stderr + answer.stdout

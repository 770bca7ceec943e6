# SPDX-License-Identifier: Apache-2.0
"""Starting Spark without its greetings: what a command says is then its own words only."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["quiet_log4j", "quiet_start", "spark_configuration"]

_LOG4J: Final = Path(__file__).with_name("quiet-log4j2.properties")
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_CONFIGURATIONS: Final = ("log4j2.properties", "log4j2.xml", "log4j2.yaml", "log4j2.json", "log4j.properties")
_INCUBATOR: Final = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
"""What Java says of a module that Spark 4.3 asks for; no switch of Java's silences it."""


def quiet_log4j() -> str:
    """Return the Java option that silences Spark's log, for ``spark.driver.extraJavaOptions``.

    Errors are raised anyway.

    It has to be set before the session starts, because Spark greets on stderr.
    """
    return f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"


@contextmanager
def quiet_start(told: tuple[str, ...] = ()) -> Iterator[None]:
    """Silence the Java process that a session starts within the context, as long as that process lives.

    Spark's log is off, unless somebody chose one: what ``spark-submit`` starts, ``SPARK_SUBMIT_OPTS`` with a log4j
    configuration, and a log4j file in ``SPARK_CONF_DIR`` or in the ``conf`` of ``SPARK_HOME`` are left alone. All else
    that Java writes to stderr is passed on, but for the lines named here.

    Parameters
    ----------
    told : tuple of str
        Lines that have been told before.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        yield  # spark-submit has started Java
        return
    before = os.environ.get(_OPTIONS)
    if not _has_log4j():
        # Java takes the last of several, and what spark.driver.extraJavaOptions says comes behind these.
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
    """Return the directory that Spark takes its configuration files from; None if the environment names none."""
    home = os.environ.get("SPARK_HOME")
    conf = os.environ.get("SPARK_CONF_DIR") or (str(Path(home, "conf")) if home else None)
    return None if conf is None else Path(conf)


@contextmanager
def _filtered_stderr(dropped: set[bytes]) -> Iterator[None]:
    """Let the processes that are started in the context write to a pipe, whose lines a thread copies to stderr."""
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

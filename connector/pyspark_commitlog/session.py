# SPDX-License-Identifier: Apache-2.0
"""A Spark session that finds the source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from pyspark_commitlog.errors import require_pyspark
from pyspark_commitlog.java import quiet_queries, quiet_start, require_java, spark_configuration
from pyspark_commitlog.progress import is_connect
from store_core.errors import UnsupportedStoreError
from store_core.store.message_store_config import parse_properties_file

if TYPE_CHECKING:
    from collections.abc import Mapping


def require_classic(spark: SparkSession, what: str) -> None:
    """Refuse a Spark Connect session."""
    if is_connect(spark):
        raise no_context_error(what, "this is a Spark Connect session; run the command in a Python process without one")


def no_context_error(what: str, found: str) -> UnsupportedStoreError:
    """Return the error that something can't be done in a session, with why."""
    return UnsupportedStoreError(
        f"{what} needs a session with a sparkContext, because it works on RDDs: {found}, with --master of spark-submit "
        f"or SparkSession.builder.master(...)"
    )


RECOMMENDED: Final = {
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings that a session gets unless they are set otherwise, from ``spark-conf/spark-defaults.conf``.

The Unix domain socket, which that file has as well, is left out: with it, Spark's own worker reports a broken pipe on
standard error after nearly every ``show`` or ``limit``.
"""

_PYTHON: Final = "PYSPARK_PYTHON"
_QUESTION: Final = """\
import importlib.util, sys
print(*sys.version_info[:2], importlib.util.find_spec("pyspark_commitlog") is not None)
"""
_SECONDS: Final = 30
"""How long another Python may take to report its version."""


def spark_session(
    name: str = "pyspark-commitlog", *, master: str | None = None, config: Mapping[str, object] | None = None
) -> SparkSession:
    """Return a Spark session in which ``format("commitlog")`` works immediately.

    Spark looks for data sources with the Python that the environment variable ``PYSPARK_PYTHON`` names, or with the
    ``python3`` of the ``PATH`` if it is not set. Unless an environment is activated, that is not the Python that runs
    this, and does not have this package. So, if nothing names a Python, this function names the running one. It also
    starts Spark without its greeting and its log, unless there is a log4j configuration; silences the Python logs in
    which PySpark repeats errors of queries, unless these exist already; and sets what ``RECOMMENDED`` lists, unless a
    configuration file, ``spark-submit`` or `config` sets it otherwise.

    A session that exists already is returned as it is, whatever the arguments are.

    Parameters
    ----------
    name : str
        Name of the application.
    master : str, optional
        Where Spark runs. By default as configured for Spark; if nothing is configured, ``local[*]``: on this machine,
        with all its cores.
    config : mapping, optional
        Settings of Spark by name, such as ``{"spark.sql.session.timeZone": "UTC"}``. ``spark.pyspark.python`` names the
        workers' Python, as it does for ``spark-submit``.

    Returns
    -------
    pyspark.sql.SparkSession

    Raises
    ------
    JavaNotFoundError
        If there is no Java that Spark can use.
    StoreError
        If PySpark is older than 4.1.

    Warns
    -----
    RuntimeWarning
        If Spark was started earlier, or is configured, with a Python that can't find this package.

    Examples
    --------
    >>> spark = spark_session(config={"spark.sql.session.timeZone": "UTC"})  # doctest: +SKIP
    >>> spark.read.format("commitlog").load("/data/rocketmq/store").count()  # doctest: +SKIP
    """
    require_pyspark()
    quiet_queries()
    active = SparkSession.getActiveSession()
    if active is not None:
        _check_python(active)
        return active
    require_java()
    settings = _defaults() | {key: _text(value) for key, value in (config or {}).items()}
    os.environ.setdefault(_PYTHON, settings.get("spark.pyspark.python", sys.executable))
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with quiet_start():
        session = (builder if master is None else builder.master(master)).getOrCreate()
    _check_python(session)  # Java may be an earlier session's, with the environment of its own start
    return session


def _defaults() -> dict[str, str]:
    """Return the recommended settings that are not set yet; none below ``spark-submit`` and for Spark Connect."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or "SPARK_REMOTE" in os.environ:
        return {}
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    directory = spark_configuration()
    path = None if directory is None else directory / "spark-defaults.conf"
    decided = parse_properties_file(path.read_bytes()) if path is not None and path.is_file() else {}
    return {key: value for key, value in RECOMMENDED.items() if key not in decided and key not in arguments}


def _text(value: object) -> str:
    """Return a setting's value as Spark writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# --------------------------------------------------------------------------------------------- which Python Spark uses


def _check_python(spark: SparkSession) -> None:
    """Warn if the Python in which Spark looks for data sources can't find this package."""
    if is_connect(spark):
        return  # the server looks for data sources, and may be anywhere
    for python in _pythons(spark):
        problem = _problem(python)
        if problem:
            version = ".".join(map(str, sys.version_info[:2]))
            warnings.warn(
                f"this Spark session runs Python code with {python!r}, {problem}; this is {sys.executable}, "
                f"Python {version}. format('commitlog') will not work. Restart Python, and call spark_session() "
                f"before any other session is created; or set {_PYTHON}={sys.executable} in the environment first",
                RuntimeWarning,
                stacklevel=3,
            )
            return


def _pythons(spark: SparkSession) -> list[str]:
    """Return the Pythons that a session uses on this machine, other than this one: for data sources and local workers.

    The first is the one that Spark's ``PythonUtils.defaultPythonExec`` chooses (4.1 to 4.3), from the environment in
    which its Java was started; neither ``spark.pyspark.python`` nor later settings change it.
    """
    context = spark.sparkContext
    getenv = context._jvm.java.lang.System.getenv  # type: ignore[union-attr]  # noqa: SLF001 -- there is no other way
    found = [getenv("PYSPARK_DRIVER_PYTHON") or getenv(_PYTHON) or "python3"]
    if str(context.master).startswith("local"):
        found.append(context.pythonExec)
    return [python for python in dict.fromkeys(found) if python != sys.executable]


def _problem(python: str) -> str:
    """Return why a Python can't find data sources; empty if it can."""
    program = shutil.which(python)
    if program is None:
        return "which does not exist"
    try:
        asked = subprocess.run(  # noqa: S603 -- the Python that Spark starts, too
            [program, "-c", _QUESTION], capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"which does not answer: {error}"
    answer = asked.stdout.split()
    if asked.returncode or len(answer) != len(("major", "minor", "found")):
        return f"which is not Python ({program})"
    version = ".".join(answer[:2])
    if version != ".".join(map(str, sys.version_info[:2])):
        return f"which is Python {version} ({program})"
    return "" if answer[2] == "True" else f"which has no pyspark_commitlog ({program})"

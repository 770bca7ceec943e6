# SPDX-License-Identifier: Apache-2.0
"""Checks that Spark will find a Java that it can use, before it is started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from pyspark_commitlog.quiet_spark import spark_configuration
from pyspark_commitlog.running_spark import is_spark_running
from store_core.errors import StoreError

__all__ = ["JavaNotFoundError", "require_java"]

MINIMUM_JAVA: Final = 17
_ADVICE: Final = f"Spark needs Java {MINIMUM_JAVA} or later; install a JDK, or set JAVA_HOME to one"
_SECONDS: Final = 30
"""How long a Java may take to report its version."""


class JavaNotFoundError(StoreError):
    """There is no Java that can start Spark."""


def require_java() -> None:
    """Raise an error if no Java can start Spark; skip the check if Spark runs already or its own files choose a Java.

    Raises
    ------
    JavaNotFoundError
        If there is no Java where Spark looks for one, or it is too old.
    """
    if is_spark_running() or _chooses_java():
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


def _chooses_java() -> bool:
    """Return whether one of Spark's configuration files may set ``JAVA_HOME``."""
    conf = spark_configuration()
    return conf is not None and (conf / "spark-env.sh").exists()


def _version_text(java: str) -> str:
    """Return a Java's report of its version, or why there is none."""
    try:
        answer = subprocess.run(  # noqa: S603 -- the user's Java
            [java, "-version"], capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return answer.stderr + answer.stdout

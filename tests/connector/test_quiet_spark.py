# SPDX-License-Identifier: Apache-2.0
"""A command that starts Spark prints only its own output; a log that is configured is shown."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from pyspark_commitlog.java import quiet_log4j, quiet_start

if TYPE_CHECKING:
    from pathlib import Path

_SAYS = "import sys; sys.stderr.write('WARNING: Using incubator modules: jdk.incubator.vector\\ntold\\nnews\\n')"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove log configurations from the tests' own environment."""
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_SUBMIT_OPTS", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_lines_that_are_no_news_are_dropped_and_all_others_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet_start(("told",)):
        subprocess.run([sys.executable, "-c", _SAYS], check=True)  # noqa: S603 -- this Python
    sys.stderr.write("after\n")
    # The copying thread waits only for the end of the pipe, which is closed by now.
    _join_copies()

    assert sorted(capfd.readouterr().err.split()) == ["after", "news"]


def test_the_log_is_off_within_the_context_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    with quiet_start():
        assert os.environ["SPARK_SUBMIT_OPTS"] == f"-Dmine=1 {quiet_log4j()}"

    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dmine=1"


@pytest.mark.parametrize("chosen", ["options", "configuration directory", "home", "spark-submit"])
def test_a_log_that_somebody_chose_is_left_alone(chosen: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "log4j2.properties").write_text("rootLogger.level = info\n")
    name, value = {
        "options": ("SPARK_SUBMIT_OPTS", "-Dlog4j2.configurationFile=mine"),
        "configuration directory": ("SPARK_CONF_DIR", str(tmp_path / "conf")),
        "home": ("SPARK_HOME", str(tmp_path)),
        "spark-submit": ("PYSPARK_GATEWAY_PORT", "1"),
    }[chosen]
    monkeypatch.setenv(name, value)
    with quiet_start():
        assert quiet_log4j() not in os.environ.get("SPARK_SUBMIT_OPTS", "")


def test_a_failure_within_the_context_leaves_stderr_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError, match="no Java"), quiet_start():
        raise OSError("no Java")
    os.write(2, b"still there\n")

    assert capfd.readouterr().err == "still there\n"
    assert "SPARK_SUBMIT_OPTS" not in os.environ


_RAISES = """
import logging
{before}
from pyspark_commitlog.java import quiet_queries
from pyspark.logger import PySparkLogger

quiet_queries()
for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
    log = PySparkLogger.getLogger(name)
    log.propagate = False
    log.exception("no such column", errorClass="UNRESOLVED_COLUMN")
"""
_OWN = "from pyspark.logger import PySparkLogger; PySparkLogger.getLogger('SQLQueryContextLogger')"


@pytest.mark.parametrize(("before", "lines"), [("", 0), (_OWN, 1)])
def test_errors_of_queries_are_not_logged_unless_somebody_made_the_log(before: str, lines: int) -> None:
    program = [sys.executable, "-c", _RAISES.format(before=before)]
    done = subprocess.run(program, check=True, capture_output=True, text=True)  # noqa: S603 -- this Python

    assert lines == len(done.stderr.splitlines())


def _join_copies() -> None:
    for thread in threading.enumerate():
        if thread.name == "java-stderr":
            thread.join(10)

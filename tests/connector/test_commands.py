# SPDX-License-Identifier: Apache-2.0
"""What commands have in common: exit codes, errors, paths, and what is told before and while Spark is started."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_commitlog import demo
from pyspark_commitlog.append import check_source
from pyspark_commitlog.demo import tell
from pyspark_commitlog.java import JavaNotFoundError, quiet_log4j, quiet_start, require_java
from pyspark_commitlog.spark_errors import end_of
from store_core.answers.report import Verdict
from store_core.command.exit_code import ExitCode
from store_core.command.main import ended
from store_core.command.new_file import check_report
from store_core.errors import (
    CorruptRecordError,
    FilterError,
    InvalidOptionError,
    SegmentLayoutError,
    SegmentVanishedError,
    StoreError,
    StoreLockedError,
    StoreNotFoundError,
    UnsafeSizeError,
    UnsupportedStoreError,
)
from store_core.files.access import check_writable
from tests.builders import LogBuilder
from tests.connector.called import append, rebuild_consume_queue, rebuild_index
from tests.short_lived import run_python


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every start of Spark fail with a missing Java, so that what should come before one would say that."""
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    spark = ("SPARK_REMOTE", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS")
    for name in ("PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", *spark):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAVA_HOME", "/no/such/jdk")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.json"
    path.write_text('{"topic": "t", "body": "x"}\n')
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    log = LogBuilder(4096)
    log.append(b"x")
    return log.write(tmp_path / "store")


def test_the_demo_lists_all_exit_codes_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo.main(["--help"])
    told = " ".join(capsys.readouterr().out.split())

    assert [True] * 6 == [f"{code.value} {code.meaning}" in told for code in ExitCode]


def test_the_help_of_commands_and_jobs_imports_nothing_of_what_they_do(tmp_path: Path) -> None:
    jobs = sorted(str(path) for path in (Path(__file__).parents[2] / "jobs").glob("*.py"))
    code = (
        "import runpy, sys\n"
        "sys.argv[1:] = ['--help']\n"
        f"for job in {jobs!r}:\n"
        "    try: runpy.run_path(job, run_name='__main__')\n"
        "    except SystemExit: pass\n"
        "print('IMPORTED', *(name for name in ('numpy', 'pyarrow', 'pyspark', 'pandas') if name in sys.modules))\n"
    )

    assert jobs
    assert "IMPORTED" == run_python(code, tmp_path).splitlines()[-1]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidOptionError("x"), 2),
        (FilterError("x"), 2),
        (StoreNotFoundError("x"), 2),
        (UnsupportedStoreError("x"), 4),
        (StoreLockedError("x"), 4),
        (CorruptRecordError("x", "file", 0, "a", "b"), 3),
        (UnsafeSizeError("x", "file", 0, "a", "b"), 4),
        (SegmentLayoutError("x"), 3),
        (SegmentVanishedError("x"), 3),
        (JavaNotFoundError("x"), 3),
        (PermissionError(13, "Permission denied", "x"), 3),
        (PySparkException("x"), 3),
    ],
)
def test_an_error_has_one_exit_code_in_all_commands_and_through_spark(error: Exception, code: int) -> None:
    def failing() -> ExitCode:
        raise error

    quoting = PySparkException(f"Job aborted ... store_core.errors.{type(error).__name__}: {error}\n\tat org.apache")

    assert code == ended(failing, tell)
    if type(error).__module__ == StoreError.__module__:
        assert (code, str(error)) == end_of(quoting)


TASK: Final = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 2044, in main
    process()
  File "/x/store_core/files/file_system.py", line 12, in open
    os.open(path, flags)
{last}

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)

Driver stacktrace:
"""


def hidden(text: str) -> PySparkException:
    """Return an error of Spark that has the cause behind it."""
    error = PySparkException("Writing job aborted")
    error._cause = Exception(text)  # type: ignore[attr-defined]
    return error


DENIED: Final = "Permission denied. Run this as a user with permission, or change the permissions"
FULL: Final = "No space left on device. Free some space, and run this again"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        *(
            (PySparkException(TASK.format(last=last)), code, words)
            for last, code, words in (
                ("PermissionError: [Errno 13] Permission denied: '/store/rebuilt/x'", 3, f"/store/rebuilt/x: {DENIED}"),
                ("OSError: [Errno 28] No space left on device: '/store/rebuilt/x'", 3, f"/store/rebuilt/x: {FULL}"),
                ("store_core.errors.StoreLockedError: somebody has it", 4, "somebody has it"),
                ("ZeroDivisionError: division by zero", 3, "ZeroDivisionError: division by zero"),
                ("numpy.exceptions.AxisError: axis 1", 3, "numpy.exceptions.AxisError: axis 1"),
            )
        ),
        (hidden("...: store_core.errors.StoreLockedError: somebody has it"), 4, "somebody has it"),
        (PermissionError(13, "Permission denied", "/s/lock"), 3, f"/s/lock: {DENIED}"),
        (
            FileNotFoundError(2, "No such file or directory", "it's"),
            3,
            "it's: No such file or directory. Check the path",
        ),
        (OSError(22, "Invalid argument", "/s"), 3, "/s: Invalid argument"),
        (OSError("the new index has 3 files"), 3, "the new index has 3 files"),
    ],
)
def test_an_error_is_told_in_a_sentence_without_sparks_stack(error: Exception, code: int, words: str) -> None:
    assert (code, words) == end_of(error)


def test_each_verdict_has_a_code() -> None:
    expected = {Verdict.CLEAN: 0, Verdict.FINDINGS: 1, Verdict.REFUSED: 4, Verdict.DAMAGED: 5}

    assert expected == {verdict: ExitCode.of(verdict) for verdict in Verdict}


def test_a_bug_is_no_finding(capsys: pytest.CaptureFixture[str]) -> None:
    def failing() -> ExitCode:
        raise ZeroDivisionError("oh")

    assert 3 == ended(failing, tell)
    assert "please report it" in capsys.readouterr().err


def test_the_demo_s_error_can_t_change_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == tell(StoreNotFoundError("no store: \x1b[31m\u202e\nGive another"))
    assert ("", "error: no store: \\x1b[31m\\u202e\nGive another\n") == capsys.readouterr()


# ---- Java


def test_without_java_every_command_that_needs_spark_says_so_and_does_nothing(
    store: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    expected = (
        "/no/such/jdk/bin/java does not exist. Spark needs Java 17 or later; install a JDK, or set JAVA_HOME to one\n"
    )
    runs = [
        functools.partial(append, [str(tmp_path / "new"), "--json", str(rows), "--spark"]),
        functools.partial(rebuild_consume_queue, [str(store), "--replace", "--spark"]),
        functools.partial(rebuild_index, [str(store), "--verify", "--spark"]),
        functools.partial(demo.main, [str(store)]),
    ]

    for run in runs:
        assert 3 == run()
        assert capsys.readouterr().err.endswith(f": {expected}")
    assert before == sorted(tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n", "is Java 11. Spark needs Java 17 or later"),
        ("#!/bin/sh\necho 'java version \"1.8.0_202\"' >&2\n", "is Java 8. Spark needs Java 17 or later"),
        ("#!/bin/sh\necho no java at all >&2\n", "reports no version: 'no java at all'. Spark needs Java 17"),
        ("#!/no/such/shell\n", 'reports no version: "[Errno 2] No such file or directory'),
    ],
)
def test_a_java_that_spark_can_not_use_is_told(
    script: str, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(script)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(JavaNotFoundError) as caught:
        require_java()
    assert says in str(caught.value)


@pytest.mark.parametrize("given", ["PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "spark-env.sh"])
def test_no_java_is_asked_for_where_spark_has_one_of_its_own(
    given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if given == "spark-env.sh":
        (tmp_path / given).touch()
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    else:
        monkeypatch.setenv(given, "1")

    require_java()


_SAYS = "import sys; sys.stderr.write('WARNING: Using incubator modules: jdk.incubator.vector\\ntold\\nnews\\n')"


# ---- a quiet start


def test_lines_that_are_no_news_are_dropped_and_all_others_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet_start(("told",)):
        subprocess.run([sys.executable, "-c", _SAYS], check=True)  # noqa: S603 -- this Python
    sys.stderr.write("after\n")
    # The copying thread waits only for the end of the pipe, which is closed by now.
    for thread in threading.enumerate():
        if thread.name == "java-stderr":
            thread.join(10)

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


# ---- paths


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["new", "--json", "nowhere.json"], "--json: no such path: '{here}/nowhere.json'. Give the file"),
        (["new", "--csv", "nowhere.csv"], "--csv: no such path"),
        (["new", "--parquet", "nowhere"], "--parquet: no such path"),
        (["new", "--from-store", "nowhere"], "no such path: '{here}/nowhere'"),
        (
            ["new", "--json", "rows.json", "--report", "nowhere/r.json"],
            "there is no directory {here}/nowhere. Create",
        ),
        (["new", "--json", "rows.json", "--report", "."], "it is a directory: expected a file for the report"),
        (
            ["rows.json/new", "--json", "rows.json"],
            "{here}/rows.json/new can't be created: {here}/rows.json is not a dir",
        ),
        (["rows.json", "--json", "rows.json"], "{here}/rows.json is not a directory. Give another path"),
    ],
)
def test_what_an_append_can_not_use_is_told_before_spark_is_started(
    arguments: list[str], says: str, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = rows.parent
    given = [argument if argument.startswith("--") else str(here / argument) for argument in arguments]

    assert append(given) == 2
    told = capsys.readouterr().err
    assert says.format(here=here) in told
    assert told.count("\n") == 1
    assert [rows] == list(here.iterdir())


def test_a_wrong_option_of_reading_is_told_before_spark_is_started_and_before_a_wrong_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert append([str(tmp_path / "new"), "--from-store", str(tmp_path / "nowhere"), "--where", "a >"]) == 2
    assert "option filter" in capsys.readouterr().err


def test_missing_permissions_are_told_before_spark_is_started(
    rows: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    runs = [
        (functools.partial(append, [str(tmp_path / "new"), "--json", str(rows)]), f"{rows} can't be read"),
        (
            functools.partial(append, [str(tmp_path / "new"), "--from-store", str(store)]),
            f"{tmp_path} can't be written",
        ),
        (functools.partial(rebuild_consume_queue, [str(store)]), f"{store} can't be written"),
        (functools.partial(rebuild_consume_queue, [str(store), "--json", str(tmp_path / "r")]), "it can't be written"),
    ]

    for run, says in runs:
        assert run() == 3
        assert says in capsys.readouterr().err


def test_a_report_of_a_rebuild_needs_a_directory(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rebuild_consume_queue([str(store), "--verify", "--json", str(tmp_path / "nowhere" / "r.json")]) == 2
    assert "Create it, or give another file" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["hdfs:/rows", "s3a://bucket/rows", "rows-*.json", "{a,b}.json", "a.json,b.json"])
def test_paths_that_only_spark_can_look_up_are_left_to_it(path: str) -> None:
    check_source("--json", path)


def test_paths_are_looked_up_where_spark_looks_by_default(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_source("--json", f"file://{rows}")
    with pytest.raises(StoreError):
        check_source("--json", f"file:{rows}s")
    with pytest.raises(StoreError, match=r"names another host: expected file:///path. Mount it"):
        check_source("--json", f"file:/{rows}")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    check_source("--json", f"{rows}s")


def test_what_can_be_written_passes(tmp_path: Path) -> None:
    check_writable(tmp_path / "new" / "store")
    check_report("--report", str(tmp_path / "report.json"))
    check_report("--report", "-")
    check_report("--report", None)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidOptionError, match="is not a directory"):
        check_writable(tmp_path / "dangling")


def test_an_archive_is_not_written_to(tmp_path: Path) -> None:
    archive = tmp_path / "backup.tar.gz"
    archive.touch()
    for path in (archive, archive / "store"):
        with pytest.raises(UnsupportedStoreError, match=f"{archive} is an archive.*Unpack it"):
            check_writable(path)


def test_a_directory_that_goes_with_a_session_of_spark_connect_is_not_written_to(tmp_path: Path) -> None:
    name = "01234567-89ab-cdef-0123-456789abcdef"
    directory = tmp_path / f"spark-{name}" / f"userFiles-{name}" / "session"
    directory.mkdir(parents=True)
    with pytest.raises(InvalidOptionError, match=r"deleted with the session: expected an absolute path"):
        check_writable(directory / "store")

# SPDX-License-Identifier: Apache-2.0
"""What all commands have in common: exit codes, help, and that a missing Java is reported before Spark is started."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_commitlog import demo
from pyspark_commitlog.demo import tell
from pyspark_commitlog.java import JavaNotFoundError, require_java
from pyspark_commitlog.spark_errors import end_of
from store_core.answers.report import Verdict
from store_core.command.exit_code import ExitCode
from store_core.command.main import ended
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
from tests.builders import LogBuilder
from tests.connector.called import append, rebuild_consume_queue, rebuild_index
from tests.short_lived import run_python


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


@pytest.mark.parametrize(
    ("last", "code", "words"),
    [
        (
            "PermissionError: [Errno 13] Permission denied: '/store/rebuilt/x'",
            3,
            "/store/rebuilt/x: Permission denied. Run this as a user with permission, or change the permissions",
        ),
        (
            "OSError: [Errno 28] No space left on device: '/store/rebuilt/x'",
            3,
            "/store/rebuilt/x: No space left on device. Free some space, and run this again",
        ),
        ("store_core.errors.StoreLockedError: somebody has it", 4, "somebody has it"),
        ("ZeroDivisionError: division by zero", 3, "ZeroDivisionError: division by zero"),
        ("numpy.exceptions.AxisError: axis 1", 3, "numpy.exceptions.AxisError: axis 1"),
    ],
)
def test_an_error_in_a_task_is_told_without_sparks_stack(last: str, code: int, words: str) -> None:
    assert (code, words) == end_of(PySparkException(TASK.format(last=last)))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            PermissionError(13, "Permission denied", "/s/lock"),
            "/s/lock: Permission denied. Run this as a user with permission, ",
        ),
        (FileNotFoundError(2, "No such file or directory", "it's"), "it's: No such file or directory. Check the path"),
        (OSError(22, "Invalid argument", "/s"), "/s: Invalid argument"),
        (OSError("the new index has 3 files"), "the new index has 3 files"),
    ],
)
def test_an_error_of_the_system_begins_with_the_path(error: OSError, words: str) -> None:
    assert end_of(error)[1].startswith(words)


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


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_session")
def test_without_java_every_command_that_needs_spark_says_so_and_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogBuilder(4096)
    log.append(b"x")
    store = log.write(tmp_path / "store")
    rows = tmp_path / "rows.json"
    rows.write_text('{"topic": "t", "body": "x"}\n')
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setenv("JAVA_HOME", "/no/such/jdk")
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


@pytest.mark.usefixtures("no_session")
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


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize("given", ["PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "spark-env.sh"])
def test_no_java_is_asked_for_where_spark_has_one_of_its_own(
    given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no/such/jdk")
    if given == "spark-env.sh":
        (tmp_path / given).touch()
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    else:
        monkeypatch.setenv(given, "1")

    require_java()

# SPDX-License-Identifier: Apache-2.0
"""The demo shows a newcomer what is in a store, and reports errors in one paragraph."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from pyspark_commitlog import demo
from pyspark_commitlog.sample import orders_store
from pyspark_commitlog.spark_errors import end_of
from store_core import read_messages
from store_core.command.exit_code import ExitCode
from tests.builders import LogBuilder
from tests.short_lived import sample_demo

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def shown() -> subprocess.CompletedProcess[str]:
    return sample_demo()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    log = LogBuilder(4096)
    log.append(b"one")
    return log.write(tmp_path / "store")


@pytest.mark.spark
def test_without_an_argument_it_shows_the_store_that_comes_with_the_project(
    shown: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    columns = ["topic", "queue_id", "queue_offset", "store_size"]
    expected = read_messages(orders_store(tmp_path), columns=columns).read_all().to_pylist()
    lines = [line.split() for line in shown.stdout.splitlines()]
    first = expected[0]

    assert shown.returncode == 0, shown.stderr
    assert any(line[:3] == [first["topic"], str(first["queue_id"]), str(first["queue_offset"])] for line in lines)
    for topic in {row["topic"] for row in expected}:
        count = sum(row["topic"] == topic for row in expected)
        size = sum(row["store_size"] for row in expected if row["topic"] == topic)
        assert [topic, f"{count:,}", f"{size:,}"] in [line[:3] for line in lines]


@pytest.mark.spark
def test_it_shows_schema_partitions_and_next_steps(shown: subprocess.CompletedProcess[str]) -> None:
    assert "|-- physical_offset: long (nullable = false)" in shown.stdout
    assert "19 partitions to read" in shown.stdout
    assert 'spark.read.format("commitlog")' in shown.stdout


@pytest.mark.spark
def test_it_is_quiet(shown: subprocess.CompletedProcess[str]) -> None:
    assert shown.stderr == ""


def failure(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """Run the demo where it must fail before Spark is started; return the one paragraph that it prints."""
    assert demo.main(arguments) == code
    captured = capsys.readouterr()
    assert "Spark" not in captured.out
    (paragraph,) = captured.err.strip().split("\n")
    return paragraph


def test_a_missing_store_is_told_in_one_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    assert failure(capsys, "/no/such/store").startswith("error: no such path: '/no/such/store'")


def test_a_wrong_option_is_told_in_one_paragraph(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    assert "did you mean 'topic'?" in failure(capsys, str(store), "topik=a")
    assert failure(capsys, str(store), "topic") == "error: expected OPTION=VALUE, such as topic=orders, found 'topic'"
    said = failure(capsys, str(store), "columns=topic")
    assert said == "error: option columns: the demo chooses the columns itself; leave the option out"


def test_what_the_system_refuses_is_told_in_one_paragraph(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/store/commitlog")

    monkeypatch.setattr(demo, "plan_ranges", refuse)

    assert failure(capsys, str(store), code=3) == (
        "error: /store/commitlog: Permission denied. Run this as a user with permission, or change the permissions"
    )


@pytest.mark.spark
def test_damage_is_told_with_the_totals_and_stops_nothing(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = LogBuilder(4096)
    log.append_all(b"one", b"two", b"three")
    log.flip(log.records[1].physical_offset + 4)
    damaged = demo._show(spark, str(log.write(tmp_path)), {}, {})
    shown = capsys.readouterr().out

    assert 1 == damaged
    assert "2 messages" in shown
    assert shown.endswith(f"damaged: {log.records[1].size} bytes are no message, in 1 range\n")


@pytest.mark.spark
def test_with_failfast_damage_is_told_in_the_words_of_the_reader(spark: SparkSession, tmp_path: Path) -> None:
    log = LogBuilder(4096)
    log.append_all(b"one", b"two", b"three")
    log.flip(log.records[1].physical_offset + 4)
    with pytest.raises(Exception, match="bad magic code") as caught:
        demo._show(spark, str(log.write(tmp_path)), {"mode": "FAILFAST"}, {})
    code, paragraph = end_of(caught.value)

    assert code is ExitCode.FAILED
    assert paragraph.startswith(f"bad magic code at offset {log.records[1].physical_offset} of {tmp_path}")
    assert "\n" not in paragraph


@pytest.mark.spark
def test_it_shows_one_segment_and_what_no_terminal_should_be_told(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = LogBuilder(4096)
    log.append(b"\x1b[2Jgone", topic="evil\x07topic")
    segment = next((log.write(tmp_path) / "commitlog").iterdir())
    demo._show(spark, str(segment), {}, {})
    shown = capsys.readouterr().out

    assert "\x1b" not in shown
    assert "evil.topic" in shown
    assert ".[2Jgone" in shown


@pytest.mark.spark
def test_a_store_without_messages_is_shown_too(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(LogBuilder(4096).write(tmp_path / "made"), tmp_path / "empty")
    demo._show(spark, str(tmp_path / "empty"), {}, {})

    assert "(no message)" in capsys.readouterr().out

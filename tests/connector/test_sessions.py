# SPDX-License-Identifier: Apache-2.0
"""Classic and Spark Connect sessions find the source without registering, and give the same answers."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from store_core import read_messages
from store_core.format.columns import DEFAULT_COLUMNS
from tests.connector.session_answers import answers_of
from tests.short_lived import clean_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.connector.stores import WrittenStore

SCRIPT = Path(__file__).with_name("session_answers.py")
CONF = """\
spark.driver.host                         localhost
spark.sql.session.timeZone                UTC
spark.sql.shuffle.partitions              2
spark.ui.enabled                          false
spark.connect.progress.reportInterval     100ms
"""

needs_connect = pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None,  # the lowest dependencies are tested without Connect, see pyproject.toml
    reason="Spark Connect is not installed",
)

# A session answers all questions before the first test, which takes minutes on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def connect(store: WrittenStore, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Ask all questions in a Connect session of a process of its own, with the settings that the project recommends."""
    directory = tmp_path_factory.mktemp("connect")
    conf = directory / "conf"
    conf.mkdir()
    recommended = Path(__file__).parents[2] / "spark-conf"
    settings = (recommended / "spark-defaults.conf").read_text()
    conf.joinpath("spark-defaults.conf").write_text(f"{settings}\n{CONF}")
    conf.joinpath("log4j2.properties").write_text((recommended / "log4j2.properties").read_text())
    # SPARK_TESTING is how PySpark is told to let the server choose a free port.
    ours = {"SPARK_CONF_DIR": str(conf), "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"}
    return subprocess.run(  # noqa: S603 -- our own script
        [sys.executable, "-W", "error", SCRIPT, store.root, directory],
        cwd=directory, env=clean_environment() | ours, capture_output=True, text=True, check=False, timeout=840,
    )  # fmt: skip


@pytest.fixture(scope="module", params=["classic", pytest.param("connect", marks=needs_connect)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def answers(
    kind: str, store: WrittenStore, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Return what a session answers; the classic one is that of all tests."""
    if kind == "classic":
        spark: SparkSession = request.getfixturevalue("spark")
        return dict(answers_of(spark, str(store.root), tmp_path_factory.mktemp(kind)))
    done: subprocess.CompletedProcess[str] = request.getfixturevalue("connect")
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_the_session_is_what_was_asked_for(kind: str, answers: dict[str, Any]) -> None:
    assert (kind == "connect") == answers["kind"].startswith("pyspark.sql.connect")


def test_rows_are_the_records_in_the_order_of_the_log(answers: dict[str, Any], store: WrittenStore) -> None:
    assert [[r.physical_offset, r.topic, r.body.hex()] for r in store.records] == answers["rows"]
    assert list(DEFAULT_COLUMNS) == answers["default_columns"]


def test_options_choose_as_they_do_without_spark(answers: dict[str, Any], store: WrittenStore) -> None:
    options: dict[str, Any] = {"topic": "orders", "queue_id": 1, "filter": "TAGS = 'B'", "filter_type": "SQL92"}
    chosen = read_messages(store.root, columns=["physical_offset"], **options).read_all()["physical_offset"]

    assert chosen.to_pylist() == answers["chosen"] != []


def test_times_without_a_zone_are_in_that_of_the_session(answers: dict[str, Any], store: WrittenStore) -> None:
    assert len(store.records) - 5 == answers["local_times"]


def test_a_schema_prunes(answers: dict[str, Any], store: WrittenStore) -> None:
    assert ["body", "topic", store.records[0].topic] == answers["pruned"]


def test_sql_finds_it_as_well(answers: dict[str, Any], store: WrittenStore) -> None:
    assert len(store.records) == answers["sql"]


def test_an_unknown_option_is_told_in_our_words(answers: dict[str, Any]) -> None:
    assert "unknown option 'colums' of format 'commitlog'" in answers["unknown_option"]


def test_batches_and_streams_are_appended(answers: dict[str, Any]) -> None:
    assert (40, 2) == (answers["appended"], answers["streamed"])


def test_a_store_is_copied_by_a_stream(answers: dict[str, Any], store: WrittenStore) -> None:
    assert len(store.records) == answers["read_stream"][0]


def test_what_a_stream_can_not_do_is_told_in_our_words(answers: dict[str, Any]) -> None:
    text = answers["read_stream"][1]
    before, refusal, _ = text.partition("option endingOffsets: a stream has no end.")

    assert refusal
    assert len(before.splitlines()) <= 2
    assert 'File "' not in text  # no traceback of Python's


def test_the_command_that_appends_works(answers: dict[str, Any], store: WrittenStore) -> None:
    code, out, err = answers["command_appended"]

    assert (0, "") == (code, err)
    assert out.startswith(f"{len(store.records)} messages of ")


def test_queues_are_rebuilt_where_there_are_rdds_and_refused_elsewhere(
    kind: str, answers: dict[str, Any], store: WrittenStore
) -> None:
    code, err, queues = answers["rebuilt"]

    if kind == "classic":
        assert (0, "") == (code, err)
        rows = read_messages(store.root, columns=["topic", "queue_id"]).read_all().to_pylist()
        assert sorted({f"{row['topic']}/{row['queue_id']}" for row in rows}) == queues
    else:
        assert (4, []) == (code, queues)
        assert "needs a session with a sparkContext, because it works on RDDs" in err


def test_progress_is_shown(answers: dict[str, Any]) -> None:
    assert [4, True, []] == answers["progress"]


@needs_connect
def test_neither_grpc_nor_python_warns_and_no_bar_is_saved(connect: subprocess.CompletedProcess[str]) -> None:
    # PySpark 4.1 forks its workers with threads running, of which Python 3.12 and later warn; 4.2 does not. Spark's
    # server tells of answers for which it waits for seconds, as on a busy machine.
    others = ("pyspark/daemon.py", "WARN ExecuteGrpcResponseSender")
    lines = "\n".join(line for line in connect.stderr.splitlines() if not any(other in line for other in others))

    assert [] == re.findall(r"(?im)^(?!\tat ).*(?:grpc|fork|\w+warning\b|\[stage).*$", lines)

# SPDX-License-Identifier: Apache-2.0
"""`spark_session` makes ``format("commitlog")`` work in any shell; our settings exist."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from pyspark.errors import PySparkException

import pyspark_commitlog
from pyspark_commitlog import session, spark_session
from store_core.errors import StoreError
from tests.documents.blocks import ROOT, blocks_of
from tests.documents.runners import matches
from tests.documents.stores import make_world
from tests.short_lived import quick_starts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_FACTS = """
import json
conf = spark.sparkContext.getConf()
print("FACTS", json.dumps({"master": spark.sparkContext.master, "settings": dict(conf.getAll())}))
"""


@pytest.fixture(scope="module")
def first_snippet(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, subprocess.CompletedProcess[str]]:
    """Run the README's first block in a shell without an environment; return the output that the README shows."""
    world = tmp_path_factory.mktemp("readme")
    make_world(world)
    blocks = blocks_of("README.md", (ROOT / "README.md").read_text(encoding="utf-8"))
    first, shown = [block for block in blocks if block.language != "sh"][:2]
    snippet = world / "snippet.py"
    snippet.write_text(first.text.replace("/data/", f"{world}/data/") + _FACTS)
    done = subprocess.run(  # noqa: S603 -- what the README says
        [sys.executable, snippet],
        cwd=world,
        env={"PATH": "/usr/bin:/bin", "HOME": str(world)} | quick_starts(),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    return shown.text, done


@pytest.mark.spark
@pytest.mark.slow
def test_the_readme_s_first_snippet_runs_without_an_activated_environment(
    first_snippet: tuple[str, subprocess.CompletedProcess[str]],
) -> None:
    shown, done = first_snippet

    assert done.returncode == 0, done.stderr
    assert matches(shown, done.stdout.partition("FACTS")[0])
    assert "WARN" not in done.stderr, done.stderr  # Spark's greeting; only a disconnected worker may print
    assert "log4j" not in done.stderr


@pytest.mark.spark
@pytest.mark.slow
def test_a_session_runs_on_all_cores_of_this_machine_with_the_recommended_settings(
    first_snippet: tuple[str, subprocess.CompletedProcess[str]],
) -> None:
    facts = json.loads(first_snippet[1].stdout.partition("FACTS")[2])

    assert facts["master"] == "local[*]"
    assert session.RECOMMENDED.items() <= facts["settings"].items()


@pytest.mark.spark
def test_a_session_that_is_there_is_returned_as_it_is(spark: SparkSession) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = spark_session("another", master="local[7]", config={"spark.sql.shuffle.partitions": 99})

    assert found is spark
    assert found.conf.get("spark.sql.shuffle.partitions") == "2"


def test_the_configuration_file_has_the_recommended_settings_and_the_faster_socket() -> None:
    socket = {"spark.python.unix.domain.socket.enabled": "true"}

    assert settings_of("spark-defaults.conf") == session.RECOMMENDED | socket


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Prevent sessions from being started, and record their settings."""
    kept: dict[str, Any] = {}

    class Builder:
        def __getattr__(self, name: str) -> Callable[..., Builder]:
            def keep(*arguments: object) -> Builder:
                kept[str(arguments[0]) if name == "config" else name] = arguments[-1]
                return self

            return keep

        def getOrCreate(self) -> str:  # noqa: N802 -- Spark's name
            return "session"

    spark = SimpleNamespace(builder=Builder(), getActiveSession=lambda: None)
    monkeypatch.setattr(session, "SparkSession", spark)
    monkeypatch.setattr(session, "_check_python", lambda _: None)
    monkeypatch.setattr(session, "require_java", lambda: None)
    monkeypatch.setattr(os, "environ", {})
    return kept


@pytest.mark.parametrize(
    ("named", "set_to", "taken"),
    [
        (None, None, sys.executable),
        ("/opt/python", "/opt/other", "/opt/python"),
        (None, "/opt/python", "/opt/python"),
    ],
)
def test_the_python_of_a_session_is_the_one_that_somebody_named_or_this_one(
    named: str | None, set_to: str | None, taken: str, started: dict[str, Any]
) -> None:
    os.environ |= {"PYSPARK_PYTHON": named} if named else {}
    spark_session(config={"spark.pyspark.python": set_to} if set_to else None)

    assert os.environ["PYSPARK_PYTHON"] == taken
    assert "master" not in started


def test_settings_that_somebody_chose_win(started: dict[str, Any], tmp_path: Path) -> None:
    tracebacks, bar = session.RECOMMENDED
    (tmp_path / "spark-defaults.conf").write_text(f"# mine\n{bar}  true\n")
    os.environ |= {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": f"--conf {tracebacks}=false pyspark-shell"}
    spark_session("mine", master="local[1]", config={"spark.sql.shuffle.partitions": 4})

    assert started == {"appName": "mine", "master": "local[1]", "spark.sql.shuffle.partitions": "4"}


def test_a_setting_that_is_given_wins_over_a_recommended_one(started: dict[str, Any]) -> None:
    tracebacks, bar = session.RECOMMENDED
    spark_session("mine", config={tracebacks: False})

    assert (started[tracebacks], started[bar]) == ("false", "false")


@pytest.mark.parametrize("name", ["PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"])
def test_what_spark_submit_or_a_connect_server_decides_is_left_to_them(started: dict[str, Any], name: str) -> None:
    os.environ[name] = "1"
    spark_session("mine")

    assert started == {"appName": "mine"}


def test_an_old_pyspark_is_refused_before_spark_starts(
    started: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.5.1")

    with pytest.raises(StoreError, match=r"needs PySpark 4\.1 or later, found 3\.5\.1"):
        spark_session()
    assert not started


# ------------------------------------------------------------------------------------------- the Python of a session


def session_of(java: dict[str, str], worker: str = sys.executable, master: str = "local[2]") -> SparkSession:
    """Return a fake session: with the environment of its Java, and the Python of its workers."""
    virtual = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=SimpleNamespace(getenv=java.get))))
    context = SimpleNamespace(_jvm=virtual, pythonExec=worker, master=master)
    return cast("SparkSession", SimpleNamespace(sparkContext=context))


def warned(spark: SparkSession) -> str:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        session._check_python(spark)
    return "\n".join(str(each.message) for each in found)


def program(directory: Path, says: str) -> str:
    path = directory / "python-of-another"
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ("3 6 True", "which is Python 3.6 ("),
        ("{} {} False".format(*sys.version_info[:2]), "which has no pyspark_commitlog ("),
        ("hello", "which is not Python ("),
    ],
)
@pytest.mark.parametrize("where", ["driver", "java", "worker"])
def test_a_session_with_a_python_that_can_t_find_the_package_is_named(
    tmp_path: Path, says: str, problem: str, where: str
) -> None:
    other = program(tmp_path, says)
    spark = {
        "driver": session_of({"PYSPARK_DRIVER_PYTHON": other, "PYSPARK_PYTHON": sys.executable}),
        "java": session_of({"PYSPARK_PYTHON": other}),
        "worker": session_of({"PYSPARK_PYTHON": sys.executable}, worker=other),
    }[where]
    text = warned(spark)

    assert text.startswith(f"this Spark session runs Python code with {other!r}, {problem}")
    assert f"set PYSPARK_PYTHON={sys.executable} in the environment" in text


def test_another_python_that_finds_the_package_is_as_good(tmp_path: Path) -> None:
    other = program(tmp_path, "{} {} True".format(*sys.version_info[:2]))

    assert warned(session_of({"PYSPARK_PYTHON": other})) == ""


def test_a_python_that_is_not_there_is_named_and_one_of_a_cluster_s_workers_is_not_looked_for() -> None:
    java = {"PYSPARK_PYTHON": sys.executable}

    assert "'/no/python', which does not exist" in warned(session_of({"PYSPARK_PYTHON": "/no/python"}))
    assert warned(session_of(java, worker="./env/bin/python", master="spark://host:7077")) == ""


def test_the_helper_is_a_name_of_the_package() -> None:
    assert pyspark_commitlog.spark_session is session.spark_session
    assert "spark_session" in pyspark_commitlog.__all__


_CONF: Final = Path(__file__).parents[2] / "spark-conf"


def settings_of(name: str) -> dict[str, str]:
    lines = (_CONF / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def test_settings_for_small_messages_are_the_defaults_and_two_more() -> None:
    defaults, small = settings_of("spark-defaults.conf"), settings_of("small-messages.conf")

    assert defaults.items() <= small.items()
    assert small.keys() - defaults.keys() == {
        "spark.sql.execution.arrow.maxBytesPerBatch",
        "spark.sql.execution.arrow.maxRecordsPerBatch",
    }


def test_settings_for_remote_stores_are_the_defaults_and_those_of_the_table() -> None:
    defaults, remote = settings_of("spark-defaults.conf"), settings_of("remote-stores.conf")
    told = (_CONF / "README.md").read_text(encoding="utf-8")

    assert defaults.items() <= remote.items()
    assert all(f"| `{name}={remote[name]}` |" in told for name in remote.keys() - defaults.keys())


def test_spark_knows_the_settings_for_small_messages(spark: SparkSession) -> None:
    added = settings_of("small-messages.conf").keys() - settings_of("spark-defaults.conf").keys()

    assert all(spark.conf.get(setting) for setting in added)
    with pytest.raises(PySparkException, match="NOT_FOUND"):
        spark.conf.get("spark.sql.execution.arrow.noSuchSetting")

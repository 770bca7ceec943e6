# SPDX-License-Identifier: Apache-2.0
"""The options of the Java processes that tests start: an archive of classes changes only how long a start takes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import short_lived
from tests.short_lived import JVM_OPTIONS, clean_environment, configured, prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF = Path(__file__).parents[1] / "spark-conf"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Look for the archive in a place where there is none, in an environment without options."""
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.setattr(short_lived, "ARCHIVE", tmp_path / "spark.jsa")
    return tmp_path / "spark.jsa"


@pytest.mark.usefixtures("archive")
def test_without_an_archive_the_class_path_is_spark_s_own() -> None:
    prepare_environment()

    assert configured(CONF) == {"SPARK_CONF_DIR": str(CONF), "SPARK_SUBMIT_OPTS": JVM_OPTIONS}


def test_with_an_archive_the_directory_of_settings_is_behind_the_jars(archive: Path) -> None:
    archive.touch()
    prepare_environment()
    options = configured(CONF)["SPARK_SUBMIT_OPTS"]

    assert options.startswith(f'{JVM_OPTIONS} -Xlog:cds*=off "-XX:SharedArchiveFile={archive}" -cp "')
    assert options.endswith(f'/jars/*:{CONF}"')
    assert "-cp" not in clean_environment()["SPARK_SUBMIT_OPTS"]  # of a process that has no such directory


def test_what_somebody_has_set_stays(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.touch()
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    prepare_environment()

    assert "-Dmine=1" == os.environ["SPARK_SUBMIT_OPTS"] == configured(CONF)["SPARK_SUBMIT_OPTS"]


@pytest.mark.spark
def test_java_finds_the_directory_of_settings_in_its_class_path(spark: SparkSession) -> None:
    java: Any = spark.sparkContext._jvm
    found = java.java.lang.Thread.currentThread().getContextClassLoader().getResource("log4j2.properties")

    assert str(CONF / "log4j2.properties") == found.getPath()

# SPDX-License-Identifier: Apache-2.0
"""The settings that come with the project are settings that Spark knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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

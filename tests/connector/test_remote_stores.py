# SPDX-License-Identifier: Apache-2.0
"""A store in an object store is a DataFrame, and no setting of it is shown anywhere."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException

from tests.object_store import SECRET, Faults, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from tests.golden_stores import UnpackedStore

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    """Provide a server for all tests of this module."""
    with ObjectStore() as running:
        yield running


def read(spark: SparkSession, url: str, settings: dict[str, str], **options: str) -> DataFrame:
    """Load a URL with settings as options."""
    named = {f"storage.{name}": value for name, value in settings.items()}
    return spark.read.format("commitlog").options(**named, **options).load(url)


def test_dataframe_of_a_url_is_that_of_the_directory(
    spark: SparkSession, server: ObjectStore, golden: Callable[[str], UnpackedStore]
) -> None:
    store = golden("5.3.3/tx")
    url = server.upload(store.root, "tx")
    server.faults = Faults(every=10)
    found = read(spark, url, server.settings)
    assert_df_equality(found, spark.read.format("commitlog").load(str(store.root)))


def test_settings_are_in_no_plan_and_no_error(
    spark: SparkSession, server: ObjectStore, golden: Callable[[str], UnpackedStore]
) -> None:
    url = server.upload(golden("5.3.3/tx").root, "hidden")
    frame = read(spark, url, server.settings)
    plan = io.StringIO()
    with redirect_stdout(plan):
        frame.explain("extended")
    with pytest.raises(PySparkException) as caught:
        read(spark, f"{url}-gone", server.settings).count()
    assert SECRET not in plan.getvalue()
    assert SECRET not in str(caught.value)
    assert f"{url}-gone" in str(caught.value)

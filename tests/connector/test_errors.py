# SPDX-License-Identifier: Apache-2.0
"""Errors as users see them: the first lines say what is wrong, where, and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from tests.builders import BODY_AT, MAGIC_AT, LogBuilder
from tests.connector.stores import plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.connector.stores import Reader, WrittenStore

pytestmark = pytest.mark.spark

HIDE_TRACEBACK = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"
FIRST_LINES = 6


@pytest.fixture(params=["true", "false"], ids=["our settings", "Spark's settings"], autouse=True)
def tracebacks(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    """Run each test with the recommended settings and with Spark's own."""
    spark.conf.set(HIDE_TRACEBACK, request.param)
    yield
    spark.conf.unset(HIDE_TRACEBACK)


def first_lines(action: Callable[[], object]) -> str:
    """Return the first lines of the error that a user sees."""
    with pytest.raises(PySparkException) as caught:
        action()
    return "\n".join(str(caught.value).splitlines()[:FIRST_LINES])


@pytest.mark.parametrize(
    ("path", "schema", "options", "says"),
    [
        ("STORE", None, {"topik": "orders"}, "unknown option 'topik' of format 'commitlog'; did you mean 'topic'?"),
        ("STORE", "Queue_ID string", {}, "column 'Queue_ID' of the schema: expected type int, found string"),
        ("HERE/nothing", None, {}, "StoreNotFoundError: no such path: 'HERE/nothing'"),
        ("nosuch://bucket/store", None, {}, "nosuch://bucket.*Install the package that fsspec needs"),
    ],
)
def test_what_can_not_be_read_is_named_and_no_empty_dataframe(
    path: str, schema: str | None, options: dict[str, str], says: str, read: Reader, store: WrittenStore, tmp_path: Path
) -> None:
    place = path.replace("HERE", str(tmp_path)).replace("STORE", str(store.root))
    text = first_lines(lambda: read(place, schema, **options).count())

    assert re.search(says.replace("HERE", str(tmp_path)).replace("?", r"\?"), text, re.DOTALL), text


@pytest.mark.parametrize(
    ("at", "says"),
    [
        (MAGIC_AT, ("bad magic code at offset {at} of {file}", "expected 0xdaa320a7 or 0xdaa320ab, found 0x00010203")),
        (BODY_AT, ("bad body CRC at offset {at} of {file}", "expected body CRC {crc}, found")),
    ],
    ids=["magic code", "body"],
)
def test_damage_names_file_offset_expected_found_and_the_option_that_goes_on(
    at: int, says: tuple[str, ...], read: Reader, tmp_path: Path
) -> None:
    log = LogBuilder(4096)
    log.append_all(b"one", b"three", b"five")
    broken = log.records[1]
    log.patch(broken.physical_offset + at, b"\0\1\2\3")
    root = log.write(tmp_path / "store")
    text = first_lines(lambda: read(root).collect())
    named = {"at": broken.physical_offset, "file": f"{root}/commitlog/{'0' * 20}", "crc": broken.stored_crc}

    assert [] == [words for words in says if words.format(**named) not in text], text
    assert "mode=DROPMALFORMED" in text


def test_a_segment_that_vanishes_behind_the_plan_names_the_option_that_goes_on(read: Reader, tmp_path: Path) -> None:
    log = LogBuilder(4096)
    log.fill(3)
    root = log.write(tmp_path / "store")
    strict, lenient = read(root), read(root, failOnDataLoss="false")
    plan(strict)
    plan(lenient)
    (root / "commitlog" / f"{0:020d}").unlink()
    text = first_lines(strict.collect)

    assert f"SegmentVanishedError: segment {root}/commitlog/{'0' * 20}" in text
    assert "failOnDataLoss" in text
    assert [r.physical_offset for r in log.records if r.physical_offset >= 4096] == [
        row.physical_offset for row in lenient.collect()
    ]


def test_a_table_is_refused_because_spark_would_lose_its_options(spark: SparkSession, store: WrittenStore) -> None:
    text = first_lines(lambda: spark.sql(f"CREATE TABLE orders USING commitlog OPTIONS (path '{store.root}')"))

    assert "CREATE TABLE ... USING commitlog does not work" in text
    assert "CREATE TEMPORARY VIEW" in text


def test_a_file_that_the_system_refuses_is_named_with_what_to_do_when_it_is_written(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 'orders' AS topic, 'x' AS body")
    text = first_lines(lambda: frame.write.format("commitlog").mode("append").save("/proc/store"))

    assert "StoreError: /proc/store: No such file or directory. Check the path" in text
    assert "in claim" not in text

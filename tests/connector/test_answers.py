# SPDX-License-Identifier: Apache-2.0
"""Answers in a session: the reports are those without Spark, and their tables are DataFrames."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyspark_commitlog import answers
from pyspark_commitlog.answers import export, prove
from pyspark_commitlog.command import main
from store_core import RebuildOptions
from store_core import answers as core
from store_core.answers import rebuild as core_rebuild
from store_core.command.console import Console
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from tests.builders import BODY_AT, LogBuilder
from tests.store_core.answers.test_golden_json import CASES, beside_another, golden_of, json_of, life_store
from tests.store_core.files.store_kinds import every_file
from tests.viewed_store import make_viewed_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pyspark_commitlog.answers import Answer
    from store_core.answers.report import Report
    from store_core.store.export.lake_table import LakeFormat
    from tests.connector.stores import WrittenStore

pytestmark = pytest.mark.spark

LAGGING: dict[str, Any] = {"group": ["billing"], "now": 2_000_000_000_000, "messages": True, "rows": 5}


@pytest.fixture
def stores(tmp_path: Path) -> tuple[str, str]:
    """Make a sound and a damaged store."""
    log = LogBuilder()
    log.append_all(*(b"body %d" % number for number in range(40)), properties=b"KEYS\x01k1 k2\x02")
    sound = log.write(tmp_path / "sound")
    log.flip(log.records[7].physical_offset + BODY_AT, 3)
    return str(sound), str(log.write(tmp_path / "damaged"))


def test_tables_are_dataframes_of_the_same_rows(spark: SparkSession, stores: tuple[str, str]) -> None:
    """Answers without arguments, with a second one, and with options; each one's report is judged with its command."""
    sound, damaged = stores
    consumed = str(make_viewed_store(Path(damaged).with_name("consumed")))
    pairs: list[tuple[Answer[Any], Report[Any]]] = [
        (answers.check(spark, damaged), core.check(damaged)),
        (answers.diff(spark, sound, damaged), core.diff(sound, damaged)),
        (answers.lag(spark, consumed, **LAGGING), core.lag(consumed, **LAGGING)),
    ]
    for answer, expected in pairs:
        assert expected.to_json() == answer.report.to_json()
        assert expected.verdict is answer.verdict
        assert expected.to_text() == str(answer)
        assert answer._repr_html_() == expected._repr_html_()
        for name, table in expected.tables.items():
            assert table.column_names == answer.frame(name).columns
    records, table = pairs[1][0].frame("records"), pairs[1][1].tables["records"]
    assert table.to_pylist() == records.toArrow().to_pylist() != []


def test_an_unknown_table_is_refused_by_name(spark: SparkSession, stores: tuple[str, str]) -> None:
    answer = answers.salvage(spark, stores[0])

    with pytest.raises(InvalidOptionError, match="no table 'found' in this report; it has lost, grades, ranges"):
        answer.frame("found")


def test_a_repair_in_a_session_writes_what_the_process_writes(spark: SparkSession, tmp_path: Path) -> None:
    log = LogBuilder()
    log.append_all(*(b"body %d" % number for number in range(40)))
    here = log.write(tmp_path / "here")
    there = shutil.copytree(here, tmp_path / "there")
    plan = answers.plan_repair(spark, there)
    assert core.plan_repair(there).to_json() == plan.report.to_json()

    for store, made in ((here, core.plan_repair(here)), (there, plan.report)):
        store.with_suffix(".json").write_text(json.dumps(made.to_json()))
    expected = core.repair(here, here.with_suffix(".json"))
    answer = answers.repair(spark, there, there.with_suffix(".json"))
    assert expected.tables == answer.report.tables
    files = [list(every_file(store / "consumequeue").values()) for store in (here, there)]
    assert files[0] == files[1]
    assert files[0]


def test_a_rebuild_in_a_session_writes_what_the_process_writes(
    spark: SparkSession, stores: tuple[str, str], tmp_path: Path
) -> None:
    for call, here in (
        (answers.rebuild_consume_queue, core_rebuild.rebuild_consume_queue),
        (answers.rebuild_index, core_rebuild.rebuild_index),
    ):
        made = [tmp_path / here.__name__ / name for name in ("here", "there")]
        there = call(spark, stores[0], RebuildOptions(output=made[1], hash_slot_num=100, index_num=400))
        assert (
            here(stores[0], RebuildOptions(output=made[0], hash_slot_num=100, index_num=400)).verdict is there.verdict
        )
        files = [list(every_file(each).values()) for each in made]
        assert files[0] == files[1]
        assert files[0]


WITHOUT_SPARK: Final = {"count", "info"}


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("reports")
    return beside_another(life_store(base), base / "life")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("case", sorted(CASES.keys() - WITHOUT_SPARK))
def test_a_report_on_spark_is_that_of_the_command(case: str, life: Path) -> None:
    assert golden_of(case, "life").read_text(encoding="utf-8") == json_of(case, life, Console(is_on_spark=True))


@pytest.mark.parametrize(
    ("kind", "table", "needed"),
    [
        ("delta", None, r"io\.delta:delta-spark_\d\.\d_2\.13"),
        ("iceberg", "lake.db.t", r"org\.apache\.iceberg:iceberg-spark-runtime-\d\.\d_2\.13, and a catalog"),
    ],
)
def test_what_a_session_lacks_is_named(
    spark: SparkSession, store: WrittenStore, tmp_path: Path, kind: LakeFormat, table: str | None, needed: str
) -> None:
    with pytest.raises(UnsupportedStoreError, match=rf"format {kind} does not work in this session: .*{needed}"):
        export(spark, store.root, tmp_path / "lake", kind=kind, table=table)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in {".json", ".parquet", ".pending"}]


def test_a_table_is_named_where_the_format_needs_it(spark: SparkSession, store: WrittenStore, tmp_path: Path) -> None:
    for kind, table in (("iceberg", None), ("delta", "t"), ("parquet", "t")):
        with pytest.raises(InvalidOptionError, match="Iceberg needs CATALOG"):
            prove(spark, store.root, tmp_path, kind=kind, table=table)
    with pytest.raises(InvalidOptionError, match="expected one of parquet, iceberg, delta, found 'hudi'"):
        prove(spark, store.root, tmp_path, kind="hudi")
    assert 2 == main(["export", str(store.root), "--into", str(tmp_path), "--format", "iceberg"])

# SPDX-License-Identifier: Apache-2.0
"""Answers on Spark: their reports are those without it, their tables DataFrames, and each can be had in all ways."""

from __future__ import annotations

import inspect
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import pyspark_commitlog.answers
import store_core.answers
from pyspark_commitlog import answers
from pyspark_commitlog.answers import SparkEngine, export, prove
from pyspark_commitlog.command import main
from store_core import RebuildOptions, read_messages
from store_core import answers as core
from store_core.answers import rebuild as core_rebuild
from store_core.command.console import Console
from store_core.errors import InvalidOptionError, UnsupportedStoreError
from store_core.store.parts import InProcess
from store_core.store.rebuild import segment_scan
from store_core.store.rebuild.job import rebuild_by
from store_core.store.rebuild.queue_compare import LogBounds
from tests.builders import BODY_AT, LogBuilder
from tests.life_logs import LifeLog
from tests.store_core.answers.test_golden_json import CASES, beside_another, golden_of, json_of, life_store
from tests.store_core.files.store_kinds import every_file
from tests.store_core.rebuilt import golden_rules, index_files, queue_files
from tests.viewed_store import make_viewed_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from pyspark_commitlog.answers import Answer
    from store_core.answers.report import Report
    from store_core.store.export.lake_table import LakeFormat
    from tests.connector.stores import WrittenStore
    from tests.golden_stores import Golden


LAGGING: dict[str, Any] = {"group": ["billing"], "now": 2_000_000_000_000, "messages": True, "rows": 5}


@pytest.fixture
def stores(tmp_path: Path) -> tuple[str, str]:
    """Make a sound and a damaged store."""
    log = LogBuilder()
    log.append_all(*(b"body %d" % number for number in range(40)), properties=b"KEYS\x01k1 k2\x02")
    sound = log.write(tmp_path / "sound")
    log.flip(log.records[7].physical_offset + BODY_AT, 3)
    return str(sound), str(log.write(tmp_path / "damaged"))


@pytest.mark.spark
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
    answer, tables = pairs[1][0], pairs[1][1].tables
    assert tables["records"].to_pylist() == answer.frame("records").toArrow().to_pylist() != []
    with pytest.raises(InvalidOptionError, match=f"no table 'found' in this report; it has {', '.join(tables)}"):
        answer.frame("found")


@pytest.mark.spark
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


@pytest.mark.spark
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


@pytest.mark.spark
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


@pytest.mark.spark
def test_a_table_is_named_where_the_format_needs_it(spark: SparkSession, store: WrittenStore, tmp_path: Path) -> None:
    for kind, table in (("iceberg", None), ("delta", "t"), ("parquet", "t")):
        with pytest.raises(InvalidOptionError, match="Iceberg needs CATALOG"):
            prove(spark, store.root, tmp_path, kind=kind, table=table)
    with pytest.raises(InvalidOptionError, match="expected one of parquet, iceberg, delta, found 'hudi'"):
        prove(spark, store.root, tmp_path, kind="hudi")
    assert 2 == main(["export", str(store.root), "--into", str(tmp_path), "--format", "iceberg"])


# ---- every answer


_ROOT: Final = Path(__file__).parents[2]
_PAGES: Final = {
    "bill": "guides/disk-and-producers",
    "check": "incidents/queues-and-index",
    "dead_letters": "guides/what-happened",
    "delays": "guides/what-happened",
    "diff": "incidents/lost-messages",
    "export": "guides/export",
    "lag": "guides/consumers",
    "producers": "guides/disk-and-producers",
    "prove": "guides/export",
    "recover": "guides/object-stores",
    "redact": "guides/export",
    "repair": "incidents/queues-and-index",
    "replay": "guides/what-happened",
    "retention": "guides/disk-and-producers",
    "salvage": "incidents/lost-messages",
    "trace": "guides/what-happened",
    "transactions": "guides/what-happened",
}
"""The page that explains an answer, by the name of its function."""

_ARGUMENTS: Final = {"prove": "export --prove", "dead_letters": "deadletters", "plan_repair": "repair --dry-run"}
"""How the command says it, where it is not the function's name."""

_OF_THE_PROCESS: Final = {"processes", "on_progress", "clock", "file_system"}
"""Parameters of answers in processes of their own, and of tests."""


def _command(answer: str) -> str:
    return _ARGUMENTS.get(answer, answer).split()[0]


def test_no_answer_is_missing_here() -> None:
    found = {name for name in store_core.answers.__all__ if inspect.isfunction(getattr(store_core.answers, name))}
    assert {*_PAGES, "plan_repair", "processes"} == found  # and an engine


@pytest.mark.parametrize("answer", [*_PAGES, "plan_repair"])
def test_an_answer_has_a_function_on_spark_with_the_same_parameters(answer: str) -> None:
    of_core = set(inspect.signature(getattr(store_core.answers, answer)).parameters)
    of_spark = set(inspect.signature(getattr(pyspark_commitlog.answers, answer)).parameters)

    assert {"spark"} == of_spark - of_core
    assert of_core - of_spark <= _OF_THE_PROCESS


@pytest.mark.parametrize(("answer", "page"), _PAGES.items())
def test_an_answer_has_a_page_with_its_command_and_where_its_function_is(answer: str, page: str) -> None:
    text = (_ROOT / "docs" / f"{page}.md").read_text()
    assert f"commitlog {_command(answer)} " in text
    assert "pyspark_commitlog.answers" in text or "store_core.answers" in text


# ---- the engine


@pytest.mark.spark
def test_parts_and_groups_are_merged_in_their_order(spark: SparkSession) -> None:
    @dataclass(frozen=True)
    class Squares:  # here, because Spark's workers can't import this module
        count: int

        def plan(self) -> Sequence[int]:
            return range(self.count)

        def run(self, part: int) -> int:
            return part**2

        def merge(self, partials: Iterable[int]) -> list[int]:
            return list(partials)

    @dataclass(frozen=True)
    class Remainders:
        count: int
        groups: int

        def plan(self) -> Sequence[int]:
            return range(self.count)[::-1]

        def run(self, part: int) -> Iterator[tuple[tuple[int, int], str]]:
            yield (part % self.groups, part), f"{part}"

        def gather(self, pieces: Iterable[tuple[tuple[int, int], str]]) -> Iterator[str]:
            found = [piece for _, piece in pieces]
            if found:
                yield " ".join(found)

        def merge(self, partials: Iterable[str]) -> list[str]:
            return list(partials)

    engine = SparkEngine(spark)

    for count in (9, 0):
        assert InProcess().run(Squares(count)) == engine.run(Squares(count))
        assert InProcess().run_grouped(Remainders(count, 4)) == engine.run_grouped(Remainders(count, 4))


@pytest.mark.spark
@pytest.mark.golden
@pytest.mark.parametrize("name", ["4.3.0/tx", "4.9.7/lmq", "5.3.3/bcq", "5.3.3/delay", "5.3.3/propcrc"])
def test_spark_rebuilds_and_compares_as_this_process_does_and_rocketmq_did(
    name: str,
    spark: SparkSession,
    golden: Golden,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = golden(name)
    monkeypatch.setattr(segment_scan, "_SMALLEST_PART", 5000)
    rules = golden_rules(store)
    here, there = InProcess(), SparkEngine(spark)
    rebuilt = rebuild_by(here, store.root, tmp_path / "here", rules)
    bounds = LogBounds(int(store.segments[0].name))

    assert rebuilt == rebuild_by(there, store.root, tmp_path / "there", rules)
    for made in ("here", "there"):
        assert queue_files(store.root) == queue_files(tmp_path / made)
        assert index_files(store.root) == index_files(tmp_path / made)
    assert rebuild_by(here, store.root, tmp_path / "none", rules, compared=bounds) == rebuild_by(
        there, store.root, tmp_path / "none", rules, compared=bounds
    )


# ---- replays


@pytest.mark.spark
def test_a_replay_is_chosen_and_edited_by_sql_and_made_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark  # the job uses the running session
    log = LifeLog()
    for key, group in (("a", "billing"), ("b", "billing"), ("c", "other")):
        log.dead(log.send(key, body=b"broken"), key, group)
    store, new = str(log.write(tmp_path / "store")), str(tmp_path / "new")
    edits = ("--edit", "body=encode(concat('mended ', properties['KEYS']), 'UTF-8')")
    words = ["replay", store, "--id", "T-1", "--into", new, "--topic", "%DLQ%billing", *edits]

    assert 0 == main([*words, "--where", "array_contains(keys, 'b')"])
    assert "1 message of" in capsys.readouterr().out
    assert 0 == main(words)
    assert "is in the store already: nothing was appended" in capsys.readouterr().out
    assert 0 == main([*words, "--dry-run"])
    assert "is in the store already: nothing would be appended" in capsys.readouterr().out
    (row,) = read_messages(new).read_all().to_pylist()
    assert ("orders", b"mended b", 0) == (row["topic"], row["body"], row["reconsume_times"])
    expected = {"REPLAY_ID": "T-1", "REPLAY_ORIGIN_TOPIC": "%DLQ%billing", "UNIQ_KEY": "U-b"}
    assert expected.items() <= dict(row["properties"]).items()
    assert "RETRY_TOPIC" not in dict(row["properties"])
    assert 2 == main(["replay", store, "--id", "T-2", "--edit", "bodi='x'"])
    for option in ("--decompress", "--mode=PERMISSIVE", "--columns=body"):
        assert 2 == main(["replay", store, "--id", "T-2", option])
    capsys.readouterr()


@pytest.mark.spark
def test_a_replay_sends_a_delayed_message_to_its_own_topic_and_a_half_one_nowhere(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark  # as above
    log = LifeLog()
    log.append(b"later", topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "3", "REAL_TOPIC": "mail", "REAL_QID": "0"})
    log.append(b"half", topic="RMQ_SYS_TRANS_HALF_TOPIC", properties={"REAL_TOPIC": "mail", "TRAN_MSG": "true"})
    store, new = str(log.write(tmp_path / "store")), str(tmp_path / "new")

    assert 2 == main(["replay", store, "--id", "T-1", "--into", new])
    assert "RMQ_SYS_TRANS_HALF_TOPIC" in capsys.readouterr().err
    assert 0 == main(["replay", store, "--id", "T-1", "--into", new, "--topic", "SCHEDULE_TOPIC_XXXX"])
    assert [("mail", b"later")] == [(row["topic"], row["body"]) for row in read_messages(new).read_all().to_pylist()]

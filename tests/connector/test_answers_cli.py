# SPDX-License-Identifier: Apache-2.0
"""The jobs that answer questions about a store, in the tests' session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pyspark_commitlog.command import main
from store_core.format.release import RELEASES
from tests.builders import BODY_AT, LogBuilder
from tests.store_core.files.store_kinds import every_file
from tests.viewed_store import make_viewed_store

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def log() -> LogBuilder:
    made = LogBuilder()
    made.append_all(*(b"body %d" % number for number in range(60)))
    return made


def test_check_ends_with_1_where_something_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(log().write(tmp_path / "store"))
    (tmp_path / "store" / "consumequeue" / "other" / "0").mkdir(parents=True)

    assert 1 == main(["check", store, "--no-bodies"])
    assert "misplaced records: 0 of 1 queue" in capsys.readouterr().out
    assert 1 == main(["check", store, "--no-bodies", "--json", "--html", str(tmp_path / "page")])
    report = json.loads(capsys.readouterr().out)
    assert ["unit_missing"] == [each["kind"] for each in report["tables"]["counts"]]
    assert "unit_missing" in (tmp_path / "page").read_text()
    assert 2 == main(["check", store, "--topic", "no such topic"])


def test_diff_ends_with_1_where_logs_differ(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark.sparkContext.defaultParallelism > 1
    changed = log()
    changed.flip(changed.records[3].physical_offset + BODY_AT)
    stores = [str(log().write(tmp_path / "a")), str(changed.write(tmp_path / "b"))]

    assert 1 == main(["diff", *stores, "--json"])
    assert 1 == json.loads(capsys.readouterr().out)["changed_records"]
    assert 0 == main(["diff", stores[0], stores[0], "--by", "records"])
    assert 2 == main(["diff", stores[0], str(tmp_path / "none")])


def test_recover_shows_what_each_release_would_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = log().write(tmp_path / "store")
    before = every_file(store)

    assert 1 == main(["recover", str(store), "--dry-run", "--release", "all"])
    assert "What each release would do" in capsys.readouterr().out
    assert 1 == main(["recover", str(store), "--dry-run", "--release", "all", "--json"])
    assert set(RELEASES) == {row["release"] for row in json.loads(capsys.readouterr().out)["tables"]["releases"]}
    assert before == every_file(store)
    assert 2 == main(["recover", str(store)])


def test_repair_plans_and_does_what_the_plan_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, plan = str(log().write(tmp_path / "store")), str(tmp_path / "plan.json")

    assert 1 == main(["repair", store, "--plan", plan])
    assert "queues: 1 to replace" in capsys.readouterr().out
    assert not (tmp_path / "store" / "consumequeue").exists()
    assert 0 == main(["repair", store, "--apply", plan, "--json"])
    rows = json.loads(capsys.readouterr().out)["tables"]["places"]
    assert ["consumequeue/orders/0"] == [row["place"] for row in rows]
    assert 0 == main(["check", store])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--plan", "there"], "there exists already"),
        (["--apply", "nowhere"], "nowhere does not exist"),
        (["--apply", "there", "--release", "5.3"], "can't be combined with --plan, --release"),
        (["--apply", "there", "--plan", "new"], "can't be combined with --plan"),
    ],
)
def test_a_repair_is_refused_before_it_begins(
    options: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("there").touch()

    assert 2 == main(["repair", "store", *options])
    assert words in capsys.readouterr().err


def test_salvage_ends_with_5_where_something_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = log()
    damaged.flip(damaged.records[3].physical_offset + BODY_AT)
    store = str(damaged.write(tmp_path / "store"))

    assert 5 == main(["salvage", store, "--into", str(tmp_path / "new")])
    assert "59 records" in capsys.readouterr().out
    assert 0 == main(["salvage", str(tmp_path / "new"), "--html", str(tmp_path / "page")])
    assert (tmp_path / "page").read_text().startswith("<!DOCTYPE html>")
    assert 2 == main(["salvage", store, "--into", str(tmp_path / "new")])


def test_bill_prints_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(log().write(tmp_path / "store"))

    assert 0 == main(["bill", store, "--rows", "1", "--json"])
    assert (60, 1) == ((report := json.loads(capsys.readouterr().out))["messages"], len(report["tables"]["topics"]))
    assert 2 == main(["bill", str(tmp_path / "none")])


def test_producers_end_with_1_where_a_message_was_sent_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = LogBuilder()
    twice.append_all(b"one", b"two", properties={"UNIQ_KEY": "K1"})

    assert 1 == main(["producers", str(twice.write(tmp_path / "store")), "--json"])
    assert 1 == json.loads(capsys.readouterr().out)["duplicate_keys"]
    assert 0 == main(["producers", str(log().write(tmp_path / "sound"))])


def test_lag_prints_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(make_viewed_store(tmp_path / "store"))

    assert 1 == main(["lag", store, "--group", "audit", "--messages", "--rows", "3", "--json"])
    assert (30, 3) == ((report := json.loads(capsys.readouterr().out))["messages"], len(report["tables"]["messages"]))
    assert 2 == main(["lag", store, "--group", "nobody"])


def test_an_export_on_spark_is_proved_and_has_what_the_log_has(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, lake = str(log().write(tmp_path / "store")), str(tmp_path / "lake")

    assert 0 == main(["export", store, "--into", lake, "--json"])
    assert 60 == json.loads(capsys.readouterr().out)["messages"]
    assert 0 == main(["export", store, "--into", lake, "--prove"])
    rows = spark.read.parquet(lake).orderBy("physical_offset").select("topic", "body").collect()
    assert [("orders", each.body) for each in log().records] == [(row["topic"], bytes(row["body"])) for row in rows]
    next((tmp_path / "lake").glob("topic=orders/*/*.parquet")).unlink()
    assert 1 == main(["export", store, "--into", lake, "--prove"])


def test_a_redaction_on_spark_leaves_nothing_or_no_copy(tmp_path: Path) -> None:
    store, copy = str(log().write(tmp_path / "store")), tmp_path / "copy"

    assert 0 == main(["redact", store, "--into", str(copy), "--text", "body 1"])
    assert not [path for path in copy.rglob("*") if path.is_file() and b"body 1" in path.read_bytes()]
    assert 4 == main(["redact", store, "--into", str(tmp_path / "no"), "--text", "orders"])
    assert not (tmp_path / "no").exists()


def test_retention_ends_with_1_where_messages_go_that_nobody_consumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(make_viewed_store(tmp_path / "store"))

    now = ["--now", "2000000000000", "--days", "2", "--time-zone", "UTC", "--daily-growth", "0"]

    assert 1 == main(["retention", store, *now, "--json"])
    assert "billing" in {row["consumer_group"] for row in json.loads(capsys.readouterr().out)["tables"]["losses"]}
    assert 2 == main(["retention", store, "--days", "0"])

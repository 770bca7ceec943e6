# SPDX-License-Identifier: Apache-2.0
"""What is answered about several stores at once: sums of what is answered about each, or one after the other."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from pyspark_commitlog.sample import orders_store
from store_core import DefaultMessageStore, Message, stores_of
from store_core.answers import (
    Info,
    bill,
    check,
    dead_letters,
    diff,
    export,
    lag,
    trace,
)
from store_core.answers.plots import HeatMap
from store_core.errors import InvalidOptionError, StoreNotFoundError
from tests.golden_stores import find_golden_store, unpack
from tests.store_core.answers.asked import answers_at
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from store_core.answers.plots import Plot

_SUMMED = ("bill", "deadletters", "delays", "lag", "producers", "transactions")
_NO_SUMS = {"segment_size", "begin", "end", "groups"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Make three stores: two that RocketMQ wrote, and one with groups, retries and dead letters."""
    top = tmp_path_factory.mktemp("cluster")
    golden = [unpack(find_golden_store(f"5.5.0/{name}"), top / name).root for name in ("tx", "delay")]
    return [*golden, orders_store(top / "sample")]


@pytest.mark.parametrize("answer", _SUMMED)
def test_facts_are_sums_and_rows_are_those_of_each(stores: list[Path], answer: str) -> None:
    asked = answers_at(1_800_000_000_000, "")[answer]
    alone = {store.name: asked.ask(store.paths) for store in stores_of(stores)}
    both = asked.ask(stores)

    numbers = {
        name: value
        for name, value in both.facts.items()
        if isinstance(value, int) and not isinstance(value, bool) and name not in _NO_SUMS
    }
    assert {name: sum(each.facts[name] or 0 for each in alone.values()) for name in numbers} == numbers
    for name, table in both.tables.items():
        expected = [
            {"store": store, **row} for store, report in alone.items() for row in report.tables[name].to_pylist()
        ]
        rows = table.to_pylist()
        if "store" not in table.column_names:
            assert sum(row["messages"] or 0 for row in expected) == sum(row["messages"] or 0 for row in rows)
        else:
            assert [_without_share(row) for row in expected] == [_without_share(row) for row in rows]


@pytest.mark.parametrize("answer", _SUMMED)
def test_what_is_drawn_of_several_stores_is_what_their_tables_have(stores: list[Path], answer: str) -> None:
    asked = answers_at(1_800_000_000_000, "")[answer]
    found = asked.ask(stores)
    alone = [plot for store in stores for plot in asked.ask(store).plots]

    assert {plot.title for plot in found.plots} == {plot.title for plot in alone}
    assert _heat(alone) == _heat(found.plots)
    assert (answer == "delays") == bool(_heat(alone))


def _heat(plots: Iterable[Plot]) -> int:
    return sum(sum(row.values) for plot in plots if isinstance(plot, HeatMap) for row in plot.heat)


def _without_share(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "percent"}


def test_shares_are_of_all_stores(stores: list[Path]) -> None:
    rows = bill(stores).tables["queues"].to_pylist()

    assert 99.5 < sum(row["percent"] for row in rows) < 100.5


def test_groups_and_their_topics_are_summed_over_all_brokers(stores: list[Path], tmp_path: Path) -> None:
    twins = [shutil.copytree(stores[2], tmp_path / name) for name in ("a", "b")]
    alone = lag(twins[0], now=1_800_000_000_000)
    found = lag(twins, now=1_800_000_000_000)
    for table, by in [("groups", ["consumer_group"]), ("topics", ["consumer_group", "topic", "kind"])]:
        rows = {tuple(row[name] for name in by): row for row in found.tables[table].to_pylist()}
        assert len(rows) == found.tables[table].num_rows == alone.tables[table].num_rows
        for row in alone.tables[table].to_pylist():
            summed = rows[tuple(row[name] for name in by)]
            assert (2 * (row["messages"] or 0), row["age_ms"]) == (summed["messages"] or 0, summed["age_ms"])
    assert alone.facts["groups"] == found.facts["groups"]
    assert {"a", "b"} == set(found.tables["queues"]["store"].to_pylist())
    assert "store" in found.to_text(200)


def test_one_store_of_a_list_is_answered_as_alone(stores: list[Path]) -> None:
    assert bill(stores[0]).to_json() == bill([stores[0], stores[0]]).to_json()


def test_a_damaged_store_does_not_keep_the_others_from_an_answer(stores: list[Path], tmp_path: Path) -> None:
    (tmp_path / "broken" / "consumequeue").mkdir(parents=True)
    found = call("bill", stores[0], tmp_path / "broken", "--json")
    report = json.loads(found.text)

    assert 323 == report["messages"]
    assert 2 == found.code
    assert "commitlog is missing" in found.errors
    assert ["error"] == [key for each in report["stores"] for key in each if key == "error"]
    assert any("broken is not answered for" in note for note in report["notes"])
    with pytest.raises(StoreNotFoundError, match="commitlog is missing"):
        bill([tmp_path / "broken", shutil.copytree(tmp_path / "broken", tmp_path / "too")])


def test_checks_come_one_after_the_other_and_the_worst_counts(stores: list[Path], tmp_path: Path) -> None:
    broken = shutil.copytree(stores[2], tmp_path / "broken")
    next(path for path in sorted(broken.glob("consumequeue/orders/*/*"))).unlink()
    text, asked = call("check", stores[0], broken), call("check", stores[0], broken, "--json")
    report = json.loads(asked.text)

    assert (1, 1) == (text.code, asked.code)
    assert 2 == sum(line.startswith("== ") for line in text.lines)
    assert ("commitlog-stores/1", "check", "findings") == (report["schema"], report["answer"], report["verdict"])
    assert ["clean", "findings"] == [each["verdict"] for each in report["stores"]]
    assert check(stores[0]).to_json() == {name: value for name, value in report["stores"][0].items() if name != "name"}
    assert "broken" in check([stores[0], broken]).to_html()
    assert 2 == len(Info().ask(stores[:2]).stores)


def test_a_message_is_traced_over_brokers(stores: list[Path], tmp_path: Path) -> None:
    """A copy of a store stands for a broker that has other records of the same messages."""
    here, there = stores[2], shutil.copytree(stores[2], tmp_path / "there")
    key = next(row["unique_key"] for row in _letters(here) if row["unique_key"])
    alone, found = trace(here, key), trace([here, there, stores[0]], key)

    assert 2 * alone.facts["records"] == found.facts["records"]
    assert alone.facts["messages"] == found.facts["messages"]
    times = found.tables["steps"]["store_timestamp"].to_pylist()
    assert sorted(times) == times
    assert 2 == len(set(found.tables["steps"]["store"].to_pylist()))
    assert 2 == call("trace", here, there, "no such key").code
    assert call("trace", here, stores[0], key).code == call("trace", here, key).code


def test_a_place_on_one_broker_leads_to_copies_on_others(stores: list[Path], tmp_path: Path) -> None:
    row = next(row for row in _letters(stores[2]) if row["unique_key"])
    place = f"{row['topic']}/{row['queue_id']}/{row['queue_offset']}"
    with DefaultMessageStore.open(tmp_path / "other") as other:
        other.put_message(Message("%RETRY%billing", b"again", properties={"UNIQ_KEY": row["unique_key"]}))
    found = trace([stores[2], tmp_path / "other"], place)

    assert "%RETRY%billing" in {
        step["topic"] for step in found.tables["steps"].to_pylist() if step["store"].endswith("other")
    }
    assert not [each.error for each in found.stores if each.error]


def _names(stores: list[Path]) -> list[str]:
    return [store.name for store in stores_of(stores)]


def _letters(store: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = dead_letters(store).tables["letters"].to_pylist()
    return rows


def test_an_export_has_a_partition_for_each_store(stores: list[Path], tmp_path: Path) -> None:
    found = call("export", *stores[:2], "--into", tmp_path / "lake")
    again = call("export", *stores[:2], "--into", tmp_path / "lake")

    assert (0, 0) == (found.code, again.code)
    assert 624 == pq.read_table(tmp_path / "lake").num_rows
    assert set(_names(stores[:2])) == set(pq.read_table(tmp_path / "lake")["store"].to_pylist())
    assert 624 == sum(
        each.report.facts["messages"] for each in export(stores[:2], tmp_path / "two").stores if each.report
    )


def test_what_is_about_one_store_refuses_several(stores: list[Path]) -> None:
    with pytest.raises(InvalidOptionError, match="expected one store, found 3"):
        diff(stores, stores[0])

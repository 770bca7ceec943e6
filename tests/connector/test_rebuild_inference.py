# SPDX-License-Identifier: Apache-2.0
"""Kinds of queues that a rebuild infers from records when no directory, option or file shows them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from store_core.queue.queue_path import QueueRules
from store_core.store.rebuild import segment_scan
from store_core.store.rebuild.job import rebuild_by
from store_core.store.rebuild.plan import RebuildRules
from tests.builders import LogBuilder
from tests.connector.called import LocalRunner, rebuild_here, rebuilt_queues
from tests.store_core.rebuilt import golden_rules, queue_files

if TYPE_CHECKING:
    from store_core.format.release import Release
    from tests.golden_stores import Golden, UnpackedStore

BATCH_CONF = "mappedFileSizeConsumeQueue=800\nmapperFileSizeBatchConsumeQueue=460\n"
INNER = {"INNER_NUM": "2", "INNER_BASE": "0"}
LISTS = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "0"}
INNER_BATCH_FLAG = 0x80


def bare(store: UnpackedStore, directory: Path) -> Path:
    """Copy a store without its queues."""
    lost = shutil.ignore_patterns("consumequeue", "consumequeue_ext", "batchconsumequeue")
    return Path(shutil.copytree(store.root, directory / "store", ignore=lost))


@pytest.mark.golden
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("name", "engine"), [("4.9.7/lmq", ()), ("4.9.7/lmq", ("--spark",)), ("5.3.3/lmq", ())])
def test_light_queues_are_rebuilt_because_records_name_them(
    name: str, engine: tuple[str, ...], golden: Golden, tmp_path: Path
) -> None:
    store = golden(name)
    words = ("--consume-queue-file-size", "800", "--release", store.golden.release, "--replace", *engine)
    report = rebuilt_queues(bare(store, tmp_path), *words)
    kept = {name: data for name, data in queue_files(store.root).items() if "%LMQ%" in name}

    assert len(kept) > 0
    assert queue_files(store.root) == queue_files(tmp_path / "store")
    assert 0 == report["exit_code"]
    assert any("light queues are rebuilt" in note and "--no-light" in note for note in report["notes"])


@pytest.mark.golden
def test_light_queues_can_be_left_out(golden: Golden, tmp_path: Path) -> None:
    store = golden("4.9.7/lmq")
    report = rebuilt_queues(bare(store, tmp_path), "--consume-queue-file-size", "800", "--release", "4.9", "--no-light")
    expected = {name: data for name, data in queue_files(store.root).items() if "%LMQ%" not in name}

    assert expected == queue_files(tmp_path / "store" / "rebuilt")
    assert any("light queues are left out, as --no-light says" in note for note in report["notes"])


@pytest.mark.golden
def test_the_brokers_configuration_decides_unless_an_option_does(golden: Golden, tmp_path: Path) -> None:
    store = golden("4.9.7/lmq")
    (tmp_path / "broker.conf").write_text("mappedFileSizeConsumeQueue=800\n")
    options = ("--release", "4.9", "--config", str(tmp_path / "broker.conf"))
    left_out = rebuilt_queues(bare(store, tmp_path), *options)["notes"]

    assert any("light queues are left out, as --config says" in note for note in left_out)
    assert not any("%LMQ%" in name for name in queue_files(tmp_path / "store" / "rebuilt"))
    rebuilt_queues(tmp_path / "store", *options, "--light")
    assert queue_files(store.root) == queue_files(tmp_path / "store" / "rebuilt")


@pytest.mark.golden
def test_a_verify_finds_light_queues_that_are_lost(golden: Golden, tmp_path: Path) -> None:
    store = Path(shutil.copytree(golden("4.9.7/lmq").root, tmp_path / "store"))
    for path in (store / "consumequeue").glob("%LMQ%*"):
        shutil.rmtree(path)

    assert 1 == rebuilt_queues(store, "--release", "4.9", "--verify")["exit_code"]
    assert 0 == rebuilt_queues(store, "--release", "4.9", "--verify", "--no-light")["exit_code"]


@pytest.mark.golden
def test_batch_topics_are_told_by_their_inner_batches(golden: Golden, tmp_path: Path) -> None:
    store = golden("5.3.3/bcq")
    (tmp_path / "broker.conf").write_text(BATCH_CONF)
    report = rebuilt_queues(bare(store, tmp_path), "--replace", "--config", str(tmp_path / "broker.conf"))

    assert queue_files(store.root) == queue_files(tmp_path / "store")
    assert ["bcq_topic"] == report["inferred_batch_topics"]
    assert any("bcq_topic is rebuilt as a batch topic" in note for note in report["notes"])
    assert 0 == rebuilt_queues(tmp_path / "store", "--verify", "--with-index")["exit_code"]


@pytest.mark.golden
def test_batch_topics_are_not_inferred_if_that_is_not_wanted(golden: Golden, tmp_path: Path) -> None:
    report = rebuilt_queues(
        bare(golden("5.3.3/bcq"), tmp_path), "--no-batch-inference", "--consume-queue-file-size", "800"
    )

    assert [] == report["inferred_batch_topics"]
    assert any("bcq_topic is rebuilt without batch queues" in note for note in report["notes"])
    assert not (tmp_path / "store" / "rebuilt" / "batchconsumequeue").exists()


@pytest.mark.golden
def test_what_nothing_tells_is_named_only_where_nothing_tells_it(golden: Golden, tmp_path: Path) -> None:
    store = bare(golden("5.3.3/tx"), tmp_path)
    notes = " ".join(rebuilt_queues(store)["notes"])
    with_options = rebuilt_queues(store, "--ext", "--consume-queue-file-size", "800")["notes"]
    shutil.copytree(golden("5.3.3/tx").root / "consumequeue", store / "consumequeue")

    assert "without an extension" in notes
    assert "size of queue files" in notes
    assert [] == with_options
    assert [] == rebuilt_queues(store)["notes"]


def test_a_topic_whose_batch_comes_late_is_a_batch_topic_from_its_first_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogBuilder(segment_size=1 << 12)
    for number in range(60):
        log.append(b"x" * 60, topic="late", queue_offset=number)
    log.append(b"x", topic="late", queue_offset=60, sys_flag=INNER_BATCH_FLAG, properties={**INNER, "INNER_BASE": "60"})
    store = log.write(tmp_path / "store")
    told = RebuildRules(QueueRules(batch_topics=frozenset({"late"}), batch_consume_queue_file_size=460))
    rebuild_here(store, tmp_path / "expected", told)
    monkeypatch.setattr(segment_scan, "_SMALLEST_PART", 300)
    rules = replace(told, queue_rules=replace(told.queue_rules, batch_topics=frozenset()), infers_batch_topics=True)
    report = rebuild_by(LocalRunner(slots=8), store, tmp_path / "found", rules)

    assert ("late",) == report.inferred_topics
    assert queue_files(tmp_path / "expected") == queue_files(tmp_path / "found")


@pytest.mark.parametrize(
    ("release", "fields"),
    [
        ("4.3", {"sys_flag": INNER_BATCH_FLAG, "properties": {**INNER, **LISTS}}),
        ("4.9", {"sys_flag": INNER_BATCH_FLAG, "properties": INNER}),
        ("5.3", {"sys_flag": INNER_BATCH_FLAG}),
        ("5.3", {"properties": INNER}),
        ("5.3", {"properties": {**LISTS, "INNER_MULTI_QUEUE_OFFSET": "0,1"}}),
        ("5.3", {"properties": {**LISTS, "INNER_MULTI_QUEUE_OFFSET": "zero"}}),
        ("5.3", {"properties": {"INNER_MULTI_DISPATCH": "%LMQ%a"}}),
        ("5.3", {"properties": LISTS, "topic": "%RETRY%g"}),
    ],
)
def test_records_that_prove_nothing_change_nothing(release: Release, fields: dict[str, Any], tmp_path: Path) -> None:
    log = LogBuilder(segment_size=1 << 12)
    log.append(b"x", **fields)
    rules = RebuildRules(QueueRules(release=release, consume_queue_file_size=200), infers_batch_topics=True)
    report = rebuild_here(log.write(tmp_path / "store"), tmp_path / "found", rules)

    assert -1 == report.light_record
    assert ("INNER_MULTI_DISPATCH" in fields.get("properties", {})) == report.light.named == sum(report.light[1:])
    assert () == report.inferred_topics == report.told_topics


@pytest.mark.golden
def test_rules_that_know_every_kind_infer_nothing(golden: Golden, tmp_path: Path) -> None:
    store = golden("5.3.3/bcq")
    report = rebuild_here(store.root, tmp_path, replace(golden_rules(store), infers_batch_topics=True))

    assert () == report.inferred_topics == report.told_topics

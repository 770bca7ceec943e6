# SPDX-License-Identifier: Apache-2.0
"""All reports agree on where a log ends, and so does RocketMQ's recovery."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import DefaultMessageStore, MessageStoreConfig, ReadOptions, plan_ranges, read_messages
from store_core.queue.queue_path import QueueRules
from store_core.snapshot.log_end import LiveMoment
from store_core.store.read.ranges import CheckKind
from store_core.store.rebuild.plan import RebuildRules
from store_core.store.rebuild.queue_compare import LogBounds
from store_core.store.rebuild.report import RebuildReport, as_json, as_text
from tests.builders import BODY_AT, MAGIC_AT, LogBuilder
from tests.connector.called import rebuild_here
from tests.golden_stores import golden_stores, read_conf
from tests.store_core.fakes import FakeClock
from tests.store_core.rebuilt import golden_rules
from tests.store_core.store.damaged_stores import RELEASES, config_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.store.recovery.log_recovery import RecoveryReport
    from tests.golden_stores import Golden

SIZE: Final = 4096
CRASHED: Final = [store.name for store in golden_stores() if store.is_torn or store.scenario == "crash"]
"""RocketMQ was killed; none of these is small enough for the repository."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "store_core")


def verified(root: Path, rules: RebuildRules | None = None, *, is_live: bool = False) -> RebuildReport:
    rules = rules or RebuildRules(QueueRules(consume_queue_file_size=800), has_index=True)
    moment = LiveMoment.take(root, rules.queue_rules) if is_live else None
    return rebuild_here(root, root / "none", rules, compared=LogBounds(0, moment))


def dry_run(root: Path, version: str) -> RecoveryReport:
    conf = root.parent / "store.conf"
    sizes = read_conf(conf) if conf.exists() else {"cl-size": str(SIZE), "cq-size": "800"}
    return DefaultMessageStore.dry_run(root, config_of(sizes, version), clock=FakeClock())


def ends(root: Path, rules: RebuildRules | None = None) -> Iterator[tuple[str, Any]]:
    """Return each report of the log's end, and of what comes after it."""
    yield "plan", plan_ranges(root, ReadOptions.parse(mode="PERMISSIVE")).end
    yield "verify", verified(root, rules).end
    for version in RELEASES:
        yield version, dry_run(root, version).end


@pytest.mark.golden
@pytest.mark.parametrize("name", CRASHED)
def test_reports_on_a_crashed_store_agree_with_rocketmq(name: str, golden: Golden) -> None:
    store = golden(name)
    info = json.loads((store.path / "info.json").read_text())
    recovered = json.loads((store.path / "recovered.json").read_text())
    found = dict(ends(store.root, golden_rules(store)))
    own = dry_run(store.root, store.golden.version)
    torn = [info["tornRecordPhysicalOffset"]] if store.golden.is_torn else []

    assert [found["plan"]] * len(found) == list(found.values())
    assert recovered["afterLoad"]["maxPhyOffset"] == found["plan"].end_offset
    assert recovered["afterLoad"]["maxPhyOffset"] == own.recovery_end_offset == own.max_offset
    assert torn == [tail.begin for tail in found["plan"].tails]
    assert sum(tail.size for tail in found["plan"].tails) <= info.get("tornRecordSize", 0)


@pytest.fixture(params=["whole", "made ahead", "torn", "torn body", "torn new file", "closed file"])
def crashed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LogBuilder, Path, int]:
    """Make a store as a crash leaves it; return it with the end of its log."""
    log = LogBuilder(SIZE)
    log.append_all(*(b"body %d" % number * 9 for number in range(30)), properties={"KEYS": "k"})
    end = log.end
    if request.param in ("torn new file", "closed file"):
        log.roll()
    if request.param.startswith("torn"):
        last = log.append(b"torn" * 20)
        log.flip(last.physical_offset + (BODY_AT if request.param == "torn body" else MAGIC_AT), 2)
    root = log.write(tmp_path / "store", preallocated=0 if request.param == "whole" else 1)
    (root / "abort").touch()
    (root / "lock").touch()
    return log, root, end


def test_reports_on_a_crashed_store_agree(crashed: tuple[LogBuilder, Path, int]) -> None:
    log, root, end = crashed
    found = dict(ends(root))
    torn = [record.physical_offset for record in log.records if record.physical_offset >= end]

    assert [found["plan"]] * len(found) == list(found.values())
    assert end == found["plan"].end_offset
    assert torn == [tail.begin for tail in found["plan"].tails]
    assert bool(torn) == verified(root).is_damaged
    for version in RELEASES:
        report = dry_run(root, version)
        assert end == report.recovery_end_offset <= report.max_offset
        assert bool(torn) == bool(report.reason is None or report.reason.is_damage)
    rows = read_messages(root, mode="PERMISSIVE", columns="physical_offset,_corrupt_record").read_all().to_pylist()
    assert torn == [row["physical_offset"] for row in rows if row["_corrupt_record"] is not None]


def test_damage_in_the_middle_does_not_move_the_end(tmp_path: Path) -> None:
    log = LogBuilder(SIZE)
    log.append_all(*(b"body %d" % number for number in range(15)))
    broken = log.records[7]
    log.flip(broken.physical_offset + MAGIC_AT, 2)
    root = log.write(tmp_path / "store")
    found, report = verified(root), dry_run(root, "5.3.3")

    assert {log.end} == {end.end_offset for _, end in ends(root)}
    assert broken.physical_offset == found.read_end_offset == report.recovery_end_offset
    assert f"ends the log at {broken.physical_offset}: what is between them is truncated" in str(report)
    assert found.is_damaged


def test_a_verify_says_what_it_did_not_check(tmp_path: Path) -> None:
    log = LogBuilder(SIZE)
    log.append_all(*(b"body %d" % number for number in range(15)))
    log.flip(log.records[7].physical_offset + BODY_AT)
    root = log.write(tmp_path / "store")
    quick = verified(root)
    every = verified(root, RebuildRules(QueueRules(consume_queue_file_size=800), check_crc=True))

    assert not quick.is_damaged
    assert "no damage in what was checked" in as_text(quick)
    assert "not checked: body checksums of all records" in as_text(quick)
    assert {"body_checksums", "property_checksums"} <= set(as_json(quick)["not_checked"])
    assert "last_body_checksums" in as_json(quick)["checked"]
    assert every.is_damaged
    assert CheckKind.BODY_CHECKSUMS in every.coverage.checked


def test_a_dry_run_says_what_it_checked(tmp_path: Path) -> None:
    root = LogBuilder(SIZE).write(tmp_path / "store")
    config = MessageStoreConfig(mapped_file_size_commit_log=SIZE, check_crc_on_recover=False)
    report = DefaultMessageStore.dry_run(root, config)

    assert CheckKind.BODY_CHECKSUMS in report.coverage.not_checked
    assert CheckKind.BODY_CHECKSUMS in dry_run(root, "4.9.7").coverage.checked
    assert "\nchecked: " in str(report)
    assert "\nnot checked: " in str(report)


def test_a_verify_of_a_live_store_takes_an_unfinished_record_for_no_damage(tmp_path: Path) -> None:
    log = LogBuilder(SIZE)
    log.append_all(*(b"body %d" % number for number in range(15)))
    log.flip(log.records[-1].physical_offset + MAGIC_AT, 2)
    root = log.write(tmp_path / "store")
    live, still = verified(root, is_live=True), verified(root)

    assert (False, True) == (live.is_damaged, still.is_damaged)
    assert live.end_offset == still.end_offset == log.records[-1].physical_offset
    assert () == live.end.tails
    log.flip(log.records[5].physical_offset + MAGIC_AT, 2)
    assert verified(log.write(tmp_path / "store"), is_live=True).is_damaged

# SPDX-License-Identifier: Apache-2.0
"""The JSON of every answer stays as it is, with names, order and values, on three small stores.

``GOLDEN_REPORTS=write`` in the environment writes tests/golden/reports anew. Each difference changes what programs
read, and belongs in the changelog.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import RebuildOptions
from store_core import rebuild_consume_queue as rebuilt
from tests.golden_stores import find_golden_store, unpack
from tests.life_logs import BEGIN, LifeLog, write_config
from tests.store_core.command.calls import call
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from store_core.command.console import Console
    from store_core.store.process_pool import ProcessPool

GOLDEN: Final = Path(__file__).parents[2] / "golden"
REPORTS: Final = GOLDEN / "reports"
HOUR: Final = 3_600_000
NOW: Final = BEGIN + HOUR
DISK: Final = ("--disk-size", 10**9, "--disk-used", 10**8, "--daily-growth", 9_000, "--time-zone", "UTC")

CASES: Final[dict[str, Sequence[object]]] = {
    "bill": ("bill", "STORE"),
    "check": ("check", "STORE"),
    "count": ("count", "STORE", "--by", "topic,queue_id", "--mode", "DROPMALFORMED"),
    "deadletters": ("deadletters", "STORE"),
    "delays": ("delays", "STORE", "--now", NOW, "--all"),
    "diff": ("diff", "STORE", "OTHER", "--by", "records", "--same-extent"),
    "diff-bytes": ("diff", "STORE", "OTHER", "--by", "bytes"),
    "export": ("export", "STORE", "--into", "OUT/lake"),
    "export-prove": ("export", "STORE", "--into", "OUT/lake", "--prove"),
    "info": ("info", "STORE"),
    "lag": ("lag", "STORE", "--now", NOW, "--messages"),
    "lag-as-of": ("lag", "STORE", "--as-of", BEGIN + 40),
    "producers": ("producers", "STORE"),
    "recover": ("recover", "STORE", "--dry-run"),
    "recover-all": ("recover", "STORE", "--dry-run", "--release", "all"),
    "redact": ("redact", "STORE", "--into", "OUT/clean", "--pattern", "body|bod[0-9]"),
    "repair": ("repair", "STORE"),
    "replay": ("replay", "STORE", "--id", "T-1", "--topic", "TOPIC", "--dry-run"),
    "retention": ("retention", "STORE", "--now", NOW, "--days", 3, "--file-reserved-time", 1, *DISK),
    "salvage": ("salvage", "STORE"),
    "salvage-into": ("salvage", "STORE", "--into", "OUT/saved"),
    "trace": ("trace", "STORE", "TOPIC/0/0"),
    "transactions": ("transactions", "STORE", "--now", NOW, "--all", "--rows", 20),
    "append": ("append", "NEW", "--from-store", "STORE", "--topic", "TOPIC"),
    "rebuild": ("rebuild", "both", "STORE", "--output", "OUT/rebuilt", "--accept-damage"),
    "rebuild-verify": ("rebuild", "both", "STORE", "--verify", "--accept-damage"),
}
"""Case -> what is typed; words in capitals are replaced."""

FORMS: Final = {"append": ("--report", "-"), "count": ("--format", "jsonl")}
VOLATILE: Final = {
    "append": {"store_timestamp", "seconds"},
    "export": {"digest", "size"},
    "rebuild": {"seconds"},
    "repair": {"digest"},
}
"""Command -> what differs each time: times, and sizes and digests of what has times in it."""

WITHOUT_PARTS: Final = {"append", "count", "info"}
"""Cases that are asked in this process alone."""

TOPICS: Final = {"life": "orders", "tx": "tx_topic", "damaged": "T"}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the stores, each with another that it is compared with."""
    base = tmp_path_factory.mktemp("reports")
    tx = shutil.copytree(unpack(find_golden_store("5.3.3/tx"), base / "unpacked").root, base / "tx-store")
    for name, root in {"life": life_store(base), "tx": tx, "damaged": _damaged(base)}.items():
        beside_another(root, base / name)
    return base


def beside_another(root: Path, place: Path) -> Path:
    """Move a store to a place where another is, of whose log one byte differs."""
    place.mkdir()
    root.rename(place / "store")
    _change_a_byte(shutil.copytree(place / "store", place / "other"))
    return place


def life_store(base: Path, segment_size: int = 8192) -> Path:
    """Write a store with transactions, delays, timers, retries, dead letters, duplicates, and consumers' offsets."""
    log = LifeLog(segment_size)
    for number in range(12):
        properties = {"TAGS": "ab"[number % 2], "__SHARDINGKEY": f"s{number % 3}"}
        log.send(f"o{number}", queue_id=number % 2, queue_offset=number // 2, properties=properties, body=b"body")
    first = log.send("twice", "payments", b"body-1")
    log.send("twice", "payments", b"body-1", queue_offset=1)
    committed, pending, rolled_back = (log.half(key, PGROUP="shop") for key in ("t1", "t2", "t3"))
    log.commit(committed, "t1", queue_offset=0)
    log.op(committed, rolled_back)
    log.delayed("d1", 3)
    log.delayed("d2", 18, queue_offset=0)
    log.timer("w1", BEGIN + HOUR // 2)
    log.timer("w2", BEGIN + 2 * HOUR, queue_offset=1)
    log.failed(first, "f1", "billing", 1)
    log.dead(first, "f1", "billing")
    log.dead(pending, "gone", "audit", 3)
    root = log.write(base / "made", preallocated=1)
    sizes = RebuildOptions(consume_queue_file_size=400, hash_slot_num=10, index_num=40)
    rebuilt(root, replace(sizes, with_index=True, replace=True), clock=FakeClock(wall_ms=BEGIN))
    shutil.rmtree(root / "rebuild", ignore_errors=True)
    write_config(
        root,
        consumerOffset={"offsetTable": {"orders@billing": {0: 2, 1: 99}, "payments@audit": {0: 1}, "gone@x": {0: 1}}},
        delayOffset={"offsetTable": {3: 0, 18: 0}},
        topics={"topicConfigTable": {"orders": {"topicName": "orders", "readQueueNums": 4, "writeQueueNums": 4}}},
        subscriptionGroup={"subscriptionGroupTable": {"billing": {"groupName": "billing", "retryMaxTimes": 16}}},
    )
    for path in sorted(root.rglob("*")):
        os.utime(path, ns=((NOW - 2 * HOUR) * 10**6, (NOW - 2 * HOUR) * 10**6))
    return root


def _damaged(base: Path) -> Path:
    with tarfile.open(GOLDEN / "damage" / "garble-size-a.tar.xz") as archive:
        archive.extractall(base / "damage", filter="data")
    return next((base / "damage").rglob("commitlog")).parent


def _change_a_byte(root: Path) -> None:
    first = min((root / "commitlog").iterdir())
    with first.open("r+b") as file:
        file.seek(first.stat().st_size // 4)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("store", TOPICS)
@pytest.mark.parametrize("case", CASES)
def test_an_answers_json_is_as_it_was(case: str, store: str, base: Path) -> None:
    golden, text = golden_of(case, store), json_of(case, base / store)
    if os.environ.get("GOLDEN_REPORTS") == "write":
        golden.write_text(text, encoding="utf-8")

    assert golden.read_text(encoding="utf-8") == text


@pytest.fixture(scope="module")
def copy_of_life(base: Path) -> Path:
    return shutil.copytree(base / "life", base / "copies" / "life", ignore=shutil.ignore_patterns(*CASES))


@pytest.mark.parametrize("case", sorted(case for case in CASES.keys() - WITHOUT_PARTS if "-" not in case))
def test_an_answers_json_is_the_same_in_a_pool(
    case: str, copy_of_life: Path, pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store_core.answers.answer.processes", lambda *_: nullcontext(pool))

    assert golden_of(case, "life").read_text(encoding="utf-8") == json_of(case, copy_of_life)


def golden_of(case: str, store: str) -> Path:
    return REPORTS / f"{store}-{case}.json"


def json_of(case: str, root: Path, around: Console | None = None) -> str:
    """Ask, in a directory with the stores, and return the exit code and the reports without what changes."""
    out = root / case
    out.mkdir()
    words = {"STORE": root / "store", "OTHER": root / "other", "TOPIC": TOPICS[root.name], "OUT": out, "NEW": out}
    typed = [_filled(word, words) for word in CASES[case]]
    if "--prove" in typed:
        call(*typed[:-1], around=around)
    code, reports = _asked(typed, around)
    volatile = VOLATILE.get(typed[0], ())
    found = {"exit_code": code, "reports": [_normal(report, volatile, str(out), str(root)) for report in reports]}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _filled(word: object, words: dict[str, object]) -> str:
    return re.sub("[A-Z]{3,}", lambda found: str(words.get(found[0], found[0])), str(word))


def _asked(typed: list[str], around: Console | None) -> tuple[int, list[dict[str, Any]]]:
    called = call(*typed, *FORMS.get(typed[0], ("--json",)), around=around)
    if typed[0] in ("append", "rebuild"):
        return called.code, [json.loads(called.text)] if called.text else []
    return called.code, called.rows


_NAMED_BY_THE_CLOCK: Final = re.compile(r"index/\d{17}")


def _normal(value: Any, volatile: Collection[str], *places: str) -> Any:  # noqa: ANN401 -- any value of JSON
    """Return a report without what differs from run to run, and with all of its places below ``/data``."""
    if isinstance(value, dict):
        return {name: "..." if name in volatile else _normal(each, volatile, *places) for name, each in value.items()}
    if isinstance(value, list):
        return [_normal(each, volatile, *places) for each in value]
    if not isinstance(value, str):
        return value
    for place in places:
        value = value.replace(place, "/data")
    return _NAMED_BY_THE_CLOCK.sub("index/...", value)

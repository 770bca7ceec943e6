# SPDX-License-Identifier: Apache-2.0
"""Every answer takes the broker's configuration, and finds a log on other disks by it."""

from __future__ import annotations

import inspect
import json
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

import store_core.answers
from store_core import rebuild_consume_queue, rebuild_index
from store_core.store.rebuild.plan import RebuildOptions
from tests.golden_stores import find_golden_store, unpack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW: Final = 1_800_000_000_000
ANSWERS: Final[dict[str, Callable[..., Any]]] = {
    "": lambda answer, store, _, **given: answer(store, **given),
    "trace": lambda answer, store, _, **given: answer(store, "tx_topic/0/0", **given),
    "replay": lambda answer, store, _, **given: answer(store, "T-1", dry_run=True, topic="tx_topic", **given),
    "diff": lambda answer, store, _, **given: answer(store, store, **given),
    "lag": lambda answer, store, _, **given: answer(store, now=NOW, **given),
    "export": lambda answer, store, out, **given: answer(store, out / "lake", **given),
    "prove": lambda answer, store, out, **given: [
        store_core.answers.export(store, out / "lake", **given),
        answer(store, out / "lake", **given),
    ][1],
    "redact": lambda answer, store, out, **given: answer(store, out / "clean", topic=["tx_topic"], **given),
    "retention": lambda answer, store, _, **given: answer(
        store, now=NOW, time_zone="UTC", disk_size=10**9, disk_used=10**8, daily_growth=10**6, **given
    ),
}
"""Answer -> how it is asked; the first is for all others."""

OF_A_PLAN: Final = {"repair"}
"""Takes all from its plan, which `plan_repair` makes."""

NAMES: Final = sorted(
    {name for name in store_core.answers.__all__ if inspect.isfunction(getattr(store_core.answers, name))}
    - {*OF_A_PLAN, "processes"}
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make two stores: one with its log, and one with its log on another disk."""
    base = tmp_path_factory.mktemp("places")
    whole = shutil.copytree(unpack(find_golden_store("5.3.3/tx"), base / "unpacked").root, base / "whole")
    apart = shutil.copytree(whole, base / "apart")
    shutil.move(apart / "commitlog", base / "disk" / "commitlog")
    sizes = "mappedFileSizeConsumeQueue=800\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
    (base / "whole.conf").write_text(f"{sizes}storePathRootDir={whole}\n")
    (base / "apart.conf").write_text(f"{sizes}storePathRootDir={apart}\nstorePathCommitLog={base}/disk/commitlog\n")
    return base


def asked(name: str, places: Path, store: str, out: Path) -> Any:  # noqa: ANN401 -- any report
    ask = ANSWERS.get(name, ANSWERS[""])
    out.mkdir()
    report = ask(getattr(store_core.answers, name), places / store, out, config=places / f"{store}.conf")
    text = json.dumps(report.to_json())
    for place in (f"{places}/{store}/commitlog", f"{places}/disk/commitlog", f"{places}/{store}", str(out)):
        text = text.replace(place, "PLACE")
    return {name: value for name, value in json.loads(text).items() if name not in {"now", "digest", "config"}}


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_of_a_log_on_another_disk_is_that_of_the_store(name: str, places: Path, tmp_path: Path) -> None:
    whole, apart = (asked(name, places, store, tmp_path / store) for store in ("whole", "apart"))
    for report in (whole, apart):
        report["tables"].pop("looked_at", None)

    assert whole == apart


@pytest.mark.parametrize("rebuild", [rebuild_consume_queue, rebuild_index])
def test_queues_and_index_are_made_from_a_log_on_another_disk(
    rebuild: Callable[..., Any], places: Path, tmp_path: Path
) -> None:
    found = [
        rebuild(
            places / store,
            RebuildOptions(config=places / f"{store}.conf", output=tmp_path / store, with_index=True),
        ).report.records
        for store in ("whole", "apart")
    ]

    assert [323, 323] == found


def test_options_with_a_configuration_say_where_the_log_is_as_well(places: Path) -> None:
    found = store_core.answers.check(places / "apart", config=places / "apart.conf").found

    assert 323 == found.records

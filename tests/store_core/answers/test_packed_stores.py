# SPDX-License-Identifier: Apache-2.0
"""Answers that need a store's files refuse an archive, and compressed segments, by name, and say what to do."""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from store_core import DefaultMessageStore, rebuild_consume_queue, rebuild_index
from store_core.answers import check, diff, plan_repair, recover, redact, repair, salvage
from store_core.errors import SegmentLayoutError, UnsupportedStoreError
from store_core.store.message_store_config import MessageStoreConfig
from tests.builders import LogBuilder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.format.release import Release

SEGMENT = 2048
ANSWERS: dict[str, Callable[[Path], Any]] = {
    "check": check,
    "diff": lambda path: diff(path, path),
    "plan_repair": plan_repair,
    "rebuild_consume_queue": rebuild_consume_queue,
    "rebuild_index": rebuild_index,
    "redact": lambda path: redact(path, path.parent / "copy", text="body"),
    "salvage": salvage,
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Make a log of several segments, and the queues of it."""
    log = LogBuilder(SEGMENT)
    while len(log.records) < 60:
        log.append(b"body")
    root = log.write(tmp_path / "store")
    rebuild_consume_queue(root)
    shutil.move(root / "rebuilt" / "consumequeue", root)
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def compressed(root: Path, number: int) -> Path:
    """Compress one of the segments as gzip does."""
    path = sorted((root / "commitlog").iterdir())[number]
    other = path.with_name(f"{path.name}.gz")
    other.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return other


@pytest.mark.parametrize("answer", [*ANSWERS, "recover"])
def test_an_archive_is_refused_with_what_to_do(store: Path, tmp_path: Path, answer: str) -> None:
    with tarfile.open(tmp_path / "backup.tar.gz", "w:gz") as backup:
        backup.add(store, "store")
    with pytest.raises(UnsupportedStoreError, match=r"backup\.tar\.gz is an archive: .* Unpack it"):
        (ANSWERS | {"recover": recover})[answer](tmp_path / "backup.tar.gz")


def test_a_repair_of_an_archive_is_refused_before_anything_is_locked(store: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(plan_repair(store).to_json()))
    with tarfile.open(tmp_path / "backup.tar", "w") as backup:
        backup.add(store, "store")
    with pytest.raises(UnsupportedStoreError, match=r"backup\.tar is an archive"):
        repair(tmp_path / "backup.tar", tmp_path / "plan.json")


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_compressed_segment_is_refused_by_name_wherever_it_is_in_the_log(
    store: Path, answer: str, number: int
) -> None:
    path = compressed(store, number)
    before = contents(store)

    with pytest.raises(UnsupportedStoreError, match=f"{path} is compressed: .* put what it expands to in its place"):
        ANSWERS[answer](store)
    assert before == contents(store)
    assert not (store.parent / "copy").exists()


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("release", ["4.3", "4.9", "5.5"])
def test_no_release_opens_a_log_with_a_compressed_segment(store: Path, release: Release, number: int) -> None:
    path = compressed(store, number)
    before = contents(store)
    report = recover(store, release=release)

    assert "refused" == report.verdict.value
    assert f"{path}: expected a segment of {SEGMENT} bytes" in report.tables["releases"]["refusal"][0].as_py()
    with pytest.raises(SegmentLayoutError, match=f"{path}: .* put what it expands to in its place"):
        DefaultMessageStore.open(store, MessageStoreConfig(release=release))
    assert before.items() <= contents(store).items()

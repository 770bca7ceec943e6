# SPDX-License-Identifier: Apache-2.0
"""A store that no release is named for is checked by the rules of the one that served it last."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.answers import check
from store_core.format.release import RELEASES, Release
from store_core.snapshot.likely_release import LikelyRelease

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import Golden

CONFIG: Final = MessageStoreConfig(mapped_file_size_commit_log=4096, max_hash_slot_num=10, max_index_num=1000)


def served_by(root: Path, *releases: Release, tags: bool = True) -> Path:
    for release in releases:
        with DefaultMessageStore.open(root, replace(CONFIG, release=release)) as store:
            for number in range(20):
                message = Message("orders", b"body", tags=f"T{number % 3}" if tags else None, keys=[f"k{number}"])
                assert store.put_message(message).is_ok
    return root


@pytest.mark.parametrize("tags", [True, False])
@pytest.mark.parametrize("earlier", [(), ("4.9",), ("5.5",)])
@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_leaves_is_no_finding_whoever_served_the_store_before(
    release: Release, earlier: tuple[Release, ...], tags: bool, tmp_path: Path
) -> None:
    root = served_by(tmp_path / "store", *earlier, release, tags=tags)

    report = check(root)

    assert {} == report.counts
    assert report.found.release in LikelyRelease.of(root).releases
    assert report.found.release_why in report.to_text().replace("\n  ", " ")


@pytest.mark.golden
@pytest.mark.parametrize("name", ["4.3.0/tx", "4.9.7/lmq", "5.3.3/tx", "5.5.0/tx"])
def test_a_copy_without_the_files_of_its_root_has_no_findings(name: str, golden: Golden, tmp_path: Path) -> None:
    store = golden(name)
    for part in ("commitlog", "consumequeue", "index"):
        shutil.copytree(store.root / part, tmp_path / "store" / part)

    assert {} == check(tmp_path / "store").counts
    assert store.golden.release in LikelyRelease.of(tmp_path / "store").releases


def test_rules_that_explain_more_are_followed_if_no_file_tells_the_release(tmp_path: Path) -> None:
    root = served_by(tmp_path / "store", "5.5", "5.3")
    for path in [*root.iterdir()]:
        if path.name not in ("commitlog", "consumequeue", "index"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    report = check(root)

    assert {"index_missing": 20} == check(root, release="5.5").counts
    assert {} == report.counts


def test_a_directory_that_is_no_store_tells_nothing(tmp_path: Path) -> None:
    assert sorted(RELEASES) == sorted(LikelyRelease.of(tmp_path / "none").releases)

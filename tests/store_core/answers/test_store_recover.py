# SPDX-License-Identifier: Apache-2.0
"""Dry runs of a recovery as an answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, InvalidOptionError, MessageStoreConfig, StoreNotFoundError
from store_core.answers import recover
from store_core.answers.recover_report import RECOVER_SCHEMA
from store_core.answers.verdict import Verdict
from store_core.format.releases.release import RELEASES
from tests.builders import LogBuilder

if TYPE_CHECKING:
    from pathlib import Path

SMALL = MessageStoreConfig(mapped_file_size_commit_log=4096)


def test_the_json_has_what_its_schema_says(tmp_path: Path) -> None:
    report = recover(LogBuilder().write(tmp_path / "store"), SMALL, releases=RELEASES)
    found = json.loads(json.dumps(report.to_json()))

    assert ["schema", "verdict", *(fact.name for fact in RECOVER_SCHEMA.facts), "tables"] == list(found)
    assert [table.name for table in RECOVER_SCHEMA.tables] == list(found["tables"])


def test_a_directory_without_any_part_of_a_store_is_no_store(tmp_path: Path) -> None:
    store = LogBuilder().write(tmp_path / "above" / "store")

    with pytest.raises(StoreNotFoundError, match=f"A store may be at {store}"):
        recover(tmp_path / "above", SMALL)


def test_a_part_of_a_store_is_told_with_its_root(tmp_path: Path) -> None:
    store = LogBuilder().write(tmp_path / "store")

    with pytest.raises(InvalidOptionError, match=f"the commit log of the store at {store}"):
        recover(store / "commitlog", SMALL)


def test_one_release_is_told_in_the_words_of_its_recovery(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append_all(b"one", b"two")
    store = log.write(tmp_path / "store")
    report = recover(store, SMALL)

    assert str(DefaultMessageStore.dry_run(store, SMALL)).split("\n")[0] == report.lines[0]
    assert not report.found.truncated_messages
    assert not report.plots


def test_a_store_that_is_refused_has_no_log_end(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append_all(b"one", b"two")
    report = recover(log.write(tmp_path / "store"), MessageStoreConfig(mapped_file_size_commit_log=8192))
    (row,) = report.tables["releases"].to_pylist()

    assert Verdict.REFUSED is report.verdict
    assert (None, None) == (row["log_end"], row["truncated_messages"])
    assert row["refusal"]
    assert row["refusal"] in report.to_html()

# SPDX-License-Identifier: Apache-2.0
"""The command check."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, Message, MessageStoreConfig
from store_core.command.console import Console
from store_core.command.exit_code import ExitCode
from tests.store_core.command.calls import call

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def closed(tmp_path: Path, config: Path) -> Path:
    root = tmp_path / "closed"
    with DefaultMessageStore.open(root, MessageStoreConfig.from_properties(config)) as store:
        for number in range(30):
            store.put_message(Message("orders", b"body-%d" % number, queue_id=number % 2, keys=f"k-{number}"))
    return root


def test_the_report_is_printed_as_json_and_written_as_a_certificate(closed: Path, config: Path, tmp_path: Path) -> None:
    target = tmp_path / "certificate.json"

    (printed,) = call("check", closed, "--config", config, "--json", "--certificate", target).rows

    assert "commitlog-check/1" == printed["schema"]
    assert printed == json.loads(target.read_text())
    assert [15, 15] == [each["records"] for each in printed["tables"]["certificates"]]


def test_a_certificate_that_exists_is_not_overwritten(closed: Path, tmp_path: Path) -> None:
    target = tmp_path / "certificate.json"
    target.write_text("mine")

    assert ExitCode.USAGE == call("check", closed, "--certificate", target).code
    assert "mine" == target.read_text()


def test_few_findings_of_each_kind_are_printed(closed: Path, config: Path) -> None:
    shutil.rmtree(closed / "consumequeue" / "orders" / "1")
    shutil.rmtree(closed / "index")

    lines = call("check", closed, "--config", config, around=Console(width=80)).lines
    rows = lines[lines.index("The first of each kind:") : lines.index("Next:")]

    assert ["orders/1/0", "orders/1/1", "orders/1/2"] == [
        row.split()[1] for row in rows if row.startswith("unit_missing")
    ]
    assert 3 == sum(row.startswith("index_missing") for row in rows)
    assert 80 >= max(map(len, rows))

# SPDX-License-Identifier: Apache-2.0
"""Inner batches are unpacked into the messages that their producer sent."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from store_core import read_messages, unwrap_inner_batch
from store_core.format.properties import parse_properties
from store_core.format.record.decode import is_inner_batch
from tests.golden_stores import find_golden_store, unpack

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def batch_store(tmp_path: Path) -> Path:
    return unpack(find_golden_store("5.3.3/bcq"), tmp_path).path


def put_in(path: Path) -> list[tuple[int, int, bytes, dict[str, str]]]:
    """Return the messages of a golden store's inner batches, from the Java program that made it."""
    lines = (json.loads(line) for line in path.joinpath("manifest.jsonl").read_text().splitlines())
    batches = (line for line in lines if line.get("type") == "innerBatch" and line["putStatus"] == "PUT_OK")
    return [
        (line["logicsOffset"] + number, item["flag"], base64.b64decode(item["body"]), item_properties(item))
        for line in batches
        for number, item in enumerate(line["messages"])
    ]


def item_properties(item: dict[str, Any]) -> dict[str, str]:
    return parse_properties(base64.b64decode(item["propertiesString"] or "").decode())


@pytest.mark.golden
def test_inner_messages_are_those_that_were_put(batch_store: Path) -> None:
    rows = read_messages(batch_store / "store", columns=["queue_offset", "sys_flag", "body"]).read_all().to_pylist()
    actual = [
        (message.queue_offset, message.flag, message.body, message.properties)
        for row in rows
        if is_inner_batch(row["sys_flag"])
        for message in unwrap_inner_batch(row["body"], row["queue_offset"])
    ]

    assert put_in(batch_store) == actual
    assert len(actual) > 100


@pytest.mark.parametrize("cut", [1, 19, 21, -1])
def test_a_batch_that_is_cut_is_refused(batch_store: Path, cut: int) -> None:
    columns = ["sys_flag", "body"]
    rows = read_messages(batch_store / "store", columns=columns).read_all().to_pylist()
    body = next(row["body"] for row in rows if is_inner_batch(row["sys_flag"]))

    with pytest.raises(ValueError, match="batch"):
        unwrap_inner_batch(body[:cut])


def test_a_record_is_an_inner_batch_only_if_both_bits_say_so() -> None:
    assert [False, False, False, True] == [is_inner_batch(flag) for flag in (0, 0x40, 0x80, 0xC0)]

# SPDX-License-Identifier: Apache-2.0
"""RocketMQ and we write the same bytes and return the same answers for the same messages at the same times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.comparison import assert_same_as_ours, assert_same_in_bulk
from tests.interop.scenarios import random_scenario
from tests.interop.written import WrittenStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.judge import Judge


def test_every_kind_of_message_is_stored_byte_for_byte_as_by_rocketmq(
    written_like_ours: WrittenStore, tmp_path: Path
) -> None:
    assert_same_as_ours(written_like_ours, tmp_path / "store")


def test_messages_in_bulk_are_stored_byte_for_byte_as_by_rocketmq(
    written_in_bulk: WrittenStore, tmp_path: Path
) -> None:
    assert_same_in_bulk(written_in_bulk, tmp_path / "store")


@pytest.mark.interop
def test_random_messages_are_stored_byte_for_byte_as_by_rocketmq(judge: Judge, tmp_path: Path) -> None:
    scenarios = [random_scenario(seed) for seed in range(200, 220)]
    stores = [WrittenStore.start(judge, scenario, tmp_path / "theirs") for scenario in scenarios]

    for written in stores:
        assert_same_as_ours(written, tmp_path / written.scenario.name / "ours")
        assert_same_in_bulk(written, tmp_path / written.scenario.name / "bulk")

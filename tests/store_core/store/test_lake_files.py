# SPDX-License-Identifier: Apache-2.0
"""Names of partitions are safe, and readers get the topic back from them."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from store_core.store.export.lake_files import partition_directory


@pytest.mark.parametrize("topic", ["orders", "%RETRY%billing", "..", "a/b", "a=b c", "\u65e5\u672c", "", "\x00"])
def test_a_topic_comes_back_from_the_name_of_its_directory(topic: str) -> None:
    first, second = partition_directory(topic, 19675).split("/")

    assert topic == unquote(first.removeprefix("topic="))
    assert "day=2023-11-14" == second
    assert first not in (".", "..")


@pytest.mark.parametrize("topic", ["/" * 90, "a" * 249 + "/", "\u65e5" * 40, "a" * 32767])
def test_a_name_that_is_too_long_is_cut_and_is_that_of_no_other_topic(topic: str) -> None:
    name, other = (partition_directory(each, 0).split("/")[0] for each in (topic, f"{topic}x"))
    cut, _, digits = name.partition("~")

    assert len(name) <= 255
    assert topic.startswith(unquote(cut.removeprefix("topic="), errors="ignore"))
    assert 16 == len(digits)
    assert name != other
    assert "topic=%7E" == partition_directory("~", 0).split("/")[0]


def test_a_name_that_just_fits_is_not_cut() -> None:
    assert f"topic={'a' * 249}" == partition_directory("a" * 249, 0).split("/")[0]

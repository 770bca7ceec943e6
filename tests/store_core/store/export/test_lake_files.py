# SPDX-License-Identifier: Apache-2.0
"""Names of partitions are safe, and readers get the topic back from them."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from store_core.errors import UnsafeSizeError
from store_core.store.export.lake_files import partition_directory


@pytest.mark.parametrize("topic", ["orders", "%RETRY%billing", "..", "a/b", "a=b c", "\u65e5\u672c", "", "\x00"])
def test_a_topic_comes_back_from_the_name_of_its_directory(topic: str) -> None:
    first, second = partition_directory(topic, 19675).split("/")

    assert topic == unquote(first.removeprefix("topic="))
    assert "day=2023-11-14" == second
    assert first not in (".", "..")


def test_a_topic_that_is_too_long_for_a_directory_is_refused() -> None:
    with pytest.raises(UnsafeSizeError, match="too long for a directory"):
        partition_directory("/" * 90, 0)

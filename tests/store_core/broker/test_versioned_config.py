# SPDX-License-Identifier: Apache-2.0
"""Configuration files with a data version: a file is loaded as a whole, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.broker.consumer_offset import ConsumerOffsetManager, DelayOffsetTable
from store_core.broker.subscription_group import SubscriptionGroupManager, TopicConfigManager
from store_core.errors import CorruptRecordError
from store_core.files.file_system import OsFileSystem
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.broker.config_file import VersionedConfigManager

MANAGERS = [
    (ConsumerOffsetManager, '"offsetTable":{"orders@billing":{0:5}}'),
    (DelayOffsetTable, '"offsetTable":{1:5}'),
    (SubscriptionGroupManager, '"subscriptionGroupTable":{"billing":{}},"forbiddenTable":{"billing":{"orders":4}}'),
    (TopicConfigManager, '"topicConfigTable":{"orders":{}}'),
]


@pytest.mark.parametrize(("kind", "table"), MANAGERS)
def test_a_file_with_a_bad_version_changes_nothing(kind: type[TopicConfigManager], table: str, tmp_path: Path) -> None:
    kept: VersionedConfigManager = kind(tmp_path, OsFileSystem(), FakeClock(), "5.3")
    before = kept.encode()
    kept.path.parent.mkdir()
    kept.path.write_text(f'{{{table},"dataVersion":{{"counter":"x"}}}}')
    with pytest.raises(CorruptRecordError, match=r"dataVersion\.counter"):
        kept.load()

    assert before == kept.encode()


@pytest.mark.parametrize(("kind", "table"), MANAGERS)
def test_a_file_without_a_version_keeps_the_current_one(
    kind: type[TopicConfigManager], table: str, tmp_path: Path
) -> None:
    kept: VersionedConfigManager = kind(tmp_path, OsFileSystem(), FakeClock(), "5.3")
    before = kept.data_version
    kept.path.parent.mkdir()
    kept.path.write_text(f"{{{table}}}")
    kept.load()

    assert before == kept.data_version

# SPDX-License-Identifier: Apache-2.0
"""The settings with which golden stores were written, and the files that a rebuild makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store_core.files.names import INDEX_DIRECTORY, QUEUE_KINDS
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.rebuild.plan import RebuildRules

if TYPE_CHECKING:
    from pathlib import Path

    from tests.golden_stores import UnpackedStore


def golden_rules(store: UnpackedStore) -> RebuildRules:
    """Return the rules with which a golden store was written."""
    conf = store.conf
    release: Any = store.golden.release
    is_light = conf.get("set.enableLmq") == "true"
    config = MessageStoreConfig(
        release=release,
        mapped_file_size_consume_queue=int(conf["cq-size"]),
        max_hash_slot_num=int(conf["slot-num"]),
        max_index_num=int(conf["index-num"]),
        enable_consume_queue_ext=conf.get("ext") == "true",
        mapped_file_size_consume_queue_ext=int(conf.get("ext-size", 48 << 20)),
        mapper_file_size_batch_consume_queue=int(conf.get("bcq-size", 13_800_000)),
        enable_lmq=is_light,
        enable_multi_dispatch=is_light,
    )
    topics = [topic for topic in conf.get("bcq-topics", "").split(",") if topic]
    return RebuildRules(config.queue_rules(topics), has_index=True)


def queue_files(root: Path) -> dict[str, bytes]:
    """Return the files of all queues by their path."""
    files = (path for kind in QUEUE_KINDS for path in sorted((root / kind).rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def index_files(root: Path) -> list[bytes]:
    """Return the files of the index in order, without their names, which are times."""
    directory = root / INDEX_DIRECTORY
    return [path.read_bytes() for path in sorted(directory.iterdir())] if directory.is_dir() else []

# SPDX-License-Identifier: Apache-2.0
"""Faults of the checkpoint and of the broker's configuration."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Final

from store_core.store.rebuild.findings import FindingKind
from tests.store_core.answers.planting.fault import Expected, Fault
from tests.store_core.answers.planting.store_copy import StoreCopy, patch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_LIVE: Final = ("5.3.3/live",)
_NAMES: Final = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json")
_YEAR_2100: Final = 4_102_444_800_000


# ---- checkpoint


def _checkpoint(number: int, value: int, title: str) -> Callable[[StoreCopy], list[Expected]]:
    def plant(store: StoreCopy) -> list[Expected]:
        patch(store.root / "checkpoint", 8 * number, struct.pack(">q", value))
        return [Expected(FindingKind.CHECKPOINT)]

    plant.__name__ = title
    return plant


def checkpoint_cut(store: StoreCopy) -> list[Expected]:
    os.truncate(store.root / "checkpoint", store.random.randrange(1, 24))
    return [Expected(FindingKind.CHECKPOINT)]


def checkpoint_garbage(store: StoreCopy) -> list[Expected]:
    patch(store.root / "checkpoint", 0, b"\xff" * 64)
    return [Expected(FindingKind.CHECKPOINT)]


# ---- configuration


def _config(store: StoreCopy, name: str) -> Path:
    folder = store.root / "config"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.bak").unlink(missing_ok=True)
    return folder / name


def config_cut(store: StoreCopy) -> list[Expected]:
    path = _config(store, store.random.choice(_NAMES))
    path.write_bytes(b'{"offsetTable": {"a@b": {')
    return [Expected(FindingKind.CONFIG_UNREADABLE)]


def config_garbage(store: StoreCopy) -> list[Expected]:
    path = _config(store, store.random.choice(_NAMES))
    path.write_bytes(bytes(200))
    return [Expected(FindingKind.CONFIG_UNREADABLE)]


def config_and_backup_broken(store: StoreCopy) -> list[Expected]:
    path = _config(store, store.random.choice(_NAMES))
    path.write_bytes(b"[1, 2")
    path.with_name(path.name + ".bak").write_bytes(b"{]")
    return [Expected(FindingKind.CONFIG_UNREADABLE)]


def consumer_offset_after_the_end(store: StoreCopy) -> list[Expected]:
    queue = store.queue()
    topic, queue_id = queue.place
    path = _config(store, "consumerOffset.json")
    path.write_text(json.dumps({"offsetTable": {f"{topic}@group": {str(queue_id): queue.stop + 5}}}))
    return [Expected(FindingKind.CONFIG_OFFSET, queue_offset=queue.stop + 5, place=queue.place)]


def consumer_offset_negative(store: StoreCopy) -> list[Expected]:
    queue = store.queue()
    topic, queue_id = queue.place
    path = _config(store, "consumerOffset.json")
    path.write_text(json.dumps({"offsetTable": {f"{topic}@group": {str(queue_id): -7}}}))
    return [Expected(FindingKind.CONFIG_OFFSET, queue_offset=-7, place=queue.place)]


OTHER_FAULTS: Final = (
    Fault(_checkpoint(0, _YEAR_2100, "checkpoint_log_time_in_the_future")),
    Fault(_checkpoint(1, _YEAR_2100, "checkpoint_queue_time_in_the_future")),
    Fault(_checkpoint(2, _YEAR_2100, "checkpoint_index_time_in_the_future")),
    Fault(_checkpoint(0, -1, "checkpoint_time_negative")),
    Fault(checkpoint_cut),
    Fault(checkpoint_garbage),
    Fault(config_cut),
    Fault(config_garbage),
    Fault(config_and_backup_broken),
    Fault(consumer_offset_after_the_end),
    Fault(consumer_offset_negative),
)

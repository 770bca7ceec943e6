# SPDX-License-Identifier: Apache-2.0
"""Faults of the key index, of the checkpoint and of the broker's configuration."""

from __future__ import annotations

import json
import os
import shutil
import struct
from typing import TYPE_CHECKING, Final

from store_core.format.layout import INDEX_HEADER, unit_dtype
from store_core.store.rebuild.findings import FindingKind
from tests.builders import patch
from tests.store_core.answers.planting.store_copy import Expected, Fault, IndexCopy, QueueCopy, StoreCopy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random


_NAMES: Final = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json")
_YEAR_2100: Final = 4_102_444_800_000


# ---- checkpoint


def _checkpoint(title: str, number: int, value: int) -> Fault:
    def plant(store: StoreCopy) -> list[Expected]:
        patch(store.root / "checkpoint", 8 * number, struct.pack(">q", value))
        return [Expected(FindingKind.CHECKPOINT)]

    return Fault(plant, name=title)


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


def _config_broken(title: str, text: bytes, backup: bytes | None = None) -> Fault:
    def plant(store: StoreCopy) -> list[Expected]:
        path = _config(store, store.random.choice(_NAMES))
        path.write_bytes(text)
        if backup is not None:
            path.with_name(path.name + ".bak").write_bytes(backup)
        return [Expected(FindingKind.CONFIG_UNREADABLE)]

    return Fault(plant, name=title)


def _consumer_offset(title: str, offset: Callable[[QueueCopy], int]) -> Fault:
    def plant(store: StoreCopy) -> list[Expected]:
        queue = store.queue()
        topic, queue_id = queue.place
        path = _config(store, "consumerOffset.json")
        path.write_text(json.dumps({"offsetTable": {f"{topic}@group": {str(queue_id): offset(queue)}}}))
        return [Expected(FindingKind.CONFIG_OFFSET, queue_offset=offset(queue), place=queue.place)]

    return Fault(plant, name=title)


OTHER_FAULTS: Final = (
    _checkpoint("checkpoint_log_time_in_the_future", 0, _YEAR_2100),
    _checkpoint("checkpoint_queue_time_in_the_future", 1, _YEAR_2100),
    _checkpoint("checkpoint_index_time_in_the_future", 2, _YEAR_2100),
    _checkpoint("checkpoint_time_negative", 0, -1),
    Fault(checkpoint_cut),
    Fault(checkpoint_garbage),
    _config_broken("config_cut", b'{"offsetTable": {"a@b": {'),
    _config_broken("config_garbage", bytes(200)),
    _config_broken("config_and_backup_broken", b"[1, 2", b"{]"),
    _consumer_offset("consumer_offset_after_the_end", lambda queue: queue.stop + 5),
    _consumer_offset("consumer_offset_negative", lambda _: -7),
)


_FAR: Final = 1 << 40


def _entry(store: StoreCopy) -> tuple[IndexCopy, int]:
    """Pick an entry that is not at an end of its file."""
    index = store.index()
    return index, store.random.randrange(3, index.count - 3)


def entry_hash_changed(store: StoreCopy) -> list[Expected]:
    index, number = _entry(store)
    index.put(number, "key_hash", int(index.entries["key_hash"][number]) ^ 1 << store.random.randrange(30))
    return [Expected(FindingKind.INDEX_WRONG_HASH, begin=int(index.entries["physical_offset"][number]))]


def entry_leads_to_another_record(store: StoreCopy) -> list[Expected]:
    index, number = _entry(store)
    entries = index.entries
    same = set(entries["physical_offset"][entries["key_hash"] == entries["key_hash"][number]].tolist())
    other = store.random.choice([each.offset for each in store.records() if each.offset not in same])
    own = int(entries["physical_offset"][number])
    index.put(number, "physical_offset", other)
    return [Expected(FindingKind.INDEX_WRONG_PLACE, begin=own)]


def _misled(title: str, place: Callable[[int], int]) -> Fault:
    """Make a fault that lets an entry lead elsewhere."""

    def plant(store: StoreCopy) -> list[Expected]:
        index, number = _entry(store)
        own = int(index.entries["physical_offset"][number])
        index.put(number, "physical_offset", place(own))
        return [Expected(FindingKind.INDEX_WRONG_PLACE, begin=own)]

    return Fault(plant, name=title)


def _link(title: str, value: Callable[[IndexCopy, int, Random], int]) -> Fault:
    """Make a fault that lets an entry that leads to another one lead elsewhere; not one of the last two."""

    def plant(store: StoreCopy) -> list[Expected]:
        index = store.index()
        number = store.random.choice([each for each in index.linked() if each < index.count - 2])
        index.put(number, "previous_index", value(index, number, store.random))
        return [Expected(FindingKind.INDEX_CHAIN)]

    return Fault(plant, name=title)


def _slot(title: str, value: int) -> Fault:
    """Make a fault that lets a slot in use lead elsewhere."""

    def plant(store: StoreCopy) -> list[Expected]:
        index = store.index()
        patch(index.file, index.slot_at(store.random.choice(index.used_slots())), struct.pack(">i", value))
        return [Expected(FindingKind.INDEX_CHAIN)]

    return Fault(plant, name=title)


def _header_at(name: str) -> int:
    fields = unit_dtype(INDEX_HEADER).fields
    assert fields is not None
    return int(fields[name][1])


def _header(title: str, name: str, change: int) -> Fault:
    """Make a fault that changes a long field of a header."""

    def plant(store: StoreCopy) -> list[Expected]:
        index = store.index()
        (value,) = struct.unpack_from(">q", index.file.read_bytes(), _header_at(name))
        patch(index.file, _header_at(name), struct.pack(">q", value + change))
        return [Expected(FindingKind.INDEX_HEADER)]

    return Fault(plant, name=title)


def header_ends_after_the_log(store: StoreCopy) -> list[Expected]:
    index = store.indexes()[-1]
    patch(index.file, _header_at("end_physical_offset"), struct.pack(">q", _FAR))
    return [Expected(FindingKind.INDEX_AFTER_END, begin=_FAR)]


def header_counts_too_few(store: StoreCopy) -> list[Expected]:
    index = store.index()
    patch(index.file, _header_at("index_count"), struct.pack(">i", index.count - 1))
    before, last = index.entries["physical_offset"][-2:].tolist()
    is_seen = before != last  # else the header fits the entry before it as well
    return [*[Expected(FindingKind.INDEX_HEADER)] * is_seen, Expected(FindingKind.INDEX_MISSING, begin=last)]


def index_file_missing(store: StoreCopy) -> list[Expected]:
    index = store.index()
    count = index.count - 1
    index.file.unlink()
    return [Expected(FindingKind.INDEX_MISSING, count)]


def index_missing(store: StoreCopy) -> list[Expected]:
    """Delete the whole index: no finding, as nothing shows then whether the broker kept one."""
    shutil.rmtree(store.root / "index")
    return []


def index_file_cut(store: StoreCopy) -> list[Expected]:
    index = store.index()
    os.truncate(index.file, index.file.stat().st_size // 2)
    return [Expected(FindingKind.INDEX_UNREADABLE)]


def index_file_misnamed(store: StoreCopy) -> list[Expected]:
    index = store.index()
    index.file.rename(index.file.with_name(index.file.name + ".old"))
    return [Expected(FindingKind.INDEX_UNREADABLE)]


def index_file_repeated(store: StoreCopy) -> list[Expected]:
    """Put a copy of an index file after all others: the files are no longer in the log's order."""
    indexes = store.indexes()
    name = str(int(indexes[-1].file.name) + 1000)
    shutil.copyfile(indexes[0].file, indexes[0].file.with_name(name))
    return [Expected(FindingKind.INDEX_ORDER)]


INDEX_FAULTS: Final = (
    Fault(entry_hash_changed),
    Fault(entry_leads_to_another_record),
    _misled("entry_leads_inside_a_record", lambda own: own + 1),
    _misled("entry_leads_after_the_end", lambda _: _FAR),
    _link("link_cut", lambda *_: 0),
    _link("link_to_itself", lambda _, number, __: number),
    _link("link_to_a_later_entry", lambda index, *_: index.count - 1),
    _link("link_out_of_range", lambda _, __, chance: chance.choice([-1, 1 << 30])),
    _slot("slot_emptied", 0),
    _slot("slot_out_of_range", 1 << 30),
    _slot("slot_negative", -5),
    _header("header_begin_changed", "begin_physical_offset", 1),
    _header("header_end_changed", "end_physical_offset", -1),
    _header("header_begin_time_changed", "begin_timestamp", 3_600_000),
    _header("header_end_time_changed", "end_timestamp", -3_600_000),
    Fault(header_ends_after_the_log),
    Fault(header_counts_too_few),
    Fault(index_file_missing, ("5.3.3/batch", "4.9.7/basic")),
    Fault(index_missing),
    Fault(index_file_cut),
    Fault(index_file_misnamed),
    Fault(index_file_repeated),
)

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
from tests.store_core.answers.planting.store_copy import Expected, Fault, IndexCopy, StoreCopy, patch

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


_FAR: Final = 1 << 40
_HEADER: Final = unit_dtype(INDEX_HEADER)


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


def entry_leads_inside_a_record(store: StoreCopy) -> list[Expected]:
    index, number = _entry(store)
    own = int(index.entries["physical_offset"][number])
    index.put(number, "physical_offset", own + 1)
    return [Expected(FindingKind.INDEX_WRONG_PLACE, begin=own)]


def entry_leads_after_the_end(store: StoreCopy) -> list[Expected]:
    index, number = _entry(store)
    own = int(index.entries["physical_offset"][number])
    index.put(number, "physical_offset", _FAR)
    return [Expected(FindingKind.INDEX_WRONG_PLACE, begin=own)]


def link_cut(store: StoreCopy) -> list[Expected]:
    index = store.index()
    index.put(store.random.choice(index.linked()), "previous_index", 0)
    return [Expected(FindingKind.INDEX_CHAIN)]


def link_to_itself(store: StoreCopy) -> list[Expected]:
    index = store.index()
    number = store.random.choice(index.linked())
    index.put(number, "previous_index", number)
    return [Expected(FindingKind.INDEX_CHAIN)]


def link_to_a_later_entry(store: StoreCopy) -> list[Expected]:
    index = store.index()
    number = store.random.choice([each for each in index.linked() if each < index.count - 2])
    index.put(number, "previous_index", index.count - 1)
    return [Expected(FindingKind.INDEX_CHAIN)]


def link_out_of_range(store: StoreCopy) -> list[Expected]:
    index = store.index()
    index.put(store.random.choice(index.linked()), "previous_index", store.random.choice([-1, 1 << 30]))
    return [Expected(FindingKind.INDEX_CHAIN)]


def _slot(value: Callable[[StoreCopy, IndexCopy, int], int], title: str) -> Callable[[StoreCopy], list[Expected]]:
    """Make a fault that lets a slot in use lead elsewhere."""

    def plant(store: StoreCopy) -> list[Expected]:
        index = store.index()
        slot = store.random.choice(index.used_slots())
        patch(index.file, index.slot_at(slot), struct.pack(">i", value(store, index, slot)))
        return [Expected(FindingKind.INDEX_CHAIN)]

    plant.__name__ = title
    return plant


def _header(name: str, code: str, change: Callable[[int], int], title: str) -> Callable[[StoreCopy], list[Expected]]:
    """Make a fault that changes a field of a header."""

    def plant(store: StoreCopy) -> list[Expected]:
        index = store.index()
        assert _HEADER.fields is not None
        at = int(_HEADER.fields[name][1])
        (value,) = struct.unpack_from(f">{code}", index.file.read_bytes(), at)
        patch(index.file, at, struct.pack(f">{code}", change(value)))
        return [Expected(FindingKind.INDEX_HEADER)]

    plant.__name__ = title
    return plant


def header_ends_after_the_log(store: StoreCopy) -> list[Expected]:
    index = store.indexes()[-1]
    assert _HEADER.fields is not None
    patch(index.file, int(_HEADER.fields["end_physical_offset"][1]), struct.pack(">q", _FAR))
    return [Expected(FindingKind.INDEX_AFTER_END, begin=_FAR)]


def header_counts_too_few(store: StoreCopy) -> list[Expected]:
    index = store.index()
    _count(index, index.count - 1)
    before, last = index.entries["physical_offset"][-2:].tolist()
    is_seen = before != last  # else the header fits the entry before it as well
    return [*[Expected(FindingKind.INDEX_HEADER)] * is_seen, Expected(FindingKind.INDEX_MISSING, begin=last)]


def _count(index: IndexCopy, count: int) -> None:
    assert _HEADER.fields is not None
    patch(index.file, int(_HEADER.fields["index_count"][1]), struct.pack(">i", count))


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
    Fault(entry_leads_inside_a_record),
    Fault(entry_leads_after_the_end),
    Fault(link_cut),
    Fault(link_to_itself),
    Fault(link_to_a_later_entry),
    Fault(link_out_of_range),
    Fault(_slot(lambda *_: 0, "slot_emptied")),
    Fault(_slot(lambda *_: 1 << 30, "slot_out_of_range")),
    Fault(_slot(lambda *_: -5, "slot_negative")),
    Fault(_header("begin_physical_offset", "q", lambda value: value + 1, "header_begin_changed")),
    Fault(_header("end_physical_offset", "q", lambda value: value - 1, "header_end_changed")),
    Fault(_header("begin_timestamp", "q", lambda value: value + 3_600_000, "header_begin_time_changed")),
    Fault(_header("end_timestamp", "q", lambda value: value - 3_600_000, "header_end_time_changed")),
    Fault(header_ends_after_the_log),
    Fault(header_counts_too_few),
    Fault(index_file_missing, ("5.3.3/batch", "4.9.7/basic")),
    Fault(index_missing),
    Fault(index_file_cut),
    Fault(index_file_misnamed),
    Fault(index_file_repeated),
)

# SPDX-License-Identifier: Apache-2.0
"""Faults of consume queues, with their extensions, and of batch queues."""

from __future__ import annotations

import os
import shutil
import struct
from typing import TYPE_CHECKING, Final

from store_core.format.layout import BATCH_CONSUME_QUEUE_UNIT, CONSUME_QUEUE_EXT_UNIT, unit_dtype
from store_core.queue.consume_queue_unit import BATCH_UNIT_SIZE, CQ_STORE_UNIT_SIZE
from store_core.store.rebuild.findings import FindingKind
from tests.builders import patch
from tests.store_core.answers.planting.store_copy import SOUND, Expected, Fault, QueueCopy, StoreCopy, Unit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_FAR: Final = 1 << 40
_BATCH: Final = unit_dtype(BATCH_CONSUME_QUEUE_UNIT)


def _one(kind: FindingKind, queue: QueueCopy, place: int, begin: int | None = None) -> list[Expected]:
    return [Expected(kind, begin=begin, queue_offset=place, place=queue.place)]


# ---- units


def last_unit_missing(store: StoreCopy) -> list[Expected]:
    queue = store.queue()
    offset = queue.unit(queue.stop - 1)[0]
    queue.put(queue.stop - 1, (0, 0, 0))
    return _one(FindingKind.UNIT_MISSING, queue, queue.stop - 1, offset)


def last_units_missing(store: StoreCopy) -> list[Expected]:
    queue = store.queue()
    count = store.random.randrange(2, 8)
    for place in range(queue.stop - count, queue.stop):
        queue.put(place, (0, 0, 0))
    return [Expected(FindingKind.UNIT_MISSING, count, queue_offset=queue.stop - count, place=queue.place)]


def unit_dropped(store: StoreCopy) -> list[Expected]:
    """Take a unit out, and move those after it to the front."""
    queue, units = _queue_and_units(store)
    number = store.random.randrange(1, queue.count - 2)
    queue.put_all(units[:number] + units[number + 1 :])
    return [
        Expected(FindingKind.UNIT_MISSING, queue_offset=queue.first + number, place=queue.place),
        Expected(FindingKind.UNIT_SHIFTED, queue.count - number - 1, queue_offset=queue.first + number),
    ]


def _queue_and_units(store: StoreCopy) -> tuple[QueueCopy, list[Unit]]:
    queue = store.queue()
    return queue, queue.units()


def unit_put_between(store: StoreCopy) -> list[Expected]:
    """Put the unit of another queue's record before another one, and move that and those after it."""
    queue, units = _queue_and_units(store)
    number = store.random.randrange(1, queue.count - 2)
    queue.put(queue.stop, units[-1])
    queue.put_all([*units[:number], _foreign(store, queue), *units[number:-1]])
    return [
        Expected(FindingKind.UNIT_WRONG_PLACE, queue_offset=queue.first + number, place=queue.place),
        Expected(FindingKind.UNIT_SHIFTED, queue.count - number, queue_offset=queue.first + number + 1),
    ]


def _foreign(store: StoreCopy, queue: QueueCopy) -> Unit:
    """Return a unit of another queue."""
    own = {unit[0] for unit in queue.units()}
    others = [unit for other in store.queues() for unit in other.units() if unit[0] not in own]
    return store.random.choice(others)


def units_swapped(store: StoreCopy) -> list[Expected]:
    queue = store.queue()
    place = store.place(queue)
    first, second = queue.unit(place), queue.unit(place + 1)
    queue.put(place, second)
    queue.put(place + 1, first)
    return [Expected(FindingKind.UNIT_SHIFTED, 2, queue_offset=place, place=queue.place)]


def unit_repeated_in_place(store: StoreCopy) -> list[Expected]:
    queue = store.queue()
    place = store.place(queue)
    queue.put(place + 1, queue.unit(place))
    return _one(FindingKind.UNIT_DUPLICATE, queue, place + 1)


def _changed(title: str, kind: FindingKind, change: Callable[[Unit, StoreCopy, QueueCopy], Unit]) -> Fault:
    """Make a fault that changes one unit."""

    def plant(store: StoreCopy) -> list[Expected]:
        queue = store.queue()
        place = store.place(queue)
        queue.put(place, change(queue.unit(place), store, queue))
        return _one(kind, queue, place)

    return Fault(plant, name=title)


def _added(title: str, kind: FindingKind, make: Callable[[StoreCopy, QueueCopy], Unit]) -> Fault:
    """Make a fault that adds a unit at the end."""

    def plant(store: StoreCopy) -> list[Expected]:
        queue = store.queue()
        queue.put(queue.stop, make(store, queue))
        return _one(kind, queue, queue.stop)

    return Fault(plant, name=title)


def _with_a_wrong_bit(unit: Unit, store: StoreCopy, _: QueueCopy) -> Unit:
    return *unit[:2], unit[2] ^ 1 << store.random.randrange(31)


def unit_zeroed(store: StoreCopy) -> list[Expected]:
    """Zero a unit: a broker takes the queue to end there, so that those after it are gone.

    It looks for the end in the last three files; in an earlier one the unit is only a wrong one.
    """
    queue = store.queue()
    searched = int(queue.files[-3:][0].name) // CQ_STORE_UNIT_SIZE
    place = store.random.randrange(max(searched, queue.first + 2), queue.stop - 3)
    queue.put(place, (0, 0, 0))
    return [Expected(FindingKind.UNIT_MISSING, queue.stop - place, queue_offset=place, place=queue.place)]


# ---- files and directories


def queue_missing(store: StoreCopy) -> list[Expected]:
    queue = store.queue()
    shutil.rmtree(queue.directory)
    return [Expected(FindingKind.UNIT_MISSING, queue.count, queue_offset=queue.first, place=queue.place)]


def _file_missing(title: str, number: int) -> Fault:
    """Make a fault that deletes one of several files of a queue."""

    def plant(store: StoreCopy) -> list[Expected]:
        queue = store.queue(files=3)
        file = queue.files[number]
        count = queue.units_in(file)
        file.unlink()
        place = max(int(file.name) // CQ_STORE_UNIT_SIZE, queue.first)
        return [Expected(FindingKind.UNIT_MISSING, count, queue_offset=place, place=queue.place)]

    return Fault(plant, ("5.3.3/propcrc",), title)


def _unreadable(
    title: str, change: Callable[[StoreCopy, QueueCopy], object], files: int = 1, stores: tuple[str, ...] = SOUND
) -> Fault:
    """Make a fault that lets a queue have what is no file of it."""

    def plant(store: StoreCopy) -> list[Expected]:
        queue = store.queue(files)
        change(store, queue)
        return [Expected(FindingKind.QUEUE_UNREADABLE, place=queue.place)]

    return Fault(plant, stores, title)


def _append_a_unit(_: StoreCopy, queue: QueueCopy) -> None:
    with queue.files[0].open("ab") as file:
        file.write(bytes(CQ_STORE_UNIT_SIZE))


def _replace_by_a_file(_: StoreCopy, queue: QueueCopy) -> None:
    shutil.rmtree(queue.directory)
    queue.directory.touch()


def _unknown(title: str, kind: FindingKind, place: Callable[[QueueCopy], tuple[str, int]]) -> Fault:
    """Make a fault that puts a copy of a queue where none belongs."""

    def plant(store: StoreCopy) -> list[Expected]:
        queue = store.queue()
        topic, queue_id = place(queue)
        shutil.copytree(queue.directory, store.root / "consumequeue" / topic / str(queue_id))
        return [Expected(kind, place=(topic, queue_id))]

    return Fault(plant, name=title)


def extra_queue_file(store: StoreCopy) -> list[Expected]:
    """Put a copy of a queue's first file after the last one."""
    queue = store.queue()
    last = queue.files[-1]
    stop = (int(last.name) + queue.size) // CQ_STORE_UNIT_SIZE
    for place in range(queue.stop, stop):  # a broker stops at the first empty place
        queue.put(place, queue.unit(queue.stop - 1))
    shutil.copyfile(queue.files[0], last.with_name(f"{int(last.name) + queue.size:020d}"))
    count = queue.units_in(queue.files[0]) + stop - queue.stop
    return [Expected(FindingKind.UNIT_DUPLICATE, count, place=queue.place)]


def queue_renamed(store: StoreCopy) -> list[Expected]:
    queue = store.queue()
    queue.directory.rename(queue.directory.parent / "77")
    return [
        Expected(FindingKind.UNIT_MISSING, queue.count, place=queue.place),
        Expected(FindingKind.UNKNOWN_QUEUE, place=(queue.place[0], 77)),
    ]


# ---- extensions

_EXT: Final = ("5.3.3/ext", "5.5.0/ext")


def extension_missing(store: StoreCopy) -> list[Expected]:
    queue = store.queue()
    count = sum(code < -(1 << 62) for _, _, code in queue.units())
    shutil.rmtree(store.root / "consumequeue_ext" / queue.place[0] / str(queue.place[1]))
    return [Expected(FindingKind.UNIT_WRONG_TAGS_CODE, count, place=queue.place)]


def extension_tags_code_changed(store: StoreCopy) -> list[Expected]:
    queue = store.queue()
    place = store.place(queue)
    address = queue.unit(place)[2] + (1 << 63)
    folder = store.root / "consumequeue_ext" / queue.place[0] / str(queue.place[1])
    file = max(each for each in folder.iterdir() if int(each.name) <= address)
    fields = unit_dtype(CONSUME_QUEUE_EXT_UNIT).fields
    assert fields is not None
    at = address - int(file.name) + int(fields["tags_code"][1])
    patch(file, at, struct.pack(">q", 12345))
    return _one(FindingKind.UNIT_WRONG_TAGS_CODE, queue, place)


# ---- batch queues

_BCQ: Final = ("5.3.3/bcq", "5.5.0/bcq")


def _batch_file(store: StoreCopy) -> tuple[Path, int, tuple[str, int]]:
    """Pick a batch queue; return its first file, how many units that has, and the queue."""
    files = [min(each.iterdir()) for each in sorted(store.root.glob("batchconsumequeue/*/*"))]
    counts = {file: _units_of_batch(file) for file in files}
    place = {file: (file.parent.parent.name, int(file.parent.name)) for file in files}
    file = store.random.choice([each for each in files if counts[each] > 5 and place[each] not in store.taken])
    store.taken.add(place[file])
    return file, counts[file], place[file]


def _units_of_batch(file: Path) -> int:
    data = file.read_bytes()
    sizes = (
        struct.unpack_from(">i", data, at + 8)[0] for at in range(0, len(data) - BATCH_UNIT_SIZE + 1, BATCH_UNIT_SIZE)
    )
    return sum(size > 0 for size in sizes)


def _batch_changed(title: str, kind: FindingKind, name: str, code: str) -> Fault:
    def plant(store: StoreCopy) -> list[Expected]:
        file, count, place = _batch_file(store)
        assert _BATCH.fields is not None
        at = store.random.randrange(1, count - 1) * BATCH_UNIT_SIZE + int(_BATCH.fields[name][1])
        (value,) = struct.unpack_from(f">{code}", file.read_bytes(), at)
        patch(file, at, struct.pack(f">{code}", value + 1))
        return [Expected(kind, place=place)]

    return Fault(plant, _BCQ, title)


def batch_unit_missing(store: StoreCopy) -> list[Expected]:
    file, count, place = _batch_file(store)
    others = [each for each in file.parent.iterdir() if each != file]
    if others:
        file, count = max(others), _units_of_batch(max(others))
    patch(file, (count - 1) * BATCH_UNIT_SIZE, bytes(BATCH_UNIT_SIZE))
    return [Expected(FindingKind.UNIT_MISSING, place=place)]


QUEUE_FAULTS: Final = (
    Fault(last_unit_missing),
    Fault(last_units_missing),
    Fault(unit_dropped),
    Fault(unit_put_between),
    Fault(units_swapped),
    Fault(unit_repeated_in_place),
    _added("unit_repeated_at_the_end", FindingKind.UNIT_DUPLICATE, lambda store, queue: queue.unit(store.place(queue))),
    _changed("unit_size_changed", FindingKind.UNIT_WRONG_SIZE, lambda unit, *_: (unit[0], unit[1] + 1, unit[2])),
    _changed("unit_size_beyond_the_log", FindingKind.UNIT_WRONG_SIZE, lambda unit, *_: (unit[0], 1 << 30, unit[2])),
    _changed("tags_code_changed", FindingKind.UNIT_WRONG_TAGS_CODE, _with_a_wrong_bit),
    _changed("tags_code_like_an_extension", FindingKind.UNIT_WRONG_TAGS_CODE, lambda unit, *_: (*unit[:2], -(1 << 62))),
    _changed("unit_points_inside_a_record", FindingKind.UNIT_WRONG_PLACE, lambda unit, *_: (unit[0] + 1, *unit[1:])),
    _changed("unit_points_after_the_end", FindingKind.UNIT_AFTER_END, lambda unit, *_: (_FAR, *unit[1:])),
    _changed(
        "unit_points_into_another_queue",
        FindingKind.UNIT_WRONG_PLACE,
        lambda _, store, queue: _foreign(store, queue),
    ),
    _added("unit_of_another_queue_at_the_end", FindingKind.UNIT_EXTRA, _foreign),
    _added("unit_after_the_end_at_the_end", FindingKind.UNIT_AFTER_END, lambda *_: (_FAR, 100, 0)),
    Fault(unit_zeroed),
    Fault(queue_missing),
    _file_missing("first_queue_file_missing", 0),
    _file_missing("middle_queue_file_missing", 1),
    _file_missing("last_queue_file_missing", -1),
    _unreadable(
        "queue_file_cut",
        lambda store, queue: os.truncate(queue.files[-1], store.random.randrange(1, queue.size)),
    ),
    _unreadable("queue_file_long", _append_a_unit, 2, ("5.3.3/propcrc", "4.9.7/basic")),
    _unreadable("queue_file_misnamed", lambda _, queue: queue.files[-1].rename(queue.files[-1].with_suffix(".old"))),
    _unreadable(
        "stray_file_in_a_queue", lambda _, queue: (queue.directory / "notes.txt").write_bytes(bytes(queue.size))
    ),
    _unreadable("file_in_place_of_a_queue", _replace_by_a_file),
    Fault(extra_queue_file),
    _unknown("unknown_topic", FindingKind.UNKNOWN_TOPIC, lambda _: ("ghost", 0)),
    _unknown("unknown_queue", FindingKind.UNKNOWN_QUEUE, lambda queue: (queue.place[0], 99)),
    Fault(queue_renamed),
    Fault(extension_missing, _EXT),
    Fault(extension_tags_code_changed, _EXT),
    _batch_changed("batch_unit_size_changed", FindingKind.UNIT_WRONG_SIZE, "store_size", "i"),
    _batch_changed("batch_tags_code_changed", FindingKind.UNIT_WRONG_TAGS_CODE, "tags_code", "q"),
    _batch_changed("batch_count_changed", FindingKind.UNIT_WRONG_SIZE, "batch_size", "h"),
    _batch_changed("batch_unit_misplaced", FindingKind.UNIT_WRONG_PLACE, "physical_offset", "q"),
    Fault(batch_unit_missing, _BCQ),
)

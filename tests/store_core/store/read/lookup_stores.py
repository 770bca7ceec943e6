# SPDX-License-Identifier: Apache-2.0
"""Stores with queues and a key index for tests of look-ups, ways to make these lie, and the comparison with a scan."""

from __future__ import annotations

import shutil
import struct
from dataclasses import fields, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from store_core import CorruptRecordError, ReadOptions, StoreError, read_messages, read_range
from store_core.answers import check
from store_core.format.columns import DEFAULT_COLUMNS, arrow_schema
from store_core.format.java import hash_code
from store_core.format.layout import TransactionType
from store_core.format.properties import decode_text, parse_properties
from store_core.queue.index_format import MessageKeys
from store_core.queue.rocksdb_queues import unit_key
from store_core.store.read.lookup.explanation import LookUpCosts
from store_core.store.read.option_values import ReadMode
from store_core.store.read.read_plan import ReadPlan, plan_and_walk
from tests.builders import BLANK_SIZE, LogBuilder, Record
from tests.dledger_logs import DLedgerLog
from tests.store_core.files.rocksdbs import bound, bound_key, unit
from tests.store_core.queue.index_builders import index_service, rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path


ALWAYS: Final = LookUpCosts(least_log=0, per_file=0, per_database=0, per_stored_unit=0, per_record=1, most_share=1e9)
"""Look-ups are worth everything, so that they are used wherever they can be."""

UNIT: Final = struct.Struct(">qiq")
ROLLBACK: Final = 0x0C
"""System flag of a rolled-back record, which has no unit."""

_SEGMENT: Final = 1024


OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {"topic": "t0"},
    {"topic": "t0,t2", "queue_id": 1},
    {"topics_pattern": "t[12]"},
    {"queue_id": 0},
    {"topic": "t1", "queue_id": 0, "starting_offsets": {"t1": {0: 2}}, "ending_offsets": {"t1": {0: 4}}},
    {"topic": "t1", "starting_offsets": {"t1": {0: 3, 1: 1}}},
    {"topic": "t2", "key": "k5"},
    {"topic": "t2", "starting_offsets": 1100, "ending_offsets": 2500},
    {"topic": "t0", "tag": "TagA"},
)
"""What to ask of a small store."""


def small_store(root: Path) -> LogBuilder:
    """Write a store of three topics with two queues each, in four small segments, with a rolled-back record in each."""
    log = LogBuilder(_SEGMENT)
    number = 0
    while log.end < 4 * _SEGMENT - _SEGMENT // 2:
        topic, queue_id = f"t{number % 3}", number // 3 % 2
        log.append(b"x" * (number % 5), topic=topic, queue_id=queue_id, properties={"KEYS": f"k{number}"})
        if number % 7 == 0:
            log.append(b"gone", topic=topic, queue_id=queue_id, sys_flag=ROLLBACK, queue_offset=0)
            log._next[topic, queue_id] -= 1
        number += 1
    log.write(root)
    write_queues(root, log.records)
    return log


def small_dledger_store(root: Path, *, old_segments: int = 0) -> DLedgerLog:
    """Write such a store with a DLedger log, after some segments of an ordinary log."""
    made = small_store(root)
    shutil.rmtree(root)
    old, log = LogBuilder(_SEGMENT), DLedgerLog(_SEGMENT, old_segments * _SEGMENT)
    for record in made.records:
        values = {each.name: getattr(record, each.name) for each in fields(record)}
        if old.end < log.start_offset and old.end + record.size + BLANK_SIZE <= log.start_offset:
            old.append(record, queue_offset=record.queue_offset)
        else:
            log.append(**values)
    if old_segments:
        old.roll()
        old.write(root)
    log.write(root)
    write_queues(root, [*old.records, *log.records])
    return log


def stored_queues(
    records: Sequence[Record], *, flushed: int, sizes: Sequence[int] | None = None
) -> dict[str, dict[bytes, bytes]]:
    """Return the entries of a RocksDB with the queues of records, up to a physical offset."""
    units: dict[bytes, bytes] = {}
    bounds = {bound_key("CHECKPOINT_TOPIC", b"max", 0): flushed.to_bytes(8)}
    for record, size in zip(records, sizes or [record.size for record in records], strict=True):
        if record.sys_flag & ROLLBACK != ROLLBACK and record.physical_offset < flushed:
            topic, place = str(record.topic), (record.queue_id, record.queue_offset)
            units[unit_key(topic, *place)] = unit(record.physical_offset, size)
            bounds[bound_key(topic, b"max", record.queue_id)] = bound(record.queue_offset, record.physical_offset)
    return {"default": units, "offset": bounds}


def lie_in_queues(root: Path, random: Random) -> None:
    """Change some bytes of one queue's files, or the files."""
    found = sorted(path for path in root.joinpath("consumequeue").rglob("0*") if path.is_file())
    files = [path for path in found if path.stat().st_size >= UNIT.size]
    path, other = random.choice(files), random.choice(files)
    data = bytearray(path.read_bytes())
    at = random.randrange(len(data) // UNIT.size) * UNIT.size
    offset, size, code = UNIT.unpack_from(data, at)
    kind = random.randrange(11)
    if kind == 0:
        moved = offset + random.choice([-100, -1, 1, size])
        UNIT.pack_into(data, at, max(-(2**63), min(moved, 2**63 - 1)), size, code)
    elif kind == 1:
        UNIT.pack_into(data, at, offset, max(-1, size + random.choice([-size, -1, 1, 2**20])), code)
    elif kind == 2:
        data[at : at + UNIT.size] = bytes(UNIT.size)
    elif kind == 3:
        UNIT.pack_into(data, at, random.choice([-(2**63), -1, 2**63 - 1, 0, 2**40]), size, code)
    elif kind == 4:
        data[at:] = other.read_bytes()[at:]
    elif kind == 5:
        data = data[: random.randrange(len(data))]
    elif kind == 6:
        data[:] = data[UNIT.size :] + bytes(UNIT.size)
    elif kind == 7:
        other.write_bytes(data)
    elif kind < 10:
        _share_out(path.parent, other.parent, random)
        return
    else:
        path.unlink()
        return
    path.write_bytes(data)


def _share_out(one: Path, two: Path, random: Random) -> None:
    """Share out the last units of two queues anew, in the log's order: together, they lead to the same records."""
    if one == two:
        return
    file_size = next(one.iterdir()).stat().st_size
    queues = {directory: _units_in(directory) for directory in (one, two)}
    moved: list[bytes] = []
    for units in queues.values():
        cut = random.randrange(len(units) + 1)
        moved += units[cut:]
        del units[cut:]
    share = random.choice([0, 0.1, 0.5])
    for stored in sorted(moved):
        queues[one if random.random() < share else two].append(stored)
    for directory, units in queues.items():
        shutil.rmtree(directory)
        directory.mkdir()
        _write_units(directory, units or [bytes(UNIT.size)], file_size)


def _units_in(directory: Path) -> list[bytes]:
    data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
    units = [data[at : at + UNIT.size] for at in range(0, len(data), UNIT.size)]
    return [unit for unit in units if any(unit)]


def write_queues(root: Path, records: Iterable[Record], *, units_per_file: int = 8) -> None:
    """Write the consume queues of records, in files of a few units."""
    units: dict[tuple[str, int], list[bytes]] = {}
    for record in records:
        if record.sys_flag & ROLLBACK != ROLLBACK:
            unit = UNIT.pack(record.physical_offset, record.size, 0)
            units.setdefault((str(record.topic), record.queue_id), []).append(unit)
    size = units_per_file * UNIT.size
    for (topic, queue_id), packed in units.items():
        directory = root / "consumequeue" / topic / str(queue_id)
        directory.mkdir(parents=True)
        _write_units(directory, packed, size)


def _write_units(directory: Path, units: Sequence[bytes], file_size: int) -> None:
    data = b"".join(units)
    for start in range(0, len(data), file_size):
        directory.joinpath(f"{start:020d}").write_bytes(data[start : start + file_size].ljust(file_size, b"\0"))


def _read(root: Path | str, costs: LookUpCosts, options: ReadOptions) -> tuple[pa.Table | None, ReadPlan]:
    plan, mapped = plan_and_walk(root, options, costs)
    try:
        batches = [batch for part in plan.ranges for batch in read_range(part, options, mapped)]
    except CorruptRecordError:
        return None, plan
    return pa.Table.from_batches(batches) if batches else pa.table({}), plan


def same_as_scan(root: Path, at: Path | str | None = None, **options: Any) -> ReadPlan:  # noqa: ANN401 -- of reading
    """Check that a look-up in a sound store returns the rows of the scan, and return the look-up's plan.

    It may lack records that no queue has by RocketMQ's rules, which are prepared and rolled-back ones. The look-up
    reads the same store at another place, if there is one.
    """
    plan, missing = promised_rows(root, at, **options)

    assert not missing, plan.explanation
    return plan


def promised_rows(root: Path, at: Path | str | None = None, **options: Any) -> tuple[ReadPlan, set[int]]:  # noqa: ANN401 -- of reading
    """Check that all rows of a look-up are rows of the scan, in its order.

    Return the look-up's plan, and the physical offsets of rows that it lacks and queues should have.
    """
    named = options.pop("columns", None)
    asked = {"columns": [*dict.fromkeys([*(named or DEFAULT_COLUMNS), "physical_offset", "sys_flag"])], **options}
    scan = ReadOptions.parse(**{**asked, "use_consume_queues": "never", "use_index_files": "never"})
    expected, scanned = _read(root, ALWAYS, scan)
    assert all(part.picks is None for part in scanned.ranges)

    actual, plan = _read(at or root, ALWAYS, ReadOptions.parse(**asked))
    if expected is None or actual is None:
        assert expected is None
        return plan, set()
    found = set(actual["physical_offset"].to_pylist()) if actual.num_rows else set()
    rows = expected.to_pylist()
    assert actual.to_pylist() == [row for row in rows if row["physical_offset"] in found]
    queued = {row["physical_offset"] for row in rows if TransactionType.of(row["sys_flag"]).is_queued}
    return plan, queued - found


def has_findings(root: Path, **named: Any) -> bool:  # noqa: ANN401 -- options of a check
    """Return whether `check` has a finding in a store, or can't check it."""
    try:
        return bool(check(root, **named).counts)
    except StoreError:
        return True


def lying_copy(sound: Path, root: Path, seed: int, lies: int, lie: Callable[[Path, Random], None]) -> Random:
    """Copy a store into the place of an earlier copy, and change what leads to its records; return what drew that."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(sound, root)
    drawn = Random(seed)  # noqa: S311 -- reproducible
    for _ in range(lies):
        lie(root, drawn)
    return drawn


def keeps_the_promise(root: Path, at: Path | str | None = None, **options: Any) -> str:  # noqa: ANN401 -- of reading
    """Check that a look-up in any store returns sound records alone, and all of them or `check` has a finding.

    A scan ends at some damage, such as a blank record in the place of another one; a look-up may find what is behind
    it, where `check` has a finding. It reads the same store at another place, if there is one. Return the plan's name.
    """
    asked = ReadOptions.parse(**options)
    scan = replace(asked, use_consume_queues="never", use_index_files="never")
    expected, _ = _outcome(root, scan)
    actual, name = _outcome(at or root, asked)
    if isinstance(actual, StoreError):
        assert type(actual) is type(expected)
        return name
    sound = expected
    if isinstance(expected, StoreError):
        sound, _ = _outcome(root, replace(scan, mode=ReadMode.DROPMALFORMED))
    assert isinstance(sound, pa.Table), sound
    found, rows = set(actual["physical_offset"].to_pylist()), sound.to_pylist()
    known = {row["physical_offset"] for row in rows}
    assert found <= known or has_findings(root), options
    assert [row for row in actual.to_pylist() if row["physical_offset"] in known] == [
        row for row in rows if row["physical_offset"] in found
    ]
    missing = {row["physical_offset"] for row in rows if TransactionType.of(row["sys_flag"]).is_queued} - found
    assert not missing or has_findings(root), (name, options, missing)
    return name


def _outcome(root: Path | str, options: ReadOptions) -> tuple[pa.Table | StoreError, str]:
    """Return the rows or the error of a read, and the name of its plan."""
    name = ""
    try:
        plan, mapped = plan_and_walk(root, options, ALWAYS)
        name = plan.explanation.plan
        batches = [batch for part in plan.ranges for batch in read_range(part, options, mapped)]
    except StoreError as error:
        return error, name
    return pa.Table.from_batches(batches, arrow_schema(options.columns)), name


def questions_about(root: Path, drawn: Random, most: int) -> list[dict[str, Any]]:
    """Return questions about some records of a store, as far as it has any."""
    columns = ["topic", "queue_id", "queue_offset", "physical_offset", "msg_id", "keys", "unique_key"]
    columns.append("store_timestamp")
    try:
        rows = read_messages(root, columns=columns, mode="DROPMALFORMED").read_all().to_pylist()
    except StoreError:
        rows = []
    found: list[dict[str, Any]] = []
    for row in drawn.sample(rows, min(most, len(rows))):
        topic, queue_id, offset = row["topic"], row["queue_id"], row["queue_offset"]
        time = int(row["store_timestamp"].timestamp() * 1000)
        found += [
            {"topic": [topic]},
            {"queue_id": queue_id, "starting_offsets": {topic: {queue_id: offset}}},
            {"queue_id": queue_id, "ending_offsets": {topic: {queue_id: offset + 2}}},
            {"topic": [topic], "starting_timestamp": time},
            {"topic": [topic], "ending_timestamp": time},
            {"physical_offset": row["physical_offset"]},
            {"physical_offset": row["physical_offset"] + 1},
            {"msg_id": row["msg_id"].lower(), "topic": [topic]},
        ]
        found += [{"key": key} for key in (row["keys"] or [])[-1:]]
        found += [{"unique_key": row["unique_key"], "topic": [topic]}] if row["unique_key"] else []
    return found or [{"topic": "TopicA"}, {"key": "k1"}]


_INDEXED_SEGMENT: Final = 2048


def _properties(number: int) -> dict[str, str]:
    """Return the properties of a record: most have an id, many have words, some have nothing that is indexed."""
    found = {"TAGS": f"Tag{number % 2}"}
    if number % 5:
        found["UNIQ_KEY"] = f"U{number}"
    if number % 3:
        found["KEYS"] = f"k{number} shared{number % 4}" if number % 2 else f"k{number}"
    return found


def keyed_store(root: Path, *, segments: int = 3, version: int = 0) -> LogBuilder:
    """Write a store of small segments with queues and an index of a few files.

    Stores of two versions have records in the same places, and other keys.
    """
    log = LogBuilder(_INDEXED_SEGMENT)
    number = 10
    while log.end < segments * _INDEXED_SEGMENT - _INDEXED_SEGMENT // 2:
        topic, queue_id = f"t{number % 2}", number // 2 % 2
        named = {name: value.swapcase() if version else value for name, value in _properties(number).items()}
        log.append(b"x" * (number % 5), topic=topic, queue_id=queue_id, properties=named)
        if number % 11 == 0:
            log.append(b"gone", topic=topic, properties={"KEYS": "gone"}, sys_flag=ROLLBACK)
            log._next[topic, 0] -= 1
        number += 1
    log.write(root)
    write_queues(root, log.records)
    write_index(root, log.records)
    return log


def write_index(root: Path, records: list[Record], *, slots: int = 16, entries: int = 24) -> None:
    """Write the index of records, as a broker does, in files of a few entries."""
    pairs = [(row, hash_code(f"{record.topic!s}#{key}")) for row, record in enumerate(records) for key in _keys(record)]
    rows, hashes = np.array(pairs, np.int64).reshape(-1, 2).T
    offsets = np.array([record.physical_offset for record in records], np.int64)
    times = np.array([record.store_timestamp for record in records], np.int64)
    index = index_service(root / "index", rules(slots, entries))
    index.put_keys(MessageKeys(offsets, times, rows, hashes.astype(np.int32)))
    index.close()


def _keys(record: Record) -> list[str]:
    packed = record.properties
    properties = parse_properties(decode_text(packed)) if isinstance(packed, bytes) else packed
    if record.sys_flag & ROLLBACK == ROLLBACK:
        return []
    unique = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    return unique + properties.get("KEYS", "").split()


def questions(log: LogBuilder) -> list[dict[str, Any]]:
    """Return options that ask for keys, each alone, and with what else narrows a read."""
    records = [record for record in log.records if _keys(record)]
    middle, last = records[len(records) // 2], records[-1]
    found: list[dict[str, Any]] = [{"key": key} for record in (records[0], middle, last) for key in _keys(record)]
    for key in ("shared1", "shared3"):
        found += [
            {"key": key, "topic": "t1"},
            {"key": key, "queue_id": 1},
            {"key": key, "topics_pattern": "t[01]", "tag": "Tag1"},
            {"key": key, "starting_timestamp": middle.store_timestamp},
            {"key": key, "ending_timestamp": middle.store_timestamp},
            {"key": key, "topic": "t1", "starting_offsets": {"t1": {0: 3}}},
            {"key": key, "starting_offsets": middle.physical_offset, "ending_offsets": last.physical_offset},
        ]
    ids = [key for each in records for key in _keys(each) if key.startswith("U")]
    found += [{"unique_key": ids[0]}, {"unique_key": ids[-1], "topic": "t0,t1"}]
    return [*found, {"key": "gone"}, {"key": "absent"}, {"key": "absent", "topic": "t0"}]


_HEADER, _SLOTS, _ENTRIES = 40, 16, 24
ENTRY = struct.Struct(">iqii")
FIRST = _HEADER + 4 * _SLOTS + ENTRY.size
_COUNT = struct.Struct(">i")
_COUNT_AT = 36


def index_files(root: Path) -> list[Path]:
    """Return the index files of a store, oldest first."""
    return sorted((root / "index").iterdir())


def _change_entry(data: bytearray, count: int, random: Random) -> None:
    """Change a field of an entry, or swap two entries."""
    one, two = (FIRST + ENTRY.size * random.randrange(min(count, _ENTRIES) - 1) for _ in range(2))
    entry, second = list(ENTRY.unpack_from(data, one)), ENTRY.unpack_from(data, two)
    values = {
        0: [0, entry[0] ^ 1 << random.randrange(31), second[0]],
        1: [0, -1, 2**62, entry[1] + random.choice([-1, 1, 100]), second[1]],
        3: [0, -1, entry[3] + 1, second[3], 2**31 - 1],
    }
    field = random.choice([0, 1, 3, None])
    if field is None:
        ENTRY.pack_into(data, two, *entry)
        entry = list(second)
    else:
        entry[field] = random.choice(values[field])
    ENTRY.pack_into(data, one, *entry)


def _change_bytes(data: bytearray, count: int, random: Random) -> None:
    """Change the header, a slot, or bytes of entries."""
    at = FIRST + ENTRY.size * random.randrange(min(count, _ENTRIES) - 1)
    kind = random.randrange(6)
    if kind == 0:
        _COUNT.pack_into(data, _COUNT_AT, random.choice([0, 1, count - 1, count + 1, -1, 2**31 - 1]))
    elif kind == 1:
        _COUNT.pack_into(data, _HEADER + 4 * random.randrange(_SLOTS), random.choice([0, -1, 1, count - 1, count, 99]))
    elif kind == 2:
        data[at:] = data[at + ENTRY.size :] + bytes(ENTRY.size)
    elif kind == 3:
        del data[random.randrange(len(data)) :]
    elif kind == 4:
        data[at : at + 4 * ENTRY.size] = bytes(4 * ENTRY.size)
    else:
        data[random.randrange(_HEADER, len(data))] ^= 1 << random.randrange(8)


def swap_links(data: bytearray, count: int, random: Random) -> None:
    """Swap the links of two entries of one slot, so that each entry still has one link to it.

    One then leads to itself, or to a later entry, and is in no chain, unless the entries are the same.
    """
    places = [FIRST + ENTRY.size * number for number in range(min(count, _ENTRIES) - 1)]
    slot_of = {at: ENTRY.unpack_from(data, at)[0] % _SLOTS for at in places}
    one = random.choice(places)
    two = random.choice([at for at in places if slot_of[at] == slot_of[one]])
    first, second = (ENTRY.unpack_from(data, at) for at in (one, two))
    ENTRY.pack_into(data, one, *first[:3], second[3])
    ENTRY.pack_into(data, two, *second[:3], first[3])


def _change_files(root: Path, other: Path, path: Path, random: Random) -> None:
    """Remove a file, rename it, or put another in its place."""
    kind = random.randrange(4)
    if kind == 0:
        path.unlink()
    elif kind == 1:
        path.rename(path.with_name(f"{random.randrange(10**17):017d}"))
    else:
        path.write_bytes(random.choice(index_files(root) if kind == 2 else index_files(other)).read_bytes())


def lie_in_index(root: Path, other: Path, random: Random) -> None:
    """Change an index file, or the files, in one place."""
    path = random.choice([*index_files(root), root])
    if path == root:
        return
    data = bytearray(path.read_bytes())
    if random.randrange(4) == 0 or len(data) < FIRST + _ENTRIES * ENTRY.size:
        _change_files(root, other, path, random)
        return
    count = max(_COUNT.unpack_from(data, _COUNT_AT)[0], 2)
    random.choice([_change_entry, _change_bytes, swap_links])(data, count, random)
    path.write_bytes(data)

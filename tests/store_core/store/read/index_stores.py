# SPDX-License-Identifier: Apache-2.0
"""Stores with queues and a key index for tests of look-ups by key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from store_core.format.java import hash_code
from store_core.format.properties import decode_text, parse_properties
from store_core.queue.index_format import MessageKeys
from tests.builders import LogBuilder, Record
from tests.store_core.queue.index_builders import index_service, rules
from tests.store_core.store.read.lookup_stores import write_queues

if TYPE_CHECKING:
    from pathlib import Path


_SEGMENT: Final = 2048
_ROLLBACK: Final = 0x0C


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
    log = LogBuilder(_SEGMENT)
    number = 10
    while log.end < segments * _SEGMENT - _SEGMENT // 2:
        topic, queue_id = f"t{number % 2}", number // 2 % 2
        named = {name: value.swapcase() if version else value for name, value in _properties(number).items()}
        log.append(b"x" * (number % 5), topic=topic, queue_id=queue_id, properties=named)
        if number % 11 == 0:
            log.append(b"gone", topic=topic, properties={"KEYS": "gone"}, sys_flag=_ROLLBACK)
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
    if record.sys_flag & _ROLLBACK == _ROLLBACK:
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

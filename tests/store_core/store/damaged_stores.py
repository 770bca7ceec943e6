# SPDX-License-Identifier: Apache-2.0
"""Damaged stores, and what the releases of RocketMQ and we make of each."""

from __future__ import annotations

import json
import lzma
import tarfile
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from store_core import MessageStoreConfig
from store_core.errors import StoreError
from store_core.files.file_system import FileSystem, OsFileSystem
from store_core.files.store_lock import AbortFile
from store_core.format.layout import BLANK_SIZE
from store_core.format.record.scan import read_frame
from store_core.format.release import RELEASE_RULES
from store_core.queue.consume_queue.batch_consume_queue import BatchConsumeQueue
from store_core.store.message_store_config import snake_case
from store_core.store.store_life import StoreServices, StoreSetup
from store_core.store.store_state import StoreCheckpoint
from tests.golden_stores import read_conf
from tests.store_core.fakes import FakeClock
from tests.store_core.queue.consume_queues import units_in

if TYPE_CHECKING:
    from store_core.files.mapped_file import MappedFile
    from store_core.store.message_store_config import Release
    from store_core.store.put.commit_log import CommitLog
    from store_core.store.recovery.log_recovery import RecoveryReport


RELEASES: Final[dict[str, Release]] = {rules.judge: name for name, rules in RELEASE_RULES.items()}

_GOLDEN: Final = Path(__file__).parents[2] / "golden"
_SHARED: Final = Path(__file__).parents[4] / "shared"
_DIRECTORIES: Final = (_SHARED / "golden" / "damage", _GOLDEN / "damage")
_NEWER: Final = tuple(
    path for folder in (_GOLDEN / "damage", _SHARED / "golden-newer") for path in folder.glob("expected-*.jsonl.xz")
)

_ALIKE: Final = {"5.3.4": "5.4.0", "5.5.1": "5.5.0"}
"""Releases that were asked, too, and another one whose results they had, but for those that they have of their own."""

_SIZES: Final = {
    "cl-size": "mapped_file_size_commit_log",
    "cq-size": "mapped_file_size_consume_queue",
    "ext-size": "mapped_file_size_consume_queue_ext",
    "bcq-size": "mapper_file_size_batch_consume_queue",
    "slot-num": "max_hash_slot_num",
    "index-num": "max_index_num",
}
_BATCH_UNIT: Final = 5
_SWITCHES: Final = {
    "ext": "enable_consume_queue_ext",
    "propcrc": "enabled_append_prop_crc",
    "force-propcrc": "force_verify_prop_crc",
}


def damaged_archives() -> tuple[Path, ...]:
    """Return the archives by name: those of the repository, and those next to it."""
    archives = (archive for directory in _DIRECTORIES for archive in directory.glob("*.tar.xz"))
    return tuple(sorted({archive.name: archive for archive in archives}.values(), key=lambda path: path.name))


def unpack_damaged(archive: Path, directory: Path) -> Path:
    """Unpack a damaged store below a directory, once; copy it before writing."""
    path = directory / archive.name.removesuffix(".tar.xz")
    if not path.exists():
        with lzma.open(archive) as stream, tarfile.open(fileobj=stream) as files:
            files.extraction_filter = getattr(tarfile, "data_filter", None)
            files.extractall(directory)  # noqa: S202 -- our own archives; the filter is there from Python 3.11.4
    return path


def config_of(conf: dict[str, str], version: str) -> MessageStoreConfig:
    """Return the configuration the store was made and opened with."""
    values: dict[str, Any] = {name: int(conf[key]) for key, name in _SIZES.items() if key in conf}
    values |= {name: conf[key] == "true" for key, name in _SWITCHES.items() if key in conf}
    values |= {
        snake_case(key.removeprefix("set.")): value == "true" for key, value in conf.items() if key.startswith("set.")
    }
    return MessageStoreConfig(release=RELEASES[version], **values)


def batch_topics_of(conf: dict[str, str]) -> list[str]:
    """Return the topics with batch queues."""
    return [topic for topic in conf.get("bcq-topics", "").split(",") if topic]


@dataclass
class Opened:
    """The state of an opened store, as far as RocketMQ's answers report theirs."""

    load: bool
    after_load: dict[str, Any] = field(default_factory=dict)
    after_start: dict[str, Any] = field(default_factory=dict)
    units: dict[str, Any] = field(default_factory=dict)
    index: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    found: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    index_times: set[int] = field(default_factory=set)
    report: RecoveryReport | None = None
    refusal: str = ""


def open_damaged(
    root: Path,
    config: MessageStoreConfig,
    batch_topics: list[str],
    keys: list[tuple[str, str]],
    file_system: FileSystem | None = None,
) -> Opened:
    """Open a store in two steps, and record its state after each; services are not started."""
    disk, clock = file_system or OsFileSystem(), FakeClock()
    services = StoreServices(
        StoreSetup(root, config, batch_topics=frozenset(batch_topics), clock=clock, file_system=disk)
    )
    opened = Opened(load=True, index_times={StoreCheckpoint(root, disk, config.release).load().index_msg_timestamp})
    try:
        services.recovery.run(last_exit_ok=not AbortFile(root, disk).exists)
        opened.after_load = _state(services)
        opened.report = services.recovery.catch_up(services.reput)
        opened.after_start = _state(services)
        opened.index_times |= {file.end_timestamp for file in services.index.files if file.is_full}
        opened.units = {f"{queue.topic}/{queue.queue_id}": _units(queue) for queue in services.queues.queues()}
        opened.index = {
            (topic, key): services.index.query_offset(topic, key, 64, 0, 2**63 - 1).physical_offsets
            for topic, key in keys
        }
        opened.found = {key: _readable(services.commit_log, offsets) for key, offsets in opened.index.items()}
    except StoreError as error:
        opened.load, opened.refusal = False, str(error)
    finally:
        services.close()
    return opened


def _state(services: StoreServices) -> dict[str, Any]:
    log, checkpoint = services.commit_log, services.checkpoint
    is_new = log.config.features.keeps_confirmed_offset
    logics = checkpoint.logics_msg_timestamp
    if not log.config.features.keeps_flushed_queue_offset and checkpoint.last_put != (0, 0):
        logics = checkpoint.last_put[0]  # RocketMQ sets it with each unit, we as soon as the units are on disk
    marks = {
        "physicMsgTimestamp": checkpoint.physic_msg_timestamp,
        "logicsMsgTimestamp": logics,
        "indexMsgTimestamp": checkpoint.index_msg_timestamp,
    }
    if is_new:
        marks |= {
            "masterFlushedOffset": checkpoint.master_flushed_offset,
            "confirmPhyOffset": checkpoint.confirm_physical_offset,
        }
    return {
        "maxPhyOffset": log.max_offset,
        "minPhyOffset": log.min_offset,
        "flushedWhere": log.flushed_where,
        "confirmOffsetField": services.recovery.report.confirm_offset,
        "checkpoint": marks,
        "queues": {
            f"{queue.topic}/{queue.queue_id}": [
                queue.min_offset_in_queue,
                queue.max_offset_in_queue,
                queue.max_physical_offset,
            ]
            for queue in services.queues.queues()
        },
    }


def _readable(log: CommitLog, offsets: list[int]) -> list[int]:
    """Return the offsets of which RocketMQ's ``queryMessage`` serves what is there: as many bytes as the size says."""
    return [
        offset for offset in offsets if _has_bytes(log.mapped_file_queue.find_mapped_file_by_offset(offset), offset)
    ]


def _has_bytes(file: MappedFile | None, offset: int) -> bool:
    head = None if file is None else file.select(offset - file.file_from_offset, BLANK_SIZE)
    if file is None or head is None:
        return False
    size, _ = read_frame(head, 0)
    return size > 0 and file.select(offset - file.file_from_offset, size) is not None


def _units(queue: Any) -> list[list[int]]:  # noqa: ANN401 -- of either kind
    if isinstance(queue, BatchConsumeQueue):
        units = units_in(queue, queue.min_offset_in_queue) if queue.max_offset_in_queue else ()
        return [
            [each.queue_offset, each.physical_offset, each.store_size, each.tags_code, each.batch_size]
            for each in units
        ]
    found: list[list[int]] = []
    first = queue.min_offset_in_queue
    while (units := queue.get_index_buffer(first)) is not None:  # a hole between files ends RocketMQ's answer
        found += [[first + index, *unit.item()] for index, unit in enumerate(units)]
        first += len(units)
    return found


@lru_cache(maxsize=1)
def expected_answers(path: Path) -> dict[str, dict[str, Any]]:
    """Read the results of each release for an unpacked store, by version; not to be changed."""
    answers: dict[str, dict[str, Any]] = json.loads(path.joinpath("expected.json").read_text(encoding="utf-8"))
    batch_topics = batch_topics_of(read_conf(path / "store.conf"))
    newer = _newer_answers().get(path.name, {})
    alike = {version: newer[other] for version, other in _ALIKE.items() if other in newer}
    return answers | {version: _as_older(answer, batch_topics) for version, answer in (alike | newer).items()}


@cache
def _newer_answers() -> dict[str, dict[str, dict[str, Any]]]:
    """Read the results of 5.4.0 and later, which are in one file each, by store and version."""
    answers: dict[str, dict[str, dict[str, Any]]] = {}
    for path in _NEWER:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for answer in map(json.loads, lines):
                answers.setdefault(answer["case"], {})[answer["version"]] = answer
    return answers


def _as_older(answer: dict[str, Any], batch_topics: list[str]) -> dict[str, Any]:
    """Convert results to the form of the others.

    A unit of a batch queue has a number of messages even if that is 1. The keys asked for found messages, which could
    be read, so the results are called `found`; in the others they are what the index has.
    """
    units = {
        name: [[*unit, 1][:_BATCH_UNIT] for unit in found] if name.rpartition("/")[0] in batch_topics else found
        for name, found in answer.get("units", {}).items()
    }
    rest = {name: value for name, value in answer.items() if name != "index"}
    return rest | {"units": units, "found": answer.get("index", [])}

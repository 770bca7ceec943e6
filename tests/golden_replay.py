# SPDX-License-Identifier: Apache-2.0
"""The messages that were put into a golden store, and a replay through our commit log with RocketMQ's clock."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from store_core.files.file_system import OsFileSystem
from store_core.files.segment_listing import SegmentPaths
from store_core.format.message import Message, PutMessageStatus
from store_core.format.properties import PropertyMap
from store_core.store.message_store_config import MessageStoreConfig
from store_core.store.put.commit_log import CommitLog
from store_core.store.put.put_service import PutService
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.store.put.put_preparation import PutMessageResult
    from tests.golden_stores import UnpackedStore


_MAX_MESSAGE_SIZE: Final = 110 << 10
_BLANK: Final = bytes.fromhex("cbd43194")
_STATUS_OF_4X: Final = {
    "CREATE_MAPEDFILE_FAILED": PutMessageStatus.CREATE_MAPPED_FILE_FAILED,
    "OS_PAGECACHE_BUSY": PutMessageStatus.OS_PAGE_CACHE_BUSY,
}


class ScriptedClock(FakeClock):
    """Returns the given times first, then stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[int] = []

    def now_ms(self) -> int:
        return self.script.pop(0) if self.script else self.wall_ms


class StubState:
    """A store in good health."""

    is_shutdown = False
    is_writeable = True
    is_os_page_cache_busy = False

    def __init__(self, clock: FakeClock, batch_topics: tuple[str, ...] = ()) -> None:
        self.clock = clock
        self.batch_topics = batch_topics

    def is_batch_topic(self, topic: str) -> bool:
        return topic in self.batch_topics

    def now_ms(self) -> int:
        return self.clock.now_ms()


@dataclass(frozen=True, slots=True)
class Put:
    """One line of a manifest."""

    line: dict[str, Any]

    @property
    def message(self) -> Message:
        """The message that was put: its string as it was, and its map in the order of the string."""
        text = self.line["propertiesString"]
        stored = None if text is None else base64.b64decode(text)
        given: dict[str, str] = self.line["properties"]
        order = [item.split(b"\x01")[0].decode("utf-8", "replace") for item in (stored or b"").split(b"\x02")]
        return Message(
            self.line["topic"],
            base64.b64decode(self.line["body"]),
            self.line["queueId"],
            properties=PropertyMap([(name, given[name]) for name in dict.fromkeys([*order, *given]) if name in given]),
            flag=self.line["flag"],
            sys_flag=self.line["sysFlag"],
            born_timestamp=self.line["bornTimestamp"],
            born_host=_host(self.line["bornHost"]),
            store_host=_host(self.line["storeHost"]),
            reconsume_times=self.line["reconsumeTimes"],
            prepared_transaction_offset=self.line["preparedTransactionOffset"],
            properties_string=stored,
        )

    @property
    def expected(self) -> tuple[object, ...]:
        """Status, and the parts of the result if anything was appended."""
        name = self.line["putStatus"]
        status = _STATUS_OF_4X.get(name) or PutMessageStatus[name]
        parts = ("appendStatus", "wroteOffset", "wroteBytes", "msgId", "storeTimestamp", "logicsOffset", "msgNum")
        return (status, *(self.line[part] for part in parts if part in self.line))


def golden_puts(store: UnpackedStore) -> Iterator[Put]:
    """Yield all puts of a store in order."""
    with store.path.joinpath("manifest.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            yield Put(json.loads(line))


def _host(java: str) -> tuple[str, int]:
    ip, _, port = java.rpartition(":")
    return ip.strip("[]").partition("%")[0], int(port)


class Replay:
    """A commit log configured as a golden store's, without services, and with a clock that can be set."""

    def __init__(self, store: UnpackedStore, directory: Path) -> None:
        conf = store.conf
        self.store = store
        self.directory = directory
        self.clock = ScriptedClock()
        release: Any = store.golden.release
        self.config = MessageStoreConfig(
            release=release,
            mapped_file_size_commit_log=int(conf["cl-size"]),
            max_message_size=_MAX_MESSAGE_SIZE,
            enable_lmq=conf.get("set.enableLmq") == "true",
            enable_multi_dispatch=conf.get("set.enableMultiDispatch") == "true",
            enabled_append_prop_crc=conf.get("propcrc") == "true",
        )
        state = StubState(self.clock, tuple(conf.get("bcq-topics", "").split(",")))
        self.commit_log = CommitLog(
            SegmentPaths((directory,)),
            self.config,
            OsFileSystem(),
            self.clock,
            is_batch_topic=state.is_batch_topic,
        )
        self.puts = PutService(self.commit_log, state, [])
        self._stored_times = {line["physicalOffset"]: line["storeTimestamp"] for line in store.lines("record")}

    def put(self, put: Put) -> tuple[object, ...]:
        """Put a message as RocketMQ got it, at the same time; return the result in the form of `Put.expected`."""
        line = put.line
        self.clock.wall_ms = line.get("storeTimestamp", 0)
        is_batch = line.get("type") == "batch"
        if is_batch and self.config.release == "4.3" and "wroteOffset" in line:
            # The members keep the time from before the lock was taken.
            self.clock.script = [line["storeTimestamp"], self._stored_times[line["wroteOffset"]]]
        outcome = self.puts.put_batch(put.message) if is_batch else self.puts.put(put.message)
        assert not hasattr(outcome, "add_done_callback")
        return _parts(outcome)

    def segments(self) -> dict[str, bytes]:
        """Return our files."""
        return {path.name: path.read_bytes() for path in sorted(self.directory.iterdir())}

    def expected_segments(self) -> dict[str, bytes]:
        """Return RocketMQ's files: without one made in advance, and for release 4.3 without what follows blank records.

        4.3.0 fills a file from a buffer that contains parts of older messages; we leave zeros there.
        """
        files = {path.name: path.read_bytes() for path in self.store.segments}
        used = {name: data for name, data in files.items() if data.strip(b"\0")}
        return {name: _without_remains(data) for name, data in used.items()} if self.config.release == "4.3" else used


def _without_remains(segment: bytes) -> bytes:
    position = 0
    while position + 8 <= len(segment):
        size = int.from_bytes(segment[position : position + 4])
        if segment[position + 4 : position + 8] == _BLANK or not size:
            break
        position += size
    return segment[: position + 8].ljust(len(segment), b"\0")


def _parts(result: PutMessageResult) -> tuple[object, ...]:
    appended = result.append_message_result
    if appended is None:
        return (result.status,)
    return (
        result.status,
        appended.status.name,
        appended.wrote_offset,
        appended.wrote_bytes,
        appended.msg_id,
        appended.store_timestamp,
        appended.logics_offset,
        appended.msg_num,
    )

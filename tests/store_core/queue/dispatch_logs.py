# SPDX-License-Identifier: Apache-2.0
"""Logs and requests for tests of dispatch: ordinary records, special properties, and what a hostile log may contain."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, get_args

import numpy as np
from hypothesis import strategies as st

from store_core.format.release import Release
from store_core.format.segment_view import Piece
from store_core.queue.dispatch.dispatch_batch import DispatchBatch, DispatchRequest, MessageCheck, RequestBatch
from store_core.queue.dispatch.dispatch_reader import DispatchReader
from store_core.queue.dispatch.rocketmq_check import Strictness, check_message_and_return_size
from store_core.queue.queue_path import QueueRules
from tests import strategies
from tests.builders import Record, blank_record, pack_properties
from tests.strategies import Log

if TYPE_CHECKING:
    from collections.abc import Sequence

RELEASES: Final[tuple[Release, ...]] = get_args(Release)
DELAYS: Final = (1000, 5000, 10_000)

_COLUMNS: Final = (
    "starts",
    "physical_offset",
    "message_size",
    "tags_code",
    "store_timestamp",
    "queue_offset",
    "sys_flag",
    "is_queued",
    "message_base_offset",
    "batch_size",
    "multi_dispatch_rows",
)

_NUMBERS: Final = st.sampled_from(
    [
        "0",
        "1",
        "2",
        "3",
        "4",
        "-1",
        "+2",
        "007",
        "\u0663",
        "\U0001d7cf",
        "",
        "x",
        "1 ",
        "2147483648",
        "99999999999999999999",
        "32768",
    ]
)
_TEXT: Final = st.sampled_from(
    ["TagA", "a b", " a  b ", "日本", "x 日本 😀", "7F0000010A1B18B4AAC2000000000001", "k" * 70, "", "a\x01b", "\x01"]
)
_SPECIAL: Final = st.dictionaries(
    st.sampled_from(["DELAY", "INNER_NUM", "INNER_BASE", "INNER_NUMB", "DELA"]), _NUMBERS, max_size=3
)
_PLAIN: Final = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "UNIQ_KEYS", "INNER_MULTI_DISPATCH", "DUP_INFO", "W"]),
    _TEXT | st.sampled_from(["a_b", "a_b_", "_b", "a_", "%LMQ%a,%LMQ%b"]),
    max_size=4,
)


def _properties(special: dict[str, str], plain: dict[str, str], end: int) -> bytes:
    stored = pack_properties(plain | special)
    return stored[: len(stored) - end]


def with_property_crc(record: Record) -> Record:
    """Append the checksum of the whole record to its properties, as RocketMQ 5.2 and later can."""
    stored = record.properties if isinstance(record.properties, bytes) else pack_properties(record.properties)
    bare = replace(record, properties=stored + b"__CRC32#\x010000000000\x02")
    digits = str(zlib.crc32(bare.encode()[:-20]) & 0x7FFFFFFF)[::-1].ljust(10, "0")
    return replace(record, properties=stored + f"__CRC32#\x01{digits}\x02".encode())


_ours: Final = st.builds(
    Record,
    body=st.sampled_from([b"", b"body", bytes(1100)]),
    topic=st.sampled_from(["SCHEDULE_TOPIC_XXXX", "orders", "SCHEDULE_TOPIC_XXXY", b"\xff", b"\xfe", "t" * 70]),
    queue_id=st.sampled_from([0, 1, -1, 1 << 30]),
    properties=st.builds(_properties, _SPECIAL, _PLAIN, st.sampled_from([0, 0, 1])),
    sys_flag=st.sampled_from([0, 0, 4, 8, 12, 0xC0]),
    version=st.sampled_from([1, 1, 1, 2]),
    store_timestamp=st.sampled_from([0, 1_700_000_000_000, -(1 << 63)]),
    born_host=st.sampled_from([("10.1.2.3", 1), ("10.1.2.3", 1), ("::1", 2)]),
)
_alike: Final = st.builds(
    Record,
    body=st.just(b"of one length"),
    properties=st.sampled_from(["TagA", "TagB", "T\xe9g"]).map(
        lambda tag: pack_properties({"KEYS": "k", "TAGS": tag, "UNIQ_KEY": "7F0000010A1B18B4"})
    ),
)
_one: Final = st.one_of(_alike, _ours, strategies.records(), _ours.map(with_property_crc))
_ENDS: Final = st.sampled_from(
    [
        b"",
        b"\xda",
        bytes(7),
        bytes(300),
        blank_record(8),
        blank_record(200),
        b"\x7f\xff\xff\xff" + blank_record(40)[4:],
        b"\x80\0\0\0" + blank_record(40)[4:],
        Record(b"torn").encode()[:-3],
        b"\0\0\0\x1e\xda\xa3\x20\xa7" + bytes(200),
        b"\x7f\xff\xff\xff\xda\xa3\x20\xa7" + bytes(300),
    ]
)


@st.composite
def dispatch_logs(draw: st.DrawFn) -> Log:
    """Draw a log of up to 14 records, most with their true physical offset."""
    start_offset = draw(strategies.start_offsets)
    data, starts = bytearray(), []
    for record in draw(st.lists(_one, max_size=14)):
        starts.append(len(data))
        offset = start_offset + len(data) + draw(st.sampled_from([0, 0, 0, 7]))
        data += replace(record, physical_offset=offset).encode()
    return Log(bytes(data) + draw(_ENDS), start_offset, starts)


@st.composite
def readings(draw: st.DrawFn) -> tuple[QueueRules, Strictness]:
    """Draw rules, and what is checked."""
    rules = QueueRules(
        release=draw(st.sampled_from(RELEASES)),
        delay_levels=draw(st.sampled_from([DELAYS, DELAYS, ()])),
        verify_property_crc=draw(st.sampled_from([False, False, False, True])),
    )
    return rules, Strictness(
        draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([False, False, False, True]))
    )


def read_one_by_one(
    data: bytes, position: int, rules: QueueRules, checks: Strictness
) -> tuple[list[DispatchRequest], list[int], int, MessageCheck]:
    """Return the requests, where their records start, and where and how they end: by the definition."""
    view = memoryview(data)
    requests, starts = [], []
    while (check := check_message_and_return_size(view, position, len(view), rules, checks)).request is not None:
        requests.append(check.request)
        starts.append(position)
        position += check.size
    return requests, starts, position, check


def assert_reads_as_loop(log: Log, position: int, rules: QueueRules, checks: Strictness, batch_rows: int) -> None:
    """Compare a reader with the loop over the definition: requests, columns, and the end."""
    requests, starts, stop, end = read_one_by_one(log.data, position, rules, checks)
    raw = np.frombuffer(log.data, np.uint8)
    reader = DispatchReader(Piece(raw, log.start_offset), position, rules, checks, batch_rows)
    first = 0
    for batch in reader:
        expected = requests[first : first + len(batch)]
        assert list(batch.requests()) == expected
        assert_same_columns(RequestBatch(expected, starts[first : first + len(batch)]), batch)
        assert 0 < len(batch) <= batch_rows
        first += len(batch)
    assert (len(requests), stop, end) == (first, reader.position, reader.end)


def assert_same_columns(expected: DispatchBatch, actual: DispatchBatch) -> None:
    """Compare two batches, their types included."""
    for name in _COLUMNS:
        column, other = getattr(expected, name), getattr(actual, name)
        assert (name, column.dtype, column.tolist()) == (name, other.dtype, other.tolist())
    assert [expected.queues[code] for code in expected.queue_codes] == [
        actual.queues[code] for code in actual.queue_codes
    ]
    assert sorted(expected.queues) == sorted(actual.queues)
    for with_tags in (False, True):
        hashes, others = expected.index_hashes(with_tags=with_tags), actual.index_hashes(with_tags=with_tags)
        assert (hashes.rows.tolist(), hashes.hashes.tolist()) == (others.rows.tolist(), others.hashes.tolist())
        assert (hashes.rows.dtype, hashes.hashes.dtype) == (others.rows.dtype, others.hashes.dtype)


_LIMIT: Final = (2**63 - 1) // 100 * 5
"""First index without a place in files of 5 units."""

BORDER_OFFSETS: Final = (
    -(2**63), -1, 2**57 - 1, 2**57, 2**58, _LIMIT - 1, _LIMIT, 2**61, 2**62, 2**63 - 32768, 2**63 - 2, 2**63 - 1,
)  # fmt: skip

_OFFSETS: Final = st.integers(0, 12) | st.sampled_from(BORDER_OFFSETS)
_TOPICS: Final = st.sampled_from(
    ["T", "T", "U", "B", "%LMQ%a", "%RETRY%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX", "", "..", "a/b", "a\0b", "x" * 300]
)
_QUEUE_IDS: Final = st.sampled_from([0, 0, 1, 2**31 - 1, -1, -(2**31)])
_NAMES: Final = st.sampled_from(["%LMQ%a", "%LMQ%b", "%LMQ%a/b", "T", "B", "", "..", "\ud800", "x" * 300])
_INDEXES: Final = st.sampled_from(["0", "3", "+7", "-1", "", "x", "\u0663", str(2**63), *map(str, BORDER_OFFSETS)])
_SIZES: Final = st.sampled_from([1, 1, 0, 3, -1, 2**15 - 1])


@st.composite
def _lists(draw: st.DrawFn, names: st.SearchStrategy[str], indexes: st.SearchStrategy[str]) -> dict[str, str]:
    """Draw two lists, which usually fit together."""
    chosen = draw(st.lists(names, max_size=4))
    count = len(chosen) + draw(st.sampled_from([0, 0, 0, 1, -1]))
    numbers = draw(st.lists(indexes, min_size=max(count, 0), max_size=max(count, 0)))
    properties = {"INNER_MULTI_DISPATCH": ",".join(chosen), "INNER_MULTI_QUEUE_OFFSET": ",".join(numbers)}
    left_out = draw(st.sampled_from(["", "", "", *properties]))
    return {name: value for name, value in properties.items() if name != left_out}


_FEW: Final = (st.integers(0, 1), st.integers(0, 12), st.integers(0, 4))
_LIGHT: Final = _lists(st.sampled_from(["%LMQ%a", "%LMQ%b", "T", "b"]), st.sampled_from(["0", "1", "5"]))
_OF_KIND: Final[dict[str, tuple[st.SearchStrategy[Any], ...]]] = {
    "plain": (st.sampled_from(["T", "U", "%LMQ%a"]), *_FEW, st.just({})),
    "mixed": (st.sampled_from(["T", "U", "B", "%LMQ%a", "%RETRY%g"]), *_FEW, st.just({}) | _LIGHT),
    "hostile": (_TOPICS, _QUEUE_IDS, _OFFSETS, _SIZES, st.just({}) | _lists(_NAMES, _INDEXES)),
}
"""Topics, queue ids, indexes, sizes of batches, and lists of light queues; plain records are of simple queues alone."""


@st.composite
def log_requests(
    draw: st.DrawFn, kind: str = "hostile", *, max_size: int = 12, steps: Sequence[int] = (100,)
) -> list[DispatchRequest]:
    """Draw records of a log, whose positions differ by some steps."""
    topics, queue_ids, indexes, sizes, lists = _OF_KIND[kind]
    requests, start = [], 1000
    for number in range(draw(st.integers(0, max_size))):
        start += draw(st.sampled_from(steps)) if number else 0
        index = draw(indexes)
        requests.append(
            DispatchRequest(
                topic=draw(topics),
                queue_id=draw(queue_ids),
                physical_offset=start,
                message_size=100,
                tags_code=draw(st.integers(-5, 5)),
                store_timestamp=10 * number,
                consume_queue_offset=index,
                sys_flag=draw(st.sampled_from([0, 0, 0, 4, 8, 12])),
                properties=draw(lists),
                message_base_offset=draw(st.just(index) | indexes),
                batch_size=draw(sizes),
            )
        )
    return requests

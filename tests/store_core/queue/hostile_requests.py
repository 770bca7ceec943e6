# SPDX-License-Identifier: Apache-2.0
"""Records as a hostile log may contain them: names, numbers and lists at and beyond the limits of a queue."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from store_core.queue.dispatch.dispatch_batch import DispatchRequest

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


@st.composite
def _lists(draw: st.DrawFn) -> dict[str, str]:
    """Draw two lists, which usually fit together."""
    names = draw(st.lists(_NAMES, max_size=4))
    count = len(names) + draw(st.sampled_from([0, 0, 0, 1, -1]))
    indexes = draw(st.lists(_INDEXES, min_size=max(count, 0), max_size=max(count, 0)))
    properties = {"INNER_MULTI_DISPATCH": ",".join(names), "INNER_MULTI_QUEUE_OFFSET": ",".join(indexes)}
    left_out = draw(st.sampled_from(["", "", "", *properties]))
    return {name: value for name, value in properties.items() if name != left_out}


@st.composite
def hostile_requests(draw: st.DrawFn, *, max_size: int = 12) -> list[DispatchRequest]:
    """Draw consecutive records of a log."""
    requests = []
    for number in range(draw(st.integers(0, max_size))):
        index = draw(_OFFSETS)
        requests.append(
            DispatchRequest(
                topic=draw(_TOPICS),
                queue_id=draw(_QUEUE_IDS),
                physical_offset=1000 + 100 * number,
                message_size=100,
                tags_code=draw(st.integers(-5, 5)),
                store_timestamp=10 * number,
                consume_queue_offset=index,
                sys_flag=draw(st.sampled_from([0, 0, 0, 4, 8, 12])),
                properties=draw(st.just({}) | _lists()),
                message_base_offset=draw(st.just(index) | _OFFSETS),
                batch_size=draw(st.sampled_from([1, 1, 0, 3, -1, 2**15 - 1])),
            )
        )
    return requests

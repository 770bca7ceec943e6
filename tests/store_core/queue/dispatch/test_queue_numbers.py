# SPDX-License-Identifier: Apache-2.0
"""Queues of many records are distinguished, however similar their names."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.properties import decode_text
from store_core.queue.dispatch.stored_batch import QueueNumbers

long_topics = st.sampled_from([b"t" * 63, b"t" * 64, b"u" * 65, b"t" * 200])
topics = (
    st.binary(max_size=20) | st.sampled_from([b"", b"orders", b"orders-1", b"1orders-", b"\xff", b"\xfe"]) | long_topics
)
queues = st.lists(st.tuples(topics, st.sampled_from([0, 1, -1, (1 << 31) - 1])), max_size=30)


def place(rows: list[tuple[bytes, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Concatenate topics; return the bytes, their starts and their stops."""
    stops = 8 + np.cumsum([0, *(len(topic) for topic, _ in rows)]).astype(np.int64)
    return np.frombuffer(b"\xff" * 8 + b"".join(topic for topic, _ in rows), np.uint8), stops[:-1], stops[1:]


def assert_told_apart(rows: list[tuple[bytes, int]], piece: int) -> None:
    numbers = QueueNumbers()
    found: list[int] = []
    for first in range(0, len(rows), piece):
        window = rows[first : first + piece]
        occurring, codes = numbers.find(*place(window), np.array([queue_id for _, queue_id in window], np.int32))
        found += occurring[codes].tolist()
    expected = [(decode_text(topic), queue_id) for topic, queue_id in rows]

    assert expected == [numbers.queues[number] for number in found]
    assert list(dict.fromkeys(expected)) == sorted(set(expected), key=expected.index)
    assert sorted(set(expected)) == sorted(numbers.queues)


@given(queues, st.sampled_from([1, 3, 30]))
def test_every_row_gets_its_own_queue(rows: list[tuple[bytes, int]], piece: int) -> None:
    assert_told_apart(rows, piece)


def test_many_queues_and_few_rows_at_a_time() -> None:
    rows = [(b"topic-%d" % (number % 700), number % 3) for number in range(3000)]

    assert_told_apart(rows, 100)

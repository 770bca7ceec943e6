# SPDX-License-Identifier: Apache-2.0
"""Finds rows that can't be messages for a reason that shows in one column."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

from store_core.broker.topic_kind import send_refusal
from store_core.format.columnar.arrow_slices import true_mask
from store_core.queue.queue_path import refusal_of
from store_core.store.put.put_checks import topic_refusal

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_commitlog.write.options import WriteOptions
    from store_core.format.releases.release import Release
    from store_core.store.config.message_store_config import MessageStoreConfig

__all__ = ["NULL_BODY", "obvious_refusals", "queue_refusal"]

NULL_BODY: Final = "a message needs a body; nullBody=empty stores null as an empty one"

_MOST_KNOWN: Final = 1 << 14
"""How many queues are cached: every batch of a partition asks for nearly the same ones."""


@lru_cache(_MOST_KNOWN)
def queue_refusal(topic: str, queue_id: int, release: Release, *, is_sent: bool) -> str | None:
    """Return why no broker accepts messages of a queue, or no directory can hold it; None if all is well.

    Those that are sent are checked as messages of clients are; others a broker may have put there itself.
    """
    reason = topic_refusal(topic, release) or refusal_of(topic, queue_id)
    if reason is None and is_sent:
        reason = send_refusal(topic, release)
        reason = reason and f"{reason}; preserveStoreTimestamp makes records of another store again as they are"
    return None if reason is None else f"topic {topic[:100]!r}, queue {queue_id}: {reason}"


def obvious_refusals(messages: pa.RecordBatch, options: WriteOptions, *, are_sent: bool) -> dict[int, str]:
    """Find rows without a usable topic or body, with an impossible queue, or too large a body, and each one's reason.

    This does not find all rows that are refused: it makes thousands of bad rows cheap.
    """
    config = options.config
    topics = messages.column("topic").dictionary_encode(null_encoding="encode")
    reasons = [
        "a message needs a topic" if topic is None else queue_refusal(topic, 0, config.release, is_sent=are_sent)
        for topic in topics.dictionary.to_pylist()
    ]
    wrong = np.array([reason is not None for reason in reasons], bool)
    index = topics.indices.to_numpy(zero_copy_only=False)
    found = {int(row): reasons[index[row]] or "" for row in np.flatnonzero(wrong[index])}
    for row in np.flatnonzero(true_mask(pc.less(messages.column("queue_id"), 0))).tolist():
        if row not in found:
            topic, queue_id = (messages.column(name)[row].as_py() for name in ("topic", "queue_id"))
            found[row] = queue_refusal(topic, queue_id, config.release, is_sent=are_sent) or ""
    return _null_bodies(messages, options) | dict(_large_bodies(messages, config)) | found


def _null_bodies(messages: pa.RecordBatch, options: WriteOptions) -> dict[int, str]:
    bodies = messages.column("body")
    if options.null_body == "empty" or not bodies.null_count:
        return {}
    return dict.fromkeys(np.flatnonzero(np.asarray(bodies.is_null())).tolist(), NULL_BODY)


def _large_bodies(messages: pa.RecordBatch, config: MessageStoreConfig) -> list[tuple[int, str]]:
    sizes, segment, most = (
        pc.binary_length(messages.column("body")),
        config.mapped_file_size_commit_log,
        config.max_message_size,
    )
    large = np.flatnonzero(true_mask(pc.greater_equal(sizes, min(segment, most + 1)))).tolist()
    return [(row, _size_refusal(sizes[row].as_py(), segment, most)) for row in large]


def _size_refusal(size: int, segment: int, most: int) -> str:
    if size > most:
        return f"MESSAGE_ILLEGAL: a body of {size} bytes, at most {most} are allowed"
    return f"a record is larger than a segment, which has {segment} bytes"

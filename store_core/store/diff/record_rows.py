# SPDX-License-Identifier: Apache-2.0
"""Records named for people: topic, queue, queue offset, id and keys, whatever bytes they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from store_core.format.columnar.checksums import body_crcs

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.format.columnar.records import Records

__all__ = ["TopicCount", "count_topics", "is_body_sound", "record_rows", "topic_text"]


class TopicCount(NamedTuple):
    """Records of a topic, and their bytes."""

    records: int
    size: int

    def plus(self, other: TopicCount) -> TopicCount:
        """Return the sum of two counts."""
        return TopicCount(self.records + other.records, self.size + other.size)


def topic_text(stored: bytes) -> str:
    r"""Return a topic as text; bytes that are not UTF-8 are shown as in ``\xff``."""
    return stored.decode("utf-8", "backslashreplace")


def is_body_sound(records: Records) -> npt.NDArray[np.bool_]:
    """Return for each record whether its body matches its checksum; empty bodies always do."""
    spans = records.spans
    found = body_crcs(records.raw, spans.body_start, spans.body_stop)
    sound: npt.NDArray[np.bool_] = (found == records.heads.leading("body_crc")) | (spans.body_stop == spans.body_start)
    return sound


def record_rows(records: Records) -> list[dict[str, Any]]:
    """Return what identifies each record, as rows of a report."""
    heads, spans = records.heads, records.spans
    columns = {
        "physical_offset": (records.starts + records.start_offset).tolist(),
        "store_size": (spans.stops - spans.starts).tolist(),
        "topic": [topic_text(topic) for topic in records.packed_topics.to_pylist()],
        "queue_id": heads.leading("queue_id").tolist(),
        "queue_offset": heads.leading("queue_offset").tolist(),
        "msg_id": records.column("msg_id").to_pylist(),
        "keys": records.column("keys").to_pylist(),
        "unique_key": records.column("unique_key").to_pylist(),
        "store_timestamp": records.column("store_timestamp").cast(pa.int64()).to_pylist(),
        "is_sound": is_body_sound(records).tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def count_topics(records: Records) -> dict[str, TopicCount]:
    """Count records and their bytes by topic."""
    packed = records.packed_topics.dictionary_encode()
    sizes = records.spans.stops - records.spans.starts
    indices = packed.indices.to_numpy()
    counts = np.bincount(indices, minlength=len(packed.dictionary)).tolist()
    totals = np.zeros(len(packed.dictionary), np.int64)
    np.add.at(totals, indices, sizes)
    topics = map(topic_text, packed.dictionary.to_pylist())
    return dict(zip(topics, map(TopicCount, counts, totals.tolist()), strict=True))

# SPDX-License-Identifier: Apache-2.0
"""Dead letters in a log, as rows, where their first messages are, and which consumer groups a store knows besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.life.provenance import DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, ORIGIN_MESSAGE_ID
from store_core.broker.topic_kind import DEAD_LETTER_PREFIX
from store_core.broker.transaction_rows import with_ms
from store_core.format.property_string import RETRY_TOPIC
from store_core.format.record.delayed import RETRY_PREFIX
from store_core.format.record.host import is_message_id, position_of_message_id
from store_core.snapshot.config import CONSUMER_OFFSETS, SUBSCRIPTION_GROUPS, Config
from store_core.store.read.stored_topics import stored_topics

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


__all__ = [
    "DEAD_LETTER_COLUMNS",
    "DEAD_LETTER_PATTERN",
    "dead_letter_rows",
    "known_groups",
    "origin_of",
    "origin_offset",
]


def known_groups(root: Path) -> frozenset[str]:
    """Return the groups that are configured, have committed offsets, or have a topic of retries or dead letters.

    Parameters
    ----------
    root : Path
        The store's root; a file that is broken is left out.
    """
    config = Config(root)
    configured, _ = config.known(SUBSCRIPTION_GROUPS, "which groups there are")
    offsets, _ = config.known(CONSUMER_OFFSETS, "what groups have consumed")
    topics = stored_topics((root,))
    of_topics = {
        topic.removeprefix(prefix)
        for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX)
        for topic in topics
        if topic.startswith(prefix)
    }
    return frozenset({*(configured or ()), *(group for _, group in (offsets.by_group if offsets else ())), *of_topics})


DEAD_LETTER_PATTERN: Final = "%DLQ%.*"
DEAD_LETTER_COLUMNS: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_timestamp",
    "store_size",
    "reconsume_times",
    "msg_id",
    "unique_key",
    "keys",
    "properties",
)
_POSITION: Final = 16
"""Hexadecimal digits of the physical offset, at the end of an offset message id."""

_NAMES: Final = {
    "origin_id": (ORIGIN_MESSAGE_ID, DLQ_ORIGIN_MESSAGE_ID),
    "origin_topic": (RETRY_TOPIC, DLQ_ORIGIN_TOPIC),
}


def dead_letter_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return dead letters, read with `DEAD_LETTER_COLUMNS`, with what they say of their first messages."""
    for column, names in _NAMES.items():
        first, then = (pc.map_lookup(batch["properties"], pa.scalar(name), "last") for name in names)
        batch = batch.append_column(column, pc.coalesce(first, then))
    return with_ms(batch)


def origin_offset(row: Mapping[str, Any]) -> int | None:
    """Return where the first message of a dead letter was in the log; None if it does not say."""
    known: str | None = row["origin_id"]
    return None if known is None or not is_message_id(known) else position_of_message_id(known)


def origin_of(row: Mapping[str, Any], origins: Mapping[int, Mapping[str, Any]], log_begin: int) -> str:
    """Return in one word where the first message of a dead letter is.

    Parameters
    ----------
    row : mapping
        The dead letter.
    origins : mapping of int to mapping
        The records that were found, by their physical offsets.
    log_begin : int
        Physical offset.
    """
    offset = origin_offset(row)
    if offset is None:
        return "unknown"
    found = origins.get(offset)
    if found is not None and found["unique_key"] == row["unique_key"]:
        return "here"
    if str(row["origin_id"]).upper()[:-_POSITION] != str(row["msg_id"]).upper()[:-_POSITION]:
        return "elsewhere"
    return "deleted" if offset < log_begin else "missing"

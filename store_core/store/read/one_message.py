# SPDX-License-Identifier: Apache-2.0
"""Finding the messages that one word means: a key, a message id, or a position in a queue."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from store_core.format.record.host import is_message_id
from store_core.store.read.read_messages import read_messages
from store_core.store.read.word_kind import WordKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["find_message", "meanings_of"]

_POSITION: Final = re.compile(r"(?P<topic>.+)/(?P<queue_id>[0-9]{1,10})/(?P<offset>[0-9]{1,18})")


def find_message(path: str, what: str, kind: WordKind | None, read: Mapping[str, Any]) -> pa.RecordBatchReader | None:
    """Find the messages that a word means.

    Parameters
    ----------
    kind : WordKind or None
        What it is. If None, it is tried as what it looks like, then as a key: the ids that producers get, which are
        keys, look like offset message ids.
    read : mapping
        Options of the reader; its filters apply as well.

    Returns
    -------
    pyarrow.RecordBatchReader or None
        With at least one row, in log order; None if there is no such message.

    Raises
    ------
    StoreError
        As for `store_core.read_messages`.
    """
    for found in meanings_of(what, kind):
        reader = read_messages(path, **{**read, **found})
        batches = iter(reader)
        first = next(batches, None)
        if first is not None:
            return pa.RecordBatchReader.from_batches(reader.schema, chain([first], batches))
    return None


def meanings_of(what: str, kind: WordKind | None) -> Iterator[dict[str, Any]]:
    """Yield the options of the reader for what a word may mean, the likeliest first; arguments as of `find_message`."""
    for each in _kinds(what) if kind is None else (kind,):
        found = _OPTIONS[each](what)
        if found is not None:
            yield found


def _kinds(what: str) -> tuple[WordKind, ...]:
    if is_message_id(what):
        return WordKind.ID, WordKind.KEY
    return (WordKind.POSITION, WordKind.KEY) if _POSITION.fullmatch(what) else (WordKind.KEY,)


def _key_options(what: str) -> dict[str, Any]:
    return {"key": what}


def _id_options(what: str) -> dict[str, Any] | None:
    return {"msg_id": what.upper()} if is_message_id(what) else None


def _position_options(what: str) -> dict[str, Any] | None:
    found = _POSITION.fullmatch(what)
    if found is None:
        return None
    topic, queue_id, offset = found["topic"], int(found["queue_id"]), int(found["offset"])
    return {
        "topic": [topic],
        "queue_id": queue_id,
        "starting_offsets": {topic: {queue_id: offset}},
        "ending_offsets": {topic: {queue_id: offset + 1}},
    }


_OPTIONS: Final = {WordKind.KEY: _key_options, WordKind.ID: _id_options, WordKind.POSITION: _position_options}

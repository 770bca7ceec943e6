# SPDX-License-Identifier: Apache-2.0
"""What consumer groups have committed, as the broker's files have it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.broker.consumer_offset import topic_and_group

if TYPE_CHECKING:
    from store_core.broker.config_fields import ConfigFields

__all__ = [
    "Committed",
    "decode_broadcast",
    "decode_light",
    "decode_offsets",
]

_log: Final = logging.getLogger("store_core")

_TABLE: Final = "offsetTable"
_LIGHT_TABLE: Final = "lmqOffsetTable"
_BROADCAST: Final = "@broadcast"
"""Ends the name of the group under which 5.x keeps the least offset of a broadcasting group's clients
(``BroadcastOffsetManager.broadcastGroupId``)."""


class Committed(NamedTuple):
    """One committed offset."""

    topic: str
    group: str
    queue_id: int
    offset: int


def decode_offsets(fields: ConfigFields) -> list[Committed]:
    """Return all committed offsets; a key that is no topic and group is left out, as RocketMQ does."""
    found = []
    for key, queues in fields.object(_TABLE).objects():
        pair = topic_and_group(key)
        offsets = queues.offsets()
        if pair is None:
            if not key.endswith(_BROADCAST):
                _log.warning("%s: ignored the offsets of %r: expected topic@group", fields.file, key)
            continue
        found += [Committed(*pair, queue_id, offset) for queue_id, offset in offsets.items()]
    return found


def decode_broadcast(fields: ConfigFields) -> list[Committed]:
    """Return the least offsets of broadcasting groups' clients, which 5.x keeps for those of a proxy."""
    found = []
    for key, queues in fields.object(_TABLE).objects():
        pair = topic_and_group(key.removesuffix(_BROADCAST)) if key.endswith(_BROADCAST) else None
        if pair is not None:
            found += [Committed(*pair, queue_id, offset) for queue_id, offset in queues.offsets().items()]
    return found


def decode_light(fields: ConfigFields) -> list[Committed]:
    """Return the offsets of light message queues, each of which is queue 0 of a topic of its own."""
    table = fields.object(_LIGHT_TABLE)
    found = []
    for key in table.members:
        pair = topic_and_group(str(key))
        if pair is None:
            _log.warning("%s: ignored the offset of %r: expected topic@group", fields.file, key)
            continue
        found.append(Committed(*pair, 0, table.offset(key)))
    return found

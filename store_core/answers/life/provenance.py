# SPDX-License-Identifier: Apache-2.0
"""Properties by which a message says where it comes from: those of RocketMQ, and those that a replay adds."""

from __future__ import annotations

from typing import Final

__all__ = [
    "DLQ_ORIGIN_MESSAGE_ID",
    "DLQ_ORIGIN_TOPIC",
    "ORIGIN_MESSAGE_ID",
    "REPLAY_ID",
    "REPLAY_ORIGIN_MESSAGE_ID",
    "REPLAY_ORIGIN_TOPIC",
]

ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
"""Of a retry and a dead letter: the offset message id of the first message."""
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
"""Of a dead letter of RocketMQ 5: the topic of the message that failed last."""
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
"""Of a dead letter of RocketMQ 5: the id of the message that failed last."""

REPLAY_ID: Final = "REPLAY_ID"
"""Of a replayed message: the name of the replay."""
REPLAY_ORIGIN_MESSAGE_ID: Final = "REPLAY_ORIGIN_MESSAGE_ID"
"""Of a replayed message: the offset message id of the record that was replayed."""
REPLAY_ORIGIN_TOPIC: Final = "REPLAY_ORIGIN_TOPIC"
"""Of a replayed message: the topic of that record."""

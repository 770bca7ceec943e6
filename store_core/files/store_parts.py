# SPDX-License-Identifier: Apache-2.0
"""Names of directories and files below a store's root."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BATCH_CONSUME_QUEUE",
    "CHECKPOINT_FILE",
    "COMMIT_LOG",
    "CONFIG_DIRECTORY",
    "CONSUME_QUEUE",
    "CONSUME_QUEUE_EXT",
    "INDEX_DIRECTORY",
    "TIMER_CHECK_FILE",
]

COMMIT_LOG: Final = "commitlog"
"""Directory of the segments below a store root (RocketMQ: ``storePathCommitLog``)."""

CHECKPOINT_FILE: Final = "checkpoint"
"""File below a store root with up to where log, queues and index were on disk (RocketMQ: ``getStoreCheckpoint``)."""

CONSUME_QUEUE: Final = "consumequeue"
CONSUME_QUEUE_EXT: Final = "consumequeue_ext"
BATCH_CONSUME_QUEUE: Final = "batchconsumequeue"
INDEX_DIRECTORY: Final = "index"
"""Directory of the key index (RocketMQ: ``StorePathConfigHelper.getStorePathIndex``)."""

CONFIG_DIRECTORY: Final = "config"
"""Directory of the broker's configuration (RocketMQ: ``BrokerPathConfigHelper``)."""

TIMER_CHECK_FILE: Final = "timercheck"
"""File in it that says how far timers were delivered."""

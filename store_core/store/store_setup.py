# SPDX-License-Identifier: Apache-2.0
"""The arguments with which a store is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from store_core.files.clock import SystemClock
from store_core.files.file_system import OsFileSystem
from store_core.store.config.broker_config import BrokerConfig

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.files.clock import Clock
    from store_core.files.file_system import FileSystem
    from store_core.store.config.message_store_config import MessageStoreConfig
    from store_core.store.dispatch.dispatcher import FilterBitMap
    from store_core.store.put.put_result import ReplicaService

__all__ = ["StoreSetup"]


@dataclass(frozen=True, slots=True)
class StoreSetup:
    """The arguments of `DefaultMessageStore.open`, which explains them, with their defaults in place.

    Attributes
    ----------
    path : Path
        The store's root.
    config : MessageStoreConfig
        Checked against the existing files.
    is_read_only : bool
    broker : BrokerConfig
    broker_hooks : bool
    batch_topics : frozenset of str
    replicas : ReplicaService, optional
    clock : Clock
    file_system : FileSystem
    cleans : bool
    filter_bit_map : FilterBitMap, optional
    """

    path: Path
    config: MessageStoreConfig
    is_read_only: bool = False
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    broker_hooks: bool = True
    batch_topics: frozenset[str] = frozenset()
    replicas: ReplicaService | None = None
    clock: Clock = field(default_factory=SystemClock)
    file_system: FileSystem = field(default_factory=OsFileSystem)
    cleans: bool = False
    filter_bit_map: FilterBitMap | None = None

    def is_batch_topic(self, topic: str) -> bool:
        """Whether a topic has the attribute ``queue.type=BatchCQ``."""
        return topic in self.batch_topics

    @property
    def notifies(self) -> bool:
        """Whether listeners are notified of messages (``ReputMessageService.doReput``); in 4.x not on a slave."""
        config = self.config
        return self.broker.long_polling_enable and (config.features.notifies_on_slave or config.broker_role != "SLAVE")

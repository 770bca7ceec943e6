# SPDX-License-Identifier: Apache-2.0
"""The options of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from store_core.format.releases.release import DEFAULT_RELEASE
from store_core.store.config.message_store_config import MessageStoreConfig
from store_core.store.rebuild.options import RebuildOptions

if TYPE_CHECKING:
    import os

__all__ = ["CheckOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """What to check, and by which rules.

    Attributes
    ----------
    topic : sequence of str, optional
        Check only queues of these topics; log, index and configuration are checked in any case.
    release : str, optional
        RocketMQ release whose rules apply, one of `store_core.format.releases.release.RELEASES`; by default the one
        that served the store last, as far as its files tell.
    broker_config : path, optional
        The broker's configuration file, also for where the log is; without it, sizes and switches are inferred from
        the store's files.
    store_path_commit_log : path, optional
        Which log is meant, where the store has one and the configuration names another; by default its own.
    check_crc : bool
        Whether bodies must match their checksums.
    batch_topic : sequence of str
        Topics whose queues are batch queues, besides those that files, configuration or records show.
    hash_slot_num, index_num : int, optional
        Slots and entries of an index file (RocketMQ: ``maxHashSlotNum``, ``maxIndexNum``); by default those of the
        store's files, or else RocketMQ's own.
    max_queues : int, optional
        A log that names more queues is refused; by default 1,000,000.
    """

    topic: tuple[str, ...] | list[str] | None = None
    release: str | None = None
    broker_config: str | os.PathLike[str] | None = None
    store_path_commit_log: str | os.PathLike[str] | None = None
    check_crc: bool = True
    batch_topic: tuple[str, ...] | list[str] = ()
    hash_slot_num: int | None = None
    index_num: int | None = None
    max_queues: int | None = None

    @property
    def is_index_checked(self) -> bool:
        """Whether the broker keeps an index, so that one can be missing (RocketMQ: ``messageIndexEnable``)."""
        if self.broker_config is None:
            return True
        return MessageStoreConfig.from_properties(self.broker_config).message_index_enable

    @property
    def names_an_index(self) -> bool:
        """Whether something says that the broker keeps an index, though there may be no file of one."""
        given = (self.broker_config, self.hash_slot_num, self.index_num)
        return self.is_index_checked and given != (None, None, None)

    def as_comparison(self) -> RebuildOptions:
        """Return the options of the comparison of queues and index with the log.

        Raises
        ------
        InvalidOptionError
            If an option is invalid.
        """
        return RebuildOptions(
            verify=True,
            with_index=self.is_index_checked,
            topic=self.topic,
            release=self.release or DEFAULT_RELEASE,
            broker_config=self.broker_config,
            store_path_commit_log=self.store_path_commit_log,
            check_crc=self.check_crc,
            batch_topic=self.batch_topic,
            hash_slot_num=self.hash_slot_num,
            index_num=self.index_num,
            max_queues=self.max_queues,
        )

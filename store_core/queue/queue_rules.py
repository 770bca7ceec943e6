# SPDX-License-Identifier: Apache-2.0
"""The part of a store's configuration that decides what is derived from its log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from store_core.format.releases.release import DEFAULT_RELEASE, Release, rules_of

if TYPE_CHECKING:
    from store_core.format.releases.release_rules import ReleaseRules

__all__ = ["QueueRules", "Release"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """Rules of queues, index and dispatch; `MessageStoreConfig.queue_rules` makes them.

    Sizes are in bytes.

    Attributes
    ----------
    consume_queue_file_size, batch_consume_queue_file_size : int
        As configured; rounded up to multiples of 20 and 46 bytes, because files hold whole units.
    batch_topics : frozenset of str
        Topics with the attribute ``queue.type=BatchCQ``.
    is_index_safe : bool
        ``messageIndexSafe``.
    delay_levels : tuple of int
        Delays in ms, level 1 first; empty until they are loaded.
    check_crc : bool
        ``checkCRCOnRecover``.
    verify_property_crc : bool
        ``forceVerifyPropCRC``.
    is_multi_dispatch_enabled, is_lmq_enabled : bool
        ``enableMultiDispatch`` and ``enableLmq``.
    features : ReleaseRules
        The release's behaviour.
    """

    release: Release = DEFAULT_RELEASE
    consume_queue_file_size: int = 300_000 * 20
    batch_consume_queue_file_size: int = 300_000 * 46
    batch_topics: frozenset[str] = field(default_factory=frozenset)
    ext_file_size: int = 48 * 1024 * 1024
    is_ext_enabled: bool = False
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    max_msgs_num_batch: int = 64
    is_index_enabled: bool = True
    is_index_safe: bool = False
    delay_levels: tuple[int, ...] = ()
    check_crc: bool = True
    verify_property_crc: bool = False
    is_duplication_enabled: bool = False
    is_multi_dispatch_enabled: bool = False
    is_lmq_enabled: bool = False
    features: ReleaseRules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", rules_of(self.release))

# SPDX-License-Identifier: Apache-2.0
"""A store in which something happened to each message: failed, delayed, in a transaction, or dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store_core import DefaultMessageStore, MessageStoreConfig
from tests.life_logs import BEGIN, LifeLog, write_config

if TYPE_CHECKING:
    from pathlib import Path


_SEGMENT: Final = 1 << 16
_MINUTE: Final = 60_000
_GROUPS: Final = {"billing": {"groupName": "billing", "consumeEnable": True, "retryMaxTimes": 2}}


def write_shop(root: Path) -> None:
    """Write the store, with queues and the broker's configuration."""
    log = LifeLog(_SEGMENT)
    _fail(log)
    _settle(log)
    _delay(log)
    log.send("order-9", body=b'{"order": 9}', store_timestamp=BEGIN + 30 * _MINUTE)
    log.write(root)
    with DefaultMessageStore.open(root, MessageStoreConfig(mapped_file_size_commit_log=_SEGMENT)):
        pass
    write_config(
        root,
        delayOffset={"offsetTable": {"3": 2, "4": 1, "18": 1}},
        consumerOffset={"offsetTable": {"orders@billing": {"0": 3}, "%RETRY%billing@billing": {"0": 2}}},
        subscriptionGroup={"subscriptionGroupTable": _GROUPS},
    )


def _fail(log: LifeLog) -> None:
    """Let a consumer fail two times, and then for good."""
    sent = log.send("order-1", body=b'{"order": 1, "price": "?"}')
    for attempt in (1, 2):
        log.failed(sent, "order-1", "billing", attempt)
    log.dead(sent, "order-1", "billing", 3)


def _settle(log: LifeLog) -> None:
    """Begin three transactions: one is committed, one rolled back, and nobody says what becomes of the third."""
    halves = [log.half(f"order-{number}") for number in (2, 3)]
    log.commit(halves[0], "order-2", body=b'{"order": 2}')
    log.op(*halves)
    log.half("order-4", TRANSACTION_CHECK_TIMES="15")


def _delay(log: LifeLog) -> None:
    """Delay messages: one is delivered, two wait, and the broker's offset has passed another one."""
    log.delayed("order-5", 3)
    log.send("order-5", properties={"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"})
    log.delayed("order-6", 17)
    log.timer("order-7", BEGIN + 90 * _MINUTE)
    log.delayed("order-8", 18)

# SPDX-License-Identifier: Apache-2.0
"""RocketMQ and we respect each other's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core import DefaultMessageStore, StoreLockedError
from store_core.format.message import Message
from tests.interop.judge import Judge, our_small_config
from tests.interop.puts import Put
from tests.interop.rocketmq import JobFailedError

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.interop


def test_a_store_that_rocketmq_has_open_is_refused(judge: Judge, tmp_path: Path) -> None:
    config = our_small_config(judge.release)
    running = judge.live(tmp_path, Put(body=b"more"), count=400, burst=1, pause_ms=5)
    while not tmp_path.joinpath("abort").exists():  # made at the end of RocketMQ's start
        assert not running.done()

    with pytest.raises(StoreLockedError):
        DefaultMessageStore.open(tmp_path, config)
    with DefaultMessageStore.open(tmp_path, config, read_only=True) as store:
        assert 0 <= store.max_physical_offset
    assert not running.done()
    running.result()
    with DefaultMessageStore.open(tmp_path, config) as store:
        assert store.get_max_offset_in_queue("orders", 0) == 400


def test_rocketmq_does_not_start_on_a_store_that_we_have_open(judge: Judge, tmp_path: Path) -> None:
    with DefaultMessageStore.open(tmp_path, our_small_config(judge.release)) as store:
        store.put_message(Message("orders", b"first"))

        with pytest.raises(JobFailedError, match=r"Lock failed, ?MQ already started"):
            judge.open(tmp_path).result()
        assert store.put_message(Message("orders", b"second")).is_ok
    assert judge.open(tmp_path).result()["loaded"]

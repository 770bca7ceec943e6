# SPDX-License-Identifier: Apache-2.0
"""Bit maps that a broker computes, and their way into the queues' extensions."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from store_core import BrokerConfig, DefaultMessageStore, Message, MessageStoreConfig
from tests.golden_stores import Golden, golden_stores
from tests.store_core.fakes import FaultyFileSystem, SteadyClock
from tests.store_core.queue.consume_queues import file_bytes
from tests.store_core.store.damaged_stores import config_of
from tests.store_core.store.logs import Listener

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.queue.dispatch.dispatch_batch import DispatchRequest

CALCULATES = BrokerConfig(enable_calc_filter_bit_map=True)
EXTENDED = [store.name for store in golden_stores() if store.scenario == "ext"]
SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 4000,
    "mapped_file_size_consume_queue_ext": 4096,
    "max_hash_slot_num": 100,
    "max_index_num": 4000,
    "enable_consume_queue_ext": True,
}


def of_the_generator(request: DispatchRequest) -> bytes:
    """Return the map that the generator of the golden stores made: most messages have one, of eight bytes."""
    offset = request.physical_offset
    return bytes(offset >> shift & 0xFF for shift in range(8)) if offset % 5 else b""


@pytest.mark.golden
@pytest.mark.skipif(not EXTENDED, reason="stores with extensions are not in the repository, but beside it")
@pytest.mark.parametrize("name", EXTENDED)
def test_queues_of_a_broker_s_bit_maps_are_built_again_byte_for_byte(name: str, golden: Golden, tmp_path: Path) -> None:
    unpacked = golden(name)
    shutil.copytree(unpacked.root, tmp_path / "store")
    for folder in ("consumequeue", "consumequeue_ext"):
        shutil.rmtree(tmp_path / "store" / folder)
    tmp_path.joinpath("store", "abort").touch()
    tmp_path.joinpath("store", "checkpoint").unlink()  # so that recovery starts at the first segment
    config = config_of(unpacked.conf, unpacked.golden.version)
    with DefaultMessageStore.open(
        tmp_path / "store", config, broker=CALCULATES, filter_bit_map=of_the_generator, file_system=FaultyFileSystem()
    ):
        pass

    assert file_bytes(unpacked.root) == file_bytes(tmp_path / "store")


def written(root: Path, broker: BrokerConfig, filter_bit_map: Callable[[DispatchRequest], bytes]) -> list[bytes]:
    """Put 50 messages, some of which are dispatched together, and return the maps that a listener received."""
    with DefaultMessageStore.open(
        root,
        MessageStoreConfig(**SIZES),
        broker=broker,
        clock=SteadyClock(),
        filter_bit_map=filter_bit_map,
        file_system=FaultyFileSystem(),
    ) as store:
        listener = Listener()
        store.reput_message_service.listeners.append(listener)
        for number in range(50):
            store.put_message(Message("orders", b"", number % 2, keys=[f"k{number}"], tags="TagA"))
            if number % 20 == 0:
                store.dispatch_now()
        store.dispatch_now()
        return listener.maps


def test_without_the_broker_s_setting_nobody_is_asked(tmp_path: Path) -> None:
    def refuse(_: DispatchRequest) -> bytes:
        raise AssertionError("asked")

    assert [b""] * 50 == written(tmp_path, BrokerConfig(), refuse)


def test_who_waits_for_messages_learns_their_bit_maps(tmp_path: Path) -> None:
    maps = written(tmp_path, CALCULATES, lambda request: b"\x07" * (request.queue_id + 1))

    assert [b"\x07", b"\x07\x07"] * 25 == maps


def test_records_without_bit_maps_make_the_queues_of_a_broker_without_filters(tmp_path: Path) -> None:
    written(tmp_path / "asked", CALCULATES, lambda _: b"")
    written(tmp_path / "not", BrokerConfig(), lambda _: b"")

    assert file_bytes(tmp_path / "asked") == file_bytes(tmp_path / "not") != {}

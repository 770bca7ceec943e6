# SPDX-License-Identifier: Apache-2.0
"""Runs our store with the same work as RocketMQ's."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from store_core.format.layout import MessageSysFlag
from store_core.format.message import Message
from store_core.format.record.decode import client_batch
from store_core.store.message_store import DefaultMessageStore
from store_core.store.message_store_config import MessageStoreConfig, Release
from tests.interop.judge import store_settings
from tests.store_core.fakes import SteadyClock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from store_core.store.put.put_preparation import PutMessageResult
    from tests.interop.puts import Item, Properties, Put
    from tests.interop.rocketmq import Answer
    from tests.interop.scenarios import Scenario


def our_config(release: str, scenario: Scenario, file: Path) -> MessageStoreConfig:
    """Configure our store with RocketMQ's settings, from a file such as a broker's."""
    given = {**store_settings(release), "mappedFileSizeCommitLog": scenario.segment_size, **scenario.settings}
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in given.items()}
    file.write_text("".join(f"{name}={text}\n" for name, text in texts.items()))
    return MessageStoreConfig.from_properties(file, cast("Release", release))


def our_message(put: Put, release: str) -> Message:
    """Convert a message to our class; a batch has the encoded items as its body."""
    message = Message(
        put.topic,
        put.body,
        put.queue_id,
        properties=_properties(put.properties) if put.properties_string is None else None,
        flag=put.flag,
        sys_flag=put.sys_flag,
        born_timestamp=put.born_timestamp,
        born_host=put.born_host,
        store_host=put.store_host,
        reconsume_times=put.reconsume_times,
        prepared_transaction_offset=put.prepared_transaction_offset,
        properties_string=put.properties_string,
    )
    if not put.items:
        return message
    body = client_batch([_item(put.topic, item) for item in put.items], release).body
    inner = MessageSysFlag.INNER_BATCH_FLAG | MessageSysFlag.NEED_UNWRAP_FLAG if put.inner else 0
    return replace(message, body=body, sys_flag=put.sys_flag | inner)


def _item(topic: str, item: Item) -> Message:
    return Message(topic, item.body, properties=_properties(item.properties), flag=item.flag)


def _properties(pairs: Properties) -> dict[str, str | None]:
    return dict(pairs)


def put_all(
    path: Path, release: str, scenario: Scenario, puts: Iterable[Put], times: Iterable[int]
) -> list[PutMessageResult]:
    """Put messages into our store, each at its time, and close it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    clock, config = SteadyClock(), our_config(release, scenario, path.parent / "broker.properties")
    with DefaultMessageStore.open(path, config, clock=clock, batch_topics=scenario.batch_topics) as store:
        results = []
        for put, clock.wall_ms in zip(puts, times, strict=True):
            results.append(_put(store, put, release))
    return results


def _put(store: DefaultMessageStore, put: Put, release: str) -> PutMessageResult:
    message = our_message(put, release)
    is_exploded = put.items and not put.inner
    return store.put_messages(message) if is_exploded else store.put_message(message)


def append_all(path: Path, release: str, scenario: Scenario, puts: Iterable[Put], times: Iterable[int]) -> None:
    """Append messages to our store in bulk: consecutive ones with the same time at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    clock, config = SteadyClock(), our_config(release, scenario, path.parent / "broker.properties")
    timed = zip(puts, times, strict=True)
    with DefaultMessageStore.open(path, config, clock=clock, batch_topics=scenario.batch_topics) as store:
        for (clock.wall_ms, is_batch), group in groupby(timed, key=lambda each: (each[1], bool(each[0].items))):
            together = [put for put, _ in group]
            if is_batch:
                assert all(_put(store, put, release).is_ok for put in together)
            else:
                assert store.append_batch(_table(together)).msg_num == len(together)


def _table(puts: list[Put]) -> pa.Table:
    """Convert messages to a table."""
    strings = pa.map_(pa.string(), pa.string())
    columns = {
        "topic": pa.array([put.topic for put in puts]),
        "body": pa.array([put.body for put in puts], pa.binary()),
        "properties": pa.array([put.properties if put.properties_string is None else None for put in puts], strings),
        "properties_string": pa.array([put.properties_string for put in puts], pa.string()),
        "born_host": pa.array([_host(*put.born_host) for put in puts]),
        "store_host": pa.array([_host(*put.store_host) for put in puts]),
    }
    plain = ("queue_id", "flag", "sys_flag", "born_timestamp", "reconsume_times", "prepared_transaction_offset")
    integers = {name: pa.array([getattr(put, name) for put in puts], pa.int64()) for name in plain}
    return pa.table(columns | integers)


def _host(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def result_json(result: PutMessageResult) -> Answer:
    """Convert the result of a put to the harness's form."""
    append = result.append_message_result
    fields = append and {
        "status": append.status.name,
        "wroteOffset": append.wrote_offset,
        "wroteBytes": append.wrote_bytes,
        "msgId": append.msg_id,
        "storeTimestamp": append.store_timestamp,
        "logicsOffset": append.logics_offset,
        "msgNum": append.msg_num,
    }
    return {"status": result.status.name, "ok": result.is_ok, "append": fields}

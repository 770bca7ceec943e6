# SPDX-License-Identifier: Apache-2.0
"""Messages as a broker passes them to its store: one notation for what RocketMQ and we put."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


Host = tuple[str, int]
Properties = tuple[tuple[str, str], ...]
"""Names and values in the order in which they are put into the message's map."""


@dataclass(frozen=True, slots=True)
class Item:
    """A message of a batch."""

    body: bytes = b""
    properties: Properties = ()
    flag: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"body": base64.b64encode(self.body).decode(), "properties": self.properties, "flag": self.flag}


@dataclass(frozen=True, slots=True)
class Put:
    """A message; with `items` a batch, which with `inner` becomes one record.

    Attributes
    ----------
    body : bytes or None
        None for a batch: it is made from the items.
    properties_string : str or None
        The string that a client sent, stored as it is; None to make it from `properties`.
    """

    topic: str = "orders"
    body: bytes | None = b""
    queue_id: int = 0
    properties: Properties = ()
    properties_string: str | None = None
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 1_700_000_000_000
    born_host: Host = ("10.1.2.3", 5555)
    store_host: Host = ("192.168.1.2", 10911)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    items: tuple[Item, ...] = ()
    inner: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the message in the form that the harness reads."""
        return {
            "topic": self.topic,
            "body": None if self.body is None else base64.b64encode(self.body).decode(),
            "queueId": self.queue_id,
            "properties": self.properties,
            "propertiesString": self.properties_string,
            "flag": self.flag,
            "sysFlag": self.sys_flag,
            "bornTimestamp": self.born_timestamp,
            "bornHost": self.born_host,
            "storeHost": self.store_host,
            "reconsumeTimes": self.reconsume_times,
            "preparedTransactionOffset": self.prepared_transaction_offset,
            "items": [item.to_json() for item in self.items] or None,
            "inner": self.inner,
        }


def put_job(puts: Iterable[Put]) -> list[dict[str, Any]]:
    """Return the field `messages` of a job."""
    return [put.to_json() for put in puts]

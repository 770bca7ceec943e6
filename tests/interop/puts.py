# SPDX-License-Identifier: Apache-2.0
"""Messages as a broker passes them to its store, in one notation for RocketMQ and for us; random ones from a seed."""

from __future__ import annotations

import base64
import random
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

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

    * `body`: None for a batch: it is made from the items.
    * `properties_string`: As a client sent it, stored as it is; None to make it from `properties`.
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


LONG_TOPIC_LIMIT: Final = 127
"""UTF-16 units from which on 5.x writes records of version 2."""

_TOPICS: Final = ("orders", "Payments-v1", "%RETRY%billing", "a_b", "заказы", "注文", "emoji😀", "x" * LONG_TOPIC_LIMIT)
_TAGS: Final = ("TagA", "TagB", "标签", "a||b", "Z", " ", "😀")
_NAMES: Final = ("a", "имя", "emoji😀", "trace-id", "WAIT", "MSG_REGION", "empty", "__x", "KEYS2", "0", "Aa", "BB")
_TEXTS: Final = ("b", "значение", "🚀=é:,\"'\\\n\t", "1", "true", "x" * 300, "a=b;c=d", "\x00", "\x7f\x80", "\ufeff")
_ODD_STRINGS: Final = (
    "KEYS\x01k\x02TAGS\x01t",
    "novalue\x02KEYS\x01k\x02",
    "a\x01\x02KEYS\x01k\x02",
    "\x01v\x02KEYS\x01k\x02",
    "a\x01b\x01c\x02KEYS\x01k\x02",
    "\x02\x02KEYS\x01k\x02\x02",
    "KEYS\x01first\x02KEYS\x01second\x02",
    "ab",
    "TAGS\x01 \x02KEYS\x01  \x02",
    "KEYS\x01\x01k\x02TAGS\x01x\x01\x02",
    "UNIQ_KEY\x01\x02KEYS\x01 k1  k2 \x02",
    "\x01\x02\x01\x01\x02",
    "DELAY\x015\x02empty\x01\x02Aa\x01b\x01c\x02BB\x01d",
)
_V4: Final = ("10.1.2.3", "127.0.0.1", "255.255.255.255", "0.0.0.0")  # noqa: S104 -- an address in a message, not a socket's
_V6: Final = ("2001:db8::2", "fe80::1", "::1", "::")
_SYS_FLAGS: Final = (0x02, 0x04, 0x08, 0x0C)
_I32: Final = (0, 1, -1, 2**31 - 1, -(2**31), 12345)
_I64: Final = (0, 1, -1, 2**63 - 1, -(2**63), 1_700_000_000_000)


class RandomPuts:
    """A stream of messages that one release accepts: what producers send, and what only a hostile or broken one would.

    No body is longer than half of `room`, the bytes of a segment; 4.3 does not support IPv6.
    """

    def __init__(self, seed: int, release: str, room: int) -> None:
        self._random = random.Random(f"{seed} {release}")  # noqa: S311 -- reproducible, not secret
        self._release = release
        self._room = room

    def take(self, count: int) -> list[Put]:
        """Return this number of messages; about one in ten is a batch."""
        return [self._batch() if self._random.random() < 0.1 else self._single() for _ in range(count)]

    def _single(self) -> Put:
        draw = self._random
        body, sys_flag = self._body_and_flag()
        return Put(
            topic=draw.choice(_TOPICS),
            body=body,
            queue_id=draw.choice((0, 1, 2, 3, 70000)),
            properties=self._properties(may_delay=True),
            properties_string=draw.choice(_ODD_STRINGS) if draw.random() < 0.2 else None,
            flag=draw.choice(_I32),
            sys_flag=sys_flag | (draw.choice(_SYS_FLAGS) if draw.random() < 0.3 else 0),
            born_timestamp=draw.choice(_I64),
            born_host=self._host(),
            store_host=self._host(),
            reconsume_times=draw.choice(_I32),
            prepared_transaction_offset=draw.choice(_I64),
        )

    def _batch(self) -> Put:
        draw = self._random
        items = tuple(
            Item(self._body(self._room // 40), self._properties(), draw.choice(_I32)) for _ in range(draw.randint(1, 8))
        )
        cluster = (("CLUSTER", "DefaultCluster"),) if draw.random() < 0.5 else ()
        host = self._host()
        return Put(
            draw.choice(_TOPICS),
            None,
            draw.randint(0, 3),
            cluster,
            born_host=host,
            store_host=self._host(),
            items=items,
        )

    def _host(self) -> Host:
        draw = self._random
        addresses = _V4 if self._release == "4.3" or draw.random() < 0.7 else _V6
        return draw.choice(addresses), draw.choice((0, 1, 5555, 65535))

    def _properties(self, *, may_delay: bool = False) -> Properties:
        draw = self._random
        pairs = [(name, draw.choice(_TEXTS)) for name in draw.sample(_NAMES, draw.choice((0, 0, 1, 3, 12)))]
        if draw.random() < 0.6:
            pairs.append(("TAGS", draw.choice(_TAGS)))
        if draw.random() < 0.6:
            pairs.append(("KEYS", draw.choice(("k1", "k1 k2", " k1  k2 ", " ", "ключ 键", f"key{draw.randrange(97)}"))))
        if draw.random() < 0.5:
            pairs.append(("UNIQ_KEY", f"{draw.getrandbits(128):032X}"))
        if draw.random() < 0.1 and may_delay:
            pairs.append(("DELAY", draw.choice(("1", "4", "18", "19", "0", "-1"))))
        draw.shuffle(pairs)
        return tuple(pairs)

    def _body_and_flag(self) -> tuple[bytes, int]:
        body = self._body(self._room // 2)
        if self._random.random() < 0.2:
            return zlib.compress(body), self._random.choice((0x001, 0x301))
        return body, 0

    def _body(self, limit: int) -> bytes:
        draw = self._random
        length = draw.choice((0, 1, 20, draw.randrange(700), draw.randrange(limit)))
        kinds = (draw.randbytes(length), bytes(length), b"\xff" * length, self._hostile_body(length))
        return draw.choice(kinds)[:limit]

    def _hostile_body(self, length: int) -> bytes:
        """Return a body of false blank records, magic codes, and a record head that claims the rest of the body."""
        head = struct.pack(">iIiiiqqi", length, 0xDAA320A7, 0, 0, 0, 0, 0, 0)
        return (struct.pack(">iI", 8, 0xCBD43194) + head + struct.pack(">iI", 100, 0xDAA320AB)).ljust(length, b"\x20")

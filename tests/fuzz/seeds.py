# SPDX-License-Identifier: Apache-2.0
"""Sound logs to break, made without the package, so that what they hold is known."""

from __future__ import annotations

import lz4.frame

from tests.builders import FIRST_STORE_TIMESTAMP, Record


def small_log(start_offset: int = 0) -> tuple[bytes, list[int], list[Record]]:
    """Return records of all kinds, one after another, where they start, and what they are.

    Their store times differ, and each body is unlike the others.
    """
    data, starts, records = bytearray(), [], []
    for number in range(24):
        record = Record(
            body=_body(number),
            topic=("orders", "payments", "日本", "t" * 60)[number % 4],
            properties={"TAGS": f"tag{number % 3}", "KEYS": f"key{number}", "UNIQ_KEY": f"AC11{number:028d}"},
            queue_id=number % 2,
            queue_offset=number // 8,
            physical_offset=start_offset + len(data),
            sys_flag=0x101 if number % 12 == 5 else 0,
            store_timestamp=FIRST_STORE_TIMESTAMP + 10 * number,
            version=2 if number % 10 == 7 else 1,
            born_host=("::1", 5) if number % 7 == 3 else ("10.1.2.3", 5555),
            store_host=("2001:db8::1", 10911) if number % 9 == 4 else ("192.168.1.2", 10911),
        )
        starts.append(len(data))
        records.append(record)
        data += record.encode()
    return bytes(data), starts, records


def _body(number: int) -> bytes:
    """Return a body: small, empty, compressed, large, or one that holds a whole record."""
    text = b"body of message %d " % number
    if number % 12 == 5:
        packed: bytes = lz4.frame.compress(text * 20)
        return packed
    if number % 12 == 8:
        return Record(text, topic="decoy").encode()
    return b"" if number % 12 == 10 else text * (1 if number % 5 else 12)

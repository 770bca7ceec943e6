# SPDX-License-Identifier: Apache-2.0
"""Stores that RocketMQ and we both write: one kind of message each."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core.format.release import RELEASES
from tests.interop.puts import Item, Put, RandomPuts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _pytest.mark import ParameterSet


SEGMENT_SIZE: Final = 16384
"""Bytes of a commit log file unless a scenario says otherwise."""

ALL_RELEASES: Final = RELEASES
SLICE_RELEASES: Final = ("4.3", "4.9", "5.5")
"""The releases of the tests that run with all others; ``make interop`` runs the rest."""

_SINCE_4_9: Final = RELEASES[1:]
_SINCE_5_3: Final = RELEASES[2:]
_BATCH_TOPIC: Final = "BQ"
_LIGHT: Final = {"enableLmq": True, "enableMultiDispatch": True}
_SMALL_LIMIT: Final = 8192
_LMQ_NAMES: Final = ("%LMQ%a", "%LMQ%b", "%LMQ%$parent$lite", "%LMQ%a,%LMQ%b", "%LMQ%c,%LMQ%a,%LMQ%b")


@dataclass(frozen=True, slots=True)
class Scenario:
    """Messages for a store, and how the store is configured.

    * `puts`: Returns the messages for a release.
    * `releases`: Those that support such messages.
    * `settings`: Those of MessageStoreConfig, under RocketMQ's names.
    * `plain_queues`: Whether `tests.interop.answers` can derive the queues; it can't for odd lists of light queues.
    * `in_bulk`: Whether ``append_batch`` accepts all messages; it does not support light queues.
    * `is_ours`: Whether we do the same as RocketMQ with these messages.
    """

    name: str
    puts: Callable[[str], list[Put]]
    releases: tuple[str, ...] = ALL_RELEASES
    settings: dict[str, Any] = field(default_factory=dict)
    batch_topics: tuple[str, ...] = ()
    segment_size: int = SEGMENT_SIZE
    plain_queues: bool = True
    in_bulk: bool = True
    is_ours: bool = True

    @property
    def job_settings(self) -> dict[str, Any]:
        """Return the settings as `Judge` expects them."""
        size = {"mappedFileSizeCommitLog": self.segment_size}
        return {**size, **self.settings, "batch_topics": list(self.batch_topics)}


def _singles(release: str) -> list[Put]:
    return [put for put in RandomPuts(1, release, SEGMENT_SIZE).take(150) if not put.items]


def _batches(release: str) -> list[Put]:
    return [put for put in RandomPuts(2, release, SEGMENT_SIZE).take(400) if put.items]


def _delayed(release: str) -> list[Put]:
    levels = ("1", "2", "5", "17", "18", "19", "100", "0", "-1")
    mapped = [Put("orders", b"later", 3, (("KEYS", "k"), ("DELAY", level), ("TAGS", "TagA"))) for level in levels]
    strings = [
        Put("orders", b"later", 2, properties_string=f"{before}DELAY\x01{level}\x02{behind}")
        for level in ("3", "99")
        for before in ("", "empty\x01\x02a\x01b\x02", "Aa\x011\x02BB\x012\x02")
        for behind in ("", "TAGS\x01t", "x\x01y\x01z\x02")
    ]
    kinds = [Put("orders", b"later", 1, (("DELAY", "4"),), sys_flag=kind) for kind in (0x04, 0x08, 0x0C, 0x02)]
    many = tuple((f"name{number}", f"value{number}") for number in range(30))
    return [*mapped, *strings, *kinds, Put("orders", b"later", 0, (*many, ("DELAY", "6"))), *_plain(release, 3)]


def _transactions(release: str) -> list[Put]:
    half = (("REAL_TOPIC", "orders"), ("REAL_QID", "2"), ("TRAN_MSG", "true"), ("PGROUP", "g"), ("UNIQ_KEY", "0" * 32))
    puts = []
    for number in range(12):
        body = f"paid {number}".encode()
        puts += [
            Put("RMQ_SYS_TRANS_HALF_TOPIC", body, 0, half),
            Put("orders", body, 2, half, sys_flag=0x04),
            Put("orders", body, 2, half, sys_flag=0x08, prepared_transaction_offset=number * 100),
            Put("orders", b"", 2, half, sys_flag=0x0C, prepared_transaction_offset=number * 100),
            Put("RMQ_SYS_TRANS_OP_HALF_TOPIC", str(number).encode(), 0, (("WAIT", "true"), ("TAGS", "d"))),
        ]
    return puts + _plain(release, 3)


def _ipv6(_: str) -> list[Put]:
    born = (("10.1.2.3", 5555), ("2001:db8::2", 77))
    store = (("192.168.1.2", 10911), ("fe80::1", 10911))
    pairs = [(a, b) for a in born for b in store] * 5
    singles = [Put("T", b"six", 0, (("TAGS", "A"),), born_host=a, store_host=b) for a, b in pairs]
    items = (Item(b"one", (("a", "b"),)), Item(b"two"))
    return singles + [Put("T", None, 1, born_host=a, store_host=b, items=items) for a, b in pairs]


def _v2_topics(release: str) -> list[Put]:
    lengths = (127, 128, 129, 200, 254, 255)
    topics = ["%RETRY%".ljust(length, "t") for length in lengths]
    wide = ["%RETRY%" + "é" * count for count in (60, 121, 124)]  # more bytes than characters; 67 of them are V1
    known = [topic for topic in (*topics, *wide) if len(topic) > 127 or len(topic.encode()) <= 127]
    singles = [Put(topic, b"long", 1, (("KEYS", "k"),)) for topic in known] * 3
    batches = [Put(topic, None, 0, items=(Item(b"1"), Item(b"2", (("a", "b"),)))) for topic in known]
    return [*singles, *batches, *_plain(release, 3)]


def _property_crc(release: str) -> list[Put]:
    strings = (
        "",
        "a\x01b",
        "a\x01b\x02",
        "__CRC32#\x010123456789\x02",
        "a\x01b\x02__CRC32#\x010123456789\x02c\x01d\x02",
    )
    odd = [Put("T", b"body", 0, properties_string=text) for text in strings]
    return [*odd, *RandomPuts(3, release, SEGMENT_SIZE).take(120)]


def _lmq_queues(release: str) -> list[Put]:
    wait = (("WAIT", "true"), ("a", "b"))
    singles = [
        Put("parent", b"light", number % 3, (*wait[: number % 3], ("INNER_MULTI_DISPATCH", names), ("TAGS", "t")))
        for number in range(24)
        for names in _LMQ_NAMES
    ]
    system = [Put(topic, b"light", 0, (("INNER_MULTI_DISPATCH", "%LMQ%a"),)) for topic in ("%RETRY%g", "rmq_sys_x")]
    return [*singles, *system, *singles[:8], *_plain(release, 3)]


def _odd_light_queues(release: str) -> list[Put]:
    """Put lists of queues that no client sends: repeated, empty, blank, with empty names, of mixed kinds."""
    lists = ["%LMQ%a,plain", "plain", "%LMQ%a,", "%LMQ%a,%LMQ%a", " ", "", "%LMQ%a,%LMQ%a/b"]
    if release == "4.9":  # 5.3.3 writes it, too, but its dispatch then stops at the record for ever
        lists.append("a,%LMQ%b")
    kinds = (0, 0x04, 0x08, 0x0C, 0x02)
    mapped = [
        Put("parent", b"odd", number, (("WAIT", "true"), ("INNER_MULTI_DISPATCH", names), ("Aa", "1")), sys_flag=kind)
        for number, kind in enumerate(kinds)
        for names in (*lists, "%LMQ%a")
    ]
    strings = [
        Put("parent", b"odd", 1, properties_string=f"{before}INNER_MULTI_DISPATCH\x01%LMQ%a\x02{behind}")
        for before in ("", "WAIT\x01false\x02", "INNER_MULTI_QUEUE_OFFSET\x0199\x02")
        for behind in ("", "empty\x01\x02a\x01b", "DELAY\x013\x02")
    ]
    return [*mapped, *strings, Put("parent", b"odd", 0, (("INNER_MULTI_DISPATCH", "%LMQ%a"),))]


def _inner_batches(release: str) -> list[Put]:
    puts = []
    for number in range(60):
        items = tuple(Item(f"{number}/{item}".encode(), (("TAGS", "x"),)) for item in range(number % 7 + 1))
        named = (("UNIQ_KEY", f"{number:032X}"), ("INNER_NUM", str(len(items))), ("TAGS", "TagI"))
        puts += [
            Put(_BATCH_TOPIC, None, number % 2, named[: 2 + number % 2], items=items, inner=True),
            Put(_BATCH_TOPIC, b"alone", number % 2, (("KEYS", "k"),)),
        ]
    return puts + _plain(release, 3)


def _rolls(_: str) -> list[Put]:
    """Leave 0 to 16 bytes after a message at the end of a file; a blank record needs eight."""
    return list(_filled_files(Put("T", b"\x01" * 30)))


def _batch_rolls(_: str) -> list[Put]:
    probe = Put("T", None, items=(Item(b"\x01" * 30), Item(b"\x02" * 40), Item(b"\x03")))
    return list(_filled_files(probe))


def _filled_files(probe: Put) -> Iterator[Put]:
    size, position = _plain_size(probe), 0
    for distance in range(17):
        filler = Put("T", b"")
        body = 4096 - position - size - distance - _plain_size(filler)
        yield Put("T", bytes(range(256)) * (body // 256) + bytes(body % 256))
        yield probe
        position = size if distance < 8 else 0  # without room for a blank record the probe starts the next file


def _plain_size(put: Put) -> int:
    """Return the bytes of the records of a message or batch, without properties and with IPv4 hosts."""
    bodies = [item.body for item in put.items] if put.items else [put.body or b""]
    return sum(91 + len(put.topic) + len(body) for body in bodies)


def _refused(release: str) -> list[Put]:
    """Exceed every limit, and just keep it, with sound messages in between."""
    limit = _SMALL_LIMIT
    delay = (("DELAY", "1"),)
    illegal = [
        Put("t" * 128, b"long topic"),
        Put("%RETRY%".ljust(256, "t"), b"longer topic"),
        Put("orders", b"x", properties_string="a\x01" + "p" * 32765),
        Put("orders", b"x", properties_string="a\x01" + "p" * 32766),
        Put("orders", b"x", properties_string="a\x01" + "é" * 16383),
        Put("orders", b"x", 0, (("big", "p" * 33000),)),
        Put("orders", bytes(limit)),
        Put("orders", bytes(limit + 1)),
        Put("orders", bytes(limit - 97)),
        Put("orders", bytes(limit - 96)),
        Put("orders", None, items=(Item(b"1"),), sys_flag=0x04),
        Put("orders", None, items=(Item(b"1"),), sys_flag=0x08),
        Put("orders", None, properties=delay, items=(Item(b"1"),)),
        Put("orders", None, items=(Item(b"1", delay),)),
        Put("orders", None, items=(Item(bytes(limit)), Item(b"2"))),
        Put("orders", None, items=(Item(bytes(limit - 200)), Item(b"2"))),
        Put("t" * 128, None, items=(Item(b"1"),)),
        Put("orders", b"x", 0, (("INNER_NUM", "2"),)),
        Put("orders", b"x", 0, (("INNER_NUM", "2"),), sys_flag=0x80),
        Put("orders", None, sys_flag=0x01),
    ]
    if release in _SINCE_5_3:  # up to 4.9 such a topic is stored, as an unreadable record
        illegal.append(Put("é" * 64, b"more bytes than characters"))
        illegal += [Put("orders", b"timed", 0, ((name, "5"),)) for name in ("TIMER_DELAY_SEC", "TIMER_DELIVER_MS")]
    return [put for number, bad in enumerate(illegal) for put in (bad, Put("orders", b"sound", number % 2))]


def _too_large_for_a_file(_: str) -> list[Put]:
    """Put messages that fit no file: RocketMQ fills two files with blank records, and we refuse."""
    bodies = (b"small", bytes(4096), b"small", bytes(4096 - 92 - 7), bytes(4096 - 92 - 8), b"small")
    return [Put("T", body) for body in bodies]


def _compressed(_: str) -> list[Put]:
    return [Put("T", zlib.compress(b"text " * count), 0, sys_flag=0x01) for count in range(1, 400, 20)]


def _plain(_: str, count: int) -> list[Put]:
    return [Put("orders", f"plain {number}".encode(), number % 2) for number in range(count)]


SCENARIOS: Final = (
    Scenario("singles", _singles),
    Scenario("batches", _batches),
    Scenario("delayed", _delayed),
    Scenario("transactions", _transactions),
    Scenario("compressed", _compressed),
    Scenario("ipv6", _ipv6, _SINCE_4_9),
    Scenario("v2-topics", _v2_topics, _SINCE_5_3),
    Scenario("property-crc", _property_crc, _SINCE_5_3, {"enabledAppendPropCRC": True}),
    Scenario("light-queues", _lmq_queues, _SINCE_4_9, _LIGHT, in_bulk=False),
    Scenario("odd-light-queues", _odd_light_queues, _SINCE_4_9, _LIGHT, plain_queues=False, in_bulk=False),
    Scenario("inner-batches", _inner_batches, _SINCE_5_3, batch_topics=(_BATCH_TOPIC,)),
    Scenario("refused", _refused, settings={"maxMessageSize": _SMALL_LIMIT}, segment_size=1 << 16, in_bulk=False),
    Scenario("burnt-files", _too_large_for_a_file, segment_size=4096, in_bulk=False, is_ours=False),
    Scenario("rolls", _rolls, segment_size=4096),
    Scenario("batch-rolls", _batch_rolls, segment_size=4096),
)


def in_slice(release: str, value: object) -> ParameterSet:
    """Return a parameter of a test of a release, which `make interop` alone runs if the release is not in the slice."""
    return pytest.param(value, marks=() if release in SLICE_RELEASES else pytest.mark.interop)


def each_release() -> list[ParameterSet]:
    """Return all releases as parameters of a test."""
    return [in_slice(release, release) for release in ALL_RELEASES]


def random_scenario(seed: int) -> Scenario:
    """Return a scenario with messages of all kinds that every release supports."""

    def puts(release: str) -> list[Put]:
        return RandomPuts(seed, release, SEGMENT_SIZE).take(400)

    return Scenario(f"random-{seed}", puts)


def known_to(*releases: str, is_ours: bool = False) -> list[Scenario]:
    """Return the scenarios that all these releases support; with `is_ours` only those in which we do the same."""
    known = [scenario for scenario in SCENARIOS if all(release in scenario.releases for release in releases)]
    return [scenario for scenario in known if scenario.is_ours or not is_ours]


def scenario_runs() -> list[tuple[str, Scenario]]:
    """Pair every release with every scenario that it supports."""
    return [(release, scenario) for release in ALL_RELEASES for scenario in known_to(release)]

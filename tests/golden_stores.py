# SPDX-License-Identifier: Apache-2.0
"""Stores written by real RocketMQ, and what the same release reads back from them; see tests/golden/README.md.

Those in tests/golden are always there. A larger collection of the same kind is used, too, if it is next to the
repository.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import lzma
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from store_core.format.release import RELEASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from store_core.format.message import MessageExt


_NEWER: Final = Path(__file__).parents[2] / "shared" / "golden-newer"
_IN_REPOSITORY: Final = Path(__file__).parent / "golden"
_BESIDE_REPOSITORY: Final = Path(__file__).parents[2] / "shared" / "golden"

_NEWEST: Final = "5.5.0"
_OTHER_KINDS: Final = ("cancelled-timers", "cqdouble", "dledger", "rocksdb", "rockskv", "timer")
"""How the names of stores begin that are not just a log with queues and an index in files."""

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"

_TRANSACTION_TYPES: Final = {0: "NOT_TYPE", 4: "PREPARED_TYPE", 8: "COMMIT_TYPE", 12: "ROLLBACK_TYPE"}
_COMPRESSION_TYPES: Final = {0: "ZLIB", 1: "LZ4", 2: "ZSTD", 3: "ZLIB"}

Row = dict[str, Any]
"""Columns of a message by name; timestamps in ms, properties as dict, `body_length` and `body_sha256` for the body."""


@dataclass(frozen=True, slots=True, order=True)
class GoldenStore:
    """An archive with a store of one RocketMQ release and that release's answers."""

    version: str
    scenario: str
    archive: Path = field(compare=False)

    @property
    def name(self) -> str:
        """Release and scenario, e.g. ``"5.3.3/tx"``."""
        return f"{self.version}/{self.scenario}"

    @property
    def release(self) -> str:
        """The value of option `release` for the store's RocketMQ."""
        return self.version if self.version in RELEASES else ".".join(self.version.split(".")[:2])

    @property
    def is_torn(self) -> bool:
        """Whether the log's last record is damaged; the answers are those after recovery."""
        return self.scenario.startswith("torn-")


def golden_stores() -> tuple[GoldenStore, ...]:
    """Return all golden stores that exist here, by name, without those of other kinds."""
    beside = [*_BESIDE_REPOSITORY.glob("[0-9]*/*.tar.xz"), *_NEWER.glob(f"{_NEWEST}/*.tar.xz")]
    archives = [*beside, *_IN_REPOSITORY.glob("rocketmq-*/*.tar.xz")]
    found = (_golden_store(archive) for archive in archives if not archive.name.startswith(_OTHER_KINDS))
    return tuple(sorted({store.name: store for store in found}.values()))


def stores_of_kind(kind: str) -> tuple[GoldenStore, ...]:
    """Return the stores of another kind that exist here, such as ``"dledger"``, by name."""
    archives = [*_NEWER.glob(f"[0-9]*/{kind}*.tar.xz"), *_IN_REPOSITORY.glob(f"rocketmq-*/{kind}*.tar.xz")]
    return tuple(sorted({store.name: store for store in map(_golden_store, archives)}.values()))


def _golden_store(archive: Path) -> GoldenStore:
    return GoldenStore(archive.parent.name.removeprefix("rocketmq-"), archive.name.removesuffix(".tar.xz"), archive)


def newer_store(name: str) -> GoldenStore | None:
    """Return a store of a newer release or of another kind, e.g. ``"5.5.0/cqdouble"``; None if it is not here."""
    archive = _NEWER / f"{name}.tar.xz"
    if not archive.exists() and archive.name.startswith(_OTHER_KINDS):
        archive = _IN_REPOSITORY / f"rocketmq-{name}.tar.xz"
    return _golden_store(archive) if archive.exists() else None


def has_stores_beside() -> bool:
    """Return whether there is a larger collection next to the repository."""
    return _BESIDE_REPOSITORY.is_dir()


def is_beside(case: object) -> bool:
    """Return whether a store, its name, or the archive of a damaged one is in the larger collection alone."""
    if isinstance(case, str):
        return case in _names_beside()
    archive = case.archive if isinstance(case, GoldenStore) else case
    return isinstance(archive, Path) and archive.name.endswith(".tar.xz") and not archive.is_relative_to(_IN_REPOSITORY)


@cache
def _names_beside() -> set[str]:
    beside = [*_BESIDE_REPOSITORY.glob("[0-9]*/*.tar.xz"), *_NEWER.glob("[0-9]*/*.tar.xz")]
    here = _IN_REPOSITORY.glob("rocketmq-*/*.tar.xz")
    return {_golden_store(archive).name for archive in beside} - {_golden_store(archive).name for archive in here}


def find_golden_store(name: str) -> GoldenStore:
    """Return a golden store by its name, e.g. ``"5.3.3/tx"``."""
    return next(store for store in golden_stores() if store.name == name)


_BROKER_CONF: Final = {"cl-size": "16777216", "cq-size": "600000", "slot-num": "5000", "index-num": "20000"}
_ANSWERS: Final = {
    "queue": "queues.jsonl", "byTime": "bytime.jsonl", "record": "readback.jsonl", "summary": "recovered.json",
    "get": "pull.jsonl", "index": "index.jsonl",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class UnpackedStore:
    """A golden store as files. It is shared by all tests of a session: copy it before writing."""

    golden: GoldenStore
    path: Path

    @property
    def root(self) -> Path:
        """The store root."""
        return self.path / "store"

    @property
    def segments(self) -> list[Path]:
        """The commit log's files in order."""
        directories = (self.root / "commitlog", *self.root.glob("dledger-*/data"))
        return sorted(
            (path for each in directories if each.is_dir() for path in each.iterdir()), key=attrgetter("name")
        )

    @property
    def conf(self) -> dict[str, str]:
        """The settings with which it was made; a whole broker's store has no file of them."""
        path = self.path / "store.conf"
        return read_conf(path) if path.exists() else _BROKER_CONF

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """Return RocketMQ's answers of a kind: ``queue``, ``byTime``, ``record``, ``summary``, ``get`` or ``index``."""
        path = self.path / _ANSWERS[kind]
        found = _json_lines(path if path.exists() else self.path / "dump.jsonl")
        return [line for line in found if line.get("type", kind) == kind]

    @property
    def info(self) -> dict[str, Any]:
        """The maker's notes on the store; for torn ones with the position of the damage."""
        answer: dict[str, Any] = json.loads(self.path.joinpath("info.json").read_text())
        return answer

    def expected(self, *, decompress: bool = False) -> list[Row]:
        """Return RocketMQ's read-back, in log order, converted to our columns.

        `tags_code` of delayed messages is taken from other messages with the same tags, because RocketMQ reports their
        delivery time instead.
        """
        return [dict(row) for row in _expected(self, decompress)]

    def raw_properties(self) -> list[bytes]:
        """Return the stored property bytes of every record, in log order."""
        return [base64.b64decode(line["propertiesRaw"]) for line in self.lines("record")]


Golden = Callable[[str], UnpackedStore]
"""What the fixture `golden` is: it unpacks a store by its name, e.g. ``"5.3.3/tx"``, once for all tests."""


def read_conf(path: Path) -> dict[str, str]:
    """Read ``store.conf``."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def unpack(store: GoldenStore, directory: Path) -> UnpackedStore:
    """Unpack a golden store below a directory, once; holes stay holes and modification times are kept."""
    target = directory / store.version
    path = target / store.scenario
    if not path.exists():
        _extract(store.archive, target)
    return UnpackedStore(store, path)


def unpack_newer(name: str, directory: Path) -> UnpackedStore:
    """Unpack a store of `newer_store` that is here."""
    store = newer_store(name)
    assert store is not None, name
    return unpack(store, directory)


def unpack_field_case(name: str, directory: Path) -> Path:
    """Unpack a case of tests/golden/field below a directory, once."""
    path = directory / "field" / name
    if not path.exists():
        _extract(_IN_REPOSITORY / "field" / f"{name}.tar.xz", path.parent)
    return path


def _extract(packed: Path, target: Path) -> None:
    with lzma.open(packed) as stream, tarfile.open(fileobj=stream) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(target)  # noqa: S202 -- our own archives; the filter is there from Python 3.11.4


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


@lru_cache(maxsize=4)
def _expected(store: UnpackedStore, decompress: bool) -> list[Row]:
    lines = store.lines("record")
    codes = {line["properties"].get("TAGS"): line["dispatch"]["tagsCode"] for line in lines if not _is_delayed(line)}
    size = store.segments[0].stat().st_size
    return [_row(line, codes, size, decompress=decompress) for line in lines]


def _is_delayed(line: dict[str, Any]) -> bool:
    return bool(line["topic"] == SCHEDULE_TOPIC)


def _row(line: dict[str, Any], codes: dict[str | None, int], segment_size: int, *, decompress: bool) -> Row:
    properties: dict[str, str] = line["properties"]
    keys = properties.get("KEYS")
    body = line["decompressed"] if decompress and line["sysFlag"] & 1 else line
    return {
        "topic": line["topic"],
        "queue_id": line["queueId"],
        "queue_offset": line["queueOffset"],
        "physical_offset": line["physicalOffset"],
        "store_size": line["storeSize"],
        "store_timestamp": line["storeTimestamp"],
        "born_timestamp": line["bornTimestamp"],
        "store_timestamp_ms": line["storeTimestamp"],
        "born_timestamp_ms": line["bornTimestamp"],
        "store_host": _host(line["storeHost"]),
        "born_host": _host(line["bornHost"]),
        "tags": properties.get("TAGS"),
        "keys": None if keys is None else [key for key in keys.split(" ") if key],
        "properties": properties,
        "body_length": body["bodyLen"],
        "body_sha256": body["bodySha256"],
        "body_crc": line["bodyCRC"],
        "flag": line["flag"],
        "sys_flag": line["sysFlag"],
        "reconsume_times": line["reconsumeTimes"],
        "prepared_transaction_offset": line["preparedTransactionOffset"],
        "magic_code": int.from_bytes(bytes.fromhex(line["magic"]), signed=True),
        "msg_id": line["msgId"],
        "unique_key": line["dispatch"]["uniqKey"],
        "tags_code": codes[properties.get("TAGS")] if _is_delayed(line) else line["dispatch"]["tagsCode"],
        "segment": f"{line['physicalOffset'] // segment_size * segment_size:020d}",
        "transaction_type": _TRANSACTION_TYPES[line["sysFlag"] & 0x0C],
        "compression": _COMPRESSION_TYPES[line["sysFlag"] >> 8 & 7] if line["sysFlag"] & 1 else "NONE",
    }


def _host(java: str) -> str:
    """Convert Java's text of an address to the form of RFC 5952."""
    address, _, port = java.rpartition(":")
    if "." in address:
        return java
    return f"[{ipaddress.ip_address(address.strip('[]'))}]:{port}"


_OF_RECORDS = (
    "body_text",
    "_corrupt_record",
    "properties_string",
    "uniq_msg_id",
    "dledger_index",
    "dledger_term",
    "dledger_committed",
)
"""What a decoded message does not have: bytes, and what an entry of a DLedger log says."""

_PLAIN_COLUMNS = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "store_timestamp",
    "born_timestamp",
    "store_host",
    "born_host",
    "tags",
    "keys",
    "properties",
    "body_crc",
    "flag",
    "sys_flag",
    "reconsume_times",
    "prepared_transaction_offset",
    "magic_code",
    "msg_id",
    "unique_key",
    "tags_code",
)


def message_rows(messages: Iterable[MessageExt], segment: str) -> list[Row]:
    """Turn messages of one segment into rows."""
    return [_message_row(message, segment) for message in messages]


def _message_row(message: MessageExt, segment: str) -> Row:
    row = {name: getattr(message, name) for name in _PLAIN_COLUMNS}
    row |= _body(message.body)
    row |= {f"{name}_ms": row[name] for name in ("store_timestamp", "born_timestamp")}
    row["segment"] = segment
    row["transaction_type"] = message.transaction_type.name
    try:
        row["compression"] = message.compression.name
    except ValueError:  # a type that no release has
        row["compression"] = None
    return row


def table_rows(table: pa.Table | pa.RecordBatch) -> list[Row]:
    """Turn a table or batch into rows, without the columns that a decoded message does not have."""
    columns = {name: _values(table.column(name)) for name in table.schema.names if name not in _OF_RECORDS}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for row in rows:
        row.update(_body(row.pop("body")))
    return rows


def _values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    if pa.types.is_timestamp(column.type):
        in_ms = column.cast(pa.timestamp("ms", "UTC"))  # refuses to lose a fraction of a millisecond
        values: list[object] = in_ms.cast(pa.int64()).to_pylist()
        return values
    if pa.types.is_map(column.type):
        return [_properties(pairs) for pairs in column.to_pylist()]
    listed: list[object] = column.to_pylist()
    return listed


def _properties(pairs: list[tuple[str, str]]) -> dict[str, str]:
    properties = dict(pairs)
    if len(properties) != len(pairs):
        message = f"a name comes twice in {pairs}"
        raise AssertionError(message)
    return properties


def _body(body: bytes) -> Row:
    return {"body_length": len(body), "body_sha256": hashlib.sha256(body).hexdigest()}


def assert_same_rows(expected: list[Row], actual: list[Row]) -> None:
    """Compare row by row first: the difference of two rows is readable, that of two thousand is not."""
    for row, other in zip(expected, actual, strict=False):
        assert row == other
    assert len(expected) == len(actual)

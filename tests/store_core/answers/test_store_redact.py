# SPDX-License-Identifier: Apache-2.0
"""A redacted copy has nothing of what was redacted, all else as it was, and is a sound store."""

from __future__ import annotations

import re
import shutil
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from store_core import DefaultMessageStore, MessageStoreConfig, read_messages
from store_core.answers import Redact, check, redact, salvage
from store_core.answers.report import Verdict
from store_core.errors import InvalidOptionError, StoreAccessError, StoreLockedError
from store_core.files.file_system import OsFileSystem
from store_core.files.store_lock import StoreLock
from tests.builders import SIZE_AT, LogBuilder, Record
from tests.store_core.files.store_kinds import every_file

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.store.parts import Engine
    from tests.golden_stores import Golden

NAME = b"jane@example.org"
COLUMNS = ["topic", "queue_id", "queue_offset", "physical_offset", "store_size", "properties_string", "sys_flag"]


def rows_of(store: Path) -> list[dict[str, Any]]:
    columns = [*COLUMNS, "body", "tags_code", "body_crc"]
    rows: list[dict[str, Any]] = read_messages(store, columns=columns).read_all().to_pylist()
    return rows


@pytest.fixture
def log() -> LogBuilder:
    """Make a log in which each third body has a name, once in a compressed one, and hosts of both families."""
    made = LogBuilder(2048)
    for number in range(30):
        body = b"order %d of %s, again %s" % (number, NAME, NAME) if number % 3 == 0 else b"order %d" % number
        flag = 0x301 if number == 9 else 0
        made.append(
            Record(zlib.compress(body) if flag else body, ("orders", "mail")[number % 2], {"KEYS": f"k{number % 5}"}),
            sys_flag=flag,
            born_host=("::1" if number % 2 else "10.0.0.1", 5),
        )
    return made


def test_nothing_is_left_of_a_text_and_all_else_is_as_it_was(log: LogBuilder, tmp_path: Path, engine: Engine) -> None:
    store, copy = log.write(tmp_path / "store"), tmp_path / "copy"
    sizes = MessageStoreConfig(mapped_file_size_consume_queue=2000, max_hash_slot_num=40, max_index_num=100)
    DefaultMessageStore.open(store, sizes).close()
    before = every_file(store)
    report = Redact(copy, text=NAME.decode()).ask(store, engine=engine)

    assert before == every_file(store)
    assert (30, 10, 1, 0) == (
        report.found.searched_messages, report.found.messages, report.found.expanded, report.found.refused,
    )  # fmt: skip
    assert not [path for path in copy.rglob("*") if path.is_file() and NAME in path.read_bytes()]
    for number, (old, new) in enumerate(zip(rows_of(store), rows_of(copy), strict=True)):
        body = b"*" * len(old["body"]) if number == 9 else old["body"].replace(NAME, b"*" * len(NAME))
        expected = {"body": body, "body_crc": zlib.crc32(body) & 0x7FFFFFFF}
        assert old | expected | ({"sys_flag": 0x10} if number == 9 else {}) == new
    assert Verdict.CLEAN is report.verdict
    assert Verdict.CLEAN is check(copy).verdict
    changed = {row["path"] for row in report.tables["files"].to_pylist() if row["is_changed"]}
    assert all(name.startswith("commitlog/") for name in changed)
    assert {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()} == set(
        report.tables["files"]["path"].to_pylist()
    )
    assert "jane" not in report.to_html() + str(report.to_json())
    assert ["copy", "store"] == sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("by", [{"key": "k2"}, {"topic": ["mail"]}])
def test_whole_bodies_of_a_key_or_a_topic_become_filler(by: dict[str, Any], log: LogBuilder, tmp_path: Path) -> None:
    store, copy = log.write(tmp_path / "store"), tmp_path / "copy"
    report = redact(store, copy, **by)

    for old, new in zip(rows_of(store), rows_of(copy), strict=True):
        is_mine = old["topic"] == "mail" if "topic" in by else b"k2" in old["properties_string"]
        assert new["body"] == (b"*" * len(old["body"]) if is_mine else old["body"])
    assert report.found.messages == (15 if "topic" in by else 6)


@pytest.mark.parametrize(
    ("record", "options", "reason"),
    [
        (Record(b"", properties={"KEYS": NAME.decode()}), {"text": NAME.decode()}, "its properties"),
        (Record(b"", topic=NAME), {"pattern": "jane@"}, "its topic"),
        (Record(NAME, sys_flag=0x301), {"pattern": "jane@"}, "does not expand"),
        (Record(b"12," + NAME, "RMQ_SYS_TRANS_OP_HALF_TOPIC"), {"pattern": "jane@"}, "which transactions are settled"),
        (Record(NAME, sys_flag=0x80), {"pattern": "jane@"}, "a batch of messages"),
        (Record(NAME, properties=b"__CRC32#\x010000000000\x02"), {"pattern": "jane@"}, "are damaged"),
        (Record(b"abc"), {"pattern": "ab|[*]c"}, "still matches"),
        (Record(NAME), {"pattern": "jane@|[*]+"}, "of commitlog/00000000000000000000 matches"),
    ],
)
def test_what_can_not_be_redacted_is_refused_by_name_and_there_is_no_copy(
    record: Record, options: dict[str, Any], reason: str, log: LogBuilder, tmp_path: Path
) -> None:
    log.append(record)
    report = redact(log.write(tmp_path / "store"), tmp_path / "copy", **options)

    assert Verdict.REFUSED is report.verdict
    assert reason in "".join(row["reason"] for row in report.tables["refused"].to_pylist())
    assert "refused, no copy was made" in report.to_text()
    assert ["store"] == [path.name for path in tmp_path.iterdir()]


def test_what_is_left_in_another_file_or_behind_the_log_is_found(log: LogBuilder, tmp_path: Path) -> None:
    store = log.write(tmp_path / "store")
    segment = max((store / "commitlog").iterdir())
    data = segment.read_bytes()
    segment.write_bytes(data[: -len(NAME)] + NAME)
    (store / "config").mkdir()
    (store / "config" / "notes.json").write_bytes(b'{"mail": "%s"}' % NAME)
    (store / "config" / NAME.decode()).touch()
    report = redact(store, tmp_path / "copy", text=NAME.decode())
    reasons = [row["reason"] for row in report.tables["refused"].to_pylist()]

    assert any("byte 10 of config/notes.json matches" in each for each in reasons)
    assert any(f"byte {2048 - len(NAME)} of commitlog/" in each or "damaged" in each for each in reasons)
    assert not (tmp_path / "copy").exists()


def test_a_damaged_log_is_refused_and_its_salvage_is_not(log: LogBuilder, tmp_path: Path) -> None:
    log.flip(log.records[4].physical_offset + SIZE_AT, 1)
    store = log.write(tmp_path / "store")
    report = redact(store, tmp_path / "copy", text=NAME.decode())

    assert Verdict.REFUSED is report.verdict
    assert "salvage the log first" in report.tables["refused"]["reason"][0].as_py()
    salvage(store, tmp_path / "salvaged")
    assert Verdict.CLEAN is redact(tmp_path / "salvaged", tmp_path / "copy", text=NAME.decode()).verdict


def test_where_nothing_matches_there_is_no_copy(log: LogBuilder, tmp_path: Path) -> None:
    report = redact(log.write(tmp_path / "store"), tmp_path / "copy", text="nobody")

    assert (Verdict.CLEAN, None) == (report.verdict, report.found.into)
    assert not (tmp_path / "copy").exists()


def test_a_store_that_is_held_and_a_link_are_refused(log: LogBuilder, tmp_path: Path) -> None:
    store = log.write(tmp_path / "store")
    with StoreLock(store, OsFileSystem()), pytest.raises(StoreLockedError, match="held by a broker"):
        redact(store, tmp_path / "copy", text="x")
    (store / "linked").symlink_to(tmp_path)
    with pytest.raises(StoreAccessError, match="expected a file or a directory, found a symbolic link"):
        redact(store, tmp_path / "copy", text="x")
    assert ["store"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.golden
@pytest.mark.parametrize("name", ["5.3.3/propcrc", "5.3.3/compressed", "4.9.7/ipv6"])
def test_a_store_of_rocketmq_stays_sound(name: str, golden: Golden, tmp_path: Path) -> None:
    store = shutil.copytree(golden(name).root, tmp_path / "store")
    bodies = read_messages(store, columns=["body"], decompress=True).read_all()["body"].to_pylist()
    chosen = next(body[4:24] for body in bodies if len(body) > 30 and len(set(body[4:24])) > 3)
    report = redact(store, tmp_path / "copy", pattern=re.escape(chosen))

    assert Verdict.CLEAN is report.verdict
    assert report.found.messages > 0
    assert check(store).to_json()["tables"]["counts"] == check(tmp_path / "copy").to_json()["tables"]["counts"]
    left = read_messages(tmp_path / "copy", columns=["body"], decompress=True).read_all()["body"].to_pylist()
    assert len(bodies) == len(left)
    assert report.found.messages == sum(old != new for old, new in zip(bodies, left, strict=True))
    assert not any(chosen in body for body in left)
    assert salvage(tmp_path / "copy").found.mismatched_property_crc == salvage(store).found.mismatched_property_crc


@pytest.mark.parametrize(
    ("options", "says"),
    [
        *(({name: ""}, "expected a pattern, text or key that matches") for name in ("pattern", "text", "key")),
        *(({"pattern": each}, "expected a pattern, text or key that matches") for each in (b"", "a*")),
        *((each, "expected exactly one of pattern, text, key and topic") for each in ({}, {"text": "a", "key": "b"})),
        ({"pattern": "("}, "pattern"),
    ],
)
def test_what_can_not_be_looked_for_is_refused(
    options: dict[str, Any], says: str, log: LogBuilder, tmp_path: Path
) -> None:
    with pytest.raises(InvalidOptionError, match=says):
        redact(log.write(tmp_path / "store"), tmp_path / "copy", **options)

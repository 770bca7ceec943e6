# SPDX-License-Identifier: Apache-2.0
"""A configuration file and its backup: never both broken, loaded as RocketMQ does, in the order of Java's maps."""

from __future__ import annotations

import errno
import pickle
from typing import TYPE_CHECKING

import pytest

from store_core.broker.config_file import ConfigManager, concurrent_map_order, initial_capacity
from store_core.errors import CorruptRecordError, UnsafeSizeError
from store_core.format.java import DEFAULT_CAPACITY
from store_core.snapshot.config_json import ConfigFields, JsonObject
from tests.store_core.fakes import FaultyFileSystem

if TYPE_CHECKING:
    from pathlib import Path


class Counter(ConfigManager):
    """The smallest manager that can be persisted."""

    name = "counter.json"
    value = 0

    def encode(self) -> JsonObject:
        return {"value": self.value}

    def decode(self, value: JsonObject, file: str) -> None:
        fields = ConfigFields(value, file)
        fields.object("table").offsets()
        self.value = fields.integer("value")


class RenamingDisk(FaultyFileSystem):
    """A disk that also records renames, and can fail at them."""

    def rename(self, source: Path, target: Path) -> None:
        self.called("rename", target)
        super().rename(source, target)


@pytest.fixture
def disk() -> FaultyFileSystem:
    return RenamingDisk()


@pytest.fixture
def kept(tmp_path: Path, disk: FaultyFileSystem) -> Counter:
    return Counter(tmp_path, disk)


def put(kept: Counter, text: str | None, backup: str | None) -> None:
    kept.path.parent.mkdir(exist_ok=True)
    for path, content in ((kept.path, text), (kept.backup_path, backup)):
        if content is not None:
            path.write_text(content)


def loaded(kept: Counter) -> int:
    again = Counter(kept.path.parents[1], FaultyFileSystem())
    again.load()
    return again.value


# ---- loading


@pytest.mark.parametrize(
    ("text", "backup", "value"),
    [
        (None, None, 0),
        ("", None, 0),
        ("", "", 0),
        ('{"value":1}', None, 1),
        ('{"value":1}', '{"value":2}', 1),
        ('{"value":1}', "{", 1),
        (None, '{"value":2}', 2),
        ("", '{"value":2}', 2),
        ("{", '{"value":2}', 2),
        ('{"value":"x"}', '{"value":2}', 2),
    ],
)
def test_the_backup_is_taken_where_the_file_is_missing_empty_or_broken(
    kept: Counter, text: str | None, backup: str | None, value: int
) -> None:
    put(kept, text, backup)
    kept.load()

    assert value == kept.value


def test_taking_the_backup_for_a_broken_file_is_told(kept: Counter) -> None:
    put(kept, '{"value":', '{"value":2}')
    kept.load()

    assert 1 == len(kept.notes)
    assert "counter.json.bak was loaded instead" in kept.notes[0]
    assert "offset 9" in kept.notes[0]
    assert kept.notes[0].endswith("or replace it with its .bak")


@pytest.mark.parametrize("backup", [None, ""])
def test_a_broken_file_without_a_backup_is_an_error_and_not_an_empty_table(
    kept: Counter, backup: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    put(kept, "{", backup)
    with pytest.raises(CorruptRecordError, match=r"counter\.json:") as raised:
        kept.load()
    assert f"Correct the file by hand: {kept.backup_path} is missing or empty" in str(raised.value)
    assert not caplog.records  # no backup was loaded


@pytest.mark.parametrize("text", ["{", '{"value":"x"}'])
def test_an_error_names_a_broken_file_and_its_broken_backup_with_both_faults(kept: Counter, text: str) -> None:
    put(kept, text, "}")
    with pytest.raises(CorruptRecordError) as raised:
        kept.load()
    shown = str(raised.value)
    fault = (
        f"in {kept.path}: expected an integer" if "value" in text else f"line 1 at offset 1 of {kept.path}: expected"
    )

    assert fault in shown
    assert f"Its backup is broken, too: bad JSON in line 1 at offset 0 of {kept.backup_path}: expected '{{'" in shown
    assert shown.endswith(". Correct one of them by hand")
    assert "replace" not in shown
    assert shown == str(pickle.loads(pickle.dumps(raised.value)))  # noqa: S301 -- our own bytes


@pytest.mark.parametrize("text", [None, ""])
def test_a_broken_backup_is_not_to_be_replaced_by_itself(kept: Counter, text: str | None) -> None:
    put(kept, text, "}")
    with pytest.raises(CorruptRecordError, match=r"counter\.json\.bak: .* Correct the file by hand$"):
        kept.load()


def test_a_file_beyond_all_measure_is_not_read(kept: Counter) -> None:
    put(kept, "", None)
    with kept.path.open("r+b") as file:
        file.truncate((1 << 30) + 1)
    with pytest.raises(UnsafeSizeError, match="1073741825 bytes"):
        kept.load()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"value":"x"}', r"^bad value of value in \S+counter\.json: expected an integer from .*, found 'x'\."),
        ('{"table":{"x":1}}', r"^bad key of table in \S+counter\.json: expected an integer of 32 bits, found 'x'\."),
        ('{"table":{"0":null}}', r"^bad value of table\.0 in \S+counter\.json: expected an offset, found None\."),
    ],
)
def test_a_wrong_value_or_key_is_named_without_an_offset_that_is_not_known(kept: Counter, text: str, says: str) -> None:
    put(kept, text, None)
    with pytest.raises(CorruptRecordError, match=says) as raised:
        kept.load()
    assert "offset 0" not in str(raised.value)


# ---- persisting


def test_the_backup_holds_what_the_file_held(kept: Counter) -> None:
    for value in (1, 2, 3):
        kept.value = value
        kept.persist()

    assert '{\n\t"value":3\n}' == kept.path.read_text()
    assert '{\n\t"value":2\n}' == kept.backup_path.read_text()
    assert ["counter.json", "counter.json.bak"] == sorted(path.name for path in kept.path.parent.iterdir())


def test_every_file_is_synced_before_it_is_renamed(kept: Counter, disk: FaultyFileSystem) -> None:
    kept.persist()
    disk.calls.clear()
    kept.persist()
    steps = [call for call in disk.calls if call[0] in ("sync", "rename", "sync_directory")]

    assert [
        ("sync", "counter.json.tmp"),
        ("rename", "counter.json"),
        ("sync", "counter.json.bak.tmp"),
        ("rename", "counter.json.bak"),
        ("sync_directory", "config"),
    ] == steps


@pytest.mark.parametrize("operation", ["open", "read", "write", "sync", "rename", "sync_directory"])
@pytest.mark.parametrize("after", range(3))
def test_whatever_fails_while_persisting_a_whole_state_stays(
    kept: Counter, disk: FaultyFileSystem, operation: str, after: int
) -> None:
    for kept.value in (1, 2):
        kept.persist()
    kept.value = 3
    disk.fail(operation, errno.EIO, after=after)
    try:
        kept.persist()
        expected = {3}
    except OSError:
        expected = {2, 3}
    disk.heal()

    assert loaded(kept) in expected
    kept.persist()
    assert 3 == loaded(kept)


def test_a_full_disk_leaves_what_was_there(kept: Counter, disk: FaultyFileSystem) -> None:
    kept.value = 1
    kept.persist()
    kept.value = 2
    disk.free_blocks = 0
    with pytest.raises(OSError, match="No space left"):
        kept.persist()

    assert 1 == loaded(kept)


def test_what_an_earlier_crash_left_half_written_is_overwritten(kept: Counter) -> None:
    kept.path.parent.mkdir()
    kept.path.with_name("counter.json.tmp").write_text("x" * 1000)
    kept.value = 1
    kept.persist()

    assert 1 == loaded(kept)


_FORTY = """
    5 25 6 26 11 27 3 4 12 21 9 13 20 29 8 14 28 7 16 15 18 32 19 33 17 31 34 30 35 37 36 0 22 2 39 23 10 24 38 1
"""
_HUNDRED_TWENTY = """
    68 108 105 31 117 71 114 40 80 34 77 112 38 32 75 1 119 36 85 82 73 6 5 48 45 88 42 3 43 110 46 89 9 58 55 52 95 94
    18 15 53 92 16 13 60 57 97 20 23 66 63 106 103 29 26 12 69 64 101 27 30 70 49 109 39 79 33 76 86 118 72 115 116 113
    35 78 4 90 44 87 41 83 7 50 2 81 10 84 8 47 93 17 14 24 61 59 56 99 96 91 100 11 54 51 0 37 74 111 19 98 28 25 67
    21 107 104 22 65 62 102
"""


@pytest.mark.parametrize(
    ("keys", "capacity", "expected"),
    [
        ([f"orders{index}@billing" for index in range(40)], DEFAULT_CAPACITY, _FORTY),
        ([f"q{index * 7919 % 1000}" for index in range(120)], initial_capacity(32), _HUNDRED_TWENTY),
    ],
)
def test_a_map_that_grows_gives_its_strings_in_java_s_order(keys: list[str], capacity: int, expected: str) -> None:
    assert [keys[int(place)] for place in expected.split()] == concurrent_map_order(keys, capacity)

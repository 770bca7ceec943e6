# SPDX-License-Identifier: Apache-2.0
"""The map of the code is short, and names files and modules that exist and have what is looked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
_TEXT: Final = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
_NAMED: Final = sorted(set(re.findall(r"`([a-z_0-9/]+)`", _TEXT.partition("## Code map")[2].partition("\n## ")[0])))
_FOLDERS: Final = ("store_core", "connector", "tools", "jobs", "docs", "tests", "notebooks", "spark-conf")


@pytest.mark.parametrize("name", _NAMED)
def test_what_the_code_map_names_is_in_the_tree(name: str) -> None:
    top, _, rest = name.partition("/")
    places = [ROOT / folder for folder in _FOLDERS]
    found = [place for place in places for _ in place.rglob(f"{name.rstrip('/')}.py")]
    folders = [place for place in places for path in place.rglob(top) if (path / rest).is_dir()]

    assert found or folders or (ROOT / name).is_dir(), f"the code map of ARCHITECTURE.md names {name}; where is it?"


_PATHS: Final = [path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.py")]
_MODULES: Final = sorted(set(re.findall(r"`(?:connector/\.\.\./)?([a-z_0-9/]+\.py)`", _TEXT)))


def _modules(name: str) -> list[Path]:
    return [path for path in _PATHS if f"/{path}".endswith(f"/{name}")]


@pytest.mark.parametrize("name", _MODULES)
def test_each_module_that_is_named_is_there(name: str) -> None:
    assert _modules(name) or (ROOT / name).is_file()


def test_it_can_be_read_in_ten_minutes() -> None:
    lines = _TEXT.splitlines()

    assert 130 >= len(lines)
    assert 200 >= max(map(len, lines))


@pytest.mark.parametrize(
    ("words", "module", "definition"),
    [
        ("did-you-mean", "format/words.py", "def did_you_mean"),
        ("broker's JSON", "snapshot/config.py", "def read_config"),
        ("retries", "files/storage.py", "class Attempts"),
        ("compression", "format/compression.py", "def expand_body"),
        ("`asOf`", "store/read/read_plan.py", "def log_end_at"),
        ("Java's hash", "format/java.py", "def hash_code"),
        ("release does differently", "format/release.py", "RELEASE_RULES"),
        ("transaction book", "broker/transactions.py", "class _Book"),
        ("delay states", "answers/delay_states.py", "class DelayState"),
        ("CRC", "format/crc32.py", "crc32"),
        ("a name becomes a path", "queue/queue_path.py", "def queue_path"),
        ("where a log ends", "snapshot/log_end.py", "def find_end"),
        ("Spark task enters first", "pyspark_commitlog/reader.py", "def read"),
        ("properties", "format/properties.py", "def parse_properties"),
        ("exit codes", "command/exit_code.py", "class ExitCode"),
        ("rules of a record", "format/record/scan.py", "def check_record"),
        ("opening a store", "store/message_store.py", "class DefaultMessageStore"),
        ("a consumer gets", "store/get_message.py", "class GetMessageResult"),
        ("keep up with the log", "store/reput.py", "class ReputMessageService"),
        ("whether a store is whole", "answers/store_check.py", "class Check"),
        ("became of a message", "answers/message_trace.py", "class Trace"),
        ("stream of a store", "store/read/follow/log_follower.py", "class LogFollower"),
        ("table of commands", "command/program.py", "_ENTRIES"),
        ("whether queues or index lead", "store/read/lookup/look_up.py", "def look_up"),
    ],
)
def test_what_a_newcomer_looks_for_is_found_in_two_steps(words: str, module: str, definition: str) -> None:
    found = [line for line in _TEXT.splitlines() if words in line and module in line]
    places = [path for path in _modules(module) if definition in path.read_text(encoding="utf-8")]

    assert found, f"no line of ARCHITECTURE.md says that {words} is in {module}"
    assert places, f"{module} does not have {definition}"

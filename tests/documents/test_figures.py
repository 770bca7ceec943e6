# SPDX-License-Identifier: Apache-2.0
"""What documents say of code and data is so: figures, names in the map of the code, generated tables."""

from __future__ import annotations

import json
import lzma
import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.documents.blocks import ROOT, documents
from tests.golden_stores import golden_stores
from tools import layout_document, options_document, release_document, run_checks
from tools.size_cluster import Cluster, estimate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.golden_stores import Golden


GOLDEN = ROOT / "tests" / "golden"
BESIDE = ROOT.parent / "shared" / "golden"


def told(what: str) -> tuple[int, int]:
    """Return the two figures that docs/tested.md has for something."""
    page = ROOT.joinpath("docs", "tested.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {re.escape(what)}.* \| ([\d,]+) \| ([\d,]+) \|$", page, re.MULTILINE)
    assert row is not None, what
    return int(row[1].replace(",", "")), int(row[2].replace(",", ""))


def lines_in(path: Path) -> int:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return sum(1 for _ in lines)


def test_stores_are_as_many_as_told() -> None:
    here, beside = told("stores that RocketMQ wrote")

    assert here == sum(_is_here(store.version, store.scenario) for store in golden_stores())
    assert len(golden_stores()) in (here, beside)


@pytest.mark.golden
def test_their_records_are_as_many_as_told(golden: Golden) -> None:
    inside = [store for store in golden_stores() if GOLDEN.joinpath(f"rocketmq-{store.version}").is_dir()]
    inside = [store for store in inside if _is_here(store.version, store.scenario)]

    assert told("records in them")[0] == sum(len(golden(store.name).expected()) for store in inside)


def _is_here(version: str, scenario: str) -> bool:
    return GOLDEN.joinpath(f"rocketmq-{version}", f"{scenario}.tar.xz").exists()


def test_damaged_stores_are_as_many_as_told() -> None:
    here, beside = told("stores damaged on purpose")

    assert here == len(list(GOLDEN.glob("damage/*.tar.xz")))
    assert len(list(BESIDE.glob("damage/*.tar.xz"))) in (0, beside)


@pytest.mark.parametrize(
    ("what", "file"),
    [
        ("gets", "getmessage_matrix"),
        ("more gets", "gets_at_gaps"),
        ("lookups", "time_index_matrix"),
        ("SQL92 expressions", "sql92_cases"),
    ],
)
def test_answers_are_as_many_as_told(what: str, file: str) -> None:
    here, beside = told(what)
    larger = BESIDE / "answers" / f"{file}.jsonl.xz"

    assert here == lines_in(GOLDEN / "answers" / f"{file}.jsonl.xz")
    assert not larger.exists() or beside == lines_in(larger)


def test_pulls_are_as_many_as_told() -> None:
    with lzma.open(GOLDEN / "answers" / "pull_requests.jsonl.xz", "rt", encoding="utf-8") as lines:
        steps = [step for line in lines for step in json.loads(line)["steps"]]

    assert told("pulls") == (sum("request" in step for step in steps),) * 2


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


_JUDGES: Final = sorted({
    name for line in re.findall(r"^\* .*\[(.*)\]$", _TEXT, re.MULTILINE) for name in line.split(", ")
})  # fmt: skip


@pytest.mark.parametrize("name", _JUDGES)
def test_what_tests_an_invariant_is_a_check_or_in_the_tree(name: str) -> None:
    found = name in run_checks.CHECKS or (ROOT / name).exists() or any((ROOT / "tests").rglob(f"{name}.py"))

    assert found, f"an invariant of ARCHITECTURE.md is tested by {name}; where is it?"


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
        ("property CRC", "format/properties.py", "def crc_property"),
        ("repair's plan", "answers/repair_plan.py", "class RepairPlan"),
        ("SQL92", "format/filter/sql92_parser.py", "class Sql92Expression"),
        ("RocksDB", "files/rocksdb_reader.py", "class RocksdbReader"),
        ("S3, credentials", "files/storage.py", "class StorageSettings"),
        ("staging of a write", "store/sink/staged_batch.py", "def stage_batches"),
        ("live store as of one moment", "snapshot/log_end.py", "class LiveMoment"),
        ("times as text", "format/columns.py", "def iso_time"),
        ("which release wrote a store", "snapshot/likely_release.py", "class LikelyRelease"),
        ("HTML", "answers/plots.py", "def page"),
        ("whether queues or index lead", "store/read/lookup/look_up.py", "def look_up"),
    ],
)
def test_what_a_newcomer_looks_for_is_found_in_two_steps(words: str, module: str, definition: str) -> None:
    found = [line for line in _TEXT.splitlines() if words in line and module in line]
    places = [path for path in _modules(module) if definition in path.read_text(encoding="utf-8")]

    assert found, f"no line of ARCHITECTURE.md says that {words} is in {module}"
    assert places, f"{module} does not have {definition}"


DOCS = ROOT / "docs"


@pytest.mark.parametrize(
    ("document", "generate"),
    [
        ("FORMAT.md", layout_document.markdown_document),
        ("options.md", options_document.markdown_document),
        ("releases.md", release_document.markdown_document),
    ],
)
def test_generated_documents_are_current(document: str, generate: Callable[[], str]) -> None:
    """`make docs` writes them again."""
    assert DOCS.joinpath(document).read_text(encoding="utf-8") == generate()


def test_nobody_is_told_to_install_from_an_index_on_which_the_project_is_not() -> None:
    """On a package index the name may belong to anyone."""
    sources = [path for name in ("connector", "store_core", "jobs", "tools") for path in ROOT.glob(f"{name}/**/*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in (*(ROOT / name for name in documents()), *sources)}

    assert [] == [path for path, text in texts.items() if re.search(r"pip install \S*pyspark-commitlog", text)]


GUIDE = ROOT / "docs" / "api" / "spark.md"
SCENARIOS = {
    "machines with 12.5 Gbit/s": Cluster(),
    "machines with 100 Gbit/s": Cluster(network_mib=11920),
    "the same, and a store that gives 50 GB/s to all": Cluster(network_mib=11920, store_mib=50e9 / (1 << 20)),
    "machines with 12.5 Gbit/s, 5 MiB/s a connection": Cluster(connection_mib=5),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_figures_of_the_guide_are_those_of_the_simulation(name: str) -> None:
    found = estimate(SCENARIOS[name])
    assert f"| {name} | {found.seconds / 60:.0f} | {found.core_mib:.0f} | {found.limit} |" in GUIDE.read_text()
    assert f"{found.segments} tasks and {found.requests / 1e6:.0f} million requests" in GUIDE.read_text()
    assert f"{found.machine_memory_gib:.1f} GiB for a machine of 16" in GUIDE.read_text()


def test_more_cores_are_faster_until_the_store_gives_no_more() -> None:
    seconds = [estimate(Cluster(cores=cores, store_mib=50_000)).seconds for cores in (100, 500, 1000)]
    assert sorted(seconds, reverse=True)[:2] == seconds[:2]
    assert estimate(Cluster(store_mib=50_000)).limit == "the object store"


def test_few_segments_take_as_long_as_the_slowest() -> None:
    one = estimate(Cluster(terabytes=0.001, straggler_share=0))
    assert one.segments == 1
    assert one.seconds == pytest.approx(0.3 + 0.03 + 1024 / one.core_mib)

# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests, settings of Hypothesis, and a summary line that reports which golden stores were used."""

from __future__ import annotations

import gc
import os
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from store_core.files import remote_bytes, storage
from tests.golden_stores import (
    GoldenStore,
    UnpackedStore,
    find_golden_store,
    golden_stores,
    has_stores_beside,
    is_beside,
    unpack,
    unpack_field_case,
)
from tests.short_lived import prepare_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.golden_stores import Golden
    from tests.object_store import ObjectStore


prepare_environment()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Provide the one session of the run, with the settings that the project recommends."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parents[1] / "spark-conf")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.driver.host", "localhost")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    yield session
    session.stop()


_USED: Final = pytest.StashKey[set[str]]()
_HANDED_OVER: Final = "golden stores"
_EVERY: Final = 4

# `ci` is the same in every run, and `quick` is its beginning; `soak` (--hypothesis-profile=soak) runs longer, with
# different examples each time.
settings.register_profile("ci", max_examples=30, deadline=None, derandomize=True, database=None)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=5)
settings.register_profile("soak", max_examples=3_000, deadline=None, print_blob=True)
settings.load_profile("ci")


@pytest.fixture(scope="session")
def golden_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(scope="session")
def golden(golden_directory: Path, request: pytest.FixtureRequest) -> Golden:
    """Return a function that unpacks a golden store by name, once per session."""
    used = request.config.stash.setdefault(_USED, set())

    def unpacked(name: str) -> UnpackedStore:
        store = find_golden_store(name)
        used.add(name)
        return unpack(store, golden_directory)

    return unpacked


@pytest.fixture(scope="session")
def field(golden_directory: Path) -> Callable[[str], Path]:
    """Return a function that unpacks a field case by name, once per session: the directory that it was packed as."""
    return lambda name: unpack_field_case(name, golden_directory)


@pytest.fixture(scope="session", params=golden_stores(), ids=lambda store: store.name)
def golden_store(request: pytest.FixtureRequest, golden: Golden) -> UnpackedStore:
    """Run the test with every golden store."""
    store: GoldenStore = request.param
    return golden(store.name)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave three of four cases of the larger collection to `make soak`: the same ones in every run."""
    for item in items:
        cases = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
        if zlib.crc32(item.nodeid.encode()) % _EVERY and any(map(is_beside, cases)):
            item.add_marker(pytest.mark.soak)


def pytest_collection_finish() -> None:
    """Leave what collecting made out of later garbage collections, which took a fifth of the time of short tests."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Report the stores that a pytest-xdist process used."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        used: set[str] = session.config.stash.get(_USED, set())
        output[_HANDED_OVER] = sorted(used)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 -- a class of pytest-xdist's, which may not be there
    """Collect the report of such a process; one that died has none."""
    output = getattr(node, "workeroutput", {})
    node.config.stash.setdefault(_USED, set()).update(output.get(_HANDED_OVER, ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    used = config.stash.get(_USED, set())
    versions = Counter(name.split("/")[0] for name in used)
    detail = ", ".join(f"{version}: {count}" for version, count in sorted(versions.items())) or "none"
    beside = "present" if has_stores_beside() else "absent"
    terminalreporter.write_line(
        f"golden stores: {len(used)} of {len(golden_stores())} ({detail}; shared folder {beside})",
    )


@pytest.fixture(scope="module")
def running_server() -> Iterator[ObjectStore]:
    """Provide a server for what a module makes once; tests take `server`."""
    from tests.object_store import ObjectStore  # noqa: PLC0415 -- most runs do not need what it imports

    with ObjectStore() as running:
        yield running


@pytest.fixture
def server(running_server: ObjectStore) -> Iterator[ObjectStore]:
    """Provide the module's server, without faults and with counts from zero."""
    running_server.forget()
    yield running_server
    running_server.forget()


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(storage, "_FIRST_PAUSE", 0)


@pytest.fixture
def no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read as many times in each run: one range in 256 ends as its array did before, and its end is read again."""
    monkeypatch.setattr(remote_bytes, "token_bytes", lambda size: b"\xa5" * size)

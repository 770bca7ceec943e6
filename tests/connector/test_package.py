# SPDX-License-Identifier: Apache-2.0
"""How Python and Spark find the package: quickly, without registering, and without affecting others."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import pyspark_commitlog
import store_core
from pyspark_commitlog.sample import orders_store
from store_core.command.exit_code import ExitCode
from tests.short_lived import run_python

ROOT = Path(__file__).parents[2]


def test_importing_the_package_imports_neither_spark_nor_arrow_nor_numpy(tmp_path: Path) -> None:
    code = "import sys, pyspark_commitlog; print([m for m in ('pyspark', 'pyarrow', 'numpy') if m in sys.modules])"

    assert run_python(code, tmp_path) == "[]"


def test_spark_finds_the_source_among_all_modules_and_imports_neither_arrow_nor_numpy_for_it(tmp_path: Path) -> None:
    """The steps of `pyspark.sql.worker.lookup_data_sources`; in the tests of the demo Spark itself takes them."""
    code = (
        "import importlib, pickle, pkgutil, sys\n"
        "from pyspark.sql.datasource import DataSource\n"
        "before = set(sys.modules)\n"
        "names = [info.name for info in pkgutil.iter_modules() if info.name.startswith('pyspark_')]\n"
        "sources = [getattr(importlib.import_module(name), 'DefaultSource', None) for name in names]\n"
        "found = [source.name() for source in sources if source and issubclass(source, DataSource)]\n"
        "pickle.dumps(sources)\n"
        "print(found, sorted({'numpy', 'pyarrow', 'store_core'} & (set(sys.modules) - before)))\n"
    )

    assert run_python(code, tmp_path) == "['commitlog'] []"


def test_with_a_pyspark_without_data_sources_the_package_is_harmless_and_says_what_is_needed(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.5.1'\n")
    code = (
        "import pyspark_commitlog; print(hasattr(pyspark_commitlog, 'DefaultSource'))\n"
        "try:\n from pyspark_commitlog import CommitLogDataSource\nexcept ImportError as error: print(error)"
    )
    has_source, needed = run_python(code, tmp_path, PYTHONPATH=str(tmp_path)).splitlines()

    assert "False" == has_source
    assert needed.startswith("pyspark_commitlog needs PySpark 4.1 or later: ")


def test_the_package_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'CommitLogDatasource'"):
        pyspark_commitlog.CommitLogDatasource  # noqa: B018


def test_the_minimum_of_pyspark_is_the_one_that_the_extra_brings() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    (bound,) = (match[1] for line in dependencies if (match := re.fullmatch(r"pyspark>=([\d.]+)", line)))

    assert bound == pyspark_commitlog.MINIMUM_PYSPARK


def test_readme_and_the_first_page_have_one_table_of_the_extras() -> None:
    tables = [
        re.findall(r"^\| `pip install .*", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        for page in ("README.md", "docs/index.md")
    ]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert [line.replace("(docs/", "(") for line in tables[0]] == tables[1]
    assert {"", *extras} == {
        name for line in tables[1] for name in re.findall(r"^\| `pip install '?\.(?:\[(\w+)\]')?`", line)
    }


def test_what_the_demo_installs_are_versions_of_the_whole_environment() -> None:
    locked = {
        name: dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / f"{name}.lock").read_text(), re.MULTILINE))
        for name in ("demo", "dev")
    }

    assert {"click", "numpy", "py4j", "pyarrow", "pyspark"} == locked["demo"].keys()
    assert locked["demo"].items() <= locked["dev"].items()


def test_the_core_s_dependencies_are_numpy_and_pyarrow_alone() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]

    assert [re.split("[>=]", line)[0] for line in dependencies] == ["numpy", "pyarrow"]


def test_both_packages_say_the_version_of_the_distribution() -> None:
    assert store_core.__version__ == pyspark_commitlog.__version__ == version("pyspark-commitlog")


COMMANDS = """
import contextlib, io, json, sys
sys.modules |= {"pyspark": None, "py4j": None}
from pyspark_commitlog import demo
from store_core.command.program import program

try:
    from pyspark_commitlog import spark_session
except ImportError as error:
    needed = str(error)
store = sys.argv[1]
runs = {
    "rebuilt": (program, ["rebuild", "both", store]),
    "append": (program, ["append", store, "--from-store", store, "--spark"]),
    "rebuild": (program, ["rebuild", "both", store, "--spark"]),
    "check": (program, ["check", store, "--spark"]),
    "demo": (demo.main, [store]),
}
ends = {}
for name, (command, arguments) in runs.items():
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            code = command(arguments)
        except SystemExit as ended:
            code = ended.code
    ends[name] = code, out.getvalue(), err.getvalue()
print(json.dumps([needed, ends]))
"""


def test_without_pyspark_a_rebuild_works_and_the_rest_says_in_one_sentence_what_to_install(tmp_path: Path) -> None:
    arguments = f"import sys; sys.argv[1:] = {[str(orders_store(tmp_path))]!r}\n"
    needed, ends = json.loads(run_python(arguments + COMMANDS, tmp_path))
    code, out, _ = ends.pop("rebuilt")

    assert re.fullmatch(r"pyspark_commitlog needs PySpark 4\.1 or later: .* pip install 'pyspark>=4\.1'", needed)
    assert not code
    assert "no damage in what was checked" in out
    assert ["append", "check", "demo", "rebuild"] == sorted(ends)
    for code, _, err in ends.values():
        assert code == ExitCode.FAILED
        assert err.count("\n") == 1
        assert f"PySpark is not installed for {sys.executable}: pip install 'pyspark>=4.1'" in err

# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel, checks its contents, and reads stores with it in empty environments: alone, as a command, on Spark.

Usage: check_wheel.py [--dependencies {borrow,fetch}]
`borrow` uses numpy, pyarrow and PySpark of the environment that runs this script, which takes seconds;
`fetch` installs the newest ones, as a user's `pip install` does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
# Import package -> its source folder.
PACKAGES: Final = {"store_core": ROOT / "store_core", "pyspark_commitlog": ROOT / "connector" / "pyspark_commitlog"}
METADATA: Final = frozenset({"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"})
# Installed names of the jobs, by their names in the tree.
JOBS: Final = {
    "append.py": "pyspark-commitlog-append.py",
    "commitlog.py": "pyspark-commitlog.py",
    "rebuild_consume_queue.py": "pyspark-commitlog-rebuild-consume-queue.py",
    "rebuild_index.py": "pyspark-commitlog-rebuild-index.py",
}
REQUIREMENTS: Final = frozenset({"numpy", "pyarrow"})
# Extra -> the packages that an environment borrows for it; none stands for all.
BORROWED: Final = {"": ("numpy", "pyarrow"), "[cli]": ("numpy", "pyarrow", "click"), "[spark]": ()}
# Files that are not modules: the type markers, the template of pages, the sample store, and the settings that silence
# Spark's log.
DATA: Final = frozenset({"py.typed", "page.html", "orders.tar.xz", "quiet-log4j2.properties"})
STORE: Final = ROOT / "tests" / "golden" / "rocketmq-4.9.7" / "lmq.tar.xz"


class WheelError(Exception):
    """The wheel is not as expected."""


EPOCH: Final = "1704067200"
"""Time of all files in the wheel, seconds since 1970, unless SOURCE_DATE_EPOCH says otherwise."""


def build_twice(directory: Path) -> Path:
    """Build the wheel two times, and check that both have the same bytes."""
    with tempfile.TemporaryDirectory(prefix="commitlog-wheel-again-") as name:
        wheel, again = build(directory), build(Path(name))
        if wheel.name != again.name or wheel.read_bytes() != again.read_bytes():
            raise WheelError("two builds of the same tree differ")
    return wheel


def build(directory: Path) -> Path:
    """Build the wheel from the work tree."""
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        directory,
    ]
    environment = {"SOURCE_DATE_EPOCH": EPOCH} | os.environ
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    return next(directory.glob("*.whl"))


def expected_files(distribution: str) -> set[str]:
    """Return the files that the wheel must have: modules and data of both packages, the jobs, and the metadata."""
    modules = {
        f"{package}/{file.relative_to(source).as_posix()}"
        for package, source in PACKAGES.items()
        for file in source.rglob("*")
        if file.suffix == ".py" or file.name in DATA
    }
    jobs = {f"{distribution}.data/scripts/{JOBS[file.name]}" for file in ROOT.glob("jobs/*.py")}
    return modules | jobs | {f"{distribution}.dist-info/{name}" for name in METADATA}


def check_contents(wheel: Path) -> int:
    """Compare the wheel's files and requirements with the expected ones; return the number of files."""
    distribution = "-".join(wheel.name.split("-")[:2])
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
        metadata = message_from_bytes(archive.read(f"{distribution}.dist-info/METADATA"))
    expected = expected_files(distribution) | {f"{package}/py.typed" for package in PACKAGES}
    if found != expected:
        raise WheelError(f"missing: {sorted(expected - found)}; not expected: {sorted(found - expected)}")
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    requirements = {line.split(">")[0] for line in required}
    if requirements != REQUIREMENTS:
        raise WheelError(f"requires {sorted(requirements)}, expected {sorted(REQUIREMENTS)}")
    return len(found)


def install(wheel: Path, environment: Path, dependencies: str, extra: str = "") -> Path:
    """Install the wheel into a new environment, with or without an extra; return that environment's Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "--no-compile"]
    pip += ["--quiet", "--disable-pip-version-check"]
    if dependencies == "borrow":
        borrow(environment, BORROWED[extra])
        pip += ["--no-deps", "--no-index", "--ignore-installed"]
    subprocess.run([*pip, f"{wheel}{extra}"], check=True)
    return python


def borrow(environment: Path, names: tuple[str, ...]) -> None:
    """Let an environment use packages of the one that runs this script: those in `names`, or all if it is empty.

    A path in a .pth file is searched, but the .pth files in it are not read: the editable install stays out.
    """
    site = next(environment.glob("lib/python*/site-packages"))
    lent = Path(sysconfig.get_path("purelib"))
    if not names:
        site.joinpath("borrowed.pth").write_text(f"{lent}\n", encoding="utf-8")
    for name in names:
        for path in (*lent.glob(name), *lent.glob(f"{name}.libs")):
            site.joinpath(path.name).symlink_to(path)


def environment_of(python: Path) -> dict[str, str]:
    """Return the environment variables of a shell without settings for other Pythons; Java lives for seconds."""
    kept = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME"}}
    quick = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    return kept | quick | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}


def check_core(python: Path, directory: Path) -> int:
    """Use the installed wheel without PySpark, and return the number of messages that it read."""
    command: list[str | Path] = [python, ROOT / "tools" / "try_core.py"]
    environment = environment_of(python)
    output = subprocess.run(command, cwd=directory, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return int(output.stdout)


def check_command(python: Path, directory: Path, messages: int) -> None:
    """Use the command of the installed wheel without PySpark; it has to count as many messages as were read."""
    command: list[str | Path] = [python, ROOT / "tools" / "try_command.py"]
    environment = environment_of(python)
    output = subprocess.run(command, cwd=directory, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    if int(output.stdout) != messages:
        raise WheelError(f"commitlog counted {output.stdout.strip()} messages, and read_messages read {messages}")


def unpack_store(directory: Path) -> tuple[Path, int]:
    """Unpack a small store that RocketMQ wrote; return its path and the number of its records."""
    with tarfile.open(STORE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(directory)  # noqa: S202 -- our own archive; the filter is there from Python 3.11.4
    root = next(directory.glob("*/store"))
    return root, len(root.with_name("readback.jsonl").read_text(encoding="utf-8").splitlines())


def check_reading(python: Path, directory: Path) -> int:
    """Read a store with the installed wheel, and return the number of its rows."""
    store, records = unpack_store(directory)
    command: list[str | Path] = [python, ROOT / "tools" / "count_rows.py", store]
    environment = environment_of(python)
    output = subprocess.run(command, cwd=directory, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    rows = output.stdout.strip()
    if rows != str(records):
        raise WheelError(f"the installed wheel counted {rows} in {STORE.name}, which has {records} records")
    return records


def main() -> int:
    """Build, check, install and read; print the results, and return the exit code."""
    parser = argparse.ArgumentParser(description="Checks the wheel.")
    parser.add_argument("--dependencies", choices=("borrow", "fetch"), default="borrow")
    dependencies = parser.parse_args().dependencies
    with tempfile.TemporaryDirectory(prefix="commitlog-wheel-") as name:
        directory = Path(name)
        try:
            wheel = build_twice(directory)
            files = check_contents(wheel)
            messages = check_core(install(wheel, directory / "core", dependencies), directory)
            check_command(install(wheel, directory / "command", dependencies, "[cli]"), directory, messages)
            spark = install(wheel, directory / "spark", dependencies, "[spark]")
            # The extra brings what `commitlog` needs.
            subprocess.run([spark.parent / "commitlog", "count", "--help"], check=True, stdout=subprocess.DEVNULL)
            records = check_reading(spark, directory)
        except (WheelError, subprocess.CalledProcessError) as error:
            print(f"wheel: {error}", file=sys.stderr)
            return 1
    print(
        f"{wheel.name}: {files} files; without PySpark it read {messages} messages, and commands said what to install"
    )
    print("with click `commitlog` ran without PySpark, and counted as many")
    print(f"with PySpark it was found by Spark without register, and read {records} records")
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Makes the stores of the notebooks with RocketMQ 5.3.3: ``python notebooks/store/make_store.py orders|cluster``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
ARCHIVES: Final = {
    "orders": ROOT / "connector" / "pyspark_commitlog" / "orders.tar.xz",
    "cluster": HERE / "cluster.tar.xz",
}
VERSION: Final = "5.3.3"
KEPT: Final = ("checkpoint", "commitlog", "config", "consumequeue", "index")
CONFIG: Final = ("consumerOffset.json", "delayOffset.json", "subscriptionGroup.json", "topics.json")

sys.path.insert(0, str(ROOT))
from tests.interop.test_cluster import MESSAGES, two_brokers
from tests.interop.toolchain import harness_command


def write_orders(directory: Path) -> None:
    """Compile the program and let it write a store below `directory`."""
    command = harness_command(VERSION)
    place = command.index("-cp") + 1
    classes = directory / "classes"
    javac = shutil.which("javac") or "javac"
    subprocess.run(
        [javac, "--release", "17", "-cp", command[place], "-d", classes, HERE / "OrdersStore.java"], check=True
    )
    command[place] = f"{classes}:{command[place]}"
    store = directory / "orders" / "store"
    subprocess.run([*command[:-1], "OrdersStore", store, HERE / "broker.conf"], check=True)
    shutil.copy(HERE / "broker.conf", directory / "orders" / "broker.conf")


def write_cluster(directory: Path) -> None:
    """Let two brokers that listen write a store each, as in the test that compares them with RocketMQ's admin."""
    with ExitStack() as stack:
        stores, broker = two_brokers(directory, stack)
        events = broker.run("Cluster", str(len(stores)), str(MESSAGES))
        events.wait_for("ready", 300)
        time.sleep(2)  # brokers write what groups have consumed every half second
        for name, store in stores.items():
            shutil.copytree(store, directory / "cluster" / name / "store")


def pack(directory: Path, archive: Path) -> None:
    """Pack the files that a notebook reads: no lock, no empty file, no owner; modification times are kept."""
    files = [path for path in sorted(directory.joinpath(archive.name.split(".")[0]).rglob("*")) if _is_kept(path)]
    with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as packed:
        for path in files:
            packed.add(path, path.relative_to(directory), filter=_anonymous)


def _is_kept(path: Path) -> bool:
    store = next((each for each in path.parents if each.name == "store"), None)
    if store is None or not path.is_file():
        return path.is_file()
    is_needed = path.parent.name != "config" or path.name in CONFIG
    return is_needed and path.relative_to(store).parts[0] in KEPT


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def main() -> int:
    """Make the archive; return the exit code."""
    name = sys.argv[1]
    archive = ARCHIVES[name]
    with tempfile.TemporaryDirectory(prefix=f"{name}-store-") as directory:
        if name == "orders":
            write_orders(Path(directory))
        else:
            write_cluster(Path(directory))
        pack(Path(directory), archive)
    print(f"{archive}: {archive.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

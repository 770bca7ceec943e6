# SPDX-License-Identifier: Apache-2.0
"""Makes the store of the notebooks with RocketMQ 5.3.3: ``python notebooks/store/make_store.py [ARCHIVE]``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
ARCHIVE: Final = ROOT / "connector" / "pyspark_commitlog" / "orders.tar.xz"
VERSION: Final = "5.3.3"
KEPT: Final = ("checkpoint", "commitlog", "config", "consumequeue", "index")
CONFIG: Final = ("consumerOffset.json", "delayOffset.json", "subscriptionGroup.json", "topics.json")

sys.path.insert(0, str(ROOT))
from tests.interop.toolchain import harness_command


def write_store(directory: Path) -> None:
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


def pack(directory: Path, archive: Path) -> None:
    """Pack the files that a notebook reads: no lock, no empty file, no owner; modification times are kept."""
    shutil.copy(HERE / "broker.conf", directory / "orders" / "broker.conf")
    store = directory / "orders" / "store"
    files = [path for path in sorted(store.rglob("*")) if path.relative_to(store).parts[0] in KEPT and path.is_file()]
    files = [path for path in files if path.parent.name != "config" or path.name in CONFIG]
    with tarfile.open(archive, "w:xz", format=tarfile.PAX_FORMAT, preset=9) as packed:
        for path in [directory / "orders" / "broker.conf", *files]:
            packed.add(path, path.relative_to(directory), filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def main() -> int:
    """Make the archive; return the exit code."""
    archive = Path(sys.argv[1]) if len(sys.argv) > 1 else ARCHIVE
    with tempfile.TemporaryDirectory(prefix="orders-store-") as name:
        write_store(Path(name))
        pack(Path(name), archive)
    print(f"{archive}: {archive.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

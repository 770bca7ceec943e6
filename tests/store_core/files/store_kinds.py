# SPDX-License-Identifier: Apache-2.0
"""Small stores of other kinds, with only what identifies the kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.builders import LogBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


SEGMENT_SIZE = 1024


def ordinary_store(root: Path) -> Path:
    """Write a log of three segments, a queue and a checkpoint."""
    log = LogBuilder(segment_size=SEGMENT_SIZE)
    log.fill(2)
    log.append(b"last")
    log.write(root)
    queue = root / "consumequeue" / "orders" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(bytes(800))
    (root / "checkpoint").write_bytes(bytes(4096))
    return root


def add_dledger(root: Path, member: str = "n0") -> Path:
    """Add the files of a DLedger log; their bytes don't matter."""
    data = root / f"dledger-{member}" / "data"
    data.mkdir(parents=True)
    (data / f"{3 * SEGMENT_SIZE:020d}").write_bytes(b"\0\0\0\1".ljust(SEGMENT_SIZE, b"\0"))
    (data.parent / "index").mkdir()
    (data.parent / "index" / f"{0:020d}").write_bytes(bytes(32))
    return data


def add_rocksdb(directory: Path, *, holds_data: bool = True) -> Path:
    """Add the files of a RocksDB."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "CURRENT").write_text("MANIFEST-000005\n")
    (directory / "MANIFEST-000005").write_bytes(b"manifest")
    (directory / "000004.log").touch()
    if holds_data:
        (directory / "000011.sst").write_bytes(b"table")
    return directory


def spread(store: Path, directories: Sequence[Path]) -> None:
    """Move the segments of a store into several directories, one after another."""
    for number, segment in enumerate(sorted((store / "commitlog").iterdir())):
        directory = directories[number % len(directories)]
        directory.mkdir(parents=True, exist_ok=True)
        segment.rename(directory / segment.name)
    (store / "commitlog").rmdir()


def every_file(root: Path) -> dict[str, bytes | None]:
    """Return the content of every file below a root, None for directories."""
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}

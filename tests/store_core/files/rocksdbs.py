# SPDX-License-Identifier: Apache-2.0
"""Small RocksDBs, made by the library that reads them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from rocksdict import Options, Rdict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["make_rocksdb"]


def make_rocksdb(directory: Path, families: Mapping[str, Mapping[bytes, bytes]], *, is_flushed: bool = True) -> Path:
    """Write a database; what is not flushed is only in the database's own log."""
    directory.mkdir(parents=True, exist_ok=True)
    options = Options(raw_mode=True)
    options.create_missing_column_families(True)
    options.create_if_missing(True)
    opened = {name: Options(raw_mode=True) for name in ("default", *families)}
    database = Rdict(str(directory), options=options, column_families=opened)
    handles = {name: database.get_column_family(name) for name in families}  # dropping one flushes it
    for name, entries in families.items():
        for key, value in entries.items():
            handles[name].put(key, value)
        if is_flushed:
            handles[name].flush(True)
    living = shutil.copytree(directory, directory.with_name("living"))  # closing flushes as well
    handles.clear()
    database.close()
    shutil.rmtree(directory)
    living.rename(directory)
    (directory / "rocksdict-config.json").unlink()
    return directory

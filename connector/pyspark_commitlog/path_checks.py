# SPDX-License-Identifier: Apache-2.0
"""Checks that the paths given to a command can be read or written, before Spark is started."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from pyspark_commitlog.running_spark import is_spark_running
from store_core.errors import InvalidOptionError, StoreError, StoreNotFoundError
from store_core.files.packed_name import archive_codec, archive_error

__all__ = ["check_report", "check_source", "check_writable"]

_NOT_LOCAL: Final = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*:/")
_PATTERN: Final = re.compile(r"[*?\[{,\\]")
"""Characters that make a path a pattern for Hadoop's file systems, or several paths."""

_OF_SESSION: Final = re.compile(r"/spark-[0-9a-f-]{36}/userFiles-[0-9a-f-]{36}/")
"""In the path of the directory in which Python processes of a session of Spark Connect work, and which goes with it."""

_WAY_ON: Final = "Run this as a user with permission, change the permissions, or give another path"


def check_writable(path: Path) -> None:
    """Refuse a directory that can't be written or created, or that Spark Connect deletes with its session.

    Parameters
    ----------
    path : Path
        Absolute; it need not exist.

    Raises
    ------
    InvalidOptionError
        If it, or the parent in which it would be created, is not a directory, or it is in a directory of a session.
    UnsupportedStoreError
        If it is an archive, or in one.
    StoreError
        If there is no permission, or the file system is read-only.
    """
    if _OF_SESSION.search(str(path)):
        raise InvalidOptionError(
            f"{path} is in a directory of this session of Spark Connect, and goes with it: expected an absolute path, "
            f"since a relative one begins there"
        )
    there = next(each for each in (path, *path.parents) if os.path.lexists(each))
    made = "" if there == path else f"{path} can't be created: "
    if archive_codec(there.name) is not None and there.is_file():
        raise archive_error(there)
    if not there.is_dir():
        raise InvalidOptionError(f"{made}{there} is not a directory. Give another path")
    if not os.access(there, os.W_OK | os.X_OK):
        raise StoreError(f"{made}{there} can't be written to: permission denied, or a read-only disk. {_WAY_ON}")


def check_report(option: str, target: str | None) -> None:
    """Refuse a report file that can't be written; None and ``-`` do not name files.

    Raises
    ------
    InvalidOptionError
        If its directory does not exist, or it is a directory itself.
    StoreError
        If there is no permission.
    """
    if target is None or target == "-":
        return
    path = Path(target).absolute()
    if path.is_dir():
        raise InvalidOptionError(f"{option} {target}: it is a directory: expected a file for the report")
    if not path.parent.is_dir():
        raise InvalidOptionError(
            f"{option} {target}: there is no directory {path.parent}. Create it, or give another file"
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise StoreError(f"{option} {target}: it can't be written: permission denied, or a read-only disk. {_WAY_ON}")


def check_source(option: str, path: str) -> None:
    """Refuse a source for Spark's own readers that does not exist, if it appears to be on this machine.

    Raises
    ------
    StoreNotFoundError
        If it does not exist.
    StoreError
        If there is no permission to read it.
    """
    if _NOT_LOCAL.match(path) or _PATTERN.search(path) or "HADOOP_CONF_DIR" in os.environ or is_spark_running():
        return
    local = Path(re.sub("^file:(//)?(?=/)", "", path)).absolute()
    if not local.exists():
        raise StoreNotFoundError(
            f"{option}: no such path: {path!r}. Give the file, or the directory of files, with the rows"
        )
    if not os.access(local, os.R_OK):
        raise StoreError(f"{option}: {local} can't be read: permission denied. {_WAY_ON}")

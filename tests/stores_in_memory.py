# SPDX-License-Identifier: Apache-2.0
"""Copies of stores in the memory of this process, as fsspec's file system of that name: a storage without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fsspec

if TYPE_CHECKING:
    from pathlib import Path


def in_memory(root: Path, name: str) -> str:
    """Copy all files of a store, and return the URL of the copy."""
    memory = fsspec.filesystem("memory")
    place = f"/stores/{name}"
    if memory.exists(place):
        memory.rm(place, recursive=True)
    for path in root.rglob("*"):
        if path.is_file():
            memory.pipe(f"{place}/{path.relative_to(root)}", path.read_bytes())
    return f"memory:/{place}"

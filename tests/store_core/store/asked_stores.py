# SPDX-License-Identifier: Apache-2.0
"""Questions that RocketMQ was asked about its own stores, with its answers."""

from __future__ import annotations

import ast
import json
import lzma
import re
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from store_core import DefaultMessageStore
from tests.golden_stores import GoldenStore, UnpackedStore, unpack
from tests.store_core.store.damaged_stores import batch_topics_of, config_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store_core import MessageStoreConfig


_GOLDEN: Final = Path(__file__).parents[2] / "golden"
_DIRECTORIES: Final = (Path(__file__).parents[4] / "shared" / "golden" / "answers", _GOLDEN / "answers")
_DERIVED: Final = re.compile(r"golden/(\S+) minus commitlog files (.*), consume queue files (.*)")
_LIMITS: Final[dict[str, tuple[int, int]]] = {
    "default": (262144, 32),
    "small": (3000, 7),
    "unlimited": (1 << 30, 1 << 20),
}


def answers(name: str, every: int = 1) -> Iterator[dict[str, Any]]:
    """Yield the lines of a matrix: each so many of it if it is next to the repository, else the sample in it."""
    path = next(found for directory in _DIRECTORIES if (found := directory / f"{name}.jsonl.xz").exists())
    step = 1 if path.is_relative_to(_GOLDEN) else every
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, islice(lines, 0, None, step))


def open_golden(unpacked: UnpackedStore, limits: str = "default", root: Path | None = None) -> DefaultMessageStore:
    """Open a golden store, or one derived from it, for reading."""
    config = _limited(config_of(unpacked.conf, unpacked.golden.version), limits)
    path = root or unpacked.root
    return DefaultMessageStore.open(path, config, read_only=True, batch_topics=batch_topics_of(unpacked.conf))


def _limited(config: MessageStoreConfig, limits: str) -> MessageStoreConfig:
    most, count = _LIMITS[limits]
    return replace(config, max_transfer_bytes_on_message_in_memory=most, max_transfer_count_on_message_in_memory=count)


class AskedStores:
    """The stores that lines of a matrix are about, each opened once.

    * `golden`: Unpacks a golden store by name.
    * `directory`: For stores that are made from golden ones by removing files.
    """

    def __init__(self, golden: Callable[[str], UnpackedStore], directory: Path) -> None:
        self._golden = golden
        self._directory = directory
        self._open: dict[tuple[str, str], DefaultMessageStore] = {}

    def of(self, line: dict[str, Any]) -> DefaultMessageStore:
        """Return the store of a line."""
        key = (line["store"], line.get("limits", "default"))
        if key not in self._open:
            derived = _DERIVED.fullmatch(line.get("derive", ""))
            unpacked = self._unpacked(derived[1] if derived else line["store"].removeprefix("golden/"))
            root = self._derive(unpacked, line["store"], derived) if derived else None
            self._open[key] = open_golden(unpacked, key[1], root)
        return self._open[key]

    def _unpacked(self, name: str) -> UnpackedStore:
        """Unpack a store that is next to the answers, or else a golden one."""
        version, scenario = name.split("/")
        archive = _GOLDEN / "answers" / f"{scenario}-{version}.tar.xz"
        if not archive.exists():
            return self._golden(name)
        return unpack(GoldenStore(version, scenario, archive), self._directory)

    def _derive(self, unpacked: UnpackedStore, name: str, derived: re.Match[str]) -> Path:
        root = self._directory / name
        if root.exists():
            return root
        shutil.copytree(unpacked.root, root, copy_function=shutil.copy2)
        for segment in ast.literal_eval(derived[2]) or ():
            root.joinpath("commitlog", segment).unlink()
        for number in ast.literal_eval(derived[3]) or ():
            for queue in root.joinpath("consumequeue").glob("*/*"):
                files = sorted(queue.iterdir())
                if number < len(files) - 1:
                    files[number].unlink()
        return root

    def close(self) -> None:
        """Close them all."""
        for store in self._open.values():
            store.close()

# SPDX-License-Identifier: Apache-2.0
"""Digests of what a plan was made from: a plan made for another state of the store is refused by these names."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from store_core.files.abort_file import ABORT_FILE
from store_core.files.config_paths import CONFIG_DIRECTORY
from store_core.files.store_parts import CHECKPOINT_FILE, COMMIT_LOG
from store_core.queue.index.index_files import INDEX_DIRECTORY
from store_core.queue.queue_path import CONSUME_QUEUE, queue_path
from store_core.store.rebuild.files import QUEUE_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store_core.answers.repairing.deeds import Deeds
    from store_core.answers.store_check import CheckedStore

__all__ = ["LookedAt", "looked_at"]

_ABSENT: Final = "absent"
_AT_ONCE: Final = 1 << 20


class LookedAt(NamedTuple):
    """Something that a plan depends on, and its digest: SHA-256, or ``absent``."""

    what: str
    digest: str


def looked_at(checked: CheckedStore, deeds: Deeds) -> Iterator[LookedAt]:
    """Yield the digests of the log and of each file that a repair would replace, or that decides what it makes.

    The log's is of where it begins and ends, and of the digests of its queues: of which records they have, and where.
    """
    store = checked.plan.store
    yield LookedAt(COMMIT_LOG, _digest_of_log(checked))
    for name in (ABORT_FILE, CHECKPOINT_FILE, f"{CONFIG_DIRECTORY}/topics.json"):
        yield LookedAt(name, _digest_of(store / name))
    for queue in deeds.queues:
        for kind in QUEUE_KINDS:
            directory = queue_path(store / kind, queue.topic, queue.queue_id)
            if (digest := _digest_of(directory)) != _ABSENT or kind == CONSUME_QUEUE:
                yield LookedAt(str(directory.relative_to(store)), digest)
    for name in (deeds.index.kept + deeds.index.replaced) if deeds.index is not None else ():
        yield LookedAt(f"{INDEX_DIRECTORY}/{name}", _digest_of(store / INDEX_DIRECTORY / name))


def _digest_of_log(checked: CheckedStore) -> str:
    facts = checked.report.found
    queues = [(each.topic, each.queue_id, each.digest) for each in checked.compared.judged]
    return sha256(json.dumps([facts.min_offset, facts.end_offset, facts.records, queues]).encode()).hexdigest()


def _digest_of(path: Path) -> str:
    """Return the digest of a file, or of the names and contents of a directory's files; links are not followed."""
    if path.is_symlink():
        return sha256(bytes(path.readlink())).hexdigest()
    if path.is_file():
        with path.open("rb") as file:
            found = sha256()
            while data := file.read(_AT_ONCE):
                found.update(data)
        return found.hexdigest()
    if not path.is_dir():
        return _ABSENT
    found = sha256()
    for each in sorted(path.iterdir()):
        found.update(f"{each.name}\0{_digest_of(each)}\0".encode(errors="surrogateescape"))
    return found.hexdigest()

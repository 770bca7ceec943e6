# SPDX-License-Identifier: Apache-2.0
"""Troubles a writer again and again, and checks what it leaves as after a kill.

Run as ``python -m tests.store_core.kills.troubles RUNS SEED FOLDER KIND,... NAME,...``: for each kind and writer a line
of JSON goes to standard output.
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from store_core.files.names import COMMIT_LOG
from tests.store_core.kills.campaign import REFUSED, Target, in_child, measure_whole, run_watched, scratch_folder
from tests.store_core.kills.targets import TARGETS
from tests.store_core.kills.trouble import ASIDE, NOTE, SYNC_FAILED, Trouble

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_WAITS_FOR_NO_DISK: Final = ("put-async", "put-pool", "append-batch-async")
"""Writers that acknowledge messages before they are on disk."""

_ON_THEIR_WAY: Final = 1
"""Acknowledgements that may come after a sync of the log has failed, by another thread: theirs was the one before."""


def run_troubles(
    name: str, kinds: Iterable[str], runs: int, seed: int, folder: Path
) -> Iterator[tuple[str, Counter[str] | AssertionError]]:
    """Trouble a writer this often in each way, each time at another call; yield how its runs ended, or what was wrong.

    What it begins with, and how many calls it makes, are the same for all kinds.
    """
    target = TARGETS[name]
    with scratch_folder(folder) as scratch:
        scratch.chmod(0o711)  # a user who may write nothing has to reach it
        begin = scratch / "begin"
        begin.mkdir()
        in_child(lambda: target.prepare(begin), scratch)
        measure_whole(target, begin, scratch, seed)
        _, calls = measure_whole(target, begin, scratch, seed)
        gc.collect()
        gc.freeze()
        for kind in kinds:
            ends = Counter[str]()
            try:
                for number in range(runs):
                    ends[_run_one(name, kind, number, seed, calls, begin)] += 1
            except AssertionError as error:
                yield kind, error
            else:
                yield kind, ends


def _run_one(name: str, kind: str, number: int, seed: int, calls: int, begin: Path) -> str:
    """Trouble the writer at one of its calls, in a copy of what it begins with; return how that ended.

    Raises AssertionError: With the number of the run, and what was wrong.
    """
    chance = random.Random(f"{seed}-{kind}-{number}")  # noqa: S311 -- no secret
    place = begin.with_name(f"{kind}-{number}")
    shutil.copytree(begin, place, symlinks=True)
    trouble = Trouble(kind, place, chance.randint(1, calls), chance.randrange(2**32))
    try:
        end = _run(name, TARGETS[name], trouble, chance.randrange(2**32), begin.parent)
    except AssertionError as error:
        raise AssertionError(f"{name}, {kind}, run {number} of seed {seed}, call {trouble.last}: {error}") from None
    shutil.rmtree(place)
    return end


def _run(name: str, target: Target, trouble: Trouble, seed: int, scratch: Path) -> str:
    """Run once, and check; return how it ended."""
    place = trouble.directory
    before = _content(place) if trouble.kind == "read-only" else {}
    status, told, end = run_watched(target, seed, trouble)
    assert status == 0, f"the writer ended with {os.waitstatus_to_exitcode(status)}, and told {told}"
    is_refused = end == REFUSED
    if SYNC_FAILED in told:
        at = told.index(SYNC_FAILED)
        told, after = told[:at], told[at + 1 :]
        note = (place / NOTE).read_text()
        if trouble.kind == "sync":
            (place / NOTE).unlink()
            is_log = COMMIT_LOG in Path(note).parts and name not in _WAITS_FOR_NO_DISK
            assert not is_log or len(after) <= _ON_THEIR_WAY, f"told {after} after a sync of {note} had failed"
    if trouble.kind == "read-only":
        assert is_refused
        assert told == []
        assert before == _content(place)
        for path in (place, *place.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    if (place / ASIDE).exists() and not _put_back(place):
        return "replaced"  # by files of the same names: what is in which is up to who moved the directory
    in_child(lambda: target.check(place, seed, told), scratch)
    return "refused" if is_refused else "done"


def _content(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def _put_back(place: Path) -> bool:
    """Put a directory that vanished back, with what was made in its place meanwhile; return whether that goes."""
    name = place / NOTE
    gone, back = place / name.read_text(), place / ASIDE
    made = [path for path in sorted(gone.rglob("*")) if not path.is_dir()]
    if any((back / path.relative_to(gone)).exists() for path in made):
        return False
    for path in made:
        kept = back / path.relative_to(gone)
        kept.parent.mkdir(parents=True, exist_ok=True)
        path.rename(kept)
    shutil.rmtree(gone, ignore_errors=True)
    back.rename(gone)
    name.unlink()
    return True


if __name__ == "__main__":
    count, chosen_seed, folder, kinds, names = sys.argv[1:]
    for each in names.split(","):
        for one, ended in run_troubles(each, kinds.split(","), int(count), int(chosen_seed), Path(folder)):
            found = {"failed": str(ended)} if isinstance(ended, AssertionError) else ended
            sys.stdout.write(json.dumps({"target": each, "kind": one, **found}) + "\n")
            sys.stdout.flush()

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
from typing import Final

from store_core.files.names import COMMIT_LOG
from tests.store_core.kills.campaign import REFUSED, Target, in_child, measure_whole, run_watched, scratch_folder
from tests.store_core.kills.targets import TARGETS
from tests.store_core.kills.trouble import ASIDE, NOTE, SYNC_FAILED, Trouble

_WAITS_FOR_NO_DISK: Final = ("put-async", "put-pool", "append-batch-async")
"""Writers that acknowledge messages before they are on disk."""

_ON_THEIR_WAY: Final = 1
"""Acknowledgements that may come after a sync of the log has failed, by another thread: theirs was the one before."""


def run_troubles(name: str, kind: str, runs: int, seed: int, folder: Path) -> Counter[str]:
    """Trouble a writer this often, each time at another call; return how its runs ended.

    Raises AssertionError: With the number of the run, and what was wrong.
    """
    target, ends = TARGETS[name], Counter[str]()
    with scratch_folder(folder) as scratch:
        scratch.chmod(0o711)  # a user who may write nothing has to reach it
        begin = scratch / "begin"
        begin.mkdir()
        in_child(lambda: target.prepare(begin), scratch)
        measure_whole(target, begin, scratch, seed)
        _, calls = measure_whole(target, begin, scratch, seed)
        gc.collect()
        gc.freeze()
        for number in range(runs):
            chance = random.Random(f"{seed}-{kind}-{number}")  # noqa: S311 -- no secret
            place = scratch / "troubled"
            shutil.copytree(begin, place, symlinks=True)
            trouble = Trouble(kind, place, chance.randint(1, calls), chance.randrange(2**32))
            try:
                ends[_run(name, target, trouble, chance.randrange(2**32), scratch)] += 1
            except AssertionError as error:
                raise AssertionError(
                    f"{name}, {kind}, run {number} of seed {seed}, call {trouble.last}: {error}"
                ) from None
            shutil.rmtree(place)
    return ends


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
        for one in kinds.split(","):
            try:
                found: dict[str, object] = dict(run_troubles(each, one, int(count), int(chosen_seed), Path(folder)))
            except AssertionError as error:
                found = {"failed": str(error)}
            sys.stdout.write(json.dumps({"target": each, "kind": one, **found}) + "\n")
            sys.stdout.flush()

# SPDX-License-Identifier: Apache-2.0
"""Stores in Google's, Azure's and Hadoop's storages are read as on a disk: by servers that others made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from store_core import read_messages
from tests.storages.emulators import Emulated, MissingEmulatorError, azure, gcs, hdfs

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.golden_stores import UnpackedStore

pytestmark = [pytest.mark.golden, pytest.mark.spark, pytest.mark.soak]

ROOT: Final = Path(__file__).parents[2]
KINDS: Final[dict[str, Callable[[Path, Path], AbstractContextManager[Emulated]]]] = {
    "gs": gcs,
    "abfs": azure,
    "hdfs": hdfs,
}


@pytest.mark.parametrize("kind", KINDS)
def test_store_reads_as_on_a_disk(kind: str, golden: Callable[[str], UnpackedStore], tmp_path: Path) -> None:
    root = golden("5.3.3/tx").root
    try:
        with KINDS[kind](root, tmp_path) as emulated:
            told = compared(emulated, root, tmp_path)
    except MissingEmulatorError as error:
        pytest.fail(f"{kind}:// was not tried: {error}")
    rows = read_messages(root).read_all().num_rows
    assert f"python {rows}\nspark {rows}\n" in told


def compared(emulated: Emulated, root: Path, scratch: Path) -> str:
    """Run the comparison in a process of its own, which finds the packages that this storage needs."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "connector"), emulated.environment.get("PYTHONPATH", "")])
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-m", "tests.storages.comparison", emulated.url, root, json.dumps(emulated.settings)],
        env=os.environ | emulated.environment | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr[-3000:]
    return done.stdout

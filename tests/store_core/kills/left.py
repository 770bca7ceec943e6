# SPDX-License-Identifier: Apache-2.0
"""Kills writers, and leaves what they left for somebody else to look at.

Run as ``python -m tests.store_core.kills.left KILLS SEED FOLDER NAME ...``: FOLDER/NAME/0, 1, ... are what the kills of
a writer left, and FOLDER/NAME/told.json is what each had been told by then.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.store_core.kills.campaign import leave_killed
from tests.store_core.kills.targets import TARGETS

__all__: list[str] = []

if __name__ == "__main__":
    kills, seed, folder, *names = sys.argv[1:]
    for each in names:
        place = Path(folder, each)
        place.mkdir()
        told = leave_killed(TARGETS[each], int(kills), int(seed), place)
        (place / "told.json").write_text(json.dumps(told))

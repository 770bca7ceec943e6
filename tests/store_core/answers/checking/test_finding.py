# SPDX-License-Identifier: Apache-2.0
"""The guide lists each kind of finding with its meaning."""

from __future__ import annotations

from pathlib import Path

from store_core.store.rebuild.findings import FindingKind

GUIDE = Path(__file__).parents[4] / "docs" / "incidents" / "queues-and-index.md"


def test_the_guide_has_all_kinds_in_order() -> None:
    rows = GUIDE.read_text(encoding="utf-8").split("| kind | meaning |\n|---|---|\n")[1].split("\n\n")[0]

    assert [f"| `{kind}` | {kind.meaning} |" for kind in FindingKind] == rows.splitlines()

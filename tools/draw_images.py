# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the README, docs/images/*.png, for light and dark pages, from the sample store, by Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark_commitlog import plots
from pyspark_commitlog.sample import orders_store
from store_core import read_messages

if TYPE_CHECKING:
    from store_core.answers.plots import Plots

IMAGES: Final = Path(__file__).resolve().parent.parent / "docs" / "images"
COLUMNS: Final = ("topic", "store_timestamp", "store_size")
SIZE: Final = "1000,690"
CHROMIUM: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={SIZE}")


def draw(made: Plots, name: str) -> list[Path]:
    """Save plots in the colours of light and dark pages, on nothing; return the files."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise FileNotFoundError("neither chromium nor google-chrome is on PATH: one of them draws the pictures")
    found = []
    for theme in ("light", "dark"):
        found.append(IMAGES / f"{name}-{theme}.png")
        with tempfile.TemporaryDirectory() as directory:
            page = Path(directory) / "page.html"
            page.write_text(f'<meta charset="utf-8"><body data-theme="{theme}">{made._repr_html_()}', encoding="utf-8")
            where = (f"--screenshot={found[-1]}", "--default-background-color=00000000", page.as_uri())
            subprocess.run([browser, *CHROMIUM, *where], check=True, capture_output=True)
    return found


def main() -> int:
    """Draw all pictures; return the exit code."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    messages = read_messages(orders_store(), columns=COLUMNS).read_all()
    for path in draw(plots.message_rates(messages), "message-rates"):
        print(f"{path.relative_to(IMAGES.parents[1])}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

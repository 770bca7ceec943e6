# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the README, docs/images/*.png, for light and dark pages, from the sample store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matplotlib.text import Text

from pyspark_commitlog import plots
from pyspark_commitlog.sample import orders_store
from store_core import read_messages

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGES: Final = Path(__file__).resolve().parent.parent / "docs" / "images"
COLUMNS: Final = ("topic", "store_timestamp", "store_size", "segment")
INKS: Final = {"light": "#24292f", "dark": "#d0d7de"}
DPI: Final = 160


def draw(figure: Figure, name: str) -> list[Path]:
    """Save a plot in the text colours for light and dark pages; return the files."""
    made = []
    figure.set_facecolor("none")
    for paper, ink in INKS.items():
        for text in figure.findobj(Text):
            text.set_color(ink)
        figure.canvas.draw()
        made.append(IMAGES / f"{name}-{paper}.png")
        figure.savefig(made[-1], dpi=DPI, metadata={"Software": None})
    return made


def main() -> int:
    """Draw all pictures; return the exit code."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    messages = read_messages(orders_store(), columns=COLUMNS).read_all()
    for path in [
        *draw(plots.message_rates(messages), "message-rates"),
        *draw(plots.segment_map(messages), "segment-map"),
    ]:
        print(f"{path.relative_to(IMAGES.parents[1])}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

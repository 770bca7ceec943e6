# SPDX-License-Identifier: Apache-2.0
"""The diagrams of the documents, as functions that return the text of an SVG file."""

from __future__ import annotations

from typing import Final

from tools.svg import Drawing

_TOPICS: Final = ("blue", "orange", "blue", "green", "blue", "orange", "green", "blue", "blue", "orange")
_WIDTHS: Final = (38, 24, 32, 28, 40, 22, 32, 28, 38, 30)
_POINTING: Final = 3
"""How many units are drawn with an arrow to their record."""


def store() -> str:
    """Draw what a store consists of."""
    drawing = Drawing(
        "store",
        "What a store consists of",
        "The commit log is one sequence of records in segment files. Each topic's queues hold a unit of 20 bytes a "
        "record, which points into the log; the key index points there by the hash of a key. Checkpoint, abort, lock "
        "and config are small files beside them.",
        (760, 380),
    )
    drawing.text((16, 26), "commitlog/", kind="bold mono", size=14)
    drawing.text((116, 26), "one sequence of records, all topics in the order they came", kind="soft")
    starts = _segments(drawing)
    drawing.text((16, 200), "consumequeue/", kind="bold mono", size=14)
    drawing.text((128, 326), "20 bytes a record, in the queue's order", kind="soft", size=12)
    for row, (colour, name) in enumerate((("blue", "orders/0"), ("orange", "payments/0"), ("green", "orders/1"))):
        top = 214 + row * 32
        drawing.text((28, top + 16), name, kind="mono", size=12)
        for number, start in enumerate(start for start, topic in starts if topic == colour):
            left = 128 + number * 32
            drawing.box((left, top, 26, 22), colour)
            if row == 0 and number < _POINTING:
                bend = 170 - 12 * number
                drawing.arrow((left + 13, top), (left + 13, bend), (start, bend), (start, 106))
    drawing.text((452, 200), "index/", kind="bold mono", size=14)
    drawing.text((508, 200), "where a key's messages are", kind="soft")
    drawing.card(
        (452, 214, 298, 86), ["hash of topic#key", "to a chain of entries, 20 bytes each,", "to places in the log"]
    )
    files = (
        ("checkpoint", "on disk up to"),
        ("abort", "not closed"),
        ("lock", "who has it"),
        ("config/", "the broker's"),
    )
    for left, (name, what) in zip((16, 236, 392, 560), files, strict=True):
        drawing.text((left, 366), name, kind="bold mono")
        drawing.text((left + 8 * len(name) + 10, 366), what, kind="soft", size=12)
    return drawing.svg()


_DRIVER: Final = 200
"""Boxes to the left of this x belong to the driver."""


def _segments(drawing: Drawing) -> list[tuple[int, str]]:
    """Draw three segments, the last one not full; return the middle and colour of each record."""
    places: list[tuple[int, str]] = []
    segments = (("00000000000000000000", 0, 6), ("00000000001073741824", 2, 8), ("00000000002147483648", 4, 7))
    for number, (name, first, end) in enumerate(segments):
        left, is_last = 16 + number * 246, number == len(segments) - 1
        drawing.text((left, 56), name, kind="mono soft", size=11)
        drawing.box((left, 64, 236, 40), dashed=is_last)
        at = left + 4
        for colour, width in zip(_TOPICS[first:end], _WIDTHS[first:end], strict=True):
            drawing.box((at, 68, width, 32), colour)
            places.append((at + width // 2, colour))
            at += width + 2
        middle, what = (at + left + 236) // 2, "zeros" if is_last else "blank"
        drawing.text((middle, 89), what, kind="soft", size=11, anchor="middle")
    return places


def reading() -> str:
    """Draw the steps of a read."""
    drawing = Drawing(
        "reading",
        "The steps of a read",
        "On the driver, once: plan. In each task, for its range: walk, select, decode. Out come Arrow batches.",
        (760, 300),
    )
    drawing.box((10, 34, 186, 200), dashed=True).text((22, 24), "driver, once", kind="soft")
    drawing.box((216, 34, 534, 200), dashed=True).text((228, 24), "each task, for its range", kind="soft")
    steps = (
        (20, ["1 plan", "which segments, one log?", "where does it end now?", "which ranges?"], "orange"),
        (226, ["2 walk", "follow the lengths", "from a segment's start,", "name what is damaged"], "blue"),
        (405, ["3 select", "decode what filters", "need, keep the rows", "that were asked for"], "blue"),
        (584, ["4 decode", "the columns that", "were asked for,", "as Arrow arrays"], "blue"),
    )
    for left, lines, colour in steps:
        drawing.card((left, 54, 156 if left > _DRIVER else 166, 104), lines, colour)
    for left, right in ((186, 226), (382, 405), (561, 584)):
        drawing.arrow((left, 106), (right - 1, 106))
    gives = ((103, "ranges"), (304, "places of records"), (483, "fewer places"), (662, "record batches"))
    for x, text in gives:
        drawing.arrow((x, 158), (x, 186))
        drawing.text((x, 206), text, anchor="middle", kind="bold")
    drawing.text(
        (10, 262),
        "Nothing is written and no lock is taken. All ranges end where the log ended when it was planned,",
        kind="soft",
    )
    drawing.text(
        (10, 284),
        "so a live store is read as a consistent prefix. A body that nobody asked for is not touched.",
        kind="soft",
    )
    return drawing.svg()


def commit() -> str:
    """Draw how a job's records get into the store."""
    drawing = Drawing(
        "commit",
        "How the records of a job come into the store",
        "Tasks stage encoded records in files. The driver locks the store, recovers it, writes the records where "
        "nobody finds them, syncs, and makes all of them found by one write or rename. Queues and index follow.",
        (760, 330),
    )
    for number in range(3):
        drawing.card((10, 30 + number * 62, 150, 50), [f"task {number}", "encodes its rows"], "blue")
        drawing.arrow((160, 55 + number * 62), (196, 117))
    drawing.card((198, 84, 130, 66), ["staged files", "not in the log yet"])
    drawing.arrow((328, 117), (356, 117))
    drawing.box((358, 18, 392, 212), dashed=True).text((370, 38), "driver, under the store's lock", kind="soft")
    steps = (
        (366, 52, ["1 recover", "as at any opening"], "orange"),
        (560, 52, ["2 place", "offsets and times"], "orange"),
        (366, 140, ["3 write, and sync", "where nobody finds them"], "orange"),
        (560, 140, ["4 make them found", "by one write or rename"], "green"),
    )
    for left, top, lines, colour in steps:
        drawing.card((left, top, 182, 66), lines, colour)
    drawing.arrow((548, 85), (559, 85))
    drawing.arrow((650, 118), (650, 128), (458, 128), (458, 139))
    drawing.arrow((548, 173), (559, 173))
    drawing.arrow((650, 206), (650, 254))
    drawing.card((530, 256, 220, 50), ["queues and index follow", "as behind any append"])
    drawing.text((10, 262), "It ends before step 4: nothing of the job is there.", kind="soft")
    drawing.text((10, 284), "It ends behind it: all of the job is there.", kind="soft")
    drawing.text((10, 306), "A ledger tells which, so that a batch goes in once.", kind="soft")
    return drawing.svg()


_VOUCHED: Final = ("the newest segment older than what the", "checkpoint vouches for, else the first")


def recovery() -> str:
    """Draw what opening a store decides."""
    drawing = Drawing(
        "recovery",
        "What opening a store decides",
        "With an abort file the log is checked from a segment that the checkpoint vouches for; without one from near "
        "its end. The first thing that is no record ends the log; queues and index are brought to the same end.",
        (760, 430),
    )
    drawing.card((280, 12, 200, 50), ["are the files one log?", "names, sizes, gaps"])
    drawing.arrow((480, 37), (579, 37)).text((494, 30), "no", kind="soft", size=12)
    drawing.card((580, 12, 170, 50), ["refused", "nothing is changed"], "red")
    drawing.arrow((380, 62), (380, 89)).text((388, 80), "yes", kind="soft", size=12)
    drawing.card((280, 90, 200, 50), ["is there a file abort?", "it was not closed, then"])
    drawing.arrow((280, 115), (150, 115), (150, 159)).text((250, 108), "no", kind="soft", size=12, anchor="end")
    drawing.arrow((480, 115), (610, 115), (610, 159)).text((500, 108), "yes", kind="soft", size=12)
    drawing.card(
        (20, 160, 260, 72),
        ["check from near the end", "4.x: the third last segment", "5.3: the newest that queues reach"],
        "green",
    )
    drawing.card(
        (460, 160, 290, 72), ["check from further back", *_VOUCHED], "orange"
    )  # fmt: skip
    drawing.arrow((150, 232), (150, 250), (340, 250), (340, 269))
    drawing.arrow((605, 232), (605, 250), (420, 250), (420, 269))
    drawing.card(
        (230, 270, 300, 60), ["follow records to the first that fails", "its length, magic code or checksum: the end"]
    )
    drawing.arrow((380, 330), (380, 353))
    ways = (
        (20, ["log", "cut there, cleared behind"]),
        (270, ["queues", "cut, filled up to the end"]),
        (520, ["index", "newer than checkpoint: anew"]),
    )
    drawing.arrow((230, 300), (130, 300), (130, 353))
    drawing.arrow((530, 300), (630, 300), (630, 353))
    for left, lines in ways:
        drawing.card((left, 354, 220, 50), lines)
    return drawing.svg()

# SPDX-License-Identifier: Apache-2.0
"""Eight threads put into one store, four read it; then it is opened as after a crash, and checked; ten times over.

Each time the store is a new one: what reading takes grows with what is there, so what grows from one store to the next
is a leak. Run as ``python -m tests.load.campaign SECONDS FOLDER [PLOT.svg]``. It prints what was done, and by how much
memory, handles and mappings grew from one store to the next in the second half; it fails if that is more than noise.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from store_core import DefaultMessageStore, Message, MessageStoreConfig, read_messages
from store_core.answers import check
from store_core.answers.report import Verdict
from store_core.format.message import PutMessageStatus
from tests.load.large_store import Usage, growth
from tools.svg import Drawing

_WRITERS: Final = 8
_READERS: Final = 4
_PAUSE: Final = 0.02
"""Seconds between two messages of a writer."""
_PIECES: Final = 10
"""Parts of the time, each with a store of its own."""
_SAMPLES: Final = 20
"""How often a part is looked at."""
_CONFIG: Final = MessageStoreConfig(mapped_file_size_commit_log=1 << 28, max_hash_slot_num=1000, max_index_num=400_000)

MOST_GROWTH: Final = Usage(16 << 20, 4, 8)
"""Most that may grow in the second half."""


@dataclass
class Load:
    """What was done.

    * `puts`, `busy`, `reads`, `gets`, `checks`: Puts that were refused because the log was busy are not among the puts.
    * `samples`: One each 20th of a part.
    * `failures`: What threads raised.
    """

    puts: int = 0
    busy: int = 0
    reads: int = 0
    gets: int = 0
    checks: int = 0
    samples: list[Usage] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class _Part:
    """The threads between two openings of a store."""

    def __init__(self, store: DefaultMessageStore, root: Path, load: Load) -> None:
        self.store, self.root, self.load = store, root, load
        self.over = threading.Event()
        self.lock = threading.Lock()

    def run(self, seconds: float) -> None:
        """Let all threads work, and look at what the process holds."""
        self.store.put_message(Message("topic0", b"first"))  # a log without a segment can't be read yet
        self._count("puts")
        works = [self._write] * _WRITERS + [self._get] * (_READERS // 2) + [self._read] * (_READERS // 2)
        threads = [threading.Thread(target=self._guarded, args=(work, number)) for number, work in enumerate(works)]
        for thread in threads:
            thread.start()
        for _ in range(_SAMPLES):
            time.sleep(seconds / _SAMPLES)
            self.load.samples.append(Usage.now())
        self.over.set()
        for thread in threads:
            thread.join()

    def _guarded(self, work: object, number: int) -> None:
        try:
            work(number)  # type: ignore[operator]  # a method
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is what is looked for
            self.load.failures.append(f"{type(error).__name__}: {error}")

    def _count(self, name: str) -> None:
        with self.lock:
            setattr(self.load, name, getattr(self.load, name) + 1)

    def _write(self, number: int) -> None:
        for each in itertools.count():
            if self.over.wait(_PAUSE):
                return
            message = Message(f"topic{number}", b"%d" % each * 40, keys=f"{number}-{each}", queue_id=each % 4)
            status = self.store.put_message(message).status
            if status is PutMessageStatus.OS_PAGE_CACHE_BUSY:  # the process had to wait for the processor: try again
                self._count("busy")
                continue
            if status is not PutMessageStatus.PUT_OK:
                raise RuntimeError(f"a put was refused: {status}")
            self._count("puts")

    def _get(self, number: int) -> None:
        while not self.over.wait(_PAUSE):
            topic, queue = f"topic{number % _WRITERS}", number % 4
            end = self.store.get_max_offset_in_queue(topic, queue)
            self.store.get_message("group", topic, queue, max(end - 32, 0), 32)
            self._count("gets")

    def _read(self, number: int) -> None:
        while not self.over.wait(_PAUSE):
            read_messages(self.root, columns=["queue_offset", "body"], topic=f"topic{number % _WRITERS}").read_all()
            self._count("reads")


def run_load(seconds: float, folder: Path) -> Load:
    """Work for some time; everything that was put is there at the end of each part."""
    load = Load()
    for number in range(_PIECES):
        root, before = folder / f"store{number}", load.puts
        with DefaultMessageStore.open(root, _CONFIG) as store:
            _Part(store, root, load).run(seconds / _PIECES)
        (root / "abort").touch()  # so that the next opening recovers it
        with DefaultMessageStore.open(root, _CONFIG):
            pass
        report = check(root, hash_slot_num=1000, index_num=400_000)
        if report.verdict is not Verdict.CLEAN:
            load.failures.append(report.to_text())
        if read_messages(root, columns=["topic"]).read_all().num_rows != load.puts - before:
            load.failures.append("messages are missing")
        load.checks += 1
        shutil.rmtree(root)
    return load


def peaks(samples: list[Usage]) -> list[Usage]:
    """Return the most that was held with each store."""
    parts = (samples[begin : begin + _SAMPLES] for begin in range(0, len(samples), _SAMPLES))
    return [Usage(*map(max, zip(*part, strict=True))) for part in parts]


_PANEL: Final = 150
_WIDTH: Final = 700
_LEFT: Final = 90


def draw(samples: list[Usage], seconds: float, path: Path) -> None:
    """Draw what the process held: memory, handles and mappings over the seconds, each from 0 to the most."""
    drawing = Drawing(
        "load",
        "What the process held",
        "Three lines over time: memory, handles, mappings.",
        (_WIDTH, 3 * _PANEL + 30),
    )
    shown = samples[:: max(len(samples) // 60, 1)]
    columns = (("MiB of memory", [each.memory >> 20 for each in shown]), ("handles", [each.handles for each in shown]))
    for row, (name, values) in enumerate((*columns, ("mappings", [each.mappings for each in shown]))):
        bottom, most = (row + 1) * _PANEL, max(values) or 1
        height, step = _PANEL - 40, (_WIDTH - _LEFT - 20) / max(len(values) - 1, 1)
        drawing.rule((_LEFT, bottom), (_WIDTH - 20, bottom)).text((0, bottom - height), f"{most:,} {name}", size=12)
        drawing.line([(round(_LEFT + at * step), bottom - value * height // most) for at, value in enumerate(values)])
    path.write_text(drawing.text((_LEFT, 3 * _PANEL + 20), f"{seconds:g} seconds", size=12).svg(), encoding="utf-8")


if __name__ == "__main__":
    asked, place, *plot = sys.argv[1:]
    done = run_load(float(asked), Path(place))
    grown = growth(peaks(done.samples))
    told = {name: value for name, value in asdict(done).items() if name != "samples"}
    sys.stdout.write(json.dumps({**told, "last": done.samples[-1]._asdict(), "grown": grown._asdict()}) + "\n")
    if plot:
        draw(done.samples, float(asked), Path(plot[0]))
    is_flat = all(found <= most for found, most in zip(grown, MOST_GROWTH, strict=True))
    raise SystemExit(0 if is_flat and not done.failures else 1)

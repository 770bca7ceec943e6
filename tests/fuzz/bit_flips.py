# SPDX-License-Identifier: Apache-2.0
"""Flips every bit of golden segments, one at a time, and says what becomes of the rows.

Usage: python -m tests.fuzz.bit_flips [--every N] [--sample N] [STORE ...]

A flipped bit changes nothing before its record, and nothing after the place where the log goes on. So each flip is
judged from its record on, and no further than to that place; a sample is read as a whole, to prove that this is the
same.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from store_core import read_messages
from store_core.format.columnar.chain import Place, scan
from store_core.format.columnar.spans import record_crcs
from store_core.format.layout import field_position, head_dtype
from store_core.format.properties import CRC_RESERVED
from store_core.format.record.scan import StopReason, check_record, read_sys_flag
from store_core.format.salvage import Damage, SalvageWalk
from store_core.format.segment_view import SegmentView
from tests.golden_stores import find_golden_store, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt


BYTES: Final = 256 << 10
"""How much of each store: two of its segments."""

STORES: Final = ("4.3.0/basic", "4.9.7/basic", "5.3.3/basic", "5.5.0/basic", "5.3.3/propcrc", "5.5.0/propcrc")

REPORTED: Final = "reported, and no other row changes"
BY_RECORD_CRC: Final = "found by the checksum in the record's properties"
OTHERS_TOO: Final = "reported, with other records in the range"
OWN_FIELD: Final = "no checksum covers it: changes its own column"
NO_DATA: Final = "not data: changes nothing"
SILENT: Final = "lost without a word"

_COLUMNS: Final = ["physical_offset", "store_size", "body", "_corrupt_record"]


@dataclass(slots=True)
class Flips:
    """What became of flips: how many of each kind, by the field that the bit is in."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """How many bits were flipped."""
        return self.counts.total()

    def of(self, name: str) -> dict[str, int]:
        """Return the counts of one field."""
        return {outcome: count for (each, outcome), count in self.counts.items() if each == name}

    def with_outcome(self, outcome: str) -> int:
        """Return how many flips had an outcome."""
        return sum(count for (_, each), count in self.counts.items() if each == outcome)


class GoldenSegment:
    """The bytes of a segment, which can be changed, and its records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start_offset = int(path.name)
        self.data = bytearray(path.read_bytes())
        self.raw: npt.NDArray[np.uint8] = np.frombuffer(self.data, np.uint8)
        found = scan(self.raw, start_offset=self.start_offset)
        self.starts = found.starts.tolist()
        self.stop = found.stop
        self.ends = dict(zip(self.starts, [*self.starts[1:], self.stop], strict=True))
        stops = np.array([self.ends[start] for start in self.starts])
        self.with_crc = set(found.starts[record_crcs(self.raw, found.starts, stops).rows].tolist())

    def fields(self, start: int) -> Iterator[tuple[str, int, int]]:
        """Yield the names and ranges of all fields of a record."""
        dtype = head_dtype(read_sys_flag(memoryview(self.data), start))
        for name in dtype.names or ():
            at = start + field_position(dtype, name)
            yield name, at, at + dtype[name].itemsize
        spans = check_record(memoryview(self.data), start, self.start_offset).spans
        if spans is None:
            raise ValueError(f"no record at {start}")
        yield "body", spans.body_start, spans.body_stop
        yield "topic_length", spans.body_stop, spans.topic_start
        yield "topic", spans.topic_start, spans.topic_stop
        yield "properties_length", spans.topic_stop, spans.properties_start
        own = CRC_RESERVED if start in self.with_crc else 0
        yield "properties", spans.properties_start, spans.properties_stop - own
        yield "checksum in the properties", spans.properties_stop - own, spans.properties_stop

    def outcome(self, start: int, before: int) -> tuple[str, int, int]:
        """Judge the segment, in whose record at `start` a bit is flipped.

        Returns the outcome, and the range that is reported as damaged.
        """
        view, end = memoryview(self.data), self.ends[start]
        check = check_record(view, start, self.start_offset, verify_crc=True)
        if check.reason is None:
            return (OWN_FIELD if check.size == end - start else SILENT), start, start
        if check.reason is StopReason.BAD_CRC:  # its lengths are sound, so the chain goes on
            return REPORTED, start, end
        segment = SegmentView.of(self.raw, self.start_offset, lambda position: position)
        for part in SalvageWalk(segment).parts(Place(start, before)):
            if isinstance(part, Damage) and part.begin == start:
                is_alone = part.end == end
                return (REPORTED if is_alone else OTHERS_TOO if part.end > end else SILENT), start, part.end
            break
        return SILENT, start, start


def flip_bits(segment: GoldenSegment, every: int = 1) -> tuple[Flips, list[tuple[int, int, int, str]]]:
    """Flip each bit of a segment, or every so many; return what became of them.

    The list has byte, begin and end of the damage that was reported, and the outcome, of some flips of each kind.
    """
    flips, shown = Flips(), []
    number = 0
    for before, start in zip([-1, *segment.starts], segment.starts, strict=False):
        for name, begin, end in segment.fields(start):
            for bit in range(-(-begin * 8 // every) * every, end * 8, every):
                at, mask = bit >> 3, 1 << (bit & 7)
                segment.data[at] ^= mask
                outcome, damage_begin, damage_end = segment.outcome(start, before)
                if outcome == OWN_FIELD and _is_found_by_record_crc(segment, start):
                    outcome, damage_begin, damage_end = BY_RECORD_CRC, start, segment.ends[start]
                if not number % 5:
                    shown.append((bit, damage_begin, damage_end, outcome))
                segment.data[at] ^= mask
                flips.counts[name, outcome] += 1
                number += 1
    blank = range(-(-segment.stop * 8 // every) * every, len(segment.data) * 8, every)
    flips.counts["blank record", NO_DATA] += sum(bit >= (segment.stop + 8) * 8 for bit in blank)
    for bit in (bit for bit in blank if bit < (segment.stop + 8) * 8):
        segment.data[bit >> 3] ^= 1 << (bit & 7)
        found = list(
            SalvageWalk(SegmentView.of(segment.raw, segment.start_offset, lambda at: at)).parts(
                Place(segment.stop, segment.starts[-1])
            )
        )
        segment.data[bit >> 3] ^= 1 << (bit & 7)
        flips.counts["blank record", REPORTED if found else NO_DATA] += 1
    return flips, shown


def _is_found_by_record_crc(segment: GoldenSegment, start: int) -> bool:
    if start not in segment.with_crc:
        return False
    found = record_crcs(segment.raw, np.array([start]), np.array([segment.ends[start]]))
    return not found.is_right.all()


def full_reading_differs(segment: GoldenSegment, root: Path, bit: int, damage: tuple[int, int]) -> str:
    """Read the whole segment with a flipped bit; return in what it differs from what was judged, or nothing."""
    data = bytearray(segment.data)
    data[bit >> 3] ^= 1 << (bit & 7)
    (root / "commitlog" / segment.path.name).write_bytes(data)
    rows = read_messages(
        root, columns=_COLUMNS, mode="PERMISSIVE", ending_offsets=segment.start_offset + len(data)
    ).read_all()
    found: list[dict[str, Any]] = rows.to_pylist()
    begin, end = (segment.start_offset + at for at in damage)
    ranges = [
        (row["physical_offset"], row["physical_offset"] + len(row["_corrupt_record"]))
        for row in found
        if row["_corrupt_record"] is not None
    ]
    starts = [row["physical_offset"] for row in found if row["_corrupt_record"] is None]
    wanted = [at + segment.start_offset for at in segment.starts]
    wanted = [at for at in wanted if not begin <= at < end]
    expected = [(begin, end)] if end > begin else []
    return "" if (wanted, expected) == (starts, ranges) else f"bit {bit}: expected {expected}, found {ranges}"


def golden_segments(name: str, directory: Path, size: int = BYTES) -> list[GoldenSegment]:
    """Return the first segments of a golden store, of some bytes in all."""
    found, taken = [], 0
    for path in unpack(find_golden_store(name), directory).segments:
        if taken >= size:
            break
        found.append(GoldenSegment(path))
        taken += len(found[-1].data)
    return found


def copied_store(segment: GoldenSegment, directory: Path) -> Path:
    """Return a store with a segment and the one after it."""
    (directory / "commitlog").mkdir(parents=True)
    paths = sorted(segment.path.parent.iterdir())
    following = paths[paths.index(segment.path) + 1]
    (directory / "commitlog" / following.name).write_bytes(following.read_bytes())
    return directory


def main() -> int:
    """Run the program; return 1 if a row was lost without a word, or a body flip was not found."""
    asked = _arguments()
    is_wrong = False
    for name in asked.stores or STORES:
        with tempfile.TemporaryDirectory(prefix="flips-") as directory:
            flips, differing, read = _flipped(name, Path(directory), asked)
        print(f"\n{name}: {flips.total:,} bits; {read} of them read as a whole, {len(differing)} otherwise than judged")
        for (field_name, outcome), count in sorted(flips.counts.items()):
            print(f"  {field_name:30} {count:10,}  {outcome}")
        is_wrong |= bool(differing or flips.with_outcome(SILENT) or set(flips.of("body")) - {REPORTED})
        print("\n".join(differing[:5]), flush=True)
    return 1 if is_wrong else 0


def _flipped(name: str, directory: Path, asked: argparse.Namespace) -> tuple[Flips, list[str], int]:
    flips, differing, read, random = Flips(), [], 0, Random(asked.seed)
    for number, segment in enumerate(golden_segments(name, directory)):
        found, shown = flip_bits(segment, asked.every)
        flips.counts += found.counts
        root = copied_store(segment, directory / f"store-{number}")
        for bit, begin, end, _ in random.sample(shown, min(asked.sample, len(shown))):
            difference = full_reading_differs(segment, root, bit, (begin, end))
            differing += [difference] if difference else []
            read += 1
    return flips, differing, read


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Flip every bit of golden segments.")
    parser.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(STORES))
    parser.add_argument("--every", type=int, default=1, help="flip every so many bits only")
    parser.add_argument("--sample", type=int, default=200, help="how many flips of a segment are read as a whole")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())

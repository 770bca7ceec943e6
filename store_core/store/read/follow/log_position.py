# SPDX-License-Identifier: Apache-2.0
"""A position in a log, and its proof by the records before it."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Self

from store_core.errors import InvalidOptionError
from store_core.format.columnar.chain import Place
from store_core.format.record.scan import (
    StopReason,
    check_record,
    head_shape,
    read_frame,
    read_sys_flag,
    store_timestamp,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.files.segment_source import Segment
    from store_core.format.segment_view import SegmentView


_LONG: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RecordProof:
    """A record, by its place and its head.

    The head has the checksum of the body, the queue offset and three times and hosts, so another message has another
    head. Nothing after it is included: a writer puts a record into the file from its first byte on.
    """

    physical_offset: int  # where the record is
    size: int  # its bytes
    store_timestamp: int  # its store time, ms
    head_crc: int  # CRC-32 of its head

    @classmethod
    def of(cls, segment: SegmentView, position: int) -> Self | None:
        """Return the proof of the record at a position of a segment; None if there is no record."""
        if not 0 <= position < segment.size:
            return None
        data = segment.frame(position).data
        check = check_record(data, 0, segment.start_offset + position)
        if check.reason is not None:
            return None
        crc = zlib.crc32(data[: head_shape(read_sys_flag(data, 0)).size])
        return cls(segment.start_offset + position, check.size, store_timestamp(data, 0), crc)

    @property
    def end_offset(self) -> int:
        """Physical offset one past the record."""
        return self.physical_offset + self.size

    def as_json(self) -> dict[str, int]:
        """Return the proof as values for JSON."""
        return {_JSON[name][0]: value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, name: str, found: object) -> Self | None:
        """Return what `as_json` made; None for None."""
        if found is None:
            return None
        return cls(**{field: json_integer(name, found, key, most) for field, (key, most) in _JSON.items()})


_JSON: Final = {
    "physical_offset": ("physicalOffset", _LONG),
    "size": ("size", 2**31 - 1),
    "store_timestamp": ("storeTimestamp", _LONG),
    "head_crc": ("headCrc", 2**32 - 1),
}
"""Name of a field -> its name in JSON, and the largest value that makes sense."""


def json_integer(name: str, found: object, key: str, most: int = _LONG) -> int:
    """Return an integer of a JSON object.

    * `name`: What the object is, for the error.
    * `most`: The largest value that makes sense; the smallest is 0, and for times any negative one.
    """
    value = found.get(key) if isinstance(found, dict) else None
    least = -_LONG if key == "storeTimestamp" else 0
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidOptionError(
            f"{name}: expected an integer {key} between {least} and {most}, found {found!r}. It is not a position that "
            f"format 'commitlog' has written: was the checkpoint made by another source, or edited?"
        )
    return value


_NAME: Final = "the offset of a stream"


class RecordVanishedError(Exception):
    """A record that was just found is gone: the log is being truncated. Whoever looks again sees what is left."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where a batch of a stream begins or ends."""

    physical_offset: int  # Records before it have been read. It is a segment's first byte, or one past a record.
    segment: str  # name of the segment file that the position is in
    last_record: RecordProof | None = None
    """The record before the position: if it is still there, the log is the one that was read. None at the start of a
    log."""
    anchor_records: tuple[RecordProof, ...] = ()
    """The first records of the segment of the last record, of the one before it, and of those 2, 4, 8 and so on before
    it, and of the log's first one. A log that a recovery truncated still has those before the cut, and another log has
    none."""

    @classmethod
    def at_start(cls, segment: Segment) -> Self:
        """Return the position of a segment's first byte, without proof."""
        return cls(segment.start_offset, segment.name)

    @classmethod
    def after(cls, segment: Segment, view: SegmentView, last_start: int, anchors: tuple[RecordProof, ...]) -> Self:
        """Return the position after a record; if that closes the segment, it is the next segment's first byte.

        * `view`: Its bytes.
        * `last_start`: Where the record starts, in bytes from the segment's start.
        """
        last = RecordProof.of(view, last_start)
        if last is None:
            raise RecordVanishedError(f"no record at position {last_start} of {segment.path}")
        end = last.end_offset
        is_closed = _is_closed(view, end - view.start_offset)
        name = f"{segment.end_offset:020d}" if is_closed else segment.name
        return cls(segment.end_offset if is_closed else end, name, last, anchors)

    def place_in(self, segment: Segment) -> Place:
        """Return where a walk through a segment goes on from this position."""
        position = max(self.physical_offset - segment.start_offset, 0)
        start = self.walk_start(segment)
        return Place(position, -1 if start is None else start - segment.start_offset)

    def walk_start(self, segment: Segment) -> int | None:
        """Return the physical offset of the last record, if it is in a segment; else None."""
        last = self.last_record
        return last.physical_offset if last is not None and last.physical_offset >= segment.start_offset else None

    def as_json(self) -> dict[str, object]:
        """Return the position as values for JSON, for people to read, too."""
        last = self.last_record
        return {
            "physicalOffset": self.physical_offset,
            "segment": self.segment,
            "lastRecord": None if last is None else last.as_json(),
            "anchorRecords": [anchor.as_json() for anchor in self.anchor_records],
        }

    @classmethod
    def from_json(cls, found: object) -> Self:
        """Return what `as_json` made, also from older checkpoints, which have one anchor."""
        physical_offset = json_integer(_NAME, found, "physicalOffset")
        found = found if isinstance(found, dict) else {}
        segment = found.get("segment")
        last = RecordProof.from_json(f"lastRecord in {_NAME}", found.get("lastRecord"))
        is_start = segment == f"{physical_offset:020d}"
        if not isinstance(segment, str) or (last is not None and last.end_offset != physical_offset and not is_start):
            raise InvalidOptionError(
                f"{_NAME}: expected a segment's name, and an offset that is the segment's first one or the end of "
                f"lastRecord, found {found!r}. To read from another offset, begin a new query with a new checkpoint "
                f"and startingOffsets"
            )
        return cls(physical_offset, segment, last, _anchors(found))


def _anchors(found: Mapping[str, object]) -> tuple[RecordProof, ...]:
    anchors = found.get("anchorRecords", [found.get("anchorRecord")])
    if not isinstance(anchors, list):
        raise InvalidOptionError(f"{_NAME}: expected a list anchorRecords, found {anchors!r}")
    proofs = (RecordProof.from_json(f"anchorRecords in {_NAME}", anchor) for anchor in anchors)
    return tuple(proof for proof in proofs if proof is not None)


def _is_closed(view: SegmentView, position: int) -> bool:
    """Return whether a blank record as writers make it, of the size of the rest of the file, is at a position."""
    if view.check(position).reason is not StopReason.END_OF_FILE:
        return False
    size: int = read_frame(view.frame(position).data, 0)[0]
    return size == view.size - position

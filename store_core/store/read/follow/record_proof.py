# SPDX-License-Identifier: Apache-2.0
"""What a follower remembers of a record, to recognise it later."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, TypeGuard

from store_core.errors import InvalidOptionError
from store_core.format.record.record_head import head_shape, read_sys_flag, store_timestamp
from store_core.format.record.scan import check_record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from store_core.format.segment_view import SegmentView

__all__ = ["RecordProof", "json_integer"]

_LONG: Final = 2**63 - 1
_INT: Final = 2**31 - 1
_CRC: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class RecordProof:
    """A record, by its place and its head.

    The head has the checksum of the body, the queue offset and three times and hosts, so another message has another
    head. Nothing after it is included: a writer puts a record into the file from its first byte on.

    Attributes
    ----------
    physical_offset : int
        Where the record is.
    size : int
        Its bytes.
    store_timestamp : int
        Its store time, ms.
    head_crc : int
        CRC-32 of its head.
    """

    physical_offset: int
    size: int
    store_timestamp: int
    head_crc: int

    @classmethod
    def of(cls, segment: SegmentView, position: int) -> Self | None:
        """Return the proof of the record at a position of a segment; None if there is no record."""
        data = segment.raw.data
        if not 0 <= position < segment.size:
            return None
        segment.load_frame(position)
        check = check_record(data, position, segment.start_offset)
        if check.reason is not None:
            return None
        head = head_shape(read_sys_flag(data, position)).size
        crc = zlib.crc32(data[position : position + head])
        return cls(segment.start_offset + position, check.size, store_timestamp(data, position), crc)

    @property
    def end_offset(self) -> int:
        """Physical offset one past the record."""
        return self.physical_offset + self.size

    def as_json(self) -> dict[str, int]:
        """Return the proof as values for JSON."""
        return {_JSON_NAMES[name]: value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, name: str, found: object) -> Self | None:
        """Return what `as_json` made; None for None.

        Raises
        ------
        InvalidOptionError
            If it is something else.
        """
        if found is None:
            return None
        return cls(**{field: json_integer(name, found, key, _MOST[field]) for field, key in _JSON_NAMES.items()})


_JSON_NAMES: Final = {
    "physical_offset": "physicalOffset",
    "size": "size",
    "store_timestamp": "storeTimestamp",
    "head_crc": "headCrc",
}
_MOST: Final = {"physical_offset": _LONG, "size": _INT, "store_timestamp": _LONG, "head_crc": _CRC}


def json_integer(name: str, found: object, key: str, most: int = _LONG) -> int:
    """Return an integer of a JSON object.

    Parameters
    ----------
    name : str
        What the object is, for the error.
    found : object
        The object, of any type.
    most : int
        The largest value that makes sense; the smallest is 0, and for times any negative one.

    Raises
    ------
    InvalidOptionError
        If it is not there, or not an integer in this range.
    """
    value = found.get(key) if _is_object(found) else None
    least = -_LONG if key == "storeTimestamp" else 0
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidOptionError(
            f"{name}: expected an integer {key} between {least} and {most}, found {found!r}. It is not a position that "
            f"format 'commitlog' has written: was the checkpoint made by another source, or edited?"
        )
    return value


def _is_object(found: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(found, dict)

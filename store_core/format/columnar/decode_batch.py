# SPDX-License-Identifier: Apache-2.0
"""Decoding of many records into the requested Arrow columns, without a Python object per record.

Each row equals `store_core.format.record.decode.decode_message` of its record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from store_core.format.columnar.faults import Fault, content_faults, expand_bodies, structural_faults
from store_core.format.columnar.records import Records
from store_core.format.columns import arrow_schema
from store_core.format.properties import PropertyParser

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["DecodedBatch", "Fault", "decode_batch", "decode_records"]


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """Rows of the records that could be decoded, and the faults of the others."""

    batch: pa.RecordBatch  # the requested columns, in that order
    positions: npt.NDArray[np.int64]  # int64, shape (rows,): where each row's record starts in the segment
    faults: tuple[Fault, ...]  # ascending by position
    pending: npt.NDArray[np.int64]
    """int64: the last of the given starts, left for another call because their expanded bodies would not fit into one
    batch; nearly always empty."""


def decode_batch(  # noqa: PLR0913 -- the records, the columns, and how strictly they are read
    raw: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    columns: Sequence[str],
    *,
    segment: str,
    start_offset: int,
    parser: PropertyParser = PropertyParser.FIRST_SEPARATOR,
    verify_crc: bool = True,
    decompress: bool = False,
    nullable: bool = False,
) -> DecodedBatch:
    """Decode records of a segment into the requested columns.

    * `raw`, `starts`, `segment`, `start_offset`, `parser`: See `store_core.format.columnar.records.Records`.
    * `columns`, `verify_crc`, `decompress`, `nullable`: See `decode_records`.
    """
    records = Records(raw, starts, segment, start_offset, parser)
    return decode_records(records, columns, verify_crc=verify_crc, decompress=decompress, nullable=nullable)


def decode_records(  # noqa: PLR0913 -- the records, the columns, and how they are read
    records: Records,
    columns: Sequence[str],
    *,
    verify_crc: bool = True,
    decompress: bool = False,
    nullable: bool = False,
    nearest_times: bool = False,
    verify_property_crc: bool | None = None,
) -> DecodedBatch:
    """Decode records into the requested columns.

    * `columns`: Canonical column names, see `store_core.format.columns`.
    * `verify_crc`: Whether bodies must match their checksums; only if the column ``body`` is requested.
    * `decompress`: Whether the column ``body`` holds expanded bodies.
    * `nullable`: Whether the schema declares every column nullable. A body that does not expand is null then, and
      ``_corrupt_record`` says why.
    * `nearest_times`: As of `store_core.format.times.table_times`.
    * `verify_property_crc`: Whether records must match the checksum over all of them, if they carry one, where a column
      is requested that it covers; as `verify_crc` if it is not given.

    Returns: Records whose parts do not add up, whose requested topic is not UTF-8, or whose requested body is damaged,
    are faults and not in the batch.
    """
    verifies = verify_crc if verify_property_crc is None else verify_property_crc

    def find_content(rest: Records) -> list[Fault]:
        return content_faults(rest, columns, verify_crc=verify_crc, verify_property_crc=verifies)

    faults: list[Fault] = []
    starts, pending = records.starts, records.starts[:0]
    for find in (structural_faults, find_content):
        found = find(records)
        records = records.only(~np.isin(records.starts, [fault.position for fault in found])) if found else records
        faults += found
    if decompress and "body" in columns:
        records, reached = _expand(records, faults, nullable=nullable)
        pending = starts[starts >= reached]
        faults = [fault for fault in faults if fault.position < reached]
    records.has_nearest_times = nearest_times
    arrays = [records.column(name) for name in columns]
    batch = pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns, nullable=nullable))
    return DecodedBatch(batch, records.starts, tuple(sorted(faults, key=lambda fault: fault.position)), pending)


def _expand(records: Records, faults: list[Fault], *, nullable: bool) -> tuple[Records, int]:
    """Expand bodies until the batch is full; return the records in it, and where the others begin."""
    found, fitting = expand_bodies(records)
    reached = int(records.starts[fitting]) if fitting < len(records) else records.raw.size
    kept = np.arange(len(records)) < fitting
    if not nullable:
        faults += found
        kept &= ~np.isin(records.starts, [fault.position for fault in found])
    if not kept.all():
        records = records.only(kept)
        expand_bodies(records)
    records.remarks.update({fault.position: fault.error for fault in found if nullable})
    return records, reached

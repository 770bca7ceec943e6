# SPDX-License-Identifier: Apache-2.0
"""The properties of one record, without the rest of it."""

from __future__ import annotations

from store_core.format.decode import corrupt_record_error
from store_core.format.properties import PropertyParser, decode_text, parse_properties
from store_core.format.scan import check_record

__all__ = ["record_properties"]


def record_properties(record: memoryview, parser: PropertyParser = PropertyParser.FIRST_SEPARATOR) -> dict[str, str]:
    """Read the properties of a record; the body is not touched.

    Parameters
    ----------
    record : memoryview
        Format ``B``, from the record's first byte on.
    parser : PropertyParser

    Raises
    ------
    CorruptRecordError
        If the bytes are no record.

    Notes
    -----
    RocketMQ: ``MessageDecoder.decodeProperties``, which believes the lengths.
    """
    check = check_record(record, 0, None, verify_crc=False)
    if check.spans is None:
        raise corrupt_record_error(check, record, 0, 0, "<record>")
    text = decode_text(bytes(record[check.spans.properties_start : check.spans.properties_stop]))
    return parse_properties(text, parser)

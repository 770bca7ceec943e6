# SPDX-License-Identifier: Apache-2.0
"""The short cut to a record's properties has the decoder's result, or its error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from store_core.errors import CorruptRecordError
from store_core.format.filter.message_selector import _checked_span, _plain_span, record_properties
from store_core.format.properties import PropertyParser, decode_text, parse_properties
from store_core.format.record.scan import check_record
from tests import strategies

if TYPE_CHECKING:
    from tests.strategies import Log

parsers = st.sampled_from(PropertyParser)


def by_check(data: memoryview, parser: PropertyParser) -> dict[str, str] | None:
    spans = check_record(data, 0, None).spans
    if spans is None:
        return None
    return parse_properties(decode_text(bytes(data[spans.properties_start : spans.properties_stop])), parser)


def found(data: memoryview, parser: PropertyParser) -> dict[str, str] | None:
    try:
        return record_properties(data, parser)
    except CorruptRecordError:
        return None


@given(strategies.logs(faults=False, max_size=4), parsers)
def test_the_properties_of_sound_records_are_those_of_the_definition(log: Log, parser: PropertyParser) -> None:
    for start in log.starts:
        record = memoryview(log.data)[start:]

        assert by_check(record, parser) == record_properties(record, parser)


@given(strategies.mutated(strategies.logs(max_size=3)), parsers)
def test_broken_records_are_told_apart_as_the_definition_does(log: Log, parser: PropertyParser) -> None:
    for start in log.starts:
        record = memoryview(log.data)[start:]
        span = _plain_span(record)

        assert by_check(record, parser) == found(record, parser)
        assert span is None or span == _checked_span(record)

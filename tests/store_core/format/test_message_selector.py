# SPDX-License-Identifier: Apache-2.0
"""Selectors parse subscriptions as RocketMQ's clients do, and use what queue units and records contain."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import CorruptRecordError, FilterError, MessageSelector
from store_core.format.filter.message_selector import (
    MessageFilter,
    TagSubscription,
    _checked_span,
    _plain_span,
    record_properties,
)
from store_core.format.java import hash_code
from store_core.format.properties import PropertyParser, decode_text, parse_properties
from store_core.format.record.scan import check_record
from tests import strategies
from tests.builders import BODY_AT, Record

if TYPE_CHECKING:
    from tests.strategies import Log


def record(**properties: str) -> memoryview:
    return memoryview(Record(b"body", properties=properties).encode())


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("TagA", {"TagA"}),
        ("TagA || TagB", {"TagA", "TagB"}),
        (" TagA||TagB || ||TagA", {"TagA", "TagB"}),
        ("||TagA", {"TagA"}),
        ("|||TagA", {"|TagA"}),
        ("* || TagA", {"*", "TagA"}),
        (" * ", {"*"}),
        ("a | b", {"a | b"}),
        ("\tTagA\n\x00||\u2003TagB", {"TagA", "\u2003TagB"}),
        (" ", set()),
        (" || ", set()),
    ],
)
def test_tags_are_cut_as_clients_cut_them(text: str, tags: set[str]) -> None:
    found = TagSubscription.parse(text)

    assert tags == set(found.tags)
    assert {hash_code(tag) for tag in tags} == set(found.codes)
    assert not found.is_all


@pytest.mark.parametrize("text", ["*", ""])
def test_a_star_and_nothing_stand_for_all_messages(text: str) -> None:
    selector = MessageSelector.by_tag(text)

    assert selector == MessageSelector.NONE
    assert selector.is_all
    assert selector.matches({})


@pytest.mark.parametrize("text", ["||", "||||"])
def test_separators_alone_are_refused(text: str) -> None:
    with pytest.raises(FilterError, match="found only separators"):
        MessageSelector.by_tag(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_only_the_lower_half_of_a_tags_code_counts(code: int) -> None:
    selector = MessageSelector.by_tag("TagA")

    assert ((code - hash_code("TagA")) % 2**32 == 0) == selector.is_matched_by_consume_queue(code)
    assert selector.is_matched_by_consume_queue((code >> 32 << 32) + hash_code("TagA") % 2**32)


def test_what_an_expression_fails_on_is_an_error_of_the_message_and_no_match_of_the_record() -> None:
    selector = MessageSelector.by_sql("a > 5")

    with pytest.raises(FilterError, match="expected a whole number of 32 bits, found 'x'"):
        selector.matches({"a": "x"})
    assert not selector.is_matched_by_commit_log(record(a="x"))


def test_an_expression_is_compiled_and_records_are_read_by_the_rules_of_the_release() -> None:
    stored = memoryview(Record(properties=b"a\x01b\x01c\x02").encode())

    assert MessageSelector.by_sql("a IS NULL", "4.3").is_matched_by_commit_log(stored)
    assert MessageSelector.by_sql("a CONTAINS 'b'", "5.3").is_matched_by_commit_log(stored)
    assert not MessageSelector.by_sql("a CONTAINS 'b'", "4.9").is_matched_by_commit_log(stored)


@pytest.mark.parametrize("text", ["", "a >", "/* only */"])
def test_an_expression_that_does_not_compile_is_refused_when_it_is_given(text: str) -> None:
    with pytest.raises(FilterError):
        MessageSelector.by_sql(text)


def test_a_selector_can_be_made_by_the_name_of_its_language() -> None:
    assert MessageSelector.of("SQL92", "a > 5") == MessageSelector.by_sql("a > 5")
    assert MessageSelector.of("TAG", "TagA") == MessageSelector.by_tag("TagA")
    with pytest.raises(FilterError, match="expected a filter type of TAG, SQL92, found 'SQL'"):
        MessageSelector.of("SQL", "a > 5")


@pytest.mark.parametrize(
    "selector", [MessageSelector.NONE, MessageSelector.by_tag("A"), MessageSelector.by_sql("a > 5")]
)
def test_selectors_are_filters_and_pickle(selector: MessageSelector) -> None:
    assert isinstance(selector, MessageFilter)
    assert selector == pickle.loads(pickle.dumps(selector))  # noqa: S301 -- our own


@pytest.mark.parametrize("size", [0, 7, BODY_AT, 95])
def test_bytes_that_are_no_record_are_an_error(size: int) -> None:
    with pytest.raises(CorruptRecordError):
        MessageSelector.by_sql("a > 5").is_matched_by_commit_log(record(a="6")[:size])


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

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
import pickle
import re
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import product
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from store_core import InvalidOptionError, ReadMode, ReadOptions, read_messages
from store_core.format.columns import DEFAULT_COLUMNS
from store_core.format.filter.message_selector import MessageSelector
from store_core.store.read.chunk_rows import RowFilter
from store_core.store.read.option_table import shown_option
from store_core.store.read.option_values import OPTION_PARSERS, OffsetBound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa


parse = ReadOptions.parse


def test_without_options_there_are_the_defaults() -> None:
    assert parse() == ReadOptions()


def test_none_stands_for_not_given() -> None:
    assert parse(**dict.fromkeys(OPTION_PARSERS)) == ReadOptions()


def test_options_survive_pickling() -> None:
    options = parse(topic="a,b", starting_offsets='{"a":{"0":1}}', mode="PERMISSIVE")

    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 -- our own


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("columns", "topic, BODY", ["topic", "Body"]),
        ("topic", "a, b ,c", ["a", "b", "c"]),
        ("topics_pattern", "a.*", re.compile("a.*")),
        ("queue_id", "1, 2,-3", [1, 2, -3]),
        ("queue_id", "7", 7),
        ("tag", "TagA || TagB", "TagA||TagB"),
        ("key", "k 1", "k 1"),
        ("filter", "TagA || TagB", "TagA || TagB"),
        ("starting_offsets", "12", 12),
        ("starting_offsets", " 12 ", np.int64(12)),
        ("min_partitions", "\x1f12\x1c", 12),
        ("ending_offsets", '{"t":{"0":12,"1":-1}}', {"t": {0: 12, 1: -1}}),
        ("starting_timestamp", "1714564800000", 1714564800000),
        ("starting_timestamp", "2024-05-01T12:00:00Z", datetime(2024, 5, 1, 12, tzinfo=UTC)),
        ("max_partition_bytes", "128m", 128 << 20),
        ("max_partition_bytes", "1 GiB", 1 << 30),
        ("max_partition_bytes", "10KB", 10 << 10),
        ("max_partition_bytes", "5", 5),
        ("min_partitions", "10", 10),
        ("max_records_per_batch", "100", 100),
        ("mode", "dropmalformed", ReadMode.DROPMALFORMED),
        ("verify_crc", "False", False),
        ("decompress", "true", True),
        ("fail_on_data_loss", "FALSE", False),
        ("time_zone", "Asia/Shanghai", ZoneInfo("Asia/Shanghai")),
        ("time_zone", "+08:00", timezone(timedelta(hours=8))),
        ("release", "4.9", "4.9"),
    ],
)
def test_text_and_values_mean_the_same(name: str, text: str, value: object) -> None:
    assert parse(**{name: text}) == parse(**{name: value})
    assert parse(**{name: text}) != ReadOptions()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("columns", "", "names, separated by commas"),
        ("columns", "topic,topic", "named twice"),
        ("columns", "topics", "did you mean 'topic'"),
        ("topic", "", "none of them empty"),
        ("topic", "a,,b", "none of them empty"),
        ("topic", [], "none of them empty"),
        ("topic", 5, "names, separated by commas"),
        ("topic", [5], "names, separated by commas"),
        ("topics_pattern", "(", "is not a valid Python regular expression: missing )"),
        ("topics_pattern", 5, "a regular expression"),
        ("queue_id", "a", "queue ids from -2147483648 to 2147483647, separated by commas"),
        ("queue_id", "", "queue ids"),
        ("queue_id", [], "queue ids"),
        ("queue_id", True, "queue ids"),
        ("queue_id", str(2**31), "queue ids"),
        ("tag", " || ", "a tag expression such as 'TagA || TagB'"),
        ("tag", ["TagA"], "a tag expression"),
        ("key", "", "one key"),
        ("filter", 5, "a consumer's filter: tags such as"),
        ("filter", "||", "only separators, filter '||'; option filterType is TAG"),
        ("filter", "a = 5", "which looks like SQL92; say which it is with option filterType"),
        ("filter", "TAGS is  not null", "which looks like SQL92"),
        ("filter_type", "SQL", "one of TAG, SQL92"),
        ("filter_type", 92, "one of TAG, SQL92"),
        ("starting_offsets", "latest", "807, earliest (of a stream also latest), or"),
        ("starting_offsets", "-1", "a physical offset"),
        ("starting_offsets", -1, "a physical offset"),
        ("starting_offsets", "1.5", "a physical offset"),
        ("starting_offsets", "9" * 20, "a physical offset"),
        ("starting_offsets", '{"t":{"0":-1}}', "an offset from 0 to 9223372036854775807, or -2,"),
        ("starting_offsets", '{"t":{"0":true}}', "an offset from 0 to 9223372036854775807"),
        ("starting_offsets", '{"t":{"x":1}}', "a queue id"),
        ("starting_offsets", {"t": {2**31: 1}}, "a queue id from -2147483648 to 2147483647, found 2147483648"),
        ("starting_offsets", '{"t":5}', 'queue offsets as {"topic":{"0":12}}'),
        ("starting_offsets", '{"t', "not JSON"),
        ("starting_offsets", "{" + '"a":{' * 100_000, "not JSON"),
        ("ending_offsets", "earliest", "a physical offset from 0 to 9223372036854775807, latest,"),
        ("ending_offsets", '{"t":{"0":-2}}', "an offset from 0 to 9223372036854775807, or -1,"),
        ("starting_timestamp", "yesterday", "ms since 1970, or a time in ISO 8601"),
        ("ending_timestamp", True, "ms since 1970"),
        ("max_partition_bytes", "0", "a number of bytes from 1 to 9223372036854775807, such as"),
        ("max_partition_bytes", "128q", "a number of bytes"),
        ("max_partition_bytes", "9999999999t", "a number of bytes"),
        ("min_partitions", "0", "a number from 1 to 2147483647, found '0'"),
        ("min_partitions", "many", "option minPartitions: expected a number from 1 to 2147483647, found 'many'"),
        ("min_partitions", "2147483648", "a number from 1 to 2147483647, found '2147483648'"),
        ("max_records_per_batch", -1, "a number from 1 to 2147483647"),
        ("max_records_per_batch", 2**31, "a number from 1 to 2147483647, found 2147483648"),
        ("mode", "IGNORE", "one of FAILFAST, DROPMALFORMED, PERMISSIVE"),
        ("mode", "drop", "found 'drop'"),
        ("filter_type", "sql", "found 'sql'"),
        ("queue_id", np.array([[1, 2]]), "queue ids"),
        ("queue_id", 2**31, "queue ids from -2147483648 to 2147483647, separated by commas, found 2147483648"),
        ("physical_offset", 2**63, "a number from 0 to 9223372036854775807, found 9223372036854775808"),
        ("min_partitions", np.array([1, 2]), "a number from 1 to 2147483647"),
        ("mode", 5, "one of FAILFAST"),
        ("verify_crc", "yes", "true or false"),
        ("decompress", 1, "true or false"),
        ("time_zone", "CST", "a region such as 'Asia/Shanghai'"),
        ("release", "5.3.3", "one of 4.3, 4.9, 5.3"),
        ("release", "5.3.3", "found '5.3.3'; RocketMQ 5.3.3 is served by the rules of 5.3, so give 5.3"),
        ("release", "5.2.0", "found '5.2.0'; docs/releases.md says in which version each rule changed"),
        ("release", 5.3, "found 5.3; did you mean '5.3'?"),
    ],
)
def test_a_value_that_can_not_be_used_is_named_with_what_is_allowed(name: str, value: object, expected: str) -> None:
    with pytest.raises(InvalidOptionError, match=re.escape(expected)):
        parse(**{name: value})


def test_an_unknown_option_is_told_the_nearest_name() -> None:
    with pytest.raises(InvalidOptionError, match=r"'starting_offset'; did you mean 'starting_offsets'\?"):
        parse(starting_offset=5)


def test_an_unknown_option_that_is_like_none_is_told_all_names() -> None:
    with pytest.raises(InvalidOptionError, match=r"unknown option 'xyzzy'; the options are columns, topic,"):
        parse(xyzzy=5)


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "a", "topics_pattern": "b"},
        {"starting_offsets": 5, "ending_offsets": 4},
        {"starting_offsets": {"t": {0: 5}}, "ending_offsets": {"t": {0: 4}}},
        {"starting_timestamp": 5, "ending_timestamp": 4},
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidOptionError, match="found"):
        parse(**options)


def test_edges_of_the_log_narrow_nothing() -> None:
    assert parse(starting_offsets="Earliest", ending_offsets="LATEST") == ReadOptions()
    assert parse(starting_offsets={"t": {0: -2}}, ending_offsets={"t": {0: -1}}) == ReadOptions()


def test_queue_offsets_are_bounds_of_single_queues() -> None:
    options = parse(starting_offsets='{"t":{"0":12,"1":-2},"日本":{"3":0}}')

    assert options.starting_offsets == OffsetBound(None, (("t", 0, 12), ("日本", 3, 0)))


def test_timestamps_win_over_offsets_at_their_end_of_the_log() -> None:
    options = parse(starting_offsets=5, ending_offsets={"t": {0: 4}}, starting_timestamp=1)

    assert options.start == OffsetBound()
    assert options.end == OffsetBound(None, (("t", 0, 4),))


def test_times_without_a_zone_are_in_the_one_of_option_time_zone() -> None:
    day = datetime(2024, 5, 1)  # noqa: DTZ001 -- without a zone on purpose
    options = parse(starting_timestamp="2024-05-01", ending_timestamp=day, time_zone="Asia/Shanghai")

    assert options.starting_timestamp == options.ending_timestamp == 1714521600000 - 8 * 3_600_000
    with pytest.raises(InvalidOptionError, match=r"option endingTimestamp: .* has no time zone"):
        parse(ending_timestamp=day)


def test_a_zone_does_not_matter_to_times_that_have_one() -> None:
    time = "2024-05-01T00:00:00+02:00"

    assert (
        parse(starting_timestamp=time, time_zone="UTC").starting_timestamp
        == parse(starting_timestamp=time).starting_timestamp
    )
    with pytest.raises(InvalidOptionError, match="option timeZone"):
        parse(starting_timestamp=time, time_zone="Asia/Shanghia")


def test_a_tag_expression_is_that_of_a_subscription() -> None:
    assert parse(tag=" TagA||TagB || ||TagC").tag == ("TagA", "TagB", "TagC")
    assert parse(tag="*").tag == ()
    assert parse(tag="* || TagA").tag == ("*", "TagA")


def test_a_filter_is_read_in_the_language_and_by_the_release_that_are_named() -> None:
    assert parse(filter="a CONTAINS 'b'", filter_type="sql92").selector == MessageSelector.by_sql("a CONTAINS 'b'")
    assert parse(filter="a = 5", filter_type="TAG").selector == MessageSelector.by_tag("a = 5")
    assert parse(filter="TagA").selector == MessageSelector.by_tag("TagA")
    assert parse().selector is None
    with pytest.raises(InvalidOptionError, match="expected a condition"):
        parse(filter="5 CONTAINS 'b'", filter_type="SQL92", release="4.9")


def test_a_filter_that_does_not_compile_is_refused_with_the_place_of_the_error() -> None:
    with pytest.raises(InvalidOptionError, match=r"option filter: expected a name.* at character 3 of filter 'a >'"):
        parse(filter="a >", filter_type="SQL92")


def test_permissive_reads_also_the_damaged_bytes_unless_columns_are_named() -> None:
    assert parse(mode="PERMISSIVE").columns == (*DEFAULT_COLUMNS, "_corrupt_record")
    assert parse(mode="PERMISSIVE", columns="topic").columns == ("topic",)
    assert parse(mode="DROPMALFORMED").columns == DEFAULT_COLUMNS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *product(("tag", "key", "unique_key", "filter"), ("\ud800", "a\udfff", "b\udcff")),
        ("topic", "a,\ud800"),
        ("topic", ["\udbff"]),
        ("starting_offsets", {"\ud800": {0: 1}}),
    ],
)
def test_a_lone_surrogate_is_refused_by_the_name_of_the_option(name: str, value: object) -> None:
    with pytest.raises(
        InvalidOptionError, match=rf"{shown_option(name)}: expected characters, found .*, with a surrogate"
    ):
        parse(**{name: value})


def test_a_topic_of_a_directory_that_is_not_utf_8_is_accepted_but_no_record_has_it() -> None:
    options = parse(topic="a,\udcff")

    assert ("a", "\udcff") == options.topic
    with pytest.raises(InvalidOptionError, match="option topic: expected characters, found"):
        RowFilter(options)


@pytest.mark.parametrize("text", ["['orders', 'a_b']", "('orders', 'a_b')", '["orders","a_b"]', "[ 'orders','a_b' ]"])
def test_the_text_of_a_list_is_a_list_as_spark_makes_it_of_one_in_python(text: str) -> None:
    columns = ReadOptions.parse(columns=text.replace("orders", "topic").replace("a_b", "body")).columns

    assert ("orders", "a_b") == ReadOptions.parse(topic=text).topic == ReadOptions.parse(tag=text).tag
    assert ("topic", "body") == columns


@pytest.mark.parametrize("text", ["[1, 2]", "(1, 2)", "['1', '2']", "1,2"])
def test_the_text_of_a_list_of_numbers_is_one_of_queues(text: str) -> None:
    assert (1, 2) == ReadOptions.parse(queue_id=text).queue_id


@pytest.mark.parametrize(
    "text", ["{'orders', 'a_b'}", "['orders' 'a_b']", "dict_keys(['orders', 'a_b'])", "['a\\n']", "[]"]
)
@pytest.mark.parametrize("name", ["topic", "columns", "tag"])
def test_the_text_of_another_collection_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"option {name}"):
        ReadOptions.parse(**{name: text})


@pytest.mark.parametrize("name", ["key", "unique_key", "topics_pattern", "filter"])
def test_a_list_where_one_value_is_expected_is_refused(name: str) -> None:
    with pytest.raises(InvalidOptionError, match=", not a list, found"):
        ReadOptions.parse(**{name: "['orders', 'a_b']"})


@pytest.mark.parametrize("key", ["[a]", '["a","b"]', "it's", "(1)"])
def test_a_key_may_look_like_anything_else(key: str) -> None:
    assert key == ReadOptions.parse(key=key).key


DESCRIBED = re.compile(r"^    ([a-z_]+(?:, [a-z_]+)*) : ", re.MULTILINE)


def arguments() -> dict[str, inspect.Parameter]:
    """Return the arguments of `read_messages` that are options."""
    parameters = inspect.signature(read_messages).parameters
    return {name: each for name, each in parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}


def test_every_option_is_an_argument_and_is_described_once() -> None:
    described = [name for names in DESCRIBED.findall(ReadOptions.__doc__ or "") for name in names.split(", ")]
    options = [field.name for field in fields(ReadOptions) if field.metadata.get("is_option", True)]

    assert options == list(arguments()) == list(OPTION_PARSERS)
    assert [field.name for field in fields(ReadOptions)] == described


def test_no_argument_is_given_unless_the_caller_does() -> None:
    assert {None} == {each.default for each in arguments().values()}


def test_every_argument_reaches_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = {name: object() for name in arguments()}
    found: dict[str, object] = {}

    def parse(**named: object) -> ReadOptions:
        found.update(named)
        raise InvalidOptionError("seen")

    monkeypatch.setattr(ReadOptions, "parse", parse)
    with pytest.raises(InvalidOptionError, match="seen"):
        read_messages("/store", **marks)  # type: ignore[arg-type]  # marks of no type
    assert marks == found


@pytest.mark.parametrize(
    "call",
    [
        lambda path: read_messages(path, columns=["topic"], topic="a,b", queue_id=1, mode="PERMISSIVE"),
        lambda path: read_messages([path], columns=("topic",), queue_id=[1, 2], mode=ReadMode.FAILFAST, tag="a || b"),
        lambda path: read_messages(path, topics_pattern=re.compile("a"), key="k", verify_crc=False, decompress=True),
        lambda path: read_messages(path, filter="a = 5", filter_type="SQL92", release="5.3", fail_on_data_loss=False),
        lambda path: read_messages(path, starting_offsets={"a": {0: 12}}, ending_offsets={"a": {"0": 12}}),
        lambda path: read_messages(path, starting_offsets=np.int64(5), ending_offsets="latest", topic=None),
        lambda path: read_messages(path, starting_timestamp=date(2024, 5, 1), time_zone="Asia/Shanghai"),
        lambda path: read_messages(path, starting_timestamp=datetime(2024, 5, 1, tzinfo=UTC), time_zone=UTC),
        lambda path: read_messages(path, starting_timestamp="2024-05-01", ending_timestamp=2 * 10**12, time_zone="Z"),
        lambda path: read_messages(path, max_partition_bytes="128m", min_partitions=4, max_records_per_batch=10),
    ],
)
def test_right_calls_are_typed(call: Callable[[Path], pa.RecordBatchReader], tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))

    assert not call(tmp_path).read_all().num_rows


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: read_messages("/store", topics="a"), "unknown option 'topics'; did you mean 'topic'?"),  # type: ignore[arg-type]
        (lambda: read_messages("/store", topic=5), "option topic: expected names"),  # type: ignore[arg-type]
        (lambda: read_messages("/store", mode="IGNORE"), "option mode: expected one of FAILFAST"),  # type: ignore[arg-type]
        (lambda: read_messages("/store", verify_crc=2), "option verifyCrc"),  # type: ignore[arg-type]
        (lambda: read_messages("/store", starting_timestamp=1.5), "expected ms since 1970"),  # type: ignore[arg-type]
        (lambda: read_messages("/store", time_zone=8), "expected a time zone such as"),  # type: ignore[arg-type]
    ],
)
def test_wrong_calls_are_refused_by_types_and_in_words(call: Callable[[], pa.RecordBatchReader], says: str) -> None:
    with pytest.raises(InvalidOptionError, match=re.escape(says)):
        call()

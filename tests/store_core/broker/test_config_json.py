# SPDX-License-Identifier: Apache-2.0
"""The JSON of configuration files: taken as RocketMQ's own ``decode`` takes it, written as fastjson writes it."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.broker.config_file import write_config
from store_core.broker.consumer_filter_manager import ConsumerFilterManager
from store_core.broker.consumer_offset import ConsumerOffsetManager, DelayOffsetTable
from store_core.broker.subscription_group import SubscriptionGroupManager, TopicConfigManager
from store_core.errors import CorruptRecordError, UnsafeSizeError
from store_core.format.release import RELEASES, Release, rules_of
from store_core.snapshot import config_json
from store_core.snapshot.config import LIGHT_OFFSETS, REQUEST_MODES
from store_core.snapshot.config_json import ConfigFields, JsonObject, JsonValue, parse_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store_core.format.release_rules import ReleaseRules


_FILE = "consumerOffset.json"

# Printed by fastjson 1.2.83 (1.2.29 and 1.2.69 print the same), PrettyFormat.
_PRETTY = (
    '{\n\t"e":[],\n\t"ei":{},\n\t"i":{1:{\n\t\t\t"j":2,\n\t\t\t"k":1\n\t\t},2:{\n\t\t\t"j":3\n\t\t}\n\t},'
    '\n\t"il":{3:[\n\t\t\t5,\n\t\t\t6\n\t\t]\n\t},\n\t"l":[\n\t\t1,\n\t\t2\n\t],\n\t"nm":{\n\t\t"b":"x"\n\t},\n\t"s":["a","b"]\n}'
)
_PRETTY_VALUE: JsonObject = {
    "e": [],
    "ei": {},
    "i": {1: {"j": 2, "k": 1}, 2: {"j": 3}},
    "il": {3: [5, 6]},
    "l": [1, 2],
    "nm": {"a": None, "b": "x"},
    "s": ("a", "b"),
}


def parse(text: str) -> JsonObject:
    return parse_config(text.encode(), _FILE)


def refusal(text: str | bytes) -> CorruptRecordError:
    with pytest.raises(CorruptRecordError) as raised:
        parse_config(text.encode() if isinstance(text, str) else text, _FILE)
    return raised.value


# ---- reading


@pytest.mark.parametrize(
    ("text", "offset", "expected"),
    [
        ("", 0, "'{'"),
        ("   ", 3, "'{'"),
        ("\0\0", 2, "'{'"),
        ("[1]", 0, "'{'"),
        ("{", 1, "a key: a string in quotes, or an integer"),
        ("{0:1}", 1, "keys with names: the numbers of queues are further inside"),
        ('{"a" 1}', 5, "':'"),
        ('{"a":}', 5, "a value"),
        ('{"a":1 "b":2}', 7, "',' or '}'"),
        ('{"a":1]', 6, "',' or '}'"),
        ('{"a":[1}', 7, "',' or ']'"),
        ('{"a":1}x', 7, "the end of the file"),
        ('{"a":1} {', 8, "the end of the file"),
        ('{"a":1}\0{', 8, "the end of the file"),
        ('{"a":truex}', 5, "a value"),
        ('{"a":0x1}', 5, "a value"),
        ('{"a":"x', 5, "a value"),
        ('{"a":"\\q"}', 6, "characters, or an escape that JSON has"),
        ('{"é":x}', 6, "a value"),
        ('{"a":1 /*c', 7, "',' or '}'"),
    ],
)
def test_what_no_library_takes_is_refused_where_it_is(text: str, offset: int, expected: str) -> None:
    error = refusal(text)

    assert (_FILE, offset, expected) == (error.file, error.offset, error.expected)
    assert len(str(error)) < 300


def test_a_refusal_names_line_and_way_on() -> None:
    text = str(refusal('{\n\t"a":1,\n\tb@:2\n}'))

    assert "line 3" in text
    assert "Correct the file by hand" in text


def test_bytes_that_are_no_utf_8_are_replaced_in_names_and_refused_elsewhere() -> None:
    assert {"a": "\ufffd"} == parse_config(b'{"a":"\xff"}', _FILE)
    assert 7 == refusal(b'{"a":1}\xff').offset


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]")])
def test_depth_is_bounded(opening: str, closing: str) -> None:
    deep, deeper = ('{"a":' + opening * levels + "1" + closing * levels + "}" for levels in (63, 64))

    assert parse(deep)
    for refused in (deeper, '{"a":' + opening * 1_000_000):
        with pytest.raises(UnsafeSizeError, match="nesting of at most 64 levels"):
            parse(refused)


# ---- writing


def test_writes_as_fastjson_does() -> None:
    assert _PRETTY == write_config(_PRETTY_VALUE)


_SET = '"a":[\n\t\t"x",\n\t\t"y"\n\t]'


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("5.3", '{\n\t"a":["x","y"],\n\t"b":[],\n\t"c":{},\n\t"d":{0:5,1:6\n\t}\n}'),
        ("5.4", f'{{\n\t{_SET},\n\t"b":[\n\t\t\n\t],\n\t"c":{{\n\t\t\n\t}},\n\t"d":{{\n\t\t0:5,\n\t\t1:6\n\t}}\n}}'),
        ("5.5", f'{{\n\t{_SET},\n\t"b":[\n\t\t\n\t],\n\t"c":{{}},\n\t"d":{{\n\t\t0:5,\n\t\t1:6\n\t}}\n}}'),
    ],
)
def test_lines_are_broken_as_the_release_breaks_them(release: str, expected: str) -> None:
    value: JsonObject = {"a": ("x", "y"), "b": (), "c": {}, "d": {0: 5, 1: 6}}

    assert "[0,18]" == write_config((0, 18), features=rules_of(release))
    assert expected == write_config(value, features=rules_of(release))


def test_fastjson_2_escapes_less() -> None:
    text = "é'\x7f\x9f\u2028\"\\\n\x0b\x1f"

    assert '"é\'\x7f\x9f\u2028\\"\\\\\\n\\u000b\\u001f"' == write_config(text, features=rules_of("5.5"))


def test_escapes_what_fastjson_escapes() -> None:
    plain = "é中😀'/\u00a0\u200b\ufeff"
    escaped = {
        '"': '\\"',
        "\\": "\\\\",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\x00": "\\u0000",
        "\x0b": "\\u000B",
        "\x1f": "\\u001F",
        "\x7f": "\\u007F",
        "\x9f": "\\u009F",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }

    assert f'"{plain}{"".join(escaped.values())}"' == write_config(plain + "".join(escaped))


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_KEYS = _TEXT | st.integers(-(2**31), 2**31 - 1)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_what_was_written_reads_the_same(value: dict[str | int, JsonValue]) -> None:
    assert {"table": value} == parse(write_config({"table": value}))


@given(st.dictionaries(_KEYS, _VALUES, min_size=1, max_size=3), st.data())
def test_a_file_cut_short_is_never_taken_for_a_whole_one(
    value: dict[str | int, JsonValue], data: st.DataObject
) -> None:
    whole = write_config({"table": value}).encode()
    cut = data.draw(st.integers(0, len(whole) - 1))

    assert refusal(whole[:cut]).offset <= cut


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        parse_config(b'{"a":' + data, _FILE)
    except CorruptRecordError as error:
        assert 0 <= error.offset <= len(data) + 5  # noqa: PT017 -- most bytes are refused, some are not


_PLAIN_LEAVES: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=3)
)
_PLAIN_VALUES: st.SearchStrategy[Any] = st.recursive(
    _PLAIN_LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(
    value=st.dictionaries(st.text(max_size=3), _PLAIN_VALUES, max_size=3),
    indent=st.sampled_from([None, 1, "\t"]),
    at=st.integers(0, 80),
    put=st.sampled_from(["", ",", "}", "\0", "'", "1", " ", "[[", "//\n", "\x1a", "\x7f", "\ud800", "NaN", "\\u0041"]),
    features=st.sampled_from([None, *map(rules_of, RELEASES)]),
)
def test_plain_json_is_what_the_definition_takes_it_for(
    value: dict[str, Any], indent: int | str | None, at: int, put: str, features: ReleaseRules | None
) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    data = (text[:at] + put + text[at:]).encode(errors="surrogatepass")

    def found() -> object:
        try:
            return parse_config(data, "file", features)
        except (CorruptRecordError, UnsafeSizeError) as error:
            return str(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config_json, "_plain", lambda _: None)
        expected = found()

    assert repr(expected) == repr(found())


_CASES: Final = Path(__file__).parents[2] / "golden" / "answers" / "config_files.jsonl.xz"


def offsets(value: JsonObject, release: Release) -> object:
    kept = ConsumerOffsetManager("none", release=release)
    kept.decode(value, "file")
    return {"offsetTable": {key: texts(queues) for key, queues in kept.offset_table().items()}}


def delays(value: JsonObject, release: Release) -> object:
    kept = DelayOffsetTable("none", release=release)
    kept.decode(value, "file")
    return {"offsetTable": texts(kept.offset_table())}


def topics(value: JsonObject, release: Release) -> object:
    kept = TopicConfigManager("none", release=release)
    kept.decode(value, "file")
    configs = {name: kept.select_topic_config(name) for name in kept.topics()}
    found = {
        name: {
            "perm": config.perm,
            "readQueueNums": config.read_queue_nums,
            "writeQueueNums": config.write_queue_nums,
            "topicName": config.topic_name,
            "order": config.order,
            "topicSysFlag": config.topic_sys_flag,
            "topicFilterType": config.topic_filter_type,
        }
        | ({"attributes": dict(config.attributes)} if release.startswith("5") else {})
        for name, config in configs.items()
        if config is not None
    }
    return {"topicConfigTable": found}


def groups(value: JsonObject, release: Release) -> object:
    kept = SubscriptionGroupManager("none", release=release)
    kept.decode(value, "file")
    configs = {name: kept.find_subscription_group_config(name) for name in kept.groups()}
    found = {
        name: {
            "groupName": config.group_name,
            "retryMaxTimes": config.retry_max_times,
            "consumeEnable": config.consume_enable,
            "brokerId": config.broker_id,
        }
        for name, config in configs.items()
        if config is not None
    }
    return {"subscriptionGroupTable": found}


def filters(value: JsonObject, release: Release) -> object:
    kept = ConsumerFilterManager("none", release=release)
    kept.decode(value, "file")
    return "read"


def modes(value: JsonObject, release: Release) -> object:
    return sorted(map(list, REQUEST_MODES.decode(ConfigFields(value, "file"), rules_of(release))))


def light_offsets(value: JsonObject, release: Release) -> object:
    found = LIGHT_OFFSETS.decode(ConfigFields(value, "file"), rules_of(release))
    return sorted([one.topic, one.group, one.offset] for one in found.light)


def texts(table: dict[int, int]) -> dict[str, int]:
    return {str(key): value for key, value in table.items()}


_READERS: Final[dict[str, Callable[[JsonObject, Release], object]]] = {
    "consumerOffset": offsets,
    "delayOffset": delays,
    "topics": topics,
    "subscriptionGroup": groups,
    "consumerFilter": filters,
    "messageRequestMode": modes,
    "lmqConsumerOffset": light_offsets,
}


def judged(kind: str, release: str) -> Iterator[tuple[str, bytes, Any]]:
    """Yield each case of a kind of file with what RocketMQ reads, None if it refuses."""
    with lzma.open(_CASES, "rt", encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            if case["kind"] == kind:
                for releases, answer in case["answers"]:
                    if release in releases:
                        yield case["case"], case["bytes"].encode("latin-1"), answer


@pytest.mark.golden
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", _READERS)
def test_a_file_is_taken_as_the_library_of_its_release_takes_it(kind: str, release: Release) -> None:
    for case, data, answer in judged(kind, release):
        try:
            found = _READERS[kind](parse_config(data, "file", rules_of(release)), release)
        except (CorruptRecordError, UnsafeSizeError):
            found = None

        assert (case, answer) == (case, found)


@pytest.mark.golden
@pytest.mark.parametrize("release", RELEASES)
def test_without_a_release_every_file_is_read_that_one_of_them_reads(release: Release) -> None:
    for case, data, answer in judged("consumerOffset", release):
        if answer is not None:
            assert (case, True) == (case, isinstance(parse_config(data, "file"), dict))

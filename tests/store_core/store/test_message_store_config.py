# SPDX-License-Identifier: Apache-2.0
"""Configuration: RocketMQ's names and defaults, a broker's own file, sizes inferred from files, and what is refused."""

from __future__ import annotations

import ast
import copy
import pickle
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import DefaultMessageStore, MessageStoreConfig, SegmentLayoutError
from store_core.errors import InvalidOptionError, StoreNotFoundError
from store_core.files.file_system import OsFileSystem
from store_core.format.message import Message
from store_core.store.message_store_config import BrokerConfig, DefaultSize, Release, parse_properties_file
from store_core.store.parts import check_least
from store_core.store.store_layout import with_sizes_of_files
from tests.store_core.files.store_kinds import every_file

if TYPE_CHECKING:
    from collections.abc import Iterator


ROOT = Path(__file__).parents[3]
BROKER_CONF = """\
# what an operator has
brokerClusterName = DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=SYNC_MASTER
flushDiskType : SYNC_FLUSH
mapedFileSizeCommitLog=1048576
enableLmq=true
messageDelayLevel=1s \\
    5s
brokerIP1=10.0.0.7
listenPort=30911
sendMessageThreadPoolNums=8
serverWorkerThreads=4
myOwnKey=1
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(text, encoding="latin-1")
    return path


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mapped_file_size_commit_log", 1073741824),
        ("mapped_file_size_consume_queue", 6000000),
        ("mapper_file_size_batch_consume_queue", 13800000),
        ("max_hash_slot_num", 5000000),
        ("max_index_num", 20000000),
        ("max_message_size", 4194304),
        ("flush_disk_type", "ASYNC_FLUSH"),
        ("broker_role", "ASYNC_MASTER"),
        ("flush_interval_commit_log", 500),
        ("flush_commit_log_thorough_interval", 10000),
        ("commit_commit_log_thorough_interval", 200),
        ("sync_flush_timeout", 5000),
        ("slave_timeout", 3000),
        ("os_page_cache_busy_time_out_mills", 1000),
        ("transient_store_pool_size", 5),
        ("file_reserved_time", 72),
        ("delete_when", "04"),
        ("timer_max_delay_sec", 259200),
    ],
)
def test_defaults_are_those_of_rocketmq(name: str, value: object) -> None:
    assert value == getattr(MessageStoreConfig(), name)


@pytest.mark.parametrize(("release", "expected"), [("4.3", False), ("4.9", True), ("5.3", True)])
def test_a_default_follows_the_release(release: Any, expected: bool) -> None:  # noqa: ANN401 -- a literal
    config = MessageStoreConfig(release=release)

    assert expected == config.flush_commit_log_timed
    assert MessageStoreConfig(release=release, flush_commit_log_timed=True).flush_commit_log_timed


def test_file_of_a_broker_is_read(tmp_path: Path) -> None:
    config = MessageStoreConfig.from_properties(write(tmp_path, BROKER_CONF), "4.9")

    assert ("4.9", "SYNC_MASTER", "SYNC_FLUSH") == (config.release, config.broker_role, config.flush_disk_type)
    assert (48, 1048576, True) == (config.file_reserved_time, config.mapped_file_size_commit_log, config.enable_lmq)
    assert (1000, 5000) == config.delay_levels


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("flushDiskTyp", "flushDiskType"),
        ("flushdisktype", "flushDiskType"),
        ("mapedFileSizeCommitlog", "mappedFileSizeCommitLog"),
        ("max_mesage_size", "maxMessageSize"),
        ("storePathCommitlog", "storePathCommitLog"),
        ("brokerNam", "brokerName"),
    ],
)
def test_a_misspelt_key_is_told_with_the_one_that_is_meant(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str, meant: str
) -> None:
    path = write(tmp_path, f"{key}=1\n")

    assert MessageStoreConfig() == MessageStoreConfig.from_properties(path)
    assert [f"{path}: {key} changes nothing; did you mean {meant!r}?"] == caplog.messages


def test_a_dledger_broker_is_known_by_its_file(tmp_path: Path) -> None:
    assert MessageStoreConfig.from_properties(write(tmp_path, "enableDLegerCommitLog=true")).enable_dleger_commit_log


def test_broker_takes_its_part_of_the_same_file(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties(write(tmp_path, BROKER_CONF))

    assert ("broker-a", ("10.0.0.7", 30911)) == (config.broker_name, config.store_host)


def test_names_may_be_spelled_as_here(tmp_path: Path) -> None:
    config = MessageStoreConfig.from_properties(write(tmp_path, "flush_disk_type=SYNC_FLUSH\nmax_message_size=10\n"))

    assert ("SYNC_FLUSH", 10) == (config.flush_disk_type, config.max_message_size)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("flushDiskType=SOMETIMES", "flushDiskType must be one of ASYNC_FLUSH, SYNC_FLUSH; found 'SOMETIMES'"),
        ("maxMessageSize=4M", "maxMessageSize must be an integer, found '4M'"),
        ("maxMessageSize=" + "9" * 5000, "maxMessageSize must be an integer, found '999"),
        ("enableLmq=yes", "enableLmq must be true or false, found 'yes'"),
        ("enableLmq=1", r"broker\.conf: enableLmq must be"),
        ("maxMessageSize=0", "max_message_size must be positive, found 0"),
        ("mapedFileSizeCommitLog=100", "a commit log file of 100 bytes holds no message"),
        ("maxIndexNum=3000000000", "max_index_num must fit into 32 bits"),
        ("messageDelayLevel=1s 5x", "a delay level is a number and s, m, h or d, found '5x'"),
    ],
)
def test_values_that_make_no_sense_are_named(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        MessageStoreConfig.from_properties(write(tmp_path, line))


@pytest.mark.parametrize("name", ["nowhere.conf", "long" * 80 + "nowhere.conf", "\0nowhere.conf"])
def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreNotFoundError, match=r"no configuration file .*nowhere\.conf"):
        BrokerConfig.from_properties(tmp_path / name)


@pytest.mark.parametrize(
    "values",
    [{"release": "5.1"}, {"max_message_size": "4"}, {"enable_lmq": 1}, {"max_index_num": True}, {"delete_when": 4}],
)
def test_arguments_of_another_type_are_named(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match=f"MessageStoreConfig.{next(iter(values))} must be"):
        MessageStoreConfig(**values)


def test_a_version_that_is_no_name_of_a_release_is_told_what_to_give() -> None:
    with pytest.raises(InvalidOptionError, match=r"; found '5\.3\.3'; .* the rules of 5\.3, so give 5\.3$"):
        MessageStoreConfig(release="5.3.3")  # type: ignore[arg-type]  # what an untyped caller may do


def test_configuration_pickles() -> None:
    config = MessageStoreConfig(flush_disk_type="SYNC_FLUSH")

    assert config == pickle.loads(pickle.dumps(config))  # noqa: S301 -- our own bytes


# Where a configuration is: in these variables and attributes, and in the methods of its own module.
HOLDERS: Final = {"config", "broker"}
OWN_MODULE: Final = "message_store_config.py"


def attributes_read(package: str) -> Iterator[str]:
    """Yield each attribute that the package reads from a configuration."""
    for path in ROOT.joinpath(package).rglob("*.py"):
        holders = HOLDERS | ({"self"} if path.name == OWN_MODULE else set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                holder = ast.unparse(node.value).split(".")[-1].removeprefix("_")
                if holder in holders:
                    yield node.attr


def test_every_field_is_read_somewhere() -> None:
    read = {name for package in ("store_core", "connector") for name in attributes_read(package)}

    assert set() == {field.name for kind in (MessageStoreConfig, BrokerConfig) for field in fields(kind)} - read


@pytest.mark.parametrize(
    "key",
    [
        "haSlaveFallbehindMax",
        "transactionCheckMax",
        "brokerIP2",
        "haListenPort",
        "accessMessageInMemoryHotRatio",
        "flushConsumerOffsetHistoryInterval",
        "timerRocksDBPrecisionMs",
        "myOwnKey",
        "x" * 100_000,
    ],
)
def test_keys_that_change_nothing_here_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    config = MessageStoreConfig.from_properties(write(tmp_path, f"{key}=1\n"))

    assert MessageStoreConfig() == config
    assert not caplog.records


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a=b", {"a": "b"}),
        (b"  a = b  ", {"a": "b  "}),
        (b"a:b\rc d\r\ne", {"a": "b", "c": "d", "e": ""}),
        (b"#x=y\n!z\n\n  # c\n", {}),
        (b"a=b\\\n   c\\\n\td", {"a": "bcd"}),
        (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (b"a\\=b\\:c\\ d=e", {"a=b:c d": "e"}),
        (b"a=\\u00e9\\t\\q\xe9", {"a": "\xe9\tq\xe9"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a==b", {"a": "=b"}),
        (b"a\\", {"a": ""}),
    ],
)
def test_properties_files_are_read_as_java_reads_them(text: bytes, expected: dict[str, str]) -> None:
    assert expected == parse_properties_file(text)


SIZES: dict[str, Any] = {
    "mapped_file_size_commit_log": 4096,
    "mapped_file_size_consume_queue": 200,
    "mapped_file_size_consume_queue_ext": 1024,
    "mapper_file_size_batch_consume_queue": 460,
    "max_hash_slot_num": 10,
    "max_index_num": 40,
}
OPTIONS = {
    "mapped_file_size_commit_log": "mappedFileSizeCommitLog",
    "mapped_file_size_consume_queue": "mappedFileSizeConsumeQueue",
    "mapped_file_size_consume_queue_ext": "mappedFileSizeConsumeQueueExt",
    "mapper_file_size_batch_consume_queue": "mapperFileSizeBatchConsumeQueue",
    "max_hash_slot_num": "maxHashSlotNum",
    "max_index_num": "maxIndexNum",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store with small files of every kind, more than one of most."""
    root = tmp_path_factory.mktemp("sizes") / "store"
    config = MessageStoreConfig(**SIZES, enable_consume_queue_ext=True)
    with DefaultMessageStore.open(root, config, batch_topics=["batches"]) as store:
        for number in range(60):
            store.put_message(Message("orders", b"x" * 100, properties={"KEYS": f"k{number}", "TAGS": "t"}))
    batch = root / "batchconsumequeue" / "batches" / "0"
    batch.mkdir(parents=True)
    (batch / f"{0:020d}").write_bytes(bytes(460))
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "store")


def sized(root: Path, **given: Any) -> dict[str, int]:  # noqa: ANN401 -- any field
    config = with_sizes_of_files(root, MessageStoreConfig(**given), OsFileSystem())
    return {name: getattr(config, name) for name in SIZES}


def test_all_sizes_are_those_of_the_files(root: Path) -> None:
    assert sized(root) == SIZES


def test_a_new_store_has_the_defaults_and_they_stay_ungiven(tmp_path: Path) -> None:
    config = with_sizes_of_files(tmp_path / "none", MessageStoreConfig(), OsFileSystem())

    for each in (config, replace(config, release="4.9"), copy.deepcopy(config)):
        assert all(isinstance(getattr(each, name), DefaultSize) for name in SIZES)
    assert not isinstance(replace(config, max_index_num=20_000_000).max_index_num, DefaultSize)


@pytest.mark.parametrize("field", SIZES)
def test_a_size_that_contradicts_is_refused_by_name_before_anything_is_written(root: Path, field: str) -> None:
    wrong = replace(MessageStoreConfig(), **{field: SIZES[field] * 2})
    before = every_file(root)

    has = (
        f"index files with {OPTIONS[field]}={SIZES[field]}: " if "max_" in field else f"files of {SIZES[field]} bytes: "
    )
    says = f"option {OPTIONS[field]} says {SIZES[field] * 2}, but the store at {root} has {has}"
    with pytest.raises(InvalidOptionError, match=says):
        DefaultMessageStore.open(root, wrong)
    with pytest.raises(InvalidOptionError, match=f"field {field} of MessageStoreConfig"):
        DefaultMessageStore.open(root, wrong, read_only=True)
    assert OPTIONS[field] in str(DefaultMessageStore.dry_run(root, wrong).refusal)

    assert before == every_file(root)


def test_the_error_names_a_file_and_its_size(root: Path) -> None:
    with pytest.raises(InvalidOptionError, match=rf"expected 1048576 bytes, found 4096 in {root}/commitlog/0{{20}}\."):
        sized(root, mapped_file_size_commit_log=1 << 20)
    with pytest.raises(InvalidOptionError, match=rf"found 10 slots and 40 entries in {root}/index/"):
        sized(root, max_index_num=41)


def test_sizes_of_a_broker_s_file_are_given_and_what_it_leaves_out_is_not(root: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mapedFileSizeCommitLog=4096\nmaxIndexNum=40\nflushDiskType=SYNC_FLUSH\n")
    config = with_sizes_of_files(root, MessageStoreConfig.from_properties(conf), OsFileSystem())
    assert SIZES == {name: getattr(config, name) for name in SIZES}

    conf.write_text("mappedFileSizeCommitLog=1073741824\n")  # the default, but explicit
    config = MessageStoreConfig.from_properties(conf)
    with pytest.raises(InvalidOptionError, match="mappedFileSizeCommitLog says 1073741824"):
        with_sizes_of_files(root, config, OsFileSystem())


def test_queue_sizes_are_rounded_up_as_rocketmq_does(root: Path) -> None:
    assert 181 == sized(root, mapped_file_size_consume_queue=181)["mapped_file_size_consume_queue"]
    assert 415 == sized(root, mapper_file_size_batch_consume_queue=415)["mapper_file_size_batch_consume_queue"]
    with pytest.raises(InvalidOptionError):
        sized(root, mapped_file_size_consume_queue=180)


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3"])
def test_one_file_of_another_size_is_damage_and_the_release_decides(root: Path, release: Release) -> None:
    last = max((root / "commitlog").iterdir())
    last.write_bytes(last.read_bytes()[:-100])
    config = MessageStoreConfig(**SIZES, release=release)

    report = DefaultMessageStore.dry_run(root, config)

    assert report.is_refused is (release != "4.3")
    assert sized(root)["mapped_file_size_commit_log"] == 4096
    if release != "4.3":
        with pytest.raises(SegmentLayoutError, match="expected a segment of 4096 bytes, found 3996"):
            DefaultMessageStore.open(root, config)


def test_an_index_that_tells_nothing_leaves_the_configuration_as_it_is(root: Path) -> None:
    for path in (root / "index").iterdir():
        path.write_bytes(path.read_bytes()[:-7])

    assert {"max_hash_slot_num": 11, "max_index_num": 77}.items() <= sized(
        root, max_hash_slot_num=11, max_index_num=77
    ).items()


def test_entries_and_look_ups_are_those_of_the_store_without_a_configuration(root: Path) -> None:
    with DefaultMessageStore.open(root, read_only=True, batch_topics=["batches"]) as store:
        assert 60 == store.get_max_offset_in_queue("orders", 0)
        for number in (0, 37, 59):
            assert 1 == len(store.query_message("orders", f"k{number}", 10, 0, 2**62).message_buffers)


def test_what_is_written_without_a_configuration_has_the_sizes_that_are_there(root: Path) -> None:
    with DefaultMessageStore.open(
        root, MessageStoreConfig(enable_consume_queue_ext=True), batch_topics=["batches"]
    ) as store:
        for number in range(100):
            store.put_message(Message("orders", b"x" * 100, properties={"KEYS": f"n{number}", "TAGS": "t"}))

    assert {4096} == {path.stat().st_size for path in (root / "commitlog").iterdir()}
    assert {200} == {path.stat().st_size for path in (root / "consumequeue" / "orders" / "0").iterdir()}
    assert {40 + 4 * 10 + 20 * 40} == {path.stat().st_size for path in (root / "index").iterdir()}
    assert sized(root) == SIZES


def test_the_first_value_that_is_too_small_is_named() -> None:
    check_least(0, most_rows=0, older_than=1)

    with pytest.raises(InvalidOptionError, match=r"^older_than: expected 1 or more, found 0$"):
        check_least(1, most_rows=1, older_than=0, top=-1)


def test_what_arrow_has_no_number_for_is_refused() -> None:
    check_least(0, top=2**63 - 1)

    with pytest.raises(InvalidOptionError, match=r"^top: expected 9223372036854775807 or less, found 9{20}$"):
        check_least(0, top=10**20 - 1)

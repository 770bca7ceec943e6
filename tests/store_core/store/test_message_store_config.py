# SPDX-License-Identifier: Apache-2.0
"""Configuration: RocketMQ's names and defaults, read from a broker's own file."""

from __future__ import annotations

import ast
import pickle
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core.errors import InvalidOptionError, StoreNotFoundError
from store_core.store.broker_config import BrokerConfig, parse_properties_file
from store_core.store.message_store_config import MessageStoreConfig

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
        ("maxMessageSize=0", "max_message_size must be positive, found 0"),
        ("mapedFileSizeCommitLog=100", "a commit log file of 100 bytes holds no message"),
        ("maxIndexNum=3000000000", "max_index_num must fit into 32 bits"),
        ("messageDelayLevel=1s 5x", "a delay level is a number and s, m, h or d, found '5x'"),
    ],
)
def test_values_that_make_no_sense_are_named(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        MessageStoreConfig.from_properties(write(tmp_path, line))


def test_error_of_a_file_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"broker\.conf: enableLmq must be"):
        MessageStoreConfig.from_properties(write(tmp_path, "enableLmq=1"))


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
OWN_MODULES: Final = {"message_store_config.py", "broker_config.py"}


def attributes_read(package: str) -> Iterator[str]:
    """Yield each attribute that the package reads from a configuration."""
    for path in ROOT.joinpath(package).rglob("*.py"):
        holders = HOLDERS | ({"self"} if path.name in OWN_MODULES else set())
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

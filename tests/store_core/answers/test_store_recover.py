# SPDX-License-Identifier: Apache-2.0
"""Dry runs of a recovery as an answer."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from store_core import (
    DefaultMessageStore,
    InvalidOptionError,
    MessageStoreConfig,
    SegmentLayoutError,
    StoreAccessError,
    read_messages,
)
from store_core.answers import recover
from store_core.answers.report import Verdict
from store_core.format.release import RELEASES, Release
from tests.builders import LogBuilder
from tests.store_core.fakes import forbid_listing
from tests.store_core.files.store_kinds import spread

if TYPE_CHECKING:
    from tests.golden_stores import Golden

GOLDEN: Final = Path(__file__).parents[2] / "golden"

SMALL = MessageStoreConfig(mapped_file_size_commit_log=4096)


def test_a_part_of_a_store_is_told_with_its_root(tmp_path: Path) -> None:
    store = LogBuilder().write(tmp_path / "store")

    with pytest.raises(InvalidOptionError, match=f"the commit log of the store at {store}"):
        recover(store / "commitlog", config=SMALL)


def test_one_release_is_told_in_the_words_of_its_recovery(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append_all(b"one", b"two")
    store = log.write(tmp_path / "store")
    report = recover(store, config=SMALL)

    assert str(DefaultMessageStore.dry_run(store, SMALL)).split("\n")[0] == report.lines[1]
    assert not report.found.truncated_messages
    assert not report.plots


# ---- what RocketMQ makes of it, as the real releases did


@pytest.mark.golden
@pytest.mark.parametrize(("was_closed", "end"), [(True, 364299), (False, 131072)])
def test_a_twin_of_zeros_in_another_directory_is_loaded_as_rocketmq_does(
    was_closed: bool, end: int, golden: Golden, tmp_path: Path
) -> None:
    store = shutil.copytree(golden("5.3.3/propcrc").root, tmp_path / "store")
    directories = [tmp_path / name for name in "abc"]
    spread(store, directories)
    zeros = directories[2] / f"{131072:020}"
    zeros.write_bytes(bytes(131072))
    if not was_closed:
        (store / "abort").touch()
    config = tmp_path / "broker.conf"
    config.write_text(
        f"storePathCommitLog={','.join(map(str, directories))}\nmappedFileSizeCommitLog=131072\n"
        "mappedFileSizeConsumeQueue=800\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
    )
    report = DefaultMessageStore.dry_run(store, MessageStoreConfig.from_properties(config, release="5.3"))

    assert ("", end) == (report.refusal, report.max_offset)
    assert any(str(zeros) in note and str(directories[1] / zeros.name) in note for note in report.notes)
    assert was_closed != any(str(zeros) == each.where for each in report.decisions)


@pytest.mark.golden
@pytest.mark.parametrize("is_first", [True, False])
def test_reads_take_the_copy_that_has_the_data(
    is_first: bool, golden: Golden, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = golden("5.3.3/propcrc").root / "commitlog"
    twin = tmp_path / "twin"
    twin.mkdir()
    (twin / f"{131072:020}").write_bytes(bytes(131072))
    paths = [twin, log] if is_first else [log, twin]

    assert read_messages(log).read_all().equals(read_messages(paths).read_all())
    assert f"{twin / f'{131072:020}'} is all zeros, and {log / f'{131072:020}'}" in caplog.text


def test_two_copies_with_data_are_still_refused(tmp_path: Path) -> None:
    first, second = (LogBuilder().write(tmp_path / name) / "commitlog" / f"{0:020}" for name in "ab")
    second.write_bytes(bytes(2048) + b"x" + bytes(2047))
    if not any(first.read_bytes()):
        first.write_bytes(b"y" + bytes(4095))

    with pytest.raises(SegmentLayoutError, match="two files claim offset 0"):
        read_messages([first, second], store_path_commit_log=f"{first.parent},{second.parent}")


LIGHT = "enableLmq=true\nenableMultiDispatch=true\n"
# What load() of 4.9.7, 5.3.3, 5.4.0, 5.5.0 and 5.5.1 returned where a record's indexes in light queues are these.
STARTS = {
    "x": False, "1.5": False, "0x1": False, " 5": False, "5 ": False, "1_0": False, "9223372036854775808": False,
    "+5": True, "٣": True, "-5": True, "9223372036854775807": True, "1,2": True, ",": True, "1,": True, "7": True,
}  # fmt: skip


@pytest.mark.parametrize("release", [name for name in RELEASES if name != "4.3"])
@pytest.mark.parametrize(("indexes", "starts"), STARTS.items())
@pytest.mark.parametrize("was_closed", [True, False])
def test_an_index_that_is_no_number_stops_a_broker(
    release: Release, indexes: str, starts: bool, was_closed: bool, tmp_path: Path
) -> None:
    log = LogBuilder()
    log.append(b"body", properties={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": indexes})
    store = log.write(tmp_path / "store")
    if not was_closed:
        (store / "abort").touch()
    config = tmp_path / "broker.conf"
    config.write_text(f"{LIGHT}mappedFileSizeCommitLog=4096\n")
    report = DefaultMessageStore.dry_run(store, MessageStoreConfig.from_properties(config, release=release))

    assert starts is not report.is_refused


@pytest.mark.golden
@pytest.mark.parametrize("release", ["4.9", "5.3", "5.4", "5.5"])
def test_a_store_whose_light_index_is_no_number_is_refused(release: Release, tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / "field" / "lmq-nan.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    case = tmp_path / "lmq-nan"
    config = MessageStoreConfig.from_properties(case / "broker.conf", release=release)
    report = recover(case / "nan" / "store", config=config, release=release)

    assert Verdict.REFUSED is report.verdict
    told = " ".join(report.to_text().split())
    assert (
        f"refused: RocketMQ {release} fails to load such a store: it can't dispatch the record at 160 to queue" in told
    )
    assert "Set enableMultiDispatch=false in its configuration, and it loads" in told


def test_a_log_that_may_not_be_listed_is_a_named_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LogBuilder().write(tmp_path / "store")
    forbid_listing(monkeypatch, "commitlog")

    with pytest.raises(StoreAccessError, match=f"{store / 'commitlog'}: user .* has no permission"):
        recover(store, config=SMALL)

# SPDX-License-Identifier: Apache-2.0
"""Paths of a store that have the wrong type or no permission: errors name them, what is expected, and what to do."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import socket
import tempfile
from collections.abc import Callable
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import (
    DefaultMessageStore,
    Message,
    MessageStoreConfig,
    RebuildOptions,
    StoreAccessError,
    StoreError,
    UnsupportedStoreError,
    read_messages,
    read_view,
    rebuild_consume_queue,
)
from store_core.answers import check, plan_repair
from store_core.files.access import explained_access
from store_core.files.file_system import OsFileSystem
from store_core.files.segment_listing import refuse_other_file
from store_core.format.layout import CONSUME_QUEUE_UNIT, unit_dtype
from store_core.queue.consume_queue import consume_queue
from store_core.snapshot.log import Log
from tests.builders import Record, Timer, write_timers
from tests.golden_stores import UnpackedStore
from tests.store_core.fakes import FaultyFileSystem
from tests.store_core.files.store_kinds import every_file, ordinary_store
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return ordinary_store(tmp_path / "store")


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index"])
def test_a_file_in_the_place_of_a_part_is_named_and_nothing_is_written(root: Path, name: str) -> None:
    if (root / name).exists():
        (root / name).rename(root.parent / name)
    (root / name).write_text("not a directory")
    before = every_file(root)
    says = f"{root / name}: expected a directory .* found a file of 15 bytes.* Move it elsewhere"

    with pytest.raises(StoreAccessError, match=says):
        DefaultMessageStore.open(root)
    with pytest.raises(StoreAccessError, match=says):
        DefaultMessageStore.open(root, read_only=True)
    assert str(root / name) in str(DefaultMessageStore.dry_run(root).refusal)
    assert before == every_file(root)


@pytest.mark.parametrize("part", ["commitlog", "consumequeue"])
def test_a_dry_run_of_a_refused_store_says_whether_it_was_closed(root: Path, part: str) -> None:
    (root / part).rename(root.parent / part)
    (root / part).write_text("not a directory")
    assert "the store was closed" in str(DefaultMessageStore.dry_run(root))

    (root / "abort").touch()
    report = DefaultMessageStore.dry_run(root)
    assert report.is_refused
    assert not report.last_exit_ok
    assert "the store was not closed (there is an abort file)" in str(report)


def test_a_file_that_may_not_be_opened_is_named_by_opening_and_by_a_dry_run(root: Path) -> None:
    for read_only in (False, True):
        disk = FaultyFileSystem()
        disk.fail("open", errno.EACCES, times=99, after=0 if read_only else 1)  # after the lock
        with pytest.raises(
            StoreAccessError, match=f"{root}/.*: user .* has no permission to use it: Permission denied"
        ):
            DefaultMessageStore.open(root, read_only=read_only, file_system=disk)

    disk = FaultyFileSystem()
    disk.fail("open", errno.EACCES, times=99)
    assert "Permission denied" in str(DefaultMessageStore.dry_run(root, file_system=disk).refusal)


@contextmanager
def _closed(path: Path) -> Iterator[None]:
    """Let nobody use a path, and run as a user for whom file modes apply, if the tests run as root."""
    path.chmod(0)
    is_root = not os.geteuid()
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        path.chmod(0o755)


@pytest.fixture
def open_root() -> Iterator[Path]:
    """Make a store that any user can reach."""
    with tempfile.TemporaryDirectory(prefix="commitlog-access-") as directory:
        Path(directory).chmod(0o755)
        yield ordinary_store(Path(directory) / "store")


@pytest.mark.parametrize("name", ["commitlog", f"commitlog/{0:020d}", ""])
def test_what_a_reader_may_not_read_is_named(open_root: Path, name: str) -> None:
    with _closed(open_root / name), pytest.raises(StoreAccessError, match=r"Permission denied.* mode") as error:
        read_messages(open_root).read_all()

    assert str(open_root / name) in str(error.value)


@pytest.mark.parametrize("name", ["config", "consumequeue"])
def test_what_a_view_may_not_read_is_named_and_the_log_is_read_without_it(open_root: Path, name: str) -> None:
    (open_root / name).mkdir(exist_ok=True)
    (open_root / name / "queue").touch()
    messages = read_messages(open_root).read_all()
    with _closed(open_root / name):
        assert messages == read_messages(open_root).read_all()
        with pytest.raises(StoreAccessError, match=r"Permission denied.* mode") as error:
            read_view(open_root, "topics").read_all()

    assert str(open_root / name) in str(error.value)


def _listen(path: Path) -> None:
    with chdir(path.parent), socket.socket(socket.AF_UNIX) as there:  # the name of a socket has to be short
        there.bind(path.name)


@pytest.mark.parametrize(
    ("make", "kind"), [(os.mkfifo, "a named pipe"), (_listen, "a socket"), (Path.mkdir, "a directory")]
)
@pytest.mark.parametrize("name", ["checkpoint", f"commitlog/{0:020d}"])
def test_what_is_no_file_is_named_and_nobody_waits_for_it(
    root: Path, name: str, make: Callable[[Path], None], kind: str
) -> None:
    (root / name).unlink()
    make(root / name)

    for writable in (False, True):
        with pytest.raises(StoreAccessError, match=f"{root / name}: expected a file, found {kind}"):
            OsFileSystem().open(root / name, writable=writable)


@pytest.mark.parametrize(("path", "kind"), [("pipe", "a named pipe"), ("/dev/zero", "a device"), ("", "a directory")])
def test_a_configuration_that_is_no_file_is_named(tmp_path: Path, path: str, kind: str) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(StoreAccessError, match=f"expected a configuration file, found {kind}"):
        MessageStoreConfig.from_properties(tmp_path / path)


def test_the_part_of_a_path_that_is_no_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    says = f"{tmp_path / 'file'}: expected a directory, found a file"
    with pytest.raises(StoreAccessError, match=says) as error, explained_access(tmp_path):
        list((tmp_path / "file" / "below").iterdir())
    assert str(error.value) == str(pickle.loads(pickle.dumps(error.value)))  # noqa: S301 -- our own bytes


def test_what_is_wrong_with_the_disk_passes_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full") as error, explained_access(tmp_path):
        raise OSError(errno.ENOSPC, "full")
    assert not isinstance(error.value, StoreAccessError)


def test_a_file_in_the_place_of_a_queue_is_named_once_with_what_to_do(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_queue, "_SECONDS_BETWEEN", 0.0)
    topic = root / "consumequeue" / "blocked"
    topic.write_text("not a directory")

    with DefaultMessageStore.open(root) as store:
        store.put_message(Message(topic="blocked", body=b"", queue_id=0))
        store.dispatch_now()

    named = [record.getMessage() for record in caplog.records if str(topic) in record.getMessage()]
    assert len(named) == 1
    assert f"{topic}: expected a directory, found a file. Move what is there elsewhere" in named[0]
    assert "the store takes no more messages. Remove the cause" in caplog.text


# ---- everything that looks at a store


def _answers(root: Path) -> Iterator[Callable[[], object]]:
    yield lambda: check(root)
    yield lambda: plan_repair(root)
    yield lambda: rebuild_consume_queue(root, RebuildOptions(verify=True, with_index=True))


def test_a_loop_of_links_is_named_by_all_that_look_at_a_whole_store(root: Path) -> None:
    shutil.rmtree(root / "index", ignore_errors=True)
    (root / "index").symlink_to("index")
    for answer in _answers(root):
        with pytest.raises(StoreAccessError, match=f"{root}/index: expected a path without a loop"):
            answer()


def test_a_directory_that_may_not_be_listed_is_named_by_all_that_look_at_a_whole_store(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = next(path for path in root.glob("consumequeue/*/*"))
    listed = Path.iterdir

    def refusing(path: Path) -> Iterator[Path]:
        if path == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refusing)
    for answer in _answers(root):
        with pytest.raises(StoreAccessError, match=f"{closed}: user .* has no permission"):
            answer()


def test_a_directory_in_the_place_of_the_lock_is_named(root: Path) -> None:
    (root / "lock").unlink(missing_ok=True)
    (root / "lock").mkdir()

    with pytest.raises(StoreAccessError, match=f"{root}/lock: expected a file, found a directory"):
        DefaultMessageStore.open(root)


@pytest.mark.timeout(60)
def test_a_named_pipe_in_the_place_of_the_topics_is_not_waited_for(root: Path) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").unlink(missing_ok=True)
    os.mkfifo(root / "config" / "topics.json")

    assert read_messages(root, topic="orders").read_all() is not None
    with pytest.raises(StoreAccessError, match="found a named pipe"):
        read_view(root, "topics").read_all()
    with pytest.raises(StoreAccessError, match="found a named pipe"):
        check(root)


Golden = Callable[[str], UnpackedStore]

KINDS = {
    "consumequeue": "is a consume queue of topic ",
    "batchconsumequeue": "is a batch consume queue of topic ",
    "consumequeue_ext": "is the extension of the consume queue of topic ",
    "index": "is a file of the key index",
    "timerlog": "is a file of the log of timers",
    "config": "is a file of the broker's configuration",
    "checkpoint": "is the checkpoint of a store",
    "timerwheel": "is the wheel of the timers",
    "lock": "is the lock of a store",
}


def others(root: Path) -> list[Path]:
    """Return the files of a store that are no segments, one of each directory."""
    found = {path.parent if path.parent != root else path: path for path in sorted(root.rglob("*")) if path.is_file()}
    return [path for path in found.values() if path.relative_to(root).parts[0] in KINDS]


@pytest.fixture
def timers(tmp_path: Path) -> Path:
    """Make a store's files of timers."""
    root = tmp_path / "timers"
    write_timers(root, [Timer(due=1_700_000_100 + at, write=1_700_000_000) for at in range(5)], 1_700_000_000)
    return root


def refusal_of(path: object) -> str:
    with pytest.raises(UnsupportedStoreError) as raised:
        Log.of(str(path))
    return str(raised.value)


@pytest.mark.golden
@pytest.mark.parametrize("name", ["5.3.3/propcrc", "5.3.3/bcq", "4.9.7/lmq", "4.3.0/tx"])
def test_every_file_beside_the_log_is_named_by_what_it_is(name: str, golden: Golden) -> None:
    root = golden(name).root
    for path in others(root):
        (kind, *_) = path.relative_to(root).parts

        assert KINDS[kind] in refusal_of(path)


def test_files_of_timers_are_named(timers: Path, tmp_path: Path) -> None:
    log = next((timers / "timerlog").iterdir())

    assert KINDS["timerlog"] in refusal_of(log)
    assert KINDS["timerwheel"] in refusal_of(timers / "timerwheel")
    assert "is the checkpoint of the timers" in refusal_of(timers / "config" / "timercheck")
    assert "is a file of the log of timers, by the units" in refusal_of(shutil.copy(log, tmp_path / log.name))


@pytest.mark.golden
def test_a_queue_is_named_by_url_too(golden: Golden) -> None:
    root = golden("5.3.3/propcrc").root
    queue = next(path for path in others(root) if "consumequeue" in path.parts)
    url = in_memory(root, "propcrc")

    topic = queue.parent.parent.name
    for place in (queue.parent, queue):
        with pytest.raises(UnsupportedStoreError, match=f"it is a consume queue of topic '{topic}', queue"):
            Log.of(f"{url}/{place.relative_to(root)}")
    with pytest.raises(UnsupportedStoreError, match="is a file of the key index"):
        read_messages(f"{url}/{next((root / 'index').iterdir()).relative_to(root)}").read_all()


@pytest.mark.golden
@pytest.mark.parametrize("name", ["5.3.3/propcrc", "5.3.3/bcq"])
def test_a_file_that_was_moved_is_told_by_its_content(name: str, golden: Golden, tmp_path: Path) -> None:
    told = {
        "consumequeue": "is a consume queue, by",
        "batchconsumequeue": "is a batch consume queue, by",
        "index": KINDS["index"],
    }
    root = golden(name).root
    for path in others(root):
        (kind, *_) = path.relative_to(root).parts
        if kind in told and any(path.read_bytes()):
            place = Path(shutil.copy(path, tmp_path / path.name))

            assert told[kind] in refusal_of(place)


@pytest.mark.golden
@pytest.mark.parametrize("kind", ["5.3.3/propcrc", "4.3.0/tx", "5.3.3/v2topic"])
@pytest.mark.parametrize("place", ["consumequeue/orders/0", "index", "elsewhere"])
def test_a_segment_is_one_wherever_it_lies(kind: str, place: str, golden: Golden, tmp_path: Path) -> None:
    directory = tmp_path / place
    directory.mkdir(parents=True)
    for segment in (golden(kind).root / "commitlog").iterdir():
        shutil.copy(segment, directory)

    assert len(list((golden(kind).root / "commitlog").iterdir())) == len(Log.of(directory).segments)


@given(
    data=st.binary(max_size=300), name=st.sampled_from(["0" * 20, "20261121093228184", "lock", "x", "1" * 20 + ".gz"])
)
def test_any_bytes_are_taken_or_refused(data: bytes, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("any") / name
    path.write_bytes(data)
    try:
        refuse_other_file(path)
    except StoreError as error:
        assert isinstance(error, UnsupportedStoreError)  # noqa: PT017 -- most bytes are taken


def test_zeros_are_an_empty_log_unless_they_lie_among_queues(tmp_path: Path) -> None:
    queue = tmp_path / "consumequeue" / "orders" / "3"
    queue.mkdir(parents=True)
    for place in (tmp_path, queue):
        (place / f"{0:020}").write_bytes(bytes(4000))

    assert 1 == len(Log.of(tmp_path / f"{0:020}").segments)
    assert "consume queue of topic 'orders', queue 3" in refusal_of(queue / f"{0:020}")


def test_a_segment_whose_first_magic_is_lost_is_no_batch_queue(tmp_path: Path) -> None:
    data = bytearray(Record(bytes(100)).encode())
    data[4:8] = bytes(4)
    path = tmp_path / f"{0:020}"
    path.write_bytes(data)

    assert 1 == len(Log.of(path).segments)


def test_units_that_do_not_follow_each_other_are_no_queue(tmp_path: Path) -> None:
    units = np.zeros(200, unit_dtype(CONSUME_QUEUE_UNIT))
    units["physical_offset"][:3], units["store_size"][:3] = (900, 100, 500), 100
    path = tmp_path / f"{0:020}"
    path.write_bytes(units.tobytes())

    assert 1 == len(Log.of(path).segments)

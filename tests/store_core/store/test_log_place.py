# SPDX-License-Identifier: Apache-2.0
"""Which log a store and its broker's configuration mean together, and that no other one is ever written."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from store_core import DefaultMessageStore, MessageStoreConfig, read_messages, rebuild_consume_queue, rebuild_index
from store_core.answers import check, plan_repair, recover, repair, replay
from store_core.errors import InvalidOptionError, StoreAccessError, StoreLockedError
from store_core.files.file_system import OsFileSystem
from store_core.files.machine import SystemClock
from store_core.files.store_lock import StoreLock, is_lock_held
from store_core.snapshot.store import store_at
from store_core.store.rebuild.plan import RebuildOptions
from store_core.store.sink.commit import SinkCommit
from tests.store_core.fakes import DeadDiskError, MortalFileSystem
from tests.store_core.files.store_kinds import every_file
from tests.store_core.store.logs import message
from tests.store_core.store.sink.staging import ImpatientClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store_core.store.message_store_config import Release

SIZES: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": 1 << 14,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 20,
    "max_index_num": 100,
}
CONFIG = MessageStoreConfig(**SIZES)


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """Make the store of a broker, with a torn record that a recovery cuts off."""
    root = tmp_path / "live"
    written(root, 10)
    tear(root / "commitlog")
    return root


@pytest.fixture
def copy(live: Path, tmp_path: Path) -> Path:
    """Copy that store, before more messages are put into it."""
    root = shutil.copytree(live, tmp_path / "copy")
    (live / "abort").unlink()
    with DefaultMessageStore.open(live, CONFIG) as store:
        store.put_message(message(b"later"))
    tear(live / "commitlog")
    return root


@pytest.fixture
def conf(live: Path, tmp_path: Path) -> Path:
    return configuration(tmp_path, storePathCommitLog=live / "commitlog")


def written(root: Path, count: int, config: MessageStoreConfig = CONFIG) -> None:
    with DefaultMessageStore.open(root, config) as store:
        for number in range(count):
            store.put_message(message(b"x" * 1000, keys=[f"k{number}"]))


def tear(log: Path) -> None:
    """Leave the head of a record behind the last one, as a crash does."""
    segment = max(log.iterdir())
    data = segment.read_bytes()
    end = len(data.rstrip(b"\0")) + 1
    segment.write_bytes((data[:end] + data[:60]).ljust(len(data), b"\0"))
    (log.parent / "abort").touch()


def configuration(directory: Path, **settings: object) -> Path:
    path = directory / "broker.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def bodies(root: Path | str, **options: Any) -> list[bytes]:  # noqa: ANN401 -- of the reader
    found: list[bytes] = read_messages(root, columns=["body"], **options).read_all()["body"].to_pylist()
    return found


# ---- what is written


def opened(store: Path, conf: Path, chosen: str | None) -> None:
    config = MessageStoreConfig.from_properties(conf)
    DefaultMessageStore.open(store, config, store_path_commit_log=chosen).close()


def committed(store: Path, conf: Path, chosen: str | None) -> None:
    config = MessageStoreConfig.from_properties(conf)
    config = config if chosen is None else config.with_log(chosen)
    SinkCommit(store, f"job-{'0' * 32}", config, SystemClock(), OsFileSystem()).run([])


def replayed(store: Path, conf: Path, chosen: str | None) -> None:
    read: dict[str, Any] = {"mode": "DROPMALFORMED", "config": conf, "store_path_commit_log": chosen}
    replay(store, "T-1", key="k1", **read)


def repaired(store: Path, conf: Path, chosen: str | None) -> None:
    queue = next((store / "consumequeue").glob("*/*/*"))
    units = queue.read_bytes()
    queue.write_bytes(b"\1" + units[1:])
    plan = conf.with_name("plan.json")
    planned = plan_repair(store, config=conf, store_path_commit_log=chosen)
    plan.write_text(json.dumps(planned.to_json()))
    try:
        repair(store, plan)
    except BaseException:
        queue.write_bytes(units)
        raise


def rebuilt(store: Path, conf: Path, chosen: str | None) -> None:
    rebuild_consume_queue(store, RebuildOptions(config=conf, store_path_commit_log=chosen))


def replaced(store: Path, conf: Path, chosen: str | None) -> None:
    options = RebuildOptions(config=conf, store_path_commit_log=chosen, replace=True, with_index=True)
    rebuild_consume_queue(store, options)


def index_replaced(store: Path, conf: Path, chosen: str | None) -> None:
    rebuild_index(store, RebuildOptions(config=conf, store_path_commit_log=chosen, replace=True))


WRITERS: Final = (opened, committed, replayed, repaired, rebuilt, replaced, index_replaced)
LOG_WRITERS: Final = (opened, committed, replayed)


@pytest.mark.parametrize("write", WRITERS)
def test_nothing_is_written_where_store_and_configuration_have_two_logs(
    write: Callable[[Path, Path, str | None], None], copy: Path, live: Path, conf: Path
) -> None:
    before = every_file(copy), every_file(live)
    with pytest.raises(InvalidOptionError, match=r"commitlog.*commitlog.*option storePathCommitLog"):
        write(copy, conf, None)

    assert before == (every_file(copy), every_file(live))


@pytest.mark.parametrize("write", WRITERS)
def test_a_log_that_is_said_to_be_meant_is_written_and_no_other(
    write: Callable[[Path, Path, str | None], None], copy: Path, live: Path, conf: Path
) -> None:
    before = every_file(live)
    write(copy, conf, str(copy / "commitlog"))

    assert before == every_file(live)
    assert [b"x" * 1000] * 10 == bodies(copy, mode="DROPMALFORMED")[:10]


@pytest.mark.parametrize("release", ["4.3", "4.9", "5.3", "5.5"])
def test_whichever_call_a_start_dies_at_the_live_log_stays_as_it_is(
    release: Release, copy: Path, live: Path, conf: Path, tmp_path: Path
) -> None:
    config = replace(MessageStoreConfig.from_properties(conf), release=release)
    before = every_file(live)
    for changes in range(0, 40, 3):
        disk = MortalFileSystem()
        disk.changes_left = changes
        root = shutil.copytree(copy, tmp_path / f"copy-{changes}")
        with suppress(DeadDiskError):
            DefaultMessageStore.open(
                root, config, file_system=disk, clock=ImpatientClock(), store_path_commit_log=root / "commitlog"
            ).close()
        with suppress(InvalidOptionError):
            DefaultMessageStore.open(root, config, file_system=disk)

    assert before == every_file(live)


@pytest.mark.parametrize("write", LOG_WRITERS)
@pytest.mark.parametrize("held", ["the log's", "the broker's"])
def test_a_log_whose_broker_runs_is_not_written_whoever_says_so(
    write: Callable[[Path, Path, str | None], None], held: str, copy: Path, live: Path, tmp_path: Path
) -> None:
    """The broker's root is above its log, or where its configuration says."""
    broker = live if held == "the log's" else tmp_path / "broker"
    broker.mkdir(exist_ok=True)
    conf = configuration(tmp_path, storePathCommitLog=live / "commitlog", storePathRootDir=broker)
    with StoreLock(broker, OsFileSystem()):
        before = every_file(copy), every_file(live)
        with pytest.raises(StoreLockedError, match=str(broker)):
            write(copy, conf, str(live / "commitlog"))
        after = every_file(copy), every_file(live)

    for files in (*before, *after):
        files.pop("lock", None)
        for name in [name for name in files if name.startswith("commitlog-sink")]:
            del files[name]
    assert before == after


@pytest.mark.parametrize("linked", ["directory", "segment"])
def test_a_log_is_locked_where_its_links_lead(linked: str, copy: Path, live: Path) -> None:
    log = copy / "commitlog"
    if linked == "directory":
        shutil.rmtree(log)
        log.symlink_to(live / "commitlog")
    else:
        segment = min(log.iterdir())
        segment.unlink()
        segment.symlink_to(live / "commitlog" / segment.name)
    before = every_file(live)
    with StoreLock(live, OsFileSystem()):
        assert is_lock_held(copy)
        with pytest.raises(StoreLockedError, match=str(live)):
            DefaultMessageStore.open(copy, CONFIG)
    assert not is_lock_held(copy)
    after = every_file(live)
    after.pop("lock")
    before.pop("lock", None)

    assert before == after


def test_two_stores_with_one_log_are_not_open_at_once(tmp_path: Path) -> None:
    config = replace(CONFIG, store_path_commit_log=f"{tmp_path}/disk/commitlog")
    with (
        DefaultMessageStore.open(tmp_path / "one", config),
        pytest.raises(StoreLockedError, match=r"disk/lock is locked"),
    ):
        DefaultMessageStore.open(tmp_path / "two", config)


def test_a_directory_above_a_log_that_may_not_be_written_holds_no_lock(tmp_path: Path) -> None:
    class Guarded(OsFileSystem):
        def open(self, path: Path, *, create: bool = False, writable: bool = True) -> Any:  # noqa: ANN401 -- a file
            if path == tmp_path / "disk" / "lock":
                raise PermissionError(13, "Permission denied", str(path))
            return super().open(path, create=create, writable=writable)

    config = replace(CONFIG, store_path_commit_log=f"{tmp_path}/disk/commitlog")
    DefaultMessageStore.open(tmp_path / "store", config, file_system=Guarded()).close()
    (tmp_path / "disk" / "lock").touch()

    with pytest.raises(StoreAccessError):
        DefaultMessageStore.open(tmp_path / "store", config, file_system=Guarded())


# ---- a store without a log of its own


def test_a_store_without_a_log_has_that_of_its_configuration(tmp_path: Path) -> None:
    conf = configuration(tmp_path, storePathCommitLog=f"{tmp_path}/disk/commitlog", storePathRootDir=tmp_path / "store")
    config = replace(CONFIG, store_path_commit_log=f"{tmp_path}/disk/commitlog")
    written(tmp_path / "store", 3, config)
    opened(tmp_path / "store", conf, None)

    assert [b"x" * 1000] * 3 == bodies(tmp_path / "store", config=conf)
    assert not (tmp_path / "store" / "commitlog").exists()


@pytest.mark.parametrize("way", ["configured", "chosen", "by the path"])
def test_a_root_that_is_empty_beside_its_log_is_opened_for_reading(way: str, tmp_path: Path) -> None:
    log, root = tmp_path / "disk", tmp_path / "root"
    config = replace(CONFIG, store_path_commit_log=str(log))
    written(tmp_path / "store", 3, config)
    root.mkdir()
    named = store_at(root, config=config) if way == "by the path" else root
    ways: dict[str, dict[str, Any]] = {"configured": {"config": config}, "chosen": {"store_path_commit_log": log}}

    with DefaultMessageStore.open(named, read_only=True, **ways.get(way, {})) as store:
        assert store.max_physical_offset > 0


@pytest.mark.parametrize("named", ["root", "log alone"])
@pytest.mark.parametrize("write", WRITERS)
def test_the_log_of_another_store_is_read_and_not_written(
    write: Callable[[Path, Path, str | None], None], named: str, copy: Path, live: Path, tmp_path: Path
) -> None:
    shutil.rmtree(copy / "commitlog")
    root = {"storePathRootDir": live} if named == "root" else {}
    conf = configuration(tmp_path, storePathCommitLog=live / "commitlog", **root)
    before = every_file(copy), every_file(live)
    with pytest.raises(InvalidOptionError, match=rf"is that of the store at {live}.*option storePathCommitLog"):
        write(copy, conf, None)

    assert before == (every_file(copy), every_file(live))
    assert b"later" in bodies(copy, config=conf, mode="DROPMALFORMED")


def test_more_directories_of_another_stores_log_are_left_alone(copy: Path, live: Path, tmp_path: Path) -> None:
    conf = configuration(tmp_path, readOnlyCommitLogStorePaths=live / "commitlog", storePathRootDir=live)
    with pytest.raises(InvalidOptionError, match="whose log is in"):
        opened(copy, conf, None)

    assert b"later" not in bodies(copy, config=conf, mode="DROPMALFORMED")


# ---- what is read


def test_all_who_read_take_the_log_of_the_store_that_was_named(copy: Path, live: Path, conf: Path) -> None:
    own = check(copy).found.end_offset
    checked = check(copy, config=conf)
    recovered = recover(copy, config=MessageStoreConfig.from_properties(conf))
    with DefaultMessageStore.open(copy, MessageStoreConfig.from_properties(conf), read_only=True) as store:
        ends = [checked.found.end_offset, recovered.found.end_offset, store.max_physical_offset]
        notes = [*checked.found.notes, *store.recovery_report.notes]

    assert [own] * 3 == ends
    assert own < check(live).found.end_offset
    assert 2 == sum(f"{copy}/commitlog is used, and not {live}/commitlog" in note for note in notes)
    assert any(
        f"commitlog is used, and not {live}/commitlog" in row["note"] for row in recovered.tables["notes"].to_pylist()
    )


@pytest.mark.parametrize("way", ["itself", "a link", "among others"])
def test_a_log_that_is_configured_by_any_name_is_the_stores_own(way: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    names = {
        "itself": f"{root}/commitlog",
        "a link": f"{tmp_path}/link",
        "among others": f"{tmp_path}/more,{root}/./commitlog",
    }
    (tmp_path / "link").symlink_to(root / "commitlog")
    written(root, 3)
    conf = configuration(tmp_path, storePathCommitLog=names[way])
    opened(root, conf, None)

    assert not getattr(store_at(root, config=conf), "notes", ())
    assert 3 == len(bodies(root, config=conf))


def test_the_chosen_log_replaces_all_directories_of_the_configuration() -> None:
    config = MessageStoreConfig(store_path_commit_log="/a,/b", read_only_commit_log_store_paths="/c")

    assert None is config.with_log("/copy/commitlog").read_only_commit_log_store_paths
    assert "/c" == config.with_log("/a, /b").read_only_commit_log_store_paths
    with pytest.raises(InvalidOptionError, match="expected a directory"):
        config.with_log(" , ")

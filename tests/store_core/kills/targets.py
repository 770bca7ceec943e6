# SPDX-License-Identifier: Apache-2.0
"""The writers that are killed: what each finds, what it writes, and what has to be there afterwards.

Run as ``python -m tests.store_core.kills.targets KILLS SEED FOLDER NAME ...``: for each name a line of JSON goes to
standard output, with the numbers of the campaign. It needs a process of its own, which has no threads to lose in forks.
After ``leave`` nothing is checked: FOLDER/NAME/0, 1, ... are what the kills of a writer left, for somebody else to look
at, and FOLDER/NAME/told.json is what each had been told by then.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from store_core import DefaultMessageStore, Message, MessageStoreConfig, read_messages
from store_core.answers import (
    check,
    export,
    plan_repair,
    prove,
    redact,
    repair,
    replay,
)
from store_core.answers.rebuild import rebuild_consume_queue, rebuild_index
from store_core.answers.report import Verdict
from store_core.broker.consumer_offset import ConsumerOffsetManager
from store_core.errors import CorruptRecordError
from store_core.files.file_system import OsFileSystem
from store_core.files.machine import SystemClock
from store_core.format.message import PutMessageStatus
from store_core.store.parts import InProcess
from store_core.store.rebuild.plan import RebuildOptions
from store_core.store.sink.commit import AppendTransaction, CommitLedger, SinkCommit
from store_core.store.sink.staged_batch import SinkDirectory
from tests.store_core.kills.campaign import Target, leave_killed, run_campaign
from tests.store_core.rebuilt import queue_files
from tests.store_core.store.sink.staging import stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from store_core.answers import ReplayReport
    from store_core.format.release import Release


_SEGMENT: Final = 1 << 14
_MESSAGES: Final = 40
_MOST_AROUND_BODY: Final = 200
"""More bytes than a record of ours has around its body."""


def config_of(release: Release = "5.3", **values: object) -> MessageStoreConfig:
    """Return the configuration of a store of small files, whose index is complete after each recovery."""
    config = MessageStoreConfig(
        release=release,
        mapped_file_size_commit_log=_SEGMENT,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=10,
        max_index_num=20,
        message_index_safe=True,
        flush_disk_type="SYNC_FLUSH",
    )
    return replace(config, **values)  # type: ignore[arg-type]  # fields of the configuration


def message(number: int) -> Message:
    """Return the message of a number, of any size."""
    body = b"%d:" % number + b"x" * (number * 37 % 700)
    return Message(f"topic{number % 3}", body, keys=f"key{number}", queue_id=number % 2)


def numbers_of(root: Path) -> list[int]:
    """Return the numbers of all messages, in the log's order; it is sound to its end."""
    if not any((root / "commitlog").glob("*")):
        return []
    bodies = read_messages(root, columns=["body"], mode="FAILFAST").read_all()["body"].to_pylist()
    return [int(body.partition(b":")[0]) for body in bodies]


def check_whole(root: Path, release: Release) -> None:
    """Check that a store has no fault at all."""
    report = check(root, release=release, hash_slot_num=10, index_num=20)
    assert report.verdict is Verdict.CLEAN, report.to_text()


def check_opens(root: Path, config: MessageStoreConfig) -> None:
    """Open and close a store, as the next broker does."""
    with DefaultMessageStore.open(root, config):
        pass
    assert not (root / "abort").exists()
    check_whole(root, config.release)


@dataclass(frozen=True)
class Putting:
    """Messages put one by one, or several at once."""

    config: MessageStoreConfig
    batch: int = 1
    in_bulk: bool = False
    keeps_all: bool = True

    def prepare(self, folder: Path) -> None:
        with DefaultMessageStore.open(folder / "store", self.config) as store:
            self._put(store, 0, 7)

    def _put(self, store: DefaultMessageStore, first: int, size: int) -> bool:
        messages = [message(number) for number in range(first, first + size)]
        if self.in_bulk:
            columns = {
                "topic": [each.topic for each in messages],
                "queue_id": pa.array([each.queue_id for each in messages], pa.int32()),
                "keys": [each.keys for each in messages],
                "body": pa.array([each.body for each in messages], pa.binary()),
            }
            return store.append_batch(pa.table(columns)).is_ok
        return all(store.put_message(each).status is PutMessageStatus.PUT_OK for each in messages)

    def work(self, folder: Path, seed: int, tell: Callable[[int], None]) -> None:
        chance, number = random.Random(seed), 7  # noqa: S311 -- no secret
        with DefaultMessageStore.open(folder / "store", self.config) as store:
            while number < _MESSAGES:
                size = chance.randint(1, self.batch)
                assert self._put(store, number, size)
                number += size
                tell(number)

    def _is_cut_at_a_border(self, root: Path, number: int) -> bool:
        """Return whether the message of a number had to go to the next segment; a batch may be cut only there."""
        with DefaultMessageStore.open(root, self.config, read_only=True) as store:
            end = store.max_physical_offset
        return -end % _SEGMENT < len(message(number).body or b"") + _MOST_AROUND_BODY

    def check(self, folder: Path, seed: int, told: list[int]) -> None:
        """Check that there is what was acknowledged, each batch as a whole, and that the store goes on."""
        chance, number, ends = random.Random(seed), 7, [7]  # noqa: S311 -- no secret
        while number < _MESSAGES:
            number += chance.randint(1, self.batch)
            ends.append(number)
        root = folder / "store"
        seen = numbers_of(root)  # before any recovery: readers see no half of a message
        check_opens(root, self.config)
        numbers = numbers_of(root)

        assert seen in (numbers, numbers[: len(seen)])
        assert list(range(len(numbers))) == numbers
        assert len(numbers) >= (max([7, *told]) if self.keeps_all else 7)
        assert not self.in_bulk or len(numbers) in ends or self._is_cut_at_a_border(root, len(numbers))
        with DefaultMessageStore.open(root, self.config) as store:
            assert self._put(store, len(numbers), 2)
        with DefaultMessageStore.open(root, self.config) as store:  # again: what is in write buffers is not found yet
            for each in [0] if not numbers else [numbers[-1], len(numbers), len(numbers) + 1]:
                wanted = message(each)
                found = store.query_message(wanted.topic, f"key{each}", 64, 0, 2**63 - 1)
                assert wanted.body in [one.body for one in found.messages]


@dataclass(frozen=True)
class Recovering:
    """A store that was not closed, and has lost its queues and index: opening it makes them again (reput)."""

    release: Release

    def prepare(self, folder: Path) -> None:
        """Put messages, and lose what is derived from them."""
        Putting(config_of(self.release)).prepare(folder)
        root = folder / "store"
        with DefaultMessageStore.open(root, config_of(self.release)) as store:
            for number in range(7, 60):
                store.put_message(message(number))
        for directory in ("consumequeue", "index"):
            for path in sorted((root / directory).rglob("*"), reverse=True):
                path.unlink() if path.is_file() else path.rmdir()
        (root / "checkpoint").unlink()
        (root / "abort").touch()

    def work(self, folder: Path, _seed: int, tell: Callable[[int], None]) -> None:
        with DefaultMessageStore.open(folder / "store", config_of(self.release)):
            tell(0)

    def check(self, folder: Path, _seed: int, _told: list[int]) -> None:
        check_opens(folder / "store", config_of(self.release))
        assert list(range(60)) == numbers_of(folder / "store")


@dataclass(frozen=True)
class Rebuilding:
    """Queues and index, or the index alone, made again from the log, in the place of the old ones."""

    rebuild: Callable[[Path, RebuildOptions], object] = rebuild_consume_queue
    options: RebuildOptions = field(
        default_factory=lambda: RebuildOptions(
            with_index=True, replace=True, hash_slot_num=10, index_num=20, consume_queue_file_size=400
        )
    )

    @classmethod
    def of_index(cls) -> Self:
        return cls(rebuild_index, RebuildOptions(replace=True, hash_slot_num=10, index_num=20))

    @classmethod
    def of_index_files(cls) -> Self:
        """Return the one of the index alone, each file by a task of its own."""
        return replace(cls.of_index(), rebuild=_rebuild_by_files)

    def prepare(self, folder: Path) -> None:
        Recovering("5.3").prepare(folder)
        check_opens(folder / "store", config_of())

    def work(self, folder: Path, _seed: int, tell: Callable[[int], None]) -> None:
        self.rebuild(folder / "store", self.options)
        tell(0)

    def check(self, folder: Path, _seed: int, _told: list[int]) -> None:
        """Check that another rebuild finishes, and that nothing is left behind."""
        root = folder / "store"
        self.rebuild(root, self.options)
        check_opens(root, config_of())
        assert not (root / "rebuild-swap.json").exists()
        assert list(range(60)) == numbers_of(root)


class _TwoSlots(InProcess):
    """Runs parts one after another, cut and divided as for two at a time: a task writes each file of an index."""

    slots = 2


def _rebuild_by_files(path: Path, options: RebuildOptions) -> None:
    rebuild_index(path, options, engines=lambda _: nullcontext(_TwoSlots()))


@dataclass(frozen=True)
class Sinking:
    """Jobs of ``df.write``, or the batches of a stream, as their commits do it."""

    is_stream: bool

    def prepare(self, folder: Path) -> None:
        self._commit(folder / "store", 0)

    def _commit(self, root: Path, number: int) -> None:
        files = OsFileSystem()
        bodies = [b"%d:%d" % (number, each) + b"y" * (each * 97 % 900) for each in range(25)]
        job = f"job-{number:032x}"
        transaction = AppendTransaction("stream", number, is_batch=True) if self.is_stream else None
        config = config_of(max_index_num=4000, max_hash_slot_num=40)
        commit = SinkCommit(root, job, config, SystemClock(), files, transaction=transaction, is_alive=lambda _: False)
        directory = SinkDirectory(root, files).claim(job, "me", "1")
        staged = [stage(directory / f"part{part}", bodies[part::2], file_system=files) for part in range(2)]
        commit.run(staged)

    def work(self, folder: Path, _seed: int, tell: Callable[[int], None]) -> None:
        for number in (1, 2):
            self._commit(folder / "store", number)
            tell(number)

    def check(self, folder: Path, _seed: int, told: list[int]) -> None:
        """Check that each is there as a whole or not at all, and once, also if a stream repeats the last one."""
        root = folder / "store"
        if self.is_stream:
            begun = CommitLedger(SinkDirectory(root, OsFileSystem()).ledger, OsFileSystem()).entry("stream")
            last = 1 if begun is None else begun.transaction.number  # Spark repeats no batch before one that was begun
            for number in range(max(1, last, *told), 3):
                self._commit(root, number)
        else:
            self._commit(root, 3)
        numbers = numbers_of(root)
        jobs = sorted(set(numbers))

        assert numbers == sorted(numbers)
        assert dict.fromkeys(jobs, 25) == {job: numbers.count(job) for job in jobs}
        assert {0, *told} <= set(jobs)
        assert jobs == [0, 1, 2] if self.is_stream else jobs in ([0, 3], [0, 1, 3], [0, 1, 2, 3])
        assert [] == [
            path.name for name in ("staged", "segments") for path in (root / "commitlog-sink" / name).glob("*")
        ]
        report = check(root, release="5.3")
        assert report.verdict is Verdict.CLEAN, report.to_text()


class Repairing:
    """A repair by a plan."""

    def prepare(self, folder: Path) -> None:
        """Damage queues, and plan their repair; copies of the store before and after that stay."""
        Rebuilding().prepare(folder)
        root = folder / "store"
        shutil.copytree(root, folder / "sound")
        path = max((root / "consumequeue").rglob("0*"), key=lambda each: each.is_file())
        path.write_bytes(b"\1" * 20 + path.read_bytes()[20:])
        shutil.copytree(path.parent, root / "consumequeue" / "unknown" / "0")
        shutil.copytree(root, folder / "broken")
        plan = plan_repair(root, release="5.3", hash_slot_num=10, index_num=20)
        (folder / "plan.json").write_text(json.dumps(plan.to_json()))

    def work(self, folder: Path, _seed: int, tell: Callable[[int], None]) -> None:
        repair(folder / "store", folder / "plan.json")
        tell(0)

    def check(self, folder: Path, _seed: int, told: list[int]) -> None:
        """Check that the next run finishes, unless this one did, and that what was replaced is kept."""
        root = folder / "store"
        old, new = (queue_files(folder / name) for name in ("broken", "sound"))
        if not told:
            repair(root, folder / "plan.json")
        assert new == queue_files(root)
        (kept,) = (path for path in root.glob("replaced-*") if any(path.glob("consumequeue/*")))
        assert old.items() >= queue_files(kept).items()
        check_opens(root, config_of())
        assert list(range(60)) == numbers_of(root)
        assert [] == [name for name in ("repaired", "rebuild-swap.json") if (root / name).exists()]


class Redacting:
    """A copy without a text."""

    def prepare(self, folder: Path) -> None:
        Rebuilding().prepare(folder)

    def work(self, folder: Path, _seed: int, tell: Callable[[int], None]) -> None:
        assert redact(folder / "store", folder / "copy", text="xxx").verdict is Verdict.CLEAN
        tell(0)

    def check(self, folder: Path, _seed: int, told: list[int]) -> None:
        """Check that there is a whole copy or none, and that another one can be made."""
        copy = folder / "copy"
        assert copy.exists() or not told
        if not copy.exists():
            redact(folder / "store", copy, text="xxx")
        assert ["copy", "store"] == sorted(path.name for path in folder.iterdir())
        bodies = read_messages(copy, columns=["body"], mode="FAILFAST").read_all()["body"].to_pylist()
        assert len(bodies) == 60
        assert not any(b"xxx" in body for body in bodies)
        check_whole(copy, "5.3")


class Exporting:
    """Messages into files of a lake."""

    def prepare(self, folder: Path) -> None:
        Putting(config_of()).prepare(folder)
        export(folder / "store", folder / "lake")
        with DefaultMessageStore.open(folder / "store", config_of()) as store:
            for number in range(7, 40):
                store.put_message(message(number))

    def work(self, folder: Path, _seed: int, tell: Callable[[int], None]) -> None:
        export(folder / "store", folder / "lake")
        tell(0)

    def check(self, folder: Path, _seed: int, _told: list[int]) -> None:
        """Check that the next run exports the rest once."""
        export(folder / "store", folder / "lake")
        report = prove(folder / "store", folder / "lake")
        assert report.verdict is Verdict.CLEAN, report.to_text()
        assert [] == list((folder / "lake" / "_staged").iterdir())
        assert {".json", ""} >= {path.suffix for path in (folder / "lake" / "_ledger").iterdir()}


@dataclass(frozen=True)
class Replaying:
    """Messages that are appended again, under one name once, to their store or into a new one."""

    is_into_new: bool = False

    def prepare(self, folder: Path) -> None:
        Rebuilding().prepare(folder)

    def _replay(self, folder: Path) -> ReplayReport:
        into = folder / "new" if self.is_into_new else None
        given: dict[str, Any] = {"into_config": config_of()} if self.is_into_new else {"release": "5.3"}
        return replay(folder / "store", "again", into, to_topic="again", topic="topic1", **given)

    def work(self, folder: Path, _seed: int, tell: Callable[[int], None]) -> None:
        self._replay(folder)
        tell(0)

    def check(self, folder: Path, _seed: int, _told: list[int]) -> None:
        """Check that readers see all, or nothing, and that another replay leaves each message there once."""
        first = [] if self.is_into_new else list(range(60))
        whole = first + [number for number in range(60) if number % 3 == 1]
        root = folder / ("new" if self.is_into_new else "store")
        try:
            assert numbers_of(root) in (first, whole)
        except CorruptRecordError as error:  # a log with a hole, which readers refuse: see ADR 0011
            assert error.problem == "unwritten bytes"  # noqa: PT017 -- it need not be raised
        self._replay(folder)
        assert whole == numbers_of(root)
        assert self._replay(folder).found.is_repeat
        assert [] == list((root / "commitlog-sink" / "staged").iterdir())
        check_opens(root, config_of())
        assert whole == numbers_of(root)


class Configuring:
    """Committed offsets of consumers, in ``config/consumerOffset.json``."""

    def prepare(self, folder: Path) -> None:
        self._persist(folder, 0)

    def _persist(self, folder: Path, offset: int) -> None:
        manager = ConsumerOffsetManager(folder / "store", OsFileSystem())
        if offset:
            manager.load()
        for queue in range(200):
            manager.commit_offset("host", "group", "topic", queue, offset)
        manager.persist()

    def work(self, folder: Path, _seed: int, tell: Callable[[int], None]) -> None:
        for offset in range(1, 9):
            self._persist(folder, offset)
            tell(offset)

    def check(self, folder: Path, _seed: int, told: list[int]) -> None:
        """Check that all offsets are of one commit, the last that was told or the next."""
        manager = ConsumerOffsetManager(folder / "store", OsFileSystem())
        manager.load()
        offsets = {manager.query_offset("group", "topic", queue) for queue in range(200)}
        last = max([0, *told])
        assert offsets in ({last}, {last + 1})
        assert () == manager.notes
        self._persist(folder, last + 1)


TARGETS: Final[dict[str, Target]] = {
    "put": Putting(config_of()),
    "put-4.3": Putting(config_of("4.3")),
    "put-4.9": Putting(config_of("4.9")),
    "put-5.5": Putting(config_of("5.5")),
    "put-async": Putting(config_of("4.9", flush_disk_type="ASYNC_FLUSH")),
    "put-pool": Putting(
        config_of(flush_disk_type="ASYNC_FLUSH", transient_store_pool_enable=True, transient_store_pool_size=3),
        keeps_all=False,
    ),
    "append-batch": Putting(config_of(), batch=9, in_bulk=True),
    "append-batch-async": Putting(config_of("4.9", flush_disk_type="ASYNC_FLUSH"), batch=9, in_bulk=True),
    "reput": Recovering("5.3"),
    "reput-4.9": Recovering("4.9"),
    "rebuild": Rebuilding(),
    "rebuild-index": Rebuilding.of_index(),
    "rebuild-index-files": Rebuilding.of_index_files(),
    "sink-batch": Sinking(is_stream=False),
    "sink-stream": Sinking(is_stream=True),
    "repair": Repairing(),
    "redact": Redacting(),
    "export": Exporting(),
    "replay": Replaying(),
    "replay-new": Replaying(is_into_new=True),
    "config-files": Configuring(),
}
"""By name."""

if __name__ == "__main__":
    is_left = sys.argv[1] == "leave"
    kills, seed, folder, *names = sys.argv[1 + is_left :]
    for each in names:
        if is_left:
            place = Path(folder, each)
            place.mkdir()
            told = leave_killed(TARGETS[each], int(kills), int(seed), place)
            (place / "told.json").write_text(json.dumps(told))
        else:
            done = run_campaign(TARGETS[each], int(kills), int(seed), Path(folder))
            sys.stdout.write(json.dumps({"target": each, "killed": done.killed, **asdict(done)}) + "\n")
            sys.stdout.flush()

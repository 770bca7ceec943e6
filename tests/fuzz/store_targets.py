# SPDX-License-Identifier: Apache-2.0
"""Stores with one mutated file, and command lines: answers from sound bytes, refusals by name, no text as it is."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from store_core import DefaultMessageStore, Message, MessageStoreConfig, read_messages, read_view
from store_core.answers import check
from store_core.command.exit_code import ExitCode
from store_core.errors import StoreError
from tests.fuzz.target import Case, Finding, Target, expect, mutate_bytes, mutate_text, refused
from tests.golden_stores import newer_store, unpack
from tests.store_core.command.calls import call
from tests.store_core.fakes import FakeClock
from tests.viewed_store import make_viewed_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from random import Random

    import pyarrow as pa


_CONFIG: Final = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 14,
    mapped_file_size_consume_queue=400,
    mapped_file_size_consume_queue_ext=1 << 12,
    enable_consume_queue_ext=True,
    max_hash_slot_num=10,
    max_index_num=40,
)
_BATCH: Final = frozenset({"batches"})
_QUEUES: Final = (("orders", 0), ("orders", 1), ("payments", 0))
_COLUMNS: Final = ["physical_offset", "topic", "queue_id", "queue_offset", "body"]


def _make_store(root: Path) -> Path:
    """Make a store with queues, their extensions, batch queues and an index, in small files."""
    with DefaultMessageStore.open(root, _CONFIG, batch_topics=_BATCH, filter_bit_map=lambda _: b"\x05") as store:
        for number in range(60):
            topic, queue_id = (*_QUEUES, ("batches", 0))[number % 4]
            store.put_message(
                Message(topic, b"body %d" % number, queue_id=queue_id, tags=f"tag{number % 3}", keys=[f"k{number}"])
            )
    return root


@contextmanager
def _one_broken(random: Random, kept: dict[Path, bytes], change: Callable[[bytearray], object]) -> Iterator[None]:
    """Break one of several files, let something be asked, which may be refused, and mend it."""
    path = random.choice(list(kept))
    data = bytearray(kept[path])
    change(data)
    path.write_bytes(data)
    try:
        with refused(StoreError):
            yield
    finally:
        path.write_bytes(kept[path])


def _broken_file(
    folder: str, asks: tuple[Callable[[Random, Path, pa.Table], object], ...], unit: int = 20
) -> Callable[[Path], Case]:
    """Return a target's function: break a file below a folder of a store, ask something, and mend it."""

    def prepare(directory: Path) -> Case:
        root = _make_store(directory / "store")
        files = sorted(path for path in (root / folder).rglob("*") if path.is_file()) if folder else []
        files = files or [root / "checkpoint"]
        kept = {path: path.read_bytes() for path in files}
        scanned = _scan(root)

        def run(random: Random) -> None:
            def change(data: bytearray) -> None:
                size, written = len(data), len(data.rstrip(b"\0")) + unit
                mutate_bytes(random, data, range(0, min(written, size), unit))
                if random.random() < 0.7:
                    data[:] = data[:size].ljust(size, b"\0")

            with _one_broken(random, kept, change):
                random.choice(asks)(random, root, scanned)

        return run

    return prepare


def _scan(root: Path, **chosen: Any) -> pa.Table:  # noqa: ANN401 -- options of read_messages
    off = {"use_consume_queues": "never", "use_index_files": "never"}
    return read_messages(root, columns=_COLUMNS, **{**chosen, **off}).read_all()


def _of_queue(random: Random, root: Path, scanned: pa.Table) -> None:
    """A look-up by queue equals the scan, whatever the queue says."""
    topic, queue_id = random.choice(_QUEUES)
    looked_up = read_messages(root, columns=_COLUMNS, topic=topic, queue_id=queue_id).read_all()
    rows = [row for row in scanned.to_pylist() if (row["topic"], row["queue_id"]) == (topic, queue_id)]
    expect(rows, looked_up.to_pylist(), f"rows of {topic}/{queue_id}")


def _of_key(random: Random, root: Path, scanned: pa.Table) -> None:
    """A look-up by key equals the scan, whatever the index says."""
    number = random.randrange(60)
    found = read_messages(root, columns=_COLUMNS, key=f"k{number}").read_all()
    expect(
        [row for row in scanned.to_pylist() if row["body"] == b"body %d" % number], found.to_pylist(), "rows of a key"
    )


def _gets(random: Random, root: Path, _: pa.Table) -> None:
    """A consumer gets messages of its queue only."""
    topic, queue_id = random.choice(_QUEUES)
    with DefaultMessageStore.open(root, _CONFIG, read_only=True, batch_topics=_BATCH) as store:
        result = store.get_message("g", topic, queue_id, random.choice((0, 3, 14, 20)), 32)
        for message in result.messages if result else ():
            if (message.topic, message.queue_id) != (topic, queue_id):
                raise Finding(f"a message of {message.topic}/{message.queue_id} from {topic}/{queue_id}")
        store.query_message(topic, "k4", 8, 0, 1 << 62)


def _views(*names: str) -> Callable[[Random, Path, pa.Table], object]:
    def ask(random: Random, root: Path, _: pa.Table) -> None:
        read_view(root, random.choice(names)).read_all().validate(full=True)

    return ask


def _checked(_random: Random, root: Path, _: pa.Table) -> None:
    check(root, batch_topic=("batches",))


def _dry_run(_random: Random, root: Path, _: pa.Table) -> None:
    """A recovery of the store ends, and its report says what it did."""
    str(DefaultMessageStore.dry_run(root, _CONFIG, batch_topics=_BATCH, clock=FakeClock()))


def _config_views(directory: Path) -> Case:
    """Views, notes and checks over broken configuration files."""
    root = make_viewed_store(directory / "store")
    files = sorted((root / "config").iterdir()) + sorted((root / "timerlog").iterdir()) + [root / "timerwheel"]
    kept = {path: path.read_bytes() for path in files}
    names = (
        "topics",
        "consumer_offsets",
        "subscription_groups",
        "delay_offsets",
        "timerlog",
        "timerwheel",
        "checkpoint",
    )

    def run(random: Random) -> None:
        with _one_broken(random, kept, lambda data: mutate_bytes(random, data, range(0, min(len(data), 2000), 8))):
            read_view(root, random.choice(names)).read_all().validate(full=True)

    return run


def _rocksdb(directory: Path) -> Case:
    """A RocksDB with a broken file is read, or refused by name; the library's crashes stay in its own process."""
    golden = newer_store("5.5.0/rocksdb") or newer_store("5.5.0/rocksdb-crash")
    if golden is None:
        raise Finding("no golden store with a RocksDB is here")
    root = unpack(golden, directory).root
    kept = {
        path: path.read_bytes()
        for path in sorted(root.rglob("*"))
        if (path.suffix in {".sst", ".log"} or path.name.startswith(("MANIFEST", "CURRENT", "OPTIONS")))
        and path.stat().st_size
    }

    def run(random: Random) -> None:
        def change(data: bytearray) -> None:
            mutate_bytes(random, data, (0, 7, len(data) - 48, len(data) - 8))

        with _one_broken(random, kept, change):
            read_view(root, random.choice(("consumequeue", "topics"))).read_all()

    return run


# ---- command lines

_LINES: Final = (
    "cat STORE --topic orders --columns topic,body --limit 5",
    "head STORE -n 3 --format json", "count STORE --by topic",
    "get STORE k3", "ls STORE", "topics STORE", "view STORE consumequeue --topic orders", "schema STORE", "schema",
    "check STORE", "recover STORE --dry-run", "explain STORE --key k1", "diff STORE STORE", "bill STORE", "lag STORE",
    "delays STORE", "transactions STORE", "deadletters STORE", "retention STORE", "producers STORE", "trace STORE k3",
    "tail STORE -n 2", "cat STORE --filter 'a > 5' --mode PERMISSIVE --starting-offsets 100", "head STORE --format csv",
    "cat STORE --starting-timestamp 2026-01-01T00:00:00Z --queue-id 1 --release 4.9", "salvage STORE", "repair STORE",
)  # fmt: skip
_PIECES: Final = (
    "--topic ", "--columns ",
    "--help", "-n ", "--format table", "STORE", " ", "=", ",", "--", "-", "'", "--release 9.9",
    "--as-of now", "--queue-id x", "--mode X", "/dev/null", "/nonexistent", ".", "--key k1 ", "\x1b[31m", "é", "\udc80",
)  # fmt: skip
_NEVER: Final = ("--into", "--apply", "--plan", "--html", "--output", "--follow", "-f", "-o", "--write")
"""Options that write or never end, which a line by chance must not have."""

_HOSTILE: Final = "\x1b]0;gotcha\x07<script>"


def _commands(directory: Path) -> Case:
    root = directory / "store"
    config = MessageStoreConfig(
        mapped_file_size_commit_log=1 << 14, mapped_file_size_consume_queue=400, max_hash_slot_num=10, max_index_num=40
    )
    with DefaultMessageStore.open(root, config) as store:
        for number in range(20):
            topic = _HOSTILE if number % 7 == 3 else "orders"
            store.put_message(
                Message(topic, _HOSTILE.encode(), queue_id=number % 2, tags=_HOSTILE, keys=[f"k{number}"])
            )
    codes = {int(code) for code in ExitCode} | {130, 141}

    def run(random: Random) -> None:
        text = random.choice(_LINES)
        if random.random() < 0.8:
            text = mutate_text(random, text, _PIECES)
        words = [word.replace("STORE", str(root)) for word in text.replace("'", "").split(" ") if word]
        if "\0" in text or not _is_argument(text):
            return
        if any(word.startswith(_NEVER) for word in words) or (words and words[0] in {"redact", "replay", "export"}):
            return
        ended = call(*words)
        if ended.code not in codes or "this is a bug" in ended.errors:
            raise Finding(f"{words} ended with {ended.code}: {ended.errors[:500]}")
        if (_HOSTILE.encode() in ended.data and "arrow" not in words) or _HOSTILE in ended.errors:
            raise Finding(f"{words} showed a text of the store as it is: {ended.errors[:500]!r}")

    return run


def _is_argument(text: str) -> bool:
    """Return whether a system can pass a text to a program; bytes that are no UTF-8 are surrogates then."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


STORE_TARGETS: Final = (
    Target(
        "queues",
        _broken_file("consumequeue", (_of_queue, _gets, _views("consumequeue", "topics"), _checked, _dry_run)),
        4_000,
        12,
    ),
    Target("queue-extensions", _broken_file("consumequeue_ext", (_gets, _checked, _dry_run, _of_queue), 32), 1_500, 8),
    Target(
        "batch-queues",
        _broken_file("batchconsumequeue", (_gets, _views("consumequeue", "topics"), _checked, _dry_run), 46),
        1_000,
        6,
    ),
    Target("index", _broken_file("index", (_of_key, _gets, _views("index"), _checked, _dry_run)), 3_000, 12),
    Target("checkpoint", _broken_file("", (_views("checkpoint"), _checked, _dry_run), 8), 1_000, 8),
    Target("views-of-files", _config_views, 4_000, 20),
    Target("rocksdb", _rocksdb, 200, 1),
    Target("command-lines", _commands, 6_000, 40),
)

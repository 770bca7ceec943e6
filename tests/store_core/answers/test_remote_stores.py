# SPDX-License-Identifier: Apache-2.0
"""Answers about a store elsewhere are those about a copy; nothing is written there, and nothing shows its settings."""

from __future__ import annotations

import json
import logging
import os
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from store_core import (
    DefaultMessageStore,
    Message,
    MessageStoreConfig,
    ReadOptions,
    explain,
    plan_rebuild,
    read_messages,
    read_view,
    rebuild_consume_queue,
    store_at,
)
from store_core.answers import (
    export,
    plan_repair,
    prove,
    recover,
    redact,
    repair,
    retention,
    salvage,
    trace,
)
from store_core.answers.store_replay import replay
from store_core.command.program import program
from store_core.errors import InvalidOptionError, StoreError, UnsupportedStoreError
from store_core.files import storage
from store_core.files.storage import StorageSettings, parse_url
from store_core.store.read.read_plan import plan_ranges
from store_core.store.rebuild.plan import RebuildOptions
from store_core.views.view import ViewOptions, plan_view
from tests.golden_stores import golden_stores
from tests.object_store import SECRET, Faults, ObjectStore
from tests.store_core.answers.asked import answers_at
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.golden_stores import Golden


pytestmark = pytest.mark.usefixtures("no_pauses")

NOW = 1_900_000_000_000
STORES = ("4.9.7/tx", "5.3.3/tx", "5.5.0/bcq")
Store = str | os.PathLike[str]

ANSWERS = {name: asked for name, asked in answers_at(NOW, "orders/0/0").items() if name not in ("info", "retention")}
OF_THIS_MACHINE = ("notes", "offsets_written")
"""Facts about files on a disk: which release may have written them, and when a copy was made."""


def answer_of(name: str, store: Store) -> str:
    """Return an answer as text in which the store has no name, or the kind of error."""
    try:
        found = ANSWERS[name].ask(store).to_json()
    except StoreError as error:
        return type(error).__name__
    kept = {key: value for key, value in found.items() if key not in OF_THIS_MACHINE}
    return json.dumps(kept, sort_keys=True).replace(os.fspath(store), "STORE")


@pytest.mark.parametrize(
    "name",
    [pytest.param(each.name, marks=[pytest.mark.soak] * (each.name not in STORES)) for each in golden_stores()],
)
def test_answers_are_those_of_a_local_copy(name: str, golden: Golden) -> None:
    root = golden(name).root
    url = in_memory(root, name)
    for answer in ANSWERS:
        assert answer_of(answer, root) == answer_of(answer, url), answer


def test_a_check_by_url_reads_the_extensions_of_queues(tmp_path: Path) -> None:
    root = tmp_path / "store"
    config = MessageStoreConfig(mapped_file_size_commit_log=4096, max_index_num=40, enable_consume_queue_ext=True)
    with DefaultMessageStore.open(root, config) as store:
        for _ in range(9):
            store.put_message(Message("orders", b"body", properties={"TAGS": "paid"}))
    assert [each for each in (root / "consumequeue_ext").rglob("*") if each.is_file()]
    assert answer_of("check", root) == answer_of("check", in_memory(root, "extended"))


def test_exports_read_a_url_into_a_local_directory(server: ObjectStore, golden: Golden, tmp_path: Path) -> None:
    root = golden("5.3.3/tx").root
    store = store_at(server.upload(root, "exported"), server.settings)
    exported = export(store, tmp_path / "lake")
    assert export(root, tmp_path / "local").found.messages == exported.found.messages
    assert prove(store, tmp_path / "lake").verdict.name == "CLEAN"


def test_retention_needs_the_broker_s_disk(golden: Golden) -> None:
    url = in_memory(golden("5.3.3/tx").root, "kept")
    with pytest.raises(InvalidOptionError, match=r"is not on a local disk: give the size and use of the broker"):
        retention(url, now=NOW)
    found = retention(url, now=NOW, disk_size=10**12, disk_used=10**11)
    assert any("are those of the copy" in note for note in found.to_json()["notes"])


def test_commands_take_settings_and_show_none(server: ObjectStore, golden: Golden) -> None:
    root = golden("5.3.3/tx").root
    url = server.upload(root, "commanded")
    storage = ",".join(f"{name}={value}" for name, value in server.settings.items())
    one, others = storage.split(",", 1)
    commands = (
        ["check", url],
        ["topics", url],
        ["view", url, "checkpoint"],
        ["count", url],
        ["diff", url, url],
        ["ls", url],
    )
    for arguments in commands:
        found = CliRunner().invoke(program, [*arguments, "--storage", one, "--storage", others])
        assert (0, False) == (found.exit_code, SECRET in found.output), (arguments, found.output)
    gone = CliRunner().invoke(program, ["check", f"{url}-gone", "--storage", storage])
    assert f"{url}-gone" in gone.output
    assert SECRET not in gone.output


WRITERS: dict[str, Callable[[str, Path], object]] = {
    "repair": lambda url, _: plan_repair(url),
    "carry out a repair": lambda url, root: repair(url, root / "plan.json"),
    "recover": lambda url, _: recover(url),
    "redact": lambda url, root: redact(url, root.parent / "copy", text="x"),
    "redact into": lambda url, root: redact(root, url, text="x"),
    "salvage into": lambda url, root: salvage(root, f"{url}-new"),
    "export into": lambda url, root: export(root, f"{url}-lake"),
    "replay": lambda url, _: replay(url, "x", url, topic="orders"),
    "rebuild": lambda url, _: rebuild_consume_queue(url),
    "plan a rebuild": lambda url, _: plan_rebuild(url, RebuildOptions()),
    "rebuild into": lambda url, _: rebuild_consume_queue(url, RebuildOptions(output=f"{url}-new")),
    "open": lambda url, _: DefaultMessageStore.open(url),
}


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_to_a_url(
    name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = golden("5.3.3/tx").root
    url = in_memory(root, "unwritten")
    with pytest.raises(UnsupportedStoreError, match=f"{url}.*local disk"):
        WRITERS[name](url, root)
    assert not list(tmp_path.iterdir())


TELLING = (
    f"s3://user:{SECRET}@bucket/store",
    f"S3A://user:{SECRET}@bucket/store",
    f"s3://user:half/{SECRET}@bucket/store",
    f"abfs://container@account.dfs.core.windows.net/store?sig={SECRET}",
    f"https://account.blob.core.windows.net/container/store?sv=1&sig={SECRET}",
    f"hdfs://user:{SECRET}@host:8020/store",
    f"webhdfs://host/store?delegation={SECRET}",
    f"s3://bucket?secret_key={SECRET}",
)
CALLS: dict[str, Callable[[Any], object]] = {
    "messages": lambda url: read_messages(url).read_all(),
    "explain": explain,
    "view": lambda url: read_view(url, "topics").read_all(),
    "store_at": store_at,
    "answer": ANSWERS["bill"].ask,
    "export": lambda url: export(url, "never"),
}


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Keep all that any library logs."""
    caplog.set_level(logging.DEBUG)
    return caplog


def test_no_answer_shows_a_secret(
    server: ObjectStore, golden: Golden, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    store = store_at(server.upload(golden("5.3.3/tx").root, "answers"), server.settings)
    message_id = read_messages(store, columns=["msg_id"]).read_all()["msg_id"][0].as_py()
    reports = {name: answer.ask(store) for name, answer in ANSWERS.items() if name != "trace"}
    reports["trace"] = trace(store, message_id)
    reports["export"] = export(store, tmp_path / "lake")
    for name, report in reports.items():
        shown = f"{report.to_json()}{report.to_text()}{report.to_html()}{report!r}{report}"
        assert SECRET not in shown, name
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not any(SECRET.encode() in data for data in written)
    assert SECRET not in log.text


def test_no_object_shows_a_secret(server: ObjectStore, golden: Golden) -> None:
    url = server.upload(golden("5.3.3/tx").root, "objects")
    options = ReadOptions.parse(storage=server.settings)
    views = ViewOptions.parse("topics", storage=server.settings)
    place = parse_url(url, StorageSettings.of(server.settings))
    assert place is not None
    shown = [
        store_at(url, server.settings),
        options,
        views,
        place,
        place.storage,
        place.storage.opened(),
        plan_ranges(url, options),
        plan_view(views.read.store_of(url), views),
        read_messages(url, storage=server.settings),
        explain(url, storage=server.settings),
    ]
    for each in shown:
        assert SECRET not in f"{each!r}{each}", type(each)


@pytest.mark.parametrize("kinds", ["throttle", "limit", "cut", "refuse", "short"])
def test_no_failure_shows_a_secret(
    kinds: str, server: ObjectStore, golden: Golden, log: pytest.LogCaptureFixture
) -> None:
    url = server.upload(golden("5.3.3/tx").root, "failing")
    server.faults = Faults(every=1, kinds=(kinds,))
    for call in CALLS.values():
        assert SECRET not in failure(call, store_at(url, server.settings))
    assert SECRET not in log.text


@pytest.mark.parametrize("place", ["s3://bucket/nowhere", "s3://no-such-bucket/store"])
def test_what_is_missing_shows_no_secret(place: str, server: ObjectStore, log: pytest.LogCaptureFixture) -> None:
    for name in CALLS.keys() - {"store_at"}:  # which asks for nothing
        text = failure(CALLS[name], store_at(place, server.settings))
        assert place in text
        assert SECRET not in text
    assert SECRET not in log.text


@pytest.mark.parametrize("name", ["secret_kye", "anonymous", "request_timeout", "role_arn", "scheme"])
def test_wrong_settings_show_no_value(
    name: str, server: ObjectStore, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(storage, "_MOST", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # to take the role
    settings = {"region": "us-east-1", "endpoint_override": server.settings["endpoint_override"], name: SECRET}
    if name != "scheme":
        assert SECRET not in failure(lambda url: read_messages(url, storage=settings), "s3://bucket/store")
    assert SECRET not in log.text


@pytest.mark.parametrize("url", TELLING)
@pytest.mark.parametrize("name", CALLS)
def test_url_with_a_secret_is_not_shown(name: str, url: str, log: pytest.LogCaptureFixture) -> None:
    assert SECRET not in failure(CALLS[name], url)
    assert SECRET not in log.text


@pytest.mark.parametrize("url", TELLING)
def test_command_does_not_show_a_url_with_a_secret(url: str) -> None:
    for command in ("check", "count", "topics", "bill"):
        found = CliRunner().invoke(program, [command, url])
        assert found.exit_code
        assert SECRET not in found.output


def failure(call: Callable[[Any], object], store: object) -> str:
    """Return the text of an error, with its traceback as Python prints it."""
    try:
        call(store)
    except StoreError as error:
        return "".join(traceback.format_exception(error))
    return ""

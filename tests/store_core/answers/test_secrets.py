# SPDX-License-Identifier: Apache-2.0
"""The settings of a storage are in no report, text of an object, log line or error, whatever fails."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from store_core import ReadOptions, StoreError, explain, read_messages, read_view, store_at
from store_core.answers import export, trace
from store_core.command.program import program
from store_core.files import storage
from store_core.files.storage import StorageSettings, parse_url
from store_core.store.read.read_plan import plan_ranges
from store_core.views.view import ViewOptions, plan_view
from tests.object_store import SECRET, Faults, ObjectStore
from tests.store_core.answers.test_remote_stores import ANSWERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.golden_stores import Golden

pytestmark = pytest.mark.usefixtures("no_pauses")

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


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret_kye": SECRET},
        {"anonymous": SECRET},
        {"request_timeout": SECRET},
        {"role_arn": SECRET},
        {"scheme": SECRET},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_wrong_settings_show_no_value(
    wrong: dict[str, str], server: ObjectStore, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(storage, "_MOST", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # to take the role
    settings = {"region": "us-east-1", "endpoint_override": server.settings["endpoint_override"], **wrong}
    if "scheme" not in wrong:
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

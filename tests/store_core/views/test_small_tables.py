# SPDX-License-Identifier: Apache-2.0
"""The views of one small file, of any release, broken or hostile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import CorruptRecordError, StoreAccessError, UnsafeSizeError
from store_core.snapshot import config
from tests.viewed_store import refusal, refusal_if_any, rows_of, write_config

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "consumer_offsets": "consumerOffset.json",
    "delay_offsets": "delayOffset.json",
    "subscription_groups": "subscriptionGroup.json",
    "topics": "topics.json",
}
of_a_file = pytest.mark.parametrize(("view", "name"), FILES.items())


def test_fields_that_a_group_lacks_are_null(pristine: Path) -> None:
    (row,) = rows_of(pristine, "subscription_groups")

    assert {
        "group_name": "billing",
        "consume_enable": False,
        "retry_max_times": 16,
        "broker_id": 0,
    }.items() <= row.items()
    assert {None} == {row[name] for name in ("consume_message_orderly", "consume_timeout_minute", "attributes")}


def test_a_group_without_a_name_has_that_of_its_key(store: Path) -> None:
    write_config(store, "subscriptionGroup.json", '{"subscriptionGroupTable":{"a":{}}}')

    assert ["a"] == [row["group_name"] for row in rows_of(store, "subscription_groups")]


@pytest.mark.parametrize(
    "member",
    ['"retryMaxTimes":"x"', '"consumeEnable":"maybe"', '"attributes":{"a":[]}', '"brokerId":1e30', '"groupName":[]'],
)
def test_values_of_another_type_are_named(member: str, store: Path) -> None:
    write_config(store, "subscriptionGroup.json", f'{{"subscriptionGroupTable":{{"a":{{{member}}}}}}}')
    error = refusal(store, "subscription_groups")

    assert isinstance(error, CorruptRecordError)
    assert member.split('"')[1] in str(error)


@of_a_file
def test_something_else_in_a_files_place_is_named_and_never_waited_for(view: str, name: str, store: Path) -> None:
    path = store / "config" / name
    path.unlink()
    os.mkfifo(path)
    error = refusal(store, view)

    assert isinstance(error, StoreAccessError)
    assert "found a named pipe" in str(error)


@of_a_file
def test_a_file_that_is_too_large_is_not_read(
    view: str, name: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "_LARGEST", 10)
    error = refusal(store, view)

    assert isinstance(error, UnsafeSizeError)
    assert name in str(error)


@of_a_file
@given(data=st.binary(max_size=60), at=st.integers(0, 200))
def test_no_bytes_raise_anything_but_errors_of_a_store(
    view: str, name: str, data: bytes, at: int, pristine: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("hostile")
    root.joinpath("consumequeue").mkdir()
    text = (pristine / "config" / name).read_bytes()
    path = write_config(root, name, "")
    path.write_bytes(text[:at] + data + text[at + len(data) :])

    assert name in refusal_if_any(root, view, name)


def test_names_with_lone_surrogates_are_no_error_of_another_kind(store: Path) -> None:
    write_config(store, "subscriptionGroup.json", '{"subscriptionGroupTable":{"\\ud800":{}}}')

    assert "subscriptionGroup.json" in refusal_if_any(store, "subscription_groups", "subscriptionGroup.json")


def test_a_short_checkpoint_is_named(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(24))

    assert 3 == len(rows_of(tmp_path, "checkpoint", release="4.9"))
    assert f"checkpoint too short at offset 0 of {path}" in str(refusal(tmp_path, "checkpoint"))


@of_a_file
def test_rows_say_that_they_are_those_of_a_backup(view: str, name: str, store: Path) -> None:
    path = store / "config" / name
    before = rows_of(store, view)
    path.rename(path.with_name(f"{name}.bak"))
    path.write_text("{")
    after = rows_of(store, view)

    assert {f"config/{name}", None} >= {row.pop("config_file") for row in before}
    assert {f"config/{name}.bak", None} >= {row.pop("config_file") for row in after} != {None}
    assert before == after


@of_a_file
def test_zeros_after_a_file_that_power_loss_left_are_no_reason_for_the_backup(
    view: str, name: str, store: Path
) -> None:
    path = store / "config" / name
    before = rows_of(store, view)
    path.with_name(f"{name}.bak").write_text("{}")
    path.write_bytes(path.read_bytes() + bytes(4096))

    assert before == rows_of(store, view)

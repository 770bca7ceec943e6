# SPDX-License-Identifier: Apache-2.0
"""The signature of `read_messages`; mypy refuses each wrong call, or its ``type: ignore`` would be unused."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import numpy as np
import pytest

from store_core import InvalidOptionError, ReadMode, ReadOptions, read_messages
from store_core.store.read.option_values import OPTION_PARSERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

DESCRIBED = re.compile(r"^    ([a-z_]+(?:, [a-z_]+)*) : ", re.MULTILINE)


def arguments() -> dict[str, inspect.Parameter]:
    """Return the arguments of `read_messages` that are options."""
    parameters = inspect.signature(read_messages).parameters
    return {name: each for name, each in parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY}


def test_every_option_is_an_argument_and_is_described_once() -> None:
    described = [name for names in DESCRIBED.findall(ReadOptions.__doc__ or "") for name in names.split(", ")]
    options = [field.name for field in fields(ReadOptions) if field.metadata.get("is_option", True)]

    assert options == list(arguments()) == list(OPTION_PARSERS)
    assert [field.name for field in fields(ReadOptions)] == described


def test_no_argument_is_given_unless_the_caller_does() -> None:
    assert {None} == {each.default for each in arguments().values()}


def test_every_argument_reaches_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = {name: object() for name in arguments()}
    found: dict[str, object] = {}

    def parse(**named: object) -> ReadOptions:
        found.update(named)
        raise InvalidOptionError("seen")

    monkeypatch.setattr(ReadOptions, "parse", parse)
    with pytest.raises(InvalidOptionError, match="seen"):
        read_messages("/store", **marks)  # type: ignore[arg-type]  # marks of no type
    assert marks == found


@pytest.mark.parametrize(
    "call",
    [
        lambda path: read_messages(path, columns=["topic"], topic="a,b", queue_id=1, mode="PERMISSIVE"),
        lambda path: read_messages([path], columns=("topic",), queue_id=[1, 2], mode=ReadMode.FAILFAST, tag="a || b"),
        lambda path: read_messages(path, topics_pattern=re.compile("a"), key="k", verify_crc=False, decompress=True),
        lambda path: read_messages(path, filter="a = 5", filter_type="SQL92", release="5.3", fail_on_data_loss=False),
        lambda path: read_messages(path, starting_offsets={"a": {0: 12}}, ending_offsets={"a": {"0": 12}}),
        lambda path: read_messages(path, starting_offsets=np.int64(5), ending_offsets="latest", topic=None),
        lambda path: read_messages(path, starting_timestamp=date(2024, 5, 1), time_zone="Asia/Shanghai"),
        lambda path: read_messages(path, starting_timestamp=datetime(2024, 5, 1, tzinfo=UTC), time_zone=UTC),
        lambda path: read_messages(path, starting_timestamp="2024-05-01", ending_timestamp=2 * 10**12, time_zone="Z"),
        lambda path: read_messages(path, max_partition_bytes="128m", min_partitions=4, max_records_per_batch=10),
    ],
)
def test_right_calls_are_typed(call: Callable[[Path], pa.RecordBatchReader], tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))

    assert not call(tmp_path).read_all().num_rows


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: read_messages("/store", topics="a"), "unknown option 'topics'; did you mean 'topic'?"),  # type: ignore[arg-type]
        (lambda: read_messages("/store", topic=5), "option topic: expected names"),  # type: ignore[arg-type]
        (lambda: read_messages("/store", mode="IGNORE"), "option mode: expected one of FAILFAST"),  # type: ignore[arg-type]
        (lambda: read_messages("/store", verify_crc=2), "option verifyCrc"),  # type: ignore[arg-type]
        (lambda: read_messages("/store", starting_timestamp=1.5), "expected ms since 1970"),  # type: ignore[arg-type]
        (lambda: read_messages("/store", time_zone=8), "expected a time zone such as"),  # type: ignore[arg-type]
    ],
)
def test_wrong_calls_are_refused_by_types_and_in_words(call: Callable[[], pa.RecordBatchReader], says: str) -> None:
    with pytest.raises(InvalidOptionError, match=re.escape(says)):
        call()

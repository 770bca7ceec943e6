# SPDX-License-Identifier: Apache-2.0
"""No name leads out of the store, and every path that is returned can be created."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store_core.errors import InvalidOptionError
from store_core.queue.queue_path import parse_queue_id, queue_path, refusal_of

_NAMES = st.one_of(
    st.text(max_size=300), st.text("./\0a\x01é\U0001d4b3", max_size=8), st.integers(80, 300).map("中".__mul__)
)


@given(_NAMES, st.integers(-(2**31) - 1, 2**31))
@example("..", 0)
@example("", 0)
@example("../../x", 0)
@example("a/b", 0)
@example("\ud800", 0)
@example("\udcff", 0)
@example("x" * 255, 2**31 - 1)
def test_a_name_is_refused_or_its_directory_lies_two_levels_below(topic: str, queue_id: int) -> None:
    with tempfile.TemporaryDirectory() as root:
        directory = Path(root) / "consumequeue"
        if refusal_of(topic, queue_id) is not None:
            with pytest.raises(InvalidOptionError):
                queue_path(directory, topic, queue_id)
            return
        path = queue_path(directory, topic, queue_id)
        path.mkdir(parents=True)

        assert path.resolve().parent.parent == directory.resolve()
        assert [name.name for name in directory.iterdir()] == [topic]
        assert parse_queue_id(path.name) == queue_id


@pytest.mark.parametrize(
    ("topic", "queue_id", "reason"),
    [
        ("", 0, "'' names no directory of its own"),
        ("..", 0, "'..' names no directory of its own"),
        ("a/b", 0, "the name holds '/'"),
        ("a\0b", 0, r"the name holds '\x00'"),
        ("a\x9fb", 0, r"the name holds '\x9f'"),
        ("é" * 128, 0, "the name has 256 bytes, and 255 are the most"),
        ("T", -1, "a queue id is 0 to 2147483647"),
        ("T", 2**31, "a queue id is 0 to 2147483647"),
        ("%LMQ%a b|c", 70000, None),
        ("\ufffd", 0, None),
    ],
)
def test_a_refusal_says_why(topic: str, queue_id: int, reason: str | None) -> None:
    assert refusal_of(topic, queue_id) == reason


def test_the_error_pickles_and_names_the_queue(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"queue 3 of topic '\.\./x' can't be a directory") as caught:
        queue_path(tmp_path, "../x", 3)

    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 -- our own


@pytest.mark.parametrize(
    ("name", "queue_id"),
    [("0", 0), ("007", 7), ("+7", 7), ("-1", -1), ("2147483648", None), ("7 ", None), ("1_0", None), ("", None)],
)
def test_a_directory_is_a_queue_if_java_reads_a_number(name: str, queue_id: int | None) -> None:
    assert parse_queue_id(name) == queue_id

# SPDX-License-Identifier: Apache-2.0
"""Proofs in a file spare another process the proof, and are used only if nobody else can have written them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import InvalidOptionError, ReadOptions, plan_ranges
from store_core.store.read.lookup import index_survey, plain_proofs, survey
from store_core.store.read.lookup.file_state import FileState
from store_core.store.read.lookup.plain_proofs import NotPlainError
from store_core.store.read.lookup.proof_file import UnusableProofsError, read_proof_file, write_proof_file
from store_core.store.read.lookup.proofs import PROOFS
from store_core.store.read.lookup.queue_tiling import QueueTiling
from tests.store_core.store.read.index_stores import keyed_store
from tests.store_core.store.read.lookup_stores import ALWAYS, remembering, same_as_scan, touch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from store_core.store.read.read_plan import ReadPlan


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("filed") / "store"
    keyed_store(root)
    touch(root, 1)
    return root


@pytest.fixture(autouse=True)
def at_rest() -> Iterator[None]:
    with remembering():
        yield


def _asked(store: Path, proofs: Path, **options: Any) -> ReadPlan:  # noqa: ANN401 -- passed on
    return plan_ranges(store, ReadOptions.parse(proofs=proofs, **options), ALWAYS)


@pytest.mark.parametrize("options", [{"key": "k11"}, {"topic": "t0"}, {"unique_key": "U31", "topic": "t1"}], ids=str)
def test_another_process_does_not_prove_again(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    first = _asked(store, tmp_path / "proofs", key="k11")
    asked = same_as_scan(store, **options).explanation
    (path,) = (tmp_path / "proofs").iterdir()
    written = path.stat()
    PROOFS.forget()
    monkeypatch.delattr(index_survey, "_read")
    monkeypatch.delattr(QueueTiling, "_edges")
    if "topic" not in options:
        monkeypatch.delattr(survey, "_survey_file")

    again = _asked(store, tmp_path / "proofs", **options)

    assert not first.explanation.notes
    assert again.explanation == asked
    assert path.stat().st_ino == written.st_ino
    assert written.st_mode & 0o777 == 0o600


def test_what_a_process_knew_before_is_written_too(store: Path, tmp_path: Path) -> None:
    same_as_scan(store, key="k11")
    _asked(store, tmp_path, key="k11")
    before = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    _asked(store, tmp_path, key="k11")

    (path,) = before
    assert [len(rows) > 3 for rows in (_lines(path)[0]["files"], _lines(path)[1])] == [False, True]
    assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == before


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)


def _swap_for_link(path: Path) -> None:
    path.rename(path.with_name("else"))
    path.symlink_to("else")


def _swap_for_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _of_another_version(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"format": ', b'"format": 1', 1))


def _of_another_store(path: Path) -> None:
    _rewrite(path, lambda found: found | {"root": "/"})


def _rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    first, rest = _lines(path)
    _write(path, change(first), rest)


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in (read_proof_file(path) or b"").splitlines()]


def _write(path: Path, *lines: object) -> None:
    write_proof_file(path, b"\n".join(json.dumps(line).encode() for line in lines))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_flip, "it is damaged"),
        (lambda path: os.truncate(path, 40), "it is damaged"),
        (lambda path: path.write_bytes(b""), "it is damaged"),
        (lambda path: path.write_bytes(b"[" * 10**5), "it is damaged"),
        (_of_another_version, "another version wrote it"),
        (lambda path: path.chmod(0o620), "others may write to it: expected mode 600"),
        (lambda path: path.chmod(0o602), "others may write to it: expected mode 600"),
        (lambda path: os.truncate(path, 17 << 20), "it has more than 16 MiB"),
        (lambda path: (path.unlink(), path.mkdir()), "it is not a file"),
        (_swap_for_pipe, "it is not a file"),
        (_swap_for_link, "it can't be read"),
        (_of_another_store, "they are not what was written"),
        (lambda path: _rewrite(path, lambda _: []), "they are not what was written"),
        (lambda path: _rewrite(path, lambda found: found | {"files": [[1, 2]]}), "they are not what was written"),
        (lambda path: _rewrite(path, lambda found: found | {"facts": [[["x"], 1]]}), "they are not what was written"),
    ],
)
def test_a_file_that_may_lie_is_not_used(
    store: Path, tmp_path: Path, change: Callable[[Path], object], why: str
) -> None:
    first = _asked(store, tmp_path, key="k11").explanation
    (path,) = tmp_path.iterdir()
    PROOFS.forget()
    change(path)

    again = same_as_scan(store, key="k11", proofs=tmp_path).explanation

    assert any(f"the proofs in {path} are not used: {why}" in note for note in again.notes), again.notes
    assert (again.plan, again.records, again.bytes) == (first.plan, first.records, first.bytes)


def test_what_queue_files_say_is_read_only_if_it_is_needed(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _asked(store, tmp_path, key="k11").explanation
    (path,) = tmp_path.iterdir()
    _write(path, _lines(path)[0], [["queue", "what", "is", "this"]])
    PROOFS.forget()

    again = _asked(store, tmp_path, key="k11").explanation
    by_topic = same_as_scan(store, topic="t0", proofs=tmp_path).explanation

    assert again == whole
    assert any("they are not what was written" in note for note in by_topic.notes), by_topic.notes
    PROOFS.forget()
    monkeypatch.delattr(survey, "_survey_file")
    assert _asked(store, tmp_path, key="k12").explanation.plan == "index"


def test_what_is_found_out_anew_is_not_replaced_by_what_was_filed(store: Path, tmp_path: Path) -> None:
    _asked(store, tmp_path, key="k11")
    (path,) = tmp_path.iterdir()
    PROOFS.forget()
    touch(store, 2)

    fresh = same_as_scan(store, topic="t0", proofs=tmp_path).explanation
    written = {name[0]: state for kind, name, state, *_ in _lines(path)[1] if kind == "queue"}
    PROOFS.forget()
    again = same_as_scan(store, topic="t0", proofs=tmp_path).explanation

    assert (fresh.plan, again) == ("queues", fresh)
    assert written == {name: list(FileState.at(name) or ()) for name in written} != {}


def test_a_file_of_another_user_is_not_used(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _asked(store, tmp_path, key="k11")
    (path,) = tmp_path.iterdir()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)

    with pytest.raises(UnusableProofsError, match=f"it belongs to user {owner}"):
        read_proof_file(path)


def test_what_can_not_be_written_is_a_note(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    notes = same_as_scan(store, key="k11", proofs=tmp_path / "file").explanation.notes

    assert len(notes) == 1
    assert "no proofs are written to" in notes[0]
    with pytest.raises(UnusableProofsError, match="would take more than 16 MiB"):
        write_proof_file(tmp_path / "large", bytes(16 << 20))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_file_is_made_in_a_store_or_without_being_used(store: Path) -> None:
    with pytest.raises(InvalidOptionError, match="proofs: expected a path outside of the store"):
        _asked(store, store / "proofs", key="k11")
    for options in ({"key": "k11"}, {}):
        with pytest.raises(InvalidOptionError, match="proofs: expected a path outside of the store"):
            plan_ranges(store, ReadOptions.parse(proofs=store / "proofs", **options))
    with pytest.raises(InvalidOptionError, match="expected none, since option rememberProofs"):
        ReadOptions.parse(proofs="/tmp", remember_proofs="never")  # noqa: S108 -- not touched
    for wrong in ("", 3, b"x", "s3://bucket/proofs"):
        with pytest.raises(InvalidOptionError, match="expected a directory on this machine"):
            ReadOptions.parse(proofs=wrong)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=8),
    max_leaves=20,
)


@given(_VALUES)
def test_values_of_another_kind_are_refused(value: object) -> None:
    readers = [
        plain_proofs.survey_of,
        plain_proofs.index_survey_of,
        plain_proofs.array_of,
        *plain_proofs.FACTS.values(),
    ]
    for reader in readers:
        try:
            reader(value)
        except NotPlainError:
            continue


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.booleans())
def test_numbers_are_read_as_they_were_written(numbers: list[int], are_pairs: bool) -> None:
    found = np.array(numbers[: len(numbers) // 2 * 2], np.int64)
    found = found.reshape(-1, 2) if are_pairs else found

    again = plain_proofs.array_of(json.loads(json.dumps(plain_proofs.plain_array(found))))

    assert again.shape == found.shape
    assert again.tolist() == found.tolist()

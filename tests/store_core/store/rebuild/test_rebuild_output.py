# SPDX-License-Identifier: Apache-2.0
"""A directory for rebuilt files is claimed by a mark, and removed so that a killed run can be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core import UnsupportedStoreError
from store_core.files.file_system import OsFileSystem
from store_core.store.rebuild.swap import OutputDirectory

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def output(tmp_path: Path) -> OutputDirectory:
    return OutputDirectory(tmp_path / "rebuilt", OsFileSystem())


def test_a_claimed_directory_can_be_claimed_again_and_is_removed_with_all_that_is_in_it(
    output: OutputDirectory,
) -> None:
    output.claim(output.path.parent)
    (output.path / "index").mkdir()
    (output.path / "index" / "1").touch()
    output.claim(output.path.parent)
    output.remove()

    assert not output.path.exists()


def test_a_directory_of_somebody_else_is_neither_claimed_nor_removed(output: OutputDirectory) -> None:
    output.path.mkdir()
    (output.path / "mine").touch()
    with pytest.raises(UnsupportedStoreError, match="was not made by a rebuild"):
        output.claim(output.path.parent)
    output.remove()

    assert (output.path / "mine").exists()


def test_what_a_run_has_left_there_is_kept_if_another_fails(output: OutputDirectory) -> None:
    output.claim(output.path.parent)
    (output.path / "index").mkdir()
    output.remove_if_empty()

    assert output.path.exists()
    (output.path / "index").rmdir()
    output.remove_if_empty()
    assert not output.path.exists()


def test_an_empty_directory_is_removed_without_a_mark_as_a_killed_run_leaves_it(output: OutputDirectory) -> None:
    output.path.mkdir()
    output.remove()

    assert not output.path.exists()


def test_a_link_in_it_is_removed_and_not_followed(output: OutputDirectory) -> None:
    elsewhere = output.path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").touch()
    output.claim(output.path.parent)
    (output.path / "index").symlink_to(elsewhere)
    output.remove()

    assert (elsewhere / "mine").exists()
    assert not output.path.exists()

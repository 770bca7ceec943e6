# SPDX-License-Identifier: Apache-2.0
"""Every block of the README and the documents does what the document says.

Sybil would collect each block as a separate test, from files outside the tests and their fixtures; here a document is
one test, whose blocks share one namespace and one copy of the example stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyspark_commitlog.sample import orders_store
from tests.documents.blocks import ROOT, Block, blocks_of, documents
from tests.documents.commands import EXCEPTIONS, commands_of, exception_for
from tests.documents.runners import RUNNERS, World, check_no_error_is_left, matches, run_block
from tests.documents.stores import copy_world, make_world
from tests.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

BLOCKS = {name: blocks_of(name, ROOT.joinpath(name).read_text(encoding="utf-8")) for name in documents()}


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = tmp_path_factory.mktemp("documents") / "world"
    world.mkdir()
    make_world(world)
    return world


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Provide a server that has the shipped sample as ``s3://backup/broker-a/store``."""
    with ObjectStore("backup") as server:
        server.upload(orders_store(tmp_path_factory.mktemp("sample")) / "commitlog", "broker-a/store/commitlog")
        yield server


@pytest.fixture
def world(template: Path, tmp_path: Path, spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[World]:
    copy_world(template, tmp_path / "world")
    made = World(tmp_path / "world", spark)
    if any("s3://backup" in block.text for block in BLOCKS[request.node.callspec.params["document"]]):
        settings = request.getfixturevalue("object_store").settings
        request.getfixturevalue("monkeypatch").setenv("BACKUP_USER", settings["access_key"])
        request.getfixturevalue("monkeypatch").setenv("BACKUP_PASSWORD", settings["secret_key"])
        made.replaced["minio.example:9000"] = settings["endpoint_override"]
    yield made
    for stream in spark.streams.active:
        stream.stop()
    for table in spark.catalog.listTables():
        spark.catalog.dropTempView(table.name)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)  # a whole document, with commands that start a Spark of their own
@pytest.mark.parametrize("document", [name for name, blocks in BLOCKS.items() if blocks])
def test_every_block_of_a_document_does_what_the_document_says(document: str, world: World) -> None:
    for block in BLOCKS[document]:
        run_block(block, world)
    check_no_error_is_left(world)


@pytest.mark.parametrize("block", [block for blocks in BLOCKS.values() for block in blocks], ids=str)
def test_a_block_has_a_language_that_is_executed(block: Block) -> None:
    assert block.language in RUNNERS


def test_each_exception_is_for_a_command_that_some_document_has() -> None:
    blocks = [block for found in BLOCKS.values() for block in found if block.language == "sh"]
    used = {exception_for(command) for block in blocks for command in commands_of(block.text)}

    assert set(EXCEPTIONS) == used - {None}


# ------------------------------------------------------------------------------------------- the tests' own helpers


def test_blocks_are_found_with_their_lines_also_inside_of_directives() -> None:
    text = "# a\n```sh\nls\n```\n::::{tab-set}\n:::{tab-item} x\n```python\n1\n```\n:::\n::::\n```{note}\nhi\n```\n````{tip}\n```sql\nSELECT 1\n```\n````\n"  # noqa: E501

    found = [(block.line, block.language, block.text) for block in blocks_of("x.md", text)]

    assert [(2, "sh", "ls\n"), (7, "python", "1\n"), (16, "sql", "SELECT 1\n")] == found


def test_what_is_for_sphinx_is_no_block() -> None:
    assert [] == blocks_of("x.md", "```{toctree}\nstart\n```\n```{eval-rst}\n.. note:: x\n```\n")


def test_a_block_that_is_not_closed_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"x\.md:1: this block is not closed"):
        blocks_of("x.md", "```sh\nls\n")


@pytest.mark.parametrize(
    ("shown", "printed", "is_match"),
    [
        ("a\nb\n", "a  \nb", True),
        ("a\n", "a\nb\n", False),
        ("b\n", "a\nb\n", False),
        ("a ... c\n", "a b c\n", True),
        ("a ...\n", "a b\nc\n", True),
        ("...c\n", "a b c\n", True),
        ("a ... c\n", "a b\n", False),
        ("a ... b\n", "a x b y\n", False),
    ],
)
def test_output_matches_as_a_whole_and_three_dots_stand_for_anything(shown: str, printed: str, is_match: bool) -> None:
    assert is_match is matches(shown, printed)


def test_an_error_is_found_anywhere_in_what_was_raised() -> None:
    assert matches("bad magic", "x: bad magic code", somewhere=True)
    assert not matches("bad size", "x: bad magic code", somewhere=True)

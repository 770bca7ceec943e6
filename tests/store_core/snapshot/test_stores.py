# SPDX-License-Identifier: Apache-2.0
"""Which paths are stores of their own and which are one log: a test for each row of the module's table."""

from __future__ import annotations

import json
import logging
import os
import pickle
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core import Store, read_messages, stores_of
from store_core.errors import InvalidOptionError, StoreError, StoreNotFoundError
from tests.builders import LogBuilder
from tests.stores_in_memory import in_memory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SIZE = 1024


def _directory(place: Path, *segments: int, text: bytes = b"a") -> Path:
    """Make a directory with some segments of a log, each of one record."""
    place.mkdir(parents=True)
    for number in segments:
        log = LogBuilder(segment_size=_SIZE, start_offset=number * _SIZE)
        log.append(text)
        (place / f"{number * _SIZE:020d}").write_bytes(log.segments()[f"{number * _SIZE:020d}"].ljust(_SIZE, b"\0"))
    return place


def _root(place: Path, *segments: int, text: bytes = b"a") -> Path:
    _directory(place / "commitlog", *segments, text=text)
    (place / "consumequeue").mkdir()
    return place


def _grouped(paths: str | Path | Sequence[str | Path], **options: str) -> list[list[str]]:
    """Return the paths of each store."""
    found = (store.paths for store in stores_of(paths, **options))
    return [[os.fspath(each) for each in ([path] if isinstance(path, str | os.PathLike) else path)] for path in found]


def _names(*paths: Path) -> list[str]:
    return list(map(str, paths))


# ---- the rows of the table


def test_a_path_is_one_store_and_nobody_looks_at_it(tmp_path: Path) -> None:
    assert [_names(tmp_path / "nowhere")] == _grouped(tmp_path / "nowhere")


def test_the_same_store_twice_is_one(tmp_path: Path) -> None:
    root = _root(tmp_path / "a", 0)
    (tmp_path / "link").symlink_to(root)

    assert [_names(root)] == _grouped([root, tmp_path / "link", str(root)])


def test_roots_are_a_store_each_even_if_their_segments_would_join(tmp_path: Path) -> None:
    roots = [_root(tmp_path / "a", 0), _root(tmp_path / "b", 1)]

    assert [_names(roots[0]), _names(roots[1])] == _grouped(roots)
    assert [_names(roots[0]), _names(roots[1])] == _grouped(",".join(map(str, roots)))


def test_roots_with_nothing_but_a_log_are_a_store_each(tmp_path: Path) -> None:
    first, second = (_directory(tmp_path / name / "commitlog", 0) for name in "ab")

    assert [_names(first.parent), _names(second.parent)] == _grouped([first.parent, second.parent])


def test_a_root_and_what_is_below_it_are_one_store(tmp_path: Path) -> None:
    root = _root(tmp_path / "a", 0, 1)
    log = root / "commitlog"

    assert [_names(root, log)] == _grouped([root, log])
    assert [_names(*sorted(log.iterdir()))] == _grouped(sorted(log.iterdir()))


def test_logs_below_roots_of_their_own_are_a_store_each(tmp_path: Path) -> None:
    logs = [_root(tmp_path / name, at) / "commitlog" for at, name in enumerate("ab")]

    assert [_names(logs[0]), _names(logs[1])] == _grouped(logs)


def test_directories_that_claim_no_offset_twice_are_one_log(tmp_path: Path) -> None:
    disks = [_directory(tmp_path / "disk1" / "log", 0, 2), _directory(tmp_path / "disk2" / "log", 1, 3)]
    root = _root(tmp_path / "store", 4)

    assert [_names(*disks)] == _grouped(disks)
    assert [_names(*disks)] == _grouped(",".join(map(str, disks)))
    assert [_names(*disks)] == _grouped(f"file://{disks[0]}, {disks[1]}")
    assert [_names(*disks)] == _grouped(",".join(f"file://{disk}" for disk in disks))
    assert [_names(root, *disks)] == _grouped([root, *disks])


def test_directories_that_claim_the_same_offset_are_a_log_each(tmp_path: Path) -> None:
    copies = [_directory(tmp_path / name, 0, 1, text=name.encode()) for name in "ab"]

    assert [_names(copies[0]), _names(copies[1])] == _grouped(copies)


def test_where_it_is_not_certain_the_error_says_how_to_say_both(tmp_path: Path) -> None:
    copies = [_directory(tmp_path / name, *at) for name, at in (("a", (0, 1)), ("b", (0,)), ("c", (2,)))]

    with pytest.raises(InvalidOptionError, match=r"is not certain.*storePathCommitLog.*,.*give the root of each"):
        stores_of(copies)
    assert [_names(*copies)] == _grouped(copies, store_path_commit_log=",".join(map(str, copies)))
    for copy in copies:
        (copy.parent / f"of-{copy.name}").mkdir()
        copy.rename(copy.parent / f"of-{copy.name}" / "commitlog")
    assert 3 == len(_grouped([tmp_path / f"of-{name}" for name in "abc"]))


def test_disks_that_have_parts_of_a_log_are_one_store(tmp_path: Path) -> None:
    disks = [tmp_path / "disk1", tmp_path / "disk2"]
    for number, disk in enumerate(disks):
        _directory(disk / "commitlog", number, number + 2)

    assert [_names(*disks)] == _grouped(disks)


def test_segments_that_overlap_are_not_certain_to_be_of_one_log(tmp_path: Path) -> None:
    first, second = _directory(tmp_path / "a", 0, 1), _directory(tmp_path / "b", 4)
    (second / f"{4 * _SIZE:020d}").rename(second / f"{_SIZE // 2:020d}")

    with pytest.raises(InvalidOptionError, match="is not certain"):
        stores_of([first, second])


def test_directories_that_the_configuration_names_are_one_log(tmp_path: Path) -> None:
    roots = [_root(tmp_path / "a", 0), _root(tmp_path / "b", 1)]
    logs = [root / "commitlog" for root in roots]
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathCommitLog={logs[0]},{logs[1]}\n")

    assert [_names(*logs)] == _grouped(logs, config=str(config))
    assert 2 == len(_grouped(logs))


def test_a_pattern_stands_for_the_stores_that_it_matches(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    roots = [_root(tmp_path / name / "store", 0) for name in ("broker-b", "broker-a")]
    (tmp_path / "lost+found" / "store").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "store").write_text("a file")

    with caplog.at_level(logging.WARNING):
        assert [_names(roots[1]), _names(roots[0])] == _grouped(f"{tmp_path}/*/store")
        assert [_names(roots[1])] == _grouped(f"{tmp_path}/broker-[a]/store")
        for text in (
            "broker-{b,a}/store",
            "{broker-b/store,broker-a/store}",
            "broker-{b,a}/st*",
        ):
            assert [_names(roots[0]), _names(roots[1])] == _grouped(f"{tmp_path}/{text}")
        assert [_names(roots[1]), _names(roots[0])] == _grouped(f"{roots[1]}, {tmp_path}/{{broker-a,broker-b}}/store")
    assert ["lost+found", "notes"] == [str(record.args).split("/")[-2] for record in caplog.records]


def test_a_pattern_without_a_store_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(StoreNotFoundError, match=r"nothing\*' matches no store.*found nothing"):
        stores_of(f"{tmp_path}/nothing*")
    with pytest.raises(StoreNotFoundError, match=r"matches no store.*found .*empty"):
        stores_of(f"{tmp_path}/e*")
    with pytest.raises(StoreNotFoundError, match=r"no such path: '[^,{]*/nothing'"):
        stores_of(f"{tmp_path}/{{empty,nothing}}")
    with pytest.raises(StoreNotFoundError, match=r"no such path: '.*{empty,nothing}'"):
        read_messages(f"{tmp_path}/{{empty,nothing}}", store_path_commit_log=tmp_path)


@pytest.mark.parametrize("name", ["store[1]", "store{1,2}"])
def test_a_directory_whose_name_looks_like_a_pattern_is_itself(tmp_path: Path, name: str) -> None:
    root = _root(tmp_path / name, 0)

    assert [_names(root)] == _grouped(str(root))


def test_patterns_of_urls(tmp_path: Path) -> None:
    roots = [_root(tmp_path / name / "store", 0) for name in "ab"]
    urls = [in_memory(root, f"several/{root.parent.name}/store") for root in roots]

    assert [[urls[0]], [urls[1]]] == _grouped(urls[0].replace("/a/", "/*/"))
    assert [[urls[0]], [urls[1]]] == _grouped(urls[0].replace("/a/", "/{a,b}/")) == _grouped(",".join(urls))
    assert [[urls[0]], _names(roots[1])] == _grouped([urls[0], roots[1]])
    assert [_names(roots[1]), [urls[0]]] == _grouped(f"{roots[1]},{urls[0]}")
    assert [[urls[0]], _names(roots[1]), [urls[1]]] == _grouped(f"{urls[0]}, {roots[1]},{urls[1]}")
    with pytest.raises(StoreError, match=r"nosuch://a(?!,)"):
        stores_of("nosuch://a,/local/path")
    with pytest.raises(StoreNotFoundError, match="matches no store"):
        stores_of(urls[0].replace("/a/", "/x*/"))


def test_a_url_whose_name_looks_like_a_pattern_is_itself(tmp_path: Path) -> None:
    url = in_memory(_root(tmp_path / "a", 0), "odd/br[0]")
    listed, comma = (in_memory(tmp_path / "a", name) for name in ("odd/{a,b}", "odd/a,/b"))
    in_memory(tmp_path / "a", "odd/br0")

    assert [[url]] == _grouped(url)
    assert [[listed], [comma]] == [*_grouped(listed), *_grouped(comma)]
    assert [[url.replace("[0]", "0")]] == _grouped(url.replace("[0]", "[0-9]"))


def test_slashes_that_are_doubled_in_a_url_are_one(tmp_path: Path) -> None:
    url = in_memory(_root(tmp_path / "a", 0), "doubled")

    assert [[f"{url}/commitlog"], [f"{url}/commitlog"]] == [
        path for slashes in ("/", "//") for path in _grouped(f"{url}{slashes}commitlog{slashes}")
    ]


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError, match="nowhere"):
        stores_of([_root(tmp_path / "a", 0), tmp_path / "nowhere"])


@given(st.permutations(range(7)))
def test_the_order_of_paths_changes_no_group(tmp_path_factory: pytest.TempPathFactory, order: list[int]) -> None:
    top = _WORLD.setdefault("top", tmp_path_factory.mktemp("world"))
    if not any(top.iterdir()):
        _root(top / "a", 0, 1)
        _root(top / "b", 0, 1, text=b"b")
        _directory(top / "disk1" / "log", 2)
    paths = [
        top / "a", top / "a" / "commitlog", top / "a" / "commitlog" / f"{0:020d}", top / "b" / "commitlog", top / "b",
        top / "a" / "commitlog" / f"{_SIZE:020d}", top / "a",
    ]  # fmt: skip

    found = {frozenset(map(frozenset, [group])) for group in _grouped([paths[at] for at in order])}

    assert {frozenset([frozenset(_names(*group))]) for group in (set(paths[:3]) | {paths[5]}, paths[3:5])} == found


_WORLD: dict[str, Path] = {}


# ---- names


def _topics(root: Path, *topics: tuple[str, int, int]) -> None:
    (root / "config").mkdir(exist_ok=True)
    table = {
        name: {"topicName": name, "perm": perm, "readQueueNums": queues, "writeQueueNums": queues}
        for name, perm, queues in topics
    }
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def _two(tmp_path: Path) -> list[Path]:
    return [_root(tmp_path / name / "store", 0) for name in ("one", "two")]


def test_a_store_is_called_by_what_its_path_has_alone(tmp_path: Path) -> None:
    assert ["one", "two"] == [store.name for store in stores_of(_two(tmp_path))]
    assert ["store"] == [store.name for store in stores_of(tmp_path / "one" / "store")]


def test_a_path_that_is_the_beginning_of_another_has_a_name(tmp_path: Path) -> None:
    nested = [_root(tmp_path / "data", 0), _root(tmp_path / "data" / "old", 0)]

    assert ["data", "data/old"] == [store.name for store in stores_of(nested)]


@pytest.mark.parametrize(
    "topics",
    [
        (("broker-x", 7, 1), ("DefaultCluster", 7, 16), ("TBW102", 7, 8), ("mine", 6, 1)),
        (("rmq_sys_SYNC_BROKER_MEMBER_broker-x", 1, 1), ("a", 7, 1), ("b", 7, 1)),
    ],
)
def test_a_store_is_called_as_its_broker_where_topics_tell(
    tmp_path: Path, topics: tuple[tuple[str, int, int], ...]
) -> None:
    roots = _two(tmp_path)
    _topics(roots[0], *topics)

    assert ["broker-x", "two"] == [store.name for store in stores_of(roots)]
    assert "broker-x" == Store(roots[0]).name


def test_two_copies_of_one_broker_are_called_by_their_paths(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    roots = _two(tmp_path)
    for root in roots:
        _topics(root, ("broker-x", 7, 1))

    assert ["one", "two"] == [store.name for store in stores_of(roots)]
    assert f"{roots[0]}, {roots[1]} are stores of one broker, broker-x" in caplog.text


def test_a_broker_that_is_called_as_the_path_of_another_has_no_part_in_a_mix_up(tmp_path: Path) -> None:
    roots = _two(tmp_path)
    _topics(roots[0], ("two", 7, 1))

    assert ["one", "two"] == [store.name for store in stores_of(roots)]


def test_a_broken_configuration_costs_the_brokers_name_alone(tmp_path: Path) -> None:
    roots = _two(tmp_path)
    (roots[0] / "config").mkdir()
    (roots[0] / "config" / "topics.json").write_text("{")

    assert ["one", "two"] == [store.name for store in stores_of(roots)]


def test_names_survive_pickling_and_refreshing(tmp_path: Path) -> None:
    store = stores_of(_two(tmp_path))[1]
    copy = pickle.loads(pickle.dumps(store))  # noqa: S301 -- our own
    store.refresh()

    assert ("two", "two") == (copy.name, store.name)

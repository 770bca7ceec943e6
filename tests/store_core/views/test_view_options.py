# SPDX-License-Identifier: Apache-2.0
"""Views, their columns and their options by name: what is not known or makes no sense is refused with what works."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from store_core import InvalidOptionError, StoreNotFoundError, read_messages, read_view
from store_core.queue.store_entry import STORE_DATABASE
from store_core.snapshot.store import Store
from store_core.store.read.option_values import OPTION_PARSERS
from store_core.views.view import ViewOptions, plan_view
from store_core.views.view_columns import VIEWS
from store_core.views.view_names import VIEW_PLANS
from tests.builders import stored_timer
from tests.store_core.files.rocksdbs import make_rocksdb
from tests.stores_in_memory import in_memory
from tests.viewed_store import make_viewed_store, refusal, rows_of

if TYPE_CHECKING:
    from pathlib import Path

every_view = pytest.mark.parametrize("view", VIEWS)


def test_the_names_of_the_views_are_those_of_their_table() -> None:
    assert tuple(VIEW_PLANS) == tuple(VIEWS)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the store with a RocksDB, which only one of the views reads."""
    root = make_viewed_store(tmp_path_factory.mktemp("viewed") / "store")
    make_rocksdb(root / STORE_DATABASE, {"timer": dict([stored_timer(5_000, "A", 0), stored_timer(6_000, "B", 100)])})
    return root


@every_view
def test_a_view_has_its_columns_and_types_by_default(view: str, pristine: Path) -> None:
    expected = VIEWS[view].schema(VIEWS[view].column_names)
    found = read_view(pristine, view).read_all()

    assert expected == found.schema
    assert found.num_rows


@every_view
def test_columns_match_in_any_case_and_come_in_the_order_asked(view: str, pristine: Path) -> None:
    names = VIEWS[view].column_names[::-1]
    whole = read_view(pristine, view).read_all()

    assert whole.select(names) == read_view(pristine, view.upper(), [name.upper() for name in names]).read_all()


@every_view
def test_each_column_alone_is_that_of_the_whole_view(view: str, pristine: Path) -> None:
    whole = read_view(pristine, view).read_all()

    for name in VIEWS[view].column_names:
        assert whole.select([name]) == read_view(pristine, view, name).read_all()


@every_view
def test_small_batches_hold_the_same_rows(view: str, pristine: Path) -> None:
    whole = read_view(pristine, view).read_all()
    batches = list(read_view(pristine, view, max_records_per_batch=7))

    assert whole.to_pylist() == [row for batch in batches for row in batch.to_pylist()]
    assert all(0 < batch.num_rows <= 7 for batch in batches)


@every_view
def test_parts_and_options_can_be_pickled_and_read_in_any_order(view: str, pristine: Path) -> None:
    whole = read_view(pristine, view).read_all().to_pylist()
    size = {"max_partition_bytes": 4500} if "max_partition_bytes" in VIEWS[view].options else {}
    options = ViewOptions.parse(view, **size)
    sent = pickle.dumps((options, plan_view(Store(pristine), options)))
    arrived, parts = pickle.loads(sent)  # noqa: S301 -- our own bytes
    read = {number: list(parts[number].batches(arrived)) for number in reversed(range(len(parts)))}

    assert whole == [row for number in range(len(parts)) for batch in read[number] for row in batch.to_pylist()]
    assert len(parts) > 1 or not size


@every_view
def test_the_store_can_be_given_by_its_commitlog_or_a_segment(view: str, pristine: Path) -> None:
    if view == "segments":
        return  # a segment is then the whole log
    whole = rows_of(pristine, view)
    segment = min((pristine / "commitlog").iterdir())

    assert whole == rows_of(pristine / "commitlog", view) == rows_of(segment, view)


@every_view
@pytest.mark.parametrize("option", ["filter", "mode", "decompress", "min_partitions"])
def test_an_option_that_makes_no_sense_is_refused_with_those_that_do(view: str, option: str, pristine: Path) -> None:
    error = refusal(pristine, view, **{option: "x"})

    assert isinstance(error, InvalidOptionError)
    assert f"does not apply to view {view!r}, which takes" in str(error)
    assert VIEWS[view].hint in str(error)


def test_the_options_that_a_view_takes_are_named_as_in_the_table_of_options(pristine: Path) -> None:
    text = str(refusal(pristine, "segments", topic="x"))

    assert "which takes columns, startingOffsets, endingOffsets, asOf, timeZone, verifyCrc, " in text


@every_view
def test_an_unknown_option_or_column_is_refused_with_the_nearest(view: str, pristine: Path) -> None:
    name = VIEWS[view].column_names[0]

    assert "did you mean 'release'?" in str(refusal(pristine, view, releas="5.3"))
    assert f"unknown column '{name}x'; did you mean {name!r}?" in str(refusal(pristine, view, f"{name}x"))
    assert "is named twice" in str(refusal(pristine, view, f"{name},{name}"))


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ("topic", "unknown view 'topic'; did you mean 'topics'?"),
        ("consume_queue", "did you mean 'consumequeue'?"),
        ("zzz", "the views are messages, consumequeue, index"),
        (None, "unknown view None; the views are messages"),
    ],
)
def test_an_unknown_view_is_refused_with_the_nearest(view: str, says: str, pristine: Path) -> None:
    assert says in str(refusal(pristine, view))


def test_options_of_a_view_are_options_of_messages_too() -> None:
    assert all(set(view.options) <= OPTION_PARSERS.keys() for view in VIEWS.values())


def test_the_view_of_messages_is_that_of_read_messages(pristine: Path) -> None:
    expected = read_messages(pristine, columns=["topic", "body"], topic="orders").read_all()

    assert expected == read_view(pristine, " Messages ", ["topic", "body"], topic="orders").read_all()


@pytest.mark.parametrize("view", ["index", "segments"])
def test_queue_offsets_are_refused_where_there_are_none(view: str, pristine: Path) -> None:
    error = refusal(pristine, view, starting_offsets={"orders": {0: 5}})

    assert f"expected a physical offset for view {view!r}, which has no queue offsets" in str(error)


def test_a_key_needs_its_topic(pristine: Path) -> None:
    assert "expected option topic with it for view 'index'" in str(refusal(pristine, "index", key="k1"))
    assert "expected option key with it for view 'index'" in str(refusal(pristine, "index", topic="orders"))


@every_view
def test_no_such_store_is_an_error(view: str, tmp_path: Path) -> None:
    assert isinstance(refusal(tmp_path / "none", view), StoreNotFoundError)


@every_view
def test_an_empty_directory_is_an_error_that_names_what_is_missing(view: str, tmp_path: Path) -> None:
    assert str(tmp_path) in str(refusal(tmp_path, view))


@pytest.mark.parametrize(
    ("view", "part", "advice"),
    [
        ("consumequeue", "consumequeue", "commitlog rebuild queues "),
        ("index", "index", "commitlog rebuild index "),
        ("checkpoint", "checkpoint", "without it a broker takes all its fields for 0"),
        ("consumer_offsets", "config/consumerOffset.json", "config/consumerOffset.json.bak: expected what groups have"),
        ("delay_offsets", "config/delayOffset.json", "config/delayOffset.json.bak: expected what is delivered of"),
        ("subscription_groups", "config/subscriptionGroup.json", "expected which groups there are"),
        ("timerwheel", "timerwheel", "TIMER_OUT_MS"),
        ("timerlog", "timerlog", "TIMER_OUT_MS"),
        ("rocksdbstore", STORE_DATABASE, "RocketMQ 5.4 or later makes there"),
    ],
)
def test_what_is_missing_is_an_error_with_advice_unless_tolerated(
    view: str, part: str, advice: str, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (store / part).rename(store / "gone")
    error = refusal(store, view)

    assert isinstance(error, StoreNotFoundError)
    assert str(store / part) in str(error)
    assert advice in str(error)
    assert [] == rows_of(store, view, fail_on_data_loss=False)
    assert advice in caplog.text
    if part != STORE_DATABASE:  # which is read from a disk only
        assert advice in str(refusal(in_memory(store, "missing"), view))
    (store / "commitlog").rename(store / "log")
    assert "rebuild" not in str(refusal(store, view)), "there is no log to make it from"


def test_a_store_as_a_value_has_one_root(pristine: Path, store: Path) -> None:
    with pytest.raises(InvalidOptionError, match="expected the root of one store"):
        Store([pristine, store]).view("topics")

# SPDX-License-Identifier: Apache-2.0
"""Plots: their numbers, computed by Spark and by Arrow, and how they are drawn."""

from __future__ import annotations

import re
import sys
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pyspark_commitlog import plots
from pyspark_commitlog.plots import binary_bytes, binned, duration, si
from pyspark_commitlog.sample import orders_store
from store_core import InvalidOptionError, StoreNotFoundError, UnsupportedStoreError, read_messages
from store_core.answers import plots as drawn
from store_core.answers.shown_text import escape_text
from store_core.errors import StoreAccessError
from tests.short_lived import run_python

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from store_core.answers.plots import Plots

_COLUMNS = ["topic", "store_timestamp", "born_timestamp", "store_size", "segment"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return orders_store(tmp_path_factory.mktemp("sample"))


@pytest.fixture(scope="module")
def table(shop: Path) -> pa.Table:
    return read_messages(shop, columns=_COLUMNS).read_all()


def _table(*rows: tuple[str, int, int, int], segment: str = "00000000000000000000") -> pa.Table:
    """Make messages of topic, store time and born time in ms, and size."""
    stamp = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "topic": [row[0] for row in rows],
            "store_timestamp": pa.array([row[1] * 1000 for row in rows], stamp),
            "born_timestamp": pa.array([row[2] * 1000 for row in rows], stamp),
            "store_size": pa.array([row[3] for row in rows], pa.int32()),
            "segment": [segment] * len(rows),
        }
    )


# ---- the sample store


def test_the_sample_is_what_its_description_says(shop: Path) -> None:
    topics = read_messages(shop, columns=["topic"]).read_all()["topic"].value_counts().to_pylist()

    assert {
        "clicks": 2860,
        "orders": 2539,
        "payments": 1139,
        "shipments": 734,
        "SCHEDULE_TOPIC_XXXX": 385,
        "reminders": 232,
        "%RETRY%billing": 126,
        "%DLQ%billing": 20,
    } == {topic["values"]: topic["counts"] for topic in topics}
    assert 19 == len(list(shop.joinpath("commitlog").iterdir()))


def test_each_call_gives_a_fresh_copy_that_goes_with_the_process(tmp_path: Path) -> None:
    code = (
        "from pyspark_commitlog.sample import orders_store; one, other = orders_store(), orders_store(); "
        "assert one != other and one.is_dir() and other.is_dir(); print(one)"
    )

    assert not Path(run_python(code, tmp_path)).exists()


# ---- numbers


DRAWN = (plots.message_rates, plots.segment_map, plots.store_latency)


@pytest.mark.spark
@pytest.mark.parametrize("draw", DRAWN)
def test_spark_counts_as_arrow_does(
    spark: SparkSession, shop: Path, table: pa.Table, draw: Callable[[object], Plots]
) -> None:
    frame = spark.read.format("commitlog").option("columns", ",".join(_COLUMNS)).load(str(shop))
    by_arrow, by_spark = draw(table), draw(frame)

    assert repr(by_arrow) == repr(by_spark)
    assert [[*plot.rows] for plot in by_arrow.plots] == [[*plot.rows] for plot in by_spark.plots]


@pytest.mark.parametrize("draw", DRAWN)
def test_a_reader_counts_as_its_table_does(shop: Path, table: pa.Table, draw: Callable[[object], Plots]) -> None:
    assert draw(table) == draw(read_messages(shop, columns=_COLUMNS))


def test_rates_have_every_message_and_every_byte(table: pa.Table) -> None:
    made: Any = plots.message_rates(table, 60)
    messages, sizes = ([sum(line.values) for line in plot.lines] for plot in made.plots)

    assert table.num_rows == sum(messages)
    assert sum(table["store_size"].to_pylist()) == sum(sizes)


def test_rates_are_by_topic_and_bin_with_empty_bins_between() -> None:
    rows = _table(("b", 1_000, 0, 10), ("a", 1_999, 0, 20), ("a", 4_000, 0, 30))
    made: Any = plots.message_rates(rows, bin_seconds=1)
    messages, sizes = ({line.name: line.values for line in plot.lines} for plot in made.plots)

    assert {"a": [60, 0, 0, 60], "b": [60, 0, 0, 0]} == messages
    assert {"a": [1200, 0, 0, 1800], "b": [600, 0, 0, 0]} == sizes
    assert ("1970-01-01T00:00:01.000Z", "1970-01-01T00:00:05.000Z") == made.plots[0].ends


@pytest.mark.parametrize(
    ("span_ms", "seconds"), [(0, 1), (119_999, 1), (120_000, 2), (4 * 3_600_000, 300), (90 * 86_400_000, 86_400)]
)
def test_bins_are_round_and_at_most_a_few_more_than_a_hundred(span_ms: int, seconds: int) -> None:
    rows, found = binned(_table(("a", 0, 0, 1), ("a", span_ms, 0, 1)), None, ("topic",), {"store_size": "sum"})

    assert seconds == found
    assert max(rows["bin"].to_pylist()) <= 120


def test_a_latency_percentile_is_interpolated_in_each_bin() -> None:
    rows = _table(("a", 5_000, 5_003, 1), ("a", 1_000, 990, 1), ("a", 1_010, 990, 1))
    made: Any = plots.store_latency(rows, (0, 50, 100), bin_seconds=1)
    (plot,) = made.plots

    assert [[10, 0, 0, 0, -3], [15, 0, 0, 0, -3], [20, 0, 0, 0, -3]] == [line.values for line in plot.lines]
    assert ("1970-01-01T00:00:01.000Z", "1970-01-01T00:00:06.000Z") == plot.ends


def test_segments_are_known_by_where_they_begin(table: pa.Table) -> None:
    made: Any = plots.segment_map(table)
    (plot,) = made.plots

    assert 19 == len(plot.heat[0].values)
    assert all(0 < sum(sizes) <= 128 << 10 for sizes in zip(*(row.values for row in plot.heat), strict=True))
    assert ["from 0, 20", "last from 2.25 MiB, 20"] == [end.partition("26-")[0] for end in plot.ends]


def test_times_of_segments_are_left_out_without_their_column(table: pa.Table) -> None:
    assert ("from 0", "last from 2.25 MiB") == plots.segment_map(table.drop_columns("store_timestamp")).plots[0].ends


def test_rows_of_damaged_ranges_count_as_nothing() -> None:
    whole = _table(("a", 1_000, 990, 10))
    damaged = pa.table(
        {name: pa.nulls(1, column.type) for name, column in zip(whole.column_names, whole.columns, strict=True)}
    )

    assert plots.message_rates(whole) == plots.message_rates(pa.concat_tables([whole, damaged]))


# ---- plots


def _all_plots(table: pa.Table, shop: Path) -> dict[str, Plots]:
    return {
        "message_rates": plots.message_rates(table),
        "segment_map": plots.segment_map(table),
        "store_latency": plots.store_latency(table),
        "stream_progress": plots.stream_progress([_progress(10, 5, 25), _progress(20, 25, 25)]),
        "queue_depth": plots.queue_depth(shop),
        "bars": plots.bars({"ours": 4e8, "others": 1e8}, "Rates", compared_with=["others"]),
    }


def test_every_public_plot_is_shown_and_saved_as_html_that_says_what_its_text_says(table: pa.Table, shop: Path) -> None:
    drawn = _all_plots(table, shop)

    assert set(plots.__all__) == set(drawn)
    for made in drawn.values():
        for text in (made._repr_html_(), made.to_html()):
            assert all(escape(line.strip().partition(": ")[2]) in text for line in repr(made).splitlines())
            assert text.count("<svg") == sum(len(list(plot.rows)) for plot in made.plots)


def test_a_rate_is_a_minute_s_whatever_the_bin() -> None:
    made = plots.message_rates(_table(*[("a", second * 100, 0, 1) for second in range(100)]), bin_seconds=1)

    assert "Messages per minute\n  a: 100 messages, up to 600/min\n" in repr(made)
    assert ("1970-01-01T00:00:00.000Z", "1970-01-01T00:00:10.000Z") == made.plots[0].ends


def test_the_smallest_of_many_topics_are_one_row() -> None:
    many = _table(*[(f"topic-{number}", 1_000, 0, 100 - number) for number in range(30)])

    assert "11 others" in repr(plots.message_rates(many))
    assert "11 others" in repr(plots.segment_map(many))


@pytest.mark.parametrize("topic", ["</svg><script>x</script>", "_hidden", "a\x1b[31m\nb\u202e", "n" * 300])
def test_names_are_shown_and_do_nothing_else(topic: str) -> None:
    table = _table((topic, 1_000, 0, 100), ("orders", 2_000, 0, 100))
    for made in (plots.message_rates(table), plots.segment_map(table)):
        assert f">{escape(escape_text(topic))}<" in made._repr_html_()
        assert "<script>" not in made._repr_html_()
        assert not set("\x1b\u202e") & set(made._repr_html_() + repr(made))


def test_queues_and_lags_are_told_in_numbers(shop: Path) -> None:
    told = repr(plots.queue_depth(shop))

    assert "orders: 2,539 in 4 queues" in told
    assert "warehouse: 539 messages" in told
    assert "warehouse: 54m 56s" in told


def test_a_store_without_groups_has_no_lags(tmp_path: Path) -> None:
    store = orders_store(tmp_path)
    store.joinpath("config", "consumerOffset.json").unlink()

    assert "no group has committed an offset" in repr(plots.queue_depth(store))


# ---- numbers as text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999.4, "999 B"), (999.6, "1 kB"), (12_345, "12.3 kB"), (5e15, "5 PB"), (4e18, "4e+03 PB")],
)
def test_quantities_have_three_digits(value: float, text: str) -> None:
    assert text == si(value, "B")


def test_sizes_and_times_have_the_unit_that_fits() -> None:
    assert ["512 B", "1 KiB", "1 GiB", "1.25 TiB"] == [binary_bytes(size) for size in (512, 1 << 10, 1 << 30, 5 << 38)]
    assert ["10 ms", "1 s", "119 s", "2 min", "2 h", "2 days"] == [
        duration(ms) for ms in (10, 1_000, 119_000, 120_000, 7_200_000, 172_800_000)
    ]


# ---- refusals


NO_QUANTITIES: list[dict[str, float | list[float]]] = [{}, {"a": -1.0}, {"a": [1.0, -1.0]}, {"a": []}]


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (
            lambda table: plots.message_rates(table.drop_columns("store_size")),
            r"needs the columns store_size, .*'\.\.\.,store_size'",
        ),
        (lambda table: plots.message_rates(table, 0), "bin_seconds is 0"),
        *(
            (partial(plots.store_latency, percentiles=percentiles), "percentiles are")
            for percentiles in ((), (99, 50), (-1,), (101,))
        ),
        *(
            (lambda _, values=values: plots.bars(values, "Rates"), "expected one or more quantities")
            for values in NO_QUANTITIES
        ),
        (
            lambda _: plots.bars({"ours": 1.0}, "Rates", compared_with=["others"]),
            r"compared_with: expected names among \['ours'\], found \['others'\]",
        ),
        (lambda _: plots.stream_progress([None, {}]), "0 reports, none with rows"),  # type: ignore[list-item]
        (lambda _: plots.stream_progress([_progress(0, 5, 25)]), "1 report, none with rows"),
        *((lambda table, draw=draw: draw(table.slice(0, 0)), "there is no message to draw") for draw in DRAWN),
    ],
)
def test_what_can_not_be_drawn_is_told(draw: Callable[[pa.Table], Plots], says: str, table: pa.Table) -> None:
    with pytest.raises(InvalidOptionError, match=says):
        draw(table)


@pytest.mark.parametrize("draw", DRAWN)
@pytest.mark.parametrize("found", ["/data/store", None, [1]])
def test_what_has_no_messages_is_named(found: object, draw: Callable[[object], Plots]) -> None:
    with pytest.raises(
        InvalidOptionError, match=rf"expected messages, as of spark\.read .*, found {re.escape(repr(found))}"
    ):
        draw(found)


def test_of_several_rounds_the_median_is_drawn_and_the_range_is_told() -> None:
    (made,) = plots.bars({"a": [3.0, 1.0, 2.0], "b": 5.0}, "Rates").plots

    assert [("a", "2 B/s (1 to 3)"), ("b", "5 B/s")] == [(row.name, row.label) for row in made.rows]
    assert ["M0 0h400v10h-400z", "M0 0h1000v10h-1000z"] == [shape.path for row in made.rows for shape in row.shapes]


def test_bars_to_compare_with_have_another_colour() -> None:
    (made,) = plots.bars({"a": 2.0, "b": 1.0, "c": 3.0}, "Rates", compared_with=["b"]).plots
    assert ["main", "plain", "main"] == [shape.tone for row in made.rows for shape in row.shapes]


def test_a_path_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        plots.queue_depth(tmp_path / "nothing")


def test_without_jinja2_the_way_to_get_it_is_told(table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    drawn._template.cache_clear()

    with pytest.raises(UnsupportedStoreError, match=r"pip install 'jinja2>=3\.1'"):
        plots.message_rates(table).to_html()


# ------------------------------------------------------------------------------------------------------------- streams


def _progress(rows: int, end: int, latest: int | None) -> dict[str, Any]:
    """Make the progress of a batch, as Spark reports it: offsets are text."""
    source = {"endOffset": f'{{"physicalOffset": {end}}}', "latestOffset": f'{{"physicalOffset": {latest}}}'}
    if latest is None:
        source["latestOffset"] = "null"
    return {"numInputRows": rows, "processedRowsPerSecond": rows / 2, "sources": [source]}


def test_a_stream_has_a_rate_and_a_distance_for_each_batch_with_rows() -> None:
    rates, behind = plots.stream_progress([_progress(10, 5, 25), _progress(0, 5, 25), _progress(20, 25, 25)]).plots

    assert ["M0 100V50H500V0H1000V100z"] == [shape.path for row in rates.rows for shape in row.shapes]
    assert ["M0 100V0H500V100H1000V100z"] == [shape.path for row in behind.rows for shape in row.shapes]
    assert ["0 B at the end"] == [row.label for row in behind.rows]


def test_a_pyspark_that_does_not_report_the_end_says_so() -> None:
    assert "not reported" in repr(plots.stream_progress([_progress(10, 5, None)]))


def test_a_store_is_unpacked_where_it_is_wanted(tmp_path: Path) -> None:
    assert tmp_path / "new" / "orders" / "store" == orders_store(tmp_path / "new")


@pytest.mark.parametrize("below", ["", "x/y"])
def test_a_file_in_place_of_the_directory_is_named_with_what_to_do(tmp_path: Path, below: str) -> None:
    target = tmp_path / "start.py" / below
    (tmp_path / "start.py").touch()

    text = rf"^{re.escape(str(target))}: expected a directory .*, found Not a directory at .*\. Give another directory"
    with pytest.raises(StoreAccessError, match=text):
        orders_store(target)
    assert (tmp_path / "start.py").is_file()


def test_a_place_where_nothing_can_be_made_is_named_with_the_reason() -> None:
    with pytest.raises(StoreAccessError, match=r"^/proc/x: .* found No such file or directory at /proc/x\."):
        orders_store("/proc/x")

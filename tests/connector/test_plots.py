# SPDX-License-Identifier: Apache-2.0
"""Plots: their numbers, computed by Spark and by Arrow, and how they are drawn."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from pyspark_commitlog import plots
from pyspark_commitlog.plots.data import rates, segment_bytes, store_latencies
from pyspark_commitlog.plots.queues import read_queues
from pyspark_commitlog.plots.style import COLOURS, INK, PAPER, apart, binary_bytes, duration, si
from pyspark_commitlog.sample import orders_store
from store_core import InvalidOptionError, MessageStoreConfig, StoreNotFoundError, read_messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox
    from pyspark.sql import SparkSession

pytest.importorskip("matplotlib", reason="the lowest versions are tested without extras")
Rectangle = pytest.importorskip("matplotlib.patches").Rectangle
Image = pytest.importorskip("PIL.Image")

_COLUMNS = ["topic", "store_timestamp", "born_timestamp", "store_size", "segment"]
_PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return orders_store(tmp_path_factory.mktemp("sample"))


@pytest.fixture(scope="module")
def config(shop: Path) -> MessageStoreConfig:
    return MessageStoreConfig.from_properties(shop.with_name("broker.conf"))


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


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _texts(figure: Figure) -> set[str]:
    from matplotlib.text import Text  # noqa: PLC0415 -- with the plots' extra

    figure.draw_without_rendering()
    return {text.get_text() for text in figure.findobj(Text) if text.get_visible()}


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


def test_each_call_gives_a_fresh_copy_that_goes_with_the_process() -> None:
    program = (
        "from pyspark_commitlog.sample import orders_store; one, other = orders_store(), orders_store(); "
        "assert one != other and one.is_dir() and other.is_dir(); print(one)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603

    from pathlib import Path  # noqa: PLC0415 -- only here at run time

    assert not Path(done.stdout.strip()).exists()


# ---- numbers


@pytest.mark.spark
@pytest.mark.parametrize("count", [rates, segment_bytes, store_latencies])
def test_spark_counts_as_arrow_does(
    spark: SparkSession, shop: Path, table: pa.Table, count: Callable[[object], object]
) -> None:
    frame = spark.read.format("commitlog").option("columns", ",".join(_COLUMNS)).load(str(shop))

    for expected, actual in zip(astuple(count(table)), astuple(count(frame)), strict=True):  # type: ignore[call-overload]
        if isinstance(expected, np.ndarray):
            np.testing.assert_allclose(actual, expected, rtol=1e-12)
        else:
            assert expected == actual


def test_a_reader_counts_as_its_table_does(shop: Path, table: pa.Table) -> None:
    from_reader = rates(read_messages(shop, columns=_COLUMNS))

    assert all(
        np.array_equal(one, other) for one, other in zip(astuple(rates(table)), astuple(from_reader), strict=True)
    )


def test_rates_have_every_message_and_every_byte(table: pa.Table) -> None:
    found = rates(table)

    assert table.num_rows == found.messages.sum()
    assert sum(table["store_size"].to_pylist()) == found.sizes.sum()


def test_rates_are_by_topic_and_bin_with_empty_bins_between() -> None:
    found = rates(_table(("b", 1_000, 0, 10), ("a", 1_999, 0, 20), ("a", 4_000, 0, 30)), bin_seconds=1)

    assert ("a", "b") == found.topics
    assert [1_000, 2_000, 3_000, 4_000] == found.begins.tolist()
    assert [[1, 0, 0, 1], [1, 0, 0, 0]] == found.messages.tolist()
    assert [[20, 0, 0, 30], [10, 0, 0, 0]] == found.sizes.tolist()


@pytest.mark.parametrize(
    ("span_ms", "seconds"), [(0, 1), (119_999, 1), (120_000, 2), (4 * 3_600_000, 300), (90 * 86_400_000, 86_400)]
)
def test_bins_are_round_and_at_most_a_few_more_than_a_hundred(span_ms: int, seconds: int) -> None:
    found = rates(_table(("a", 0, 0, 1), ("a", span_ms, 0, 1)))

    assert seconds == found.bin_seconds
    assert len(found.begins) <= 121


def test_a_latency_percentile_is_interpolated_in_each_bin() -> None:
    found = store_latencies(
        _table(("a", 1_000, 990, 1), ("a", 1_010, 990, 1), ("a", 5_000, 5_003, 1)), (0, 50, 100), bin_seconds=1
    )

    assert [1_000, 5_000] == found.begins.tolist()
    assert [[10.0, -3.0], [15.0, -3.0], [20.0, -3.0]] == found.values.tolist()


def test_segments_are_known_by_where_they_begin(table: pa.Table) -> None:
    found = segment_bytes(table)

    assert list(range(0, 19 * (128 << 10), 128 << 10)) == found.offsets.tolist()
    assert (found.sizes.sum(axis=0) <= 128 << 10).all()
    assert found.first_times is not None
    assert sorted(found.first_times.tolist()) == found.first_times.tolist()


def test_times_of_segments_are_left_out_without_their_column(table: pa.Table) -> None:
    assert segment_bytes(table.drop_columns("store_timestamp")).first_times is None


def test_rows_of_damaged_ranges_count_as_nothing() -> None:
    whole = _table(("a", 1_000, 990, 10))
    damaged = pa.table(
        {name: pa.nulls(1, column.type) for name, column in zip(whole.column_names, whole.columns, strict=True)}
    )

    assert 1 == rates(pa.concat_tables([whole, damaged])).messages.sum()


def test_lags_are_those_of_the_committed_offsets(shop: Path, config: MessageStoreConfig) -> None:
    found = read_queues(shop, config)
    lags = {(lag.group, lag.topic): lag.messages for lag in found.lags}

    assert 8035 == sum(queue.max_offset for queue in found.queues)
    assert 404 == lags["warehouse", "orders"]
    assert 0 == lags["billing", "payments"]
    assert [lag.messages for lag in found.lags] == sorted(lags.values(), reverse=True)


def test_an_offset_behind_a_queue_s_end_is_no_lag(config: MessageStoreConfig, tmp_path: Path) -> None:
    store = orders_store(tmp_path)
    offsets = store / "config" / "consumerOffset.json"
    offsets.write_text('{"offsetTable":{"orders@g":{0:9999,1:633,2:630}}}')

    (lag,) = read_queues(store, config).lags
    assert ("g", "orders", 4, 0) == (lag.group, lag.topic, lag.messages, lag.skipped)


# ---- pictures


def _all_plots(table: pa.Table, shop: Path, config: MessageStoreConfig) -> dict[str, Figure]:
    return {
        "message_rates": plots.message_rates(table),
        "segment_map": plots.segment_map(table),
        "store_latency": plots.store_latency(table),
        "stream_progress": plots.stream_progress([_progress(10, 5, 25), _progress(20, 25, 25)]),
        "queue_depth": plots.queue_depth(shop, config),
        "throughput": plots.throughput({"ours": 4e8, "others": 1e8}, compared_with=["others"]),
    }


def test_every_public_plot_is_a_png_on_its_own_paper(table: pa.Table, shop: Path, config: MessageStoreConfig) -> None:
    drawn = _all_plots(table, shop, config)

    assert set(plots.__all__) == set(drawn)
    for figure in drawn.values():
        png = _png(figure)
        assert png.startswith(_PNG)
        assert (255, 255, 255, 255) == Image.open(io.BytesIO(png)).convert("RGBA").getpixel((0, 0))


def test_a_notebook_shows_a_plot_at_twice_its_size(table: pa.Table) -> None:
    data, size = plots.message_rates(table)._repr_png_()  # type: ignore[attr-defined]

    picture = Image.open(io.BytesIO(data))
    assert {"width": 864, "height": 480} == size
    assert picture.width > 1.5 * size["width"]


def _boxes(figure: Figure) -> list[tuple[str, Bbox]]:
    """Return all texts that are drawn, with their positions; ticks beyond the limits of their axes are not drawn."""
    from matplotlib.text import Text  # noqa: PLC0415 -- with the plots' extra

    figure.draw_without_rendering()
    hidden = {
        label
        for axes in figure.axes
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, sorted(axes.get_ylim())))
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        for label in (tick.label1, tick.label2)
        if not low <= tick.get_loc() <= high or not label.get_visible()
    }
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text() and text not in hidden]
    return [(text.get_text(), text.get_window_extent()) for text in texts]


def test_no_text_lies_on_another_or_beyond_the_edge(table: pa.Table, shop: Path, config: MessageStoreConfig) -> None:
    for name, figure in _all_plots(table, shop, config).items():
        boxes = _boxes(figure)
        beyond = [
            text
            for text, box in boxes
            if box.x0 < 0 or box.y0 < 0 or box.x1 > figure.bbox.x1 or box.y1 > figure.bbox.y1
        ]
        overlaps = [
            (one, other)
            for place, (one, box) in enumerate(boxes)
            for other, other_box in boxes[place + 1 :]
            if box.overlaps(other_box)
        ]

        assert len(boxes) >= 5, name
        assert [] == beyond, name
        assert [] == overlaps, name


def test_a_rate_is_a_minute_s_whatever_the_bin() -> None:
    figure = plots.message_rates(_table(*[("a", second * 100, 0, 1) for second in range(100)]), bin_seconds=1)

    assert {"Messages per minute", "Bytes per minute", "600", "600 B", "1 Jan 1970, UTC", "a"} <= _texts(figure)


def test_many_topics_become_one_colour() -> None:
    many = _table(*[(f"topic-{number}", 1_000, 0, 100 - number) for number in range(30)])

    assert f"{30 - len(COLOURS)} others" in _texts(plots.message_rates(many))
    assert "11 others" in _texts(plots.segment_map(many))


@pytest.mark.parametrize(
    ("topic", "shown"),
    [
        ("$\\frac{1$", r"\$\frac{1\$"),
        ("$x^2$", r"\$x^2\$"),
        ("_hidden", "_hidden"),
        ("a\x1b[31m\nb\u202e", r"a\x1b[31m\nb\u202e"),
        ("n" * 300, f"{'n' * 59}\N{HORIZONTAL ELLIPSIS}"),
    ],
)
def test_names_are_drawn_and_do_nothing_else(topic: str, shown: str) -> None:
    table = _table((topic, 1_000, 0, 100), ("orders", 2_000, 0, 100))
    for figure in (plots.message_rates(table), plots.segment_map(table)):
        assert _png(figure).startswith(_PNG)
        assert {shown, "orders"} <= _texts(figure)


def test_queues_and_lags_are_told_in_numbers(shop: Path, config: MessageStoreConfig) -> None:
    texts = _texts(plots.queue_depth(shop, config))

    assert {"2,539 in 4 queues", "404, oldest 55 min", "warehouse: shipments", "4 more: nothing left"} <= texts


def test_a_store_without_groups_has_no_lags(config: MessageStoreConfig, tmp_path: Path) -> None:
    store = orders_store(tmp_path)
    store.joinpath("config", "consumerOffset.json").unlink()

    assert "no group has committed an offset" in _texts(plots.queue_depth(store, config))


def test_text_stands_out_from_the_paper() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert (luminance(PAPER) + 0.05) / (luminance(INK) + 0.05) > 7  # WCAG 2.2's enhanced contrast


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


def test_labels_move_apart_and_keep_their_order() -> None:
    assert [0.0, 0.1, 0.2] == pytest.approx(apart([0.0, 0.0, 0.01], 0.1))


# ---- refusals


def test_a_missing_column_is_named(table: pa.Table) -> None:
    with pytest.raises(InvalidOptionError, match=r"needs the columns store_size, .*'\.\.\.,store_size'"):
        plots.message_rates(table.drop_columns("store_size"))


@pytest.mark.parametrize("draw", [plots.message_rates, plots.segment_map, plots.store_latency])
def test_no_message_is_said(table: pa.Table, draw: Callable[[pa.Table], Figure]) -> None:
    with pytest.raises(InvalidOptionError, match="there is no message to draw"):
        draw(table.slice(0, 0))


@pytest.mark.parametrize("percentiles", [(), (99, 50), (-1,), (101,), (1, 2, 3, 4)])
def test_percentiles_are_checked(table: pa.Table, percentiles: tuple[float, ...]) -> None:
    with pytest.raises(InvalidOptionError, match="percentiles are"):
        plots.store_latency(table, percentiles)


def test_a_bin_has_a_second_at_least(table: pa.Table) -> None:
    with pytest.raises(InvalidOptionError, match="bin_seconds is 0"):
        plots.message_rates(table, 0)


@pytest.mark.parametrize("values", [{}, {"a": -1.0}, {"a": [1.0, -1.0]}, {"a": []}])
def test_throughput_wants_rates(values: dict[str, float | list[float]]) -> None:
    with pytest.raises(InvalidOptionError, match="expected rates"):
        plots.throughput(values)


def test_of_several_rounds_the_median_and_the_range_are_drawn() -> None:
    from matplotlib.collections import LineCollection  # noqa: PLC0415 -- with the plots' extra
    from matplotlib.patches import Rectangle  # noqa: PLC0415 -- with the plots' extra

    figure = plots.throughput({"a": [3.0, 1.0, 2.0], "b": 5.0}, unit="B/s")
    widths = [bar.get_width() for bar in figure.axes[0].patches if isinstance(bar, Rectangle)]
    (line,) = (line for line in figure.axes[0].collections if isinstance(line, LineCollection))

    assert [2.0, 5.0] == widths
    assert [[1.0, 0.0], [3.0, 0.0]] == line.get_segments()[0].tolist()
    assert {"2 B/s  (1 to 3)", "5 B/s", "bar: median of the rounds; line: slowest to fastest"} <= _texts(figure)


def test_throughput_is_compared_with_rates_that_are_there() -> None:
    with pytest.raises(InvalidOptionError, match=r"compared_with: expected names among \['ours'\], found \['others'\]"):
        plots.throughput({"ours": 1.0}, compared_with=["others"])


def test_bars_that_others_are_compared_with_have_a_colour_of_their_own() -> None:
    figure = plots.throughput({"a": 2.0, "b": 1.0, "c": 3.0}, compared_with=["b"])
    first, second, third = [bar.get_facecolor() for bar in figure.axes[0].patches]

    assert first == third
    assert first != second


def test_a_path_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        plots.queue_depth(tmp_path / "nothing")


def test_without_matplotlib_the_way_to_get_it_is_told(table: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'matplotlib>=3\.9'"):
        plots.message_rates(table)


def test_importing_plots_does_not_import_matplotlib() -> None:
    program = "import sys, pyspark_commitlog.plots; sys.exit('matplotlib' in sys.modules)"

    assert 0 == subprocess.run([sys.executable, "-c", program], check=False).returncode  # noqa: S603


def test_the_numbers_are_frozen(table: pa.Table) -> None:
    found = rates(table)

    with pytest.raises(AttributeError):
        setattr(found, fields(found)[0].name, ())


# ------------------------------------------------------------------------------------------------------------- streams


def _progress(rows: int, end: int, latest: int | None) -> dict[str, Any]:
    """Make the progress of a batch, as Spark reports it: offsets are text."""
    source = {"endOffset": f'{{"physicalOffset": {end}}}', "latestOffset": f'{{"physicalOffset": {latest}}}'}
    if latest is None:
        source["latestOffset"] = "null"
    return {"numInputRows": rows, "processedRowsPerSecond": rows / 2, "sources": [source]}


def test_a_stream_has_a_bar_and_a_distance_for_each_batch_with_rows() -> None:
    figure = plots.stream_progress([_progress(10, 5, 25), _progress(0, 5, 25), _progress(20, 25, 25)])
    rates, behind = figure.axes

    assert [bar.get_height() for bar in rates.patches if isinstance(bar, Rectangle)] == [5, 10]
    assert np.asarray(behind.lines[0].get_ydata()).tolist() == [20, 0]


def test_a_pyspark_that_does_not_report_the_end_has_no_line() -> None:
    assert "not reported" in plots.stream_progress([_progress(10, 5, None)]).axes[1].get_title(loc="right")


def test_a_stream_without_rows_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="1 without rows"):
        plots.stream_progress([_progress(0, 5, 25)])

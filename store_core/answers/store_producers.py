# SPDX-License-Identifier: Apache-2.0
"""The answer `producers`: what a broker can't tell of producers."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.answer import Answer, function_of, opt
from store_core.answers.group_table import COUNT, MAX, MIN, TOP, GroupTable
from store_core.answers.message_reads import MessageScan, Scanned
from store_core.answers.plots import Bar, Bars, Plot, Tone
from store_core.answers.producer_keys import (
    SEND_COLUMNS,
    KeyFindings,
    KeyPieces,
    Sends,
    from_bytes,
    order_findings,
    unique_findings,
)
from store_core.answers.report import Report, ReportColumn, ReportSchema, Verdict, fact, number, shared, table, text
from store_core.format.properties import PropertyParser
from store_core.format.release import DEFAULT_RELEASE
from store_core.format.words import agreeing, counted
from store_core.store.parts import Engine, RunReader, RunSpill, SpilledRun, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.snapshot.store import Store
    from store_core.store.read.ranges import ReadRange


PRECISION: Final = "exact up to 255, above that at most 0.8 % too near to 0"
"""What is to be said of such a percentile."""

_BITS: Final = 7
_STEPS: Final = 1 << _BITS
_LARGEST: Final = 1 << 52
"""Numbers beyond it are counted as it: a float has all integers up to there."""


def buckets_of(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the bucket of each number; buckets have the order of their numbers, and negative numbers negative ones."""
    clipped = np.clip(values, -_LARGEST, _LARGEST)
    sizes = np.abs(clipped)
    shifts = np.maximum(np.frexp(sizes.astype(np.float64))[1].astype(np.int64) - _BITS - 1, 0)
    return (np.sign(clipped) * (shifts * _STEPS + (sizes >> shifts))).astype(np.int32)


def bucket_begin(bucket: int) -> int:
    """Return the number of a bucket that is nearest to 0.

    >>> [bucket_begin(int(buckets_of(np.array([value]))[0])) for value in (0, -7, 255, 1001, -1001)]
    [0, -7, 255, 1000, -1000]
    """
    size = abs(bucket)
    shift = max(size // _STEPS - 1, 0)
    begin = (size - shift * _STEPS) << shift
    return -begin if bucket < 0 else begin


def percentiles(
    buckets: npt.NDArray[np.int32], counts: npt.NDArray[np.int64], percents: Sequence[float]
) -> tuple[int, ...]:
    """Return percentiles by nearest rank; `PRECISION` says how good they are.

    * `buckets`: int32, shape (n,), n > 0.
    * `counts`: int64, shape (n,): numbers in each bucket, 1 or more.
    * `percents`: Between 0 and 100.
    """
    order = np.argsort(buckets)
    sums = counts[order].cumsum()
    ranks = np.ceil(np.array(percents) / 100 * sums[-1]).clip(1)
    return tuple(bucket_begin(int(each)) for each in buckets[order][np.searchsorted(sums, ranks)])


@dataclass(frozen=True)
class Producers(Answer["ProducersReport"]):
    """Say what a broker can't tell of producers: clocks, messages sent twice, wrong order, sizes.

    Scratch files of about a seventh of the log are in the system's directory for temporary files. The exit code is 1
    if a unique key was sent twice, or messages of a sharding key are out of order or in several queues; and 5 if the
    log is damaged.
    """

    NAME: ClassVar = "producers"
    IS_SUMMED: ClassVar = True
    EXAMPLES: ClassVar = (
        "commitlog producers /data/store",
        "commitlog producers /data/store --rows 500 --json > producers.json",
    )

    rows: int = opt(TOP, "Rows of each table.", metavar="N", least=1)

    def on(self, engine: Engine, store: Store) -> ProducersReport:
        """Gather totals and keys range by range, then look at the keys of each group.

        Only sends count, but for sizes: copies that brokers make, such as retries, have the times and keys of their
        originals. Percentiles are from counts in buckets, and at most 0.8 % too low.
        """
        parser = PropertyParser.of_release(DEFAULT_RELEASE)
        scan = MessageScan(store, SEND_COLUMNS, partial(SendTotals, parser))
        with tempfile.TemporaryDirectory(prefix="commitlog-keys-") if engine.keeps_pieces else nullcontext() as spill:
            return engine.run_grouped(ProducersJob(scan, self.rows, None if spill is None else Path(spill)))


producers = function_of(Producers)


_MOST: Final = 1 << 18
"""Pairs of a topic, or a host, and a bucket."""

_MILLISECOND: Final = 1000
_TOTALS: Final = {"messages": COUNT, "least": MIN, "most": MAX}


def _by_bucket(name: str) -> GroupTable:
    longs = [(each, pa.int64()) for each in _TOTALS]
    return GroupTable(pa.schema([(name, pa.string()), ("bucket", pa.int32()), *longs]), _TOTALS, _MOST)


class SendTotals:
    """Totals of messages; see `store_core.answers.message_reads.Gathered`.

    * `sizes`: Messages by topic and bucket of their size.
    * `skews`: Sends by host and bucket of the milliseconds from born to store time.
    * `keys`: Of the part that was read; totals of several parts have none.
    * `sends`, `unique`, `sharding`: Sends, and how many of them have such a key.
    """

    def __init__(self, parser: PropertyParser) -> None:
        self._parser = parser
        self.sizes = _by_bucket("topic")
        self.skews = _by_bucket("host")
        self.keys = KeyPieces()
        self.sends = self.unique = self.sharding = 0

    def add(self, batch: pa.RecordBatch, _: Segment) -> None:
        """Add messages."""
        self._add_to(self.sizes, "topic", batch.column("topic"), batch.column("store_size").cast(pa.int64()))
        sends = Sends.of(batch, self._parser)
        if not sends.rows.num_rows:
            return
        times = (sends.rows[name].cast(pa.int64()) for name in ("store_timestamp", "born_timestamp"))
        skews = pc.divide(pc.subtract(*times), _MILLISECOND)
        self._add_to(self.skews, "host", sends.rows["born_host"], skews)
        self.keys.add(sends)
        self.sends += sends.rows.num_rows
        self.unique += len(sends.unique_keys) - sends.unique_keys.null_count
        self.sharding += len(sends.sharding_keys) - sends.sharding_keys.null_count

    def absorb(self, other: Self) -> None:
        """Add the totals of later ranges, without their keys."""
        self.sizes.absorb(other.sizes)
        self.skews.absorb(other.skews)
        self.sends += other.sends
        self.unique += other.unique
        self.sharding += other.sharding

    @staticmethod
    def _add_to(groups: GroupTable, name: str, names: pa.Array, values: pa.Array) -> None:
        buckets = buckets_of(values.to_numpy())
        totals = groups.totals_of(pa.table([names, buckets, values, values], [name, "bucket", "least", "most"]))
        if name == "host":
            totals = totals.set_column(0, name, pc.replace_substring_regex(totals[name], r":\d+$", ""))
        groups.add_totals(totals)


_GROUP_BYTES: Final = 512 << 20
"""Bytes of the log for which there is a group of keys: what is in memory at once, at most about as much again."""

_TOTALS_KIND: Final = "totals"
_FINDINGS: Final[dict[str, Callable[[Iterable[Any], int], KeyFindings]]] = {
    "sharding": order_findings,
    "unique": unique_findings,
}

Piece: TypeAlias = "Scanned[SendTotals] | bytes | SpilledRun"


class PieceKey(NamedTuple):
    """Group, kind, and the place of the part in the log."""

    group: int
    kind: str
    begin: int


@dataclass(frozen=True)
class ProducersJob:
    """Gathers totals and keys range by range, then the keys of each group; a `store_core.store.parts.GroupedJob`."""

    scan: MessageScan[SendTotals]
    top: int  # rows of each table
    spill_root: Path | None = None  # where keys wait to be gathered; None if the engine carries them

    @property
    def groups(self) -> int:
        """One for the totals, and others for keys."""
        size = sum(each.end - each.begin for each in self.scan.ranges)
        return 1 + max(-(-size // _GROUP_BYTES), 1)

    def plan(self) -> Sequence[ReadRange]:
        """Return the ranges."""
        return self.scan.plan()

    def run(self, part: ReadRange) -> Iterator[tuple[PieceKey, Piece]]:
        """Read a range; yield its keys, then its totals."""
        scanned = self.scan.run(part)
        pieces = scanned.found.keys.divided(self.groups - 1)
        scanned.found.keys = KeyPieces()  # the totals travel without them
        with nullcontext() if self.spill_root is None else RunSpill(self.spill_root) as spill:
            for group, kind, table in pieces:
                data = packed(table)
                yield PieceKey(1 + group, kind, part.begin), data if spill is None else spill.put(data)
        yield PieceKey(0, _TOTALS_KIND, part.begin), scanned

    def gather(self, pieces: Iterable[tuple[PieceKey, Piece]]) -> Iterator[Scanned[SendTotals] | KeyFindings]:
        """Yield totals unchanged, and the findings of each group of keys."""
        found: dict[str, list[Any]] = {}
        with RunReader() as reader:
            for key, piece in pieces:
                if isinstance(piece, Scanned):
                    yield piece
                else:
                    found.setdefault(key.kind, []).append(from_bytes(reader.read(piece)))
        for kind, tables in found.items():
            yield _FINDINGS[kind](tables, self.top)

    def merge(self, partials: Iterable[Scanned[SendTotals] | KeyFindings]) -> ProducersReport:
        """Make the report."""
        totals: list[Scanned[SendTotals]] = []
        findings: list[KeyFindings] = []
        for each in partials:
            totals.append(each) if isinstance(each, Scanned) else findings.append(each)
        found, counts = self.scan.merge(totals)
        keys = reduce(lambda one, other: one.joined(other, self.top), findings, KeyFindings())
        skews = found.skews.table()
        is_ahead = pc.less(skews["bucket"], 0)
        facts = ProducersFacts(
            store=self.scan.store,
            messages=counts.messages,
            sends=found.sends,
            unique_keys=found.unique,
            duplicate_keys=keys.duplicate_keys,
            duplicate_sends=keys.duplicate_sends,
            sharding_keys=found.sharding,
            inversions=keys.inversions,
            spread_keys=keys.spread_keys,
            ahead=pc.sum(skews.filter(is_ahead)["messages"]).as_py() or 0,
            damaged_ranges=counts.damaged_ranges,
            damaged_bytes=counts.damaged_bytes,
            notes=(*self.scan.notes, *_left_out(found.skews, "producers"), *_left_out(found.sizes, "topics")),
        )
        skewed = _spreads(found.skews, "host", (1, 50, 99), self.top)
        tables = {
            "hosts": [row | {"sends": row["messages"]} for row in skewed],
            "sizes": _spreads(found.sizes, "topic", (50, 90, 99), self.top),
            "duplicates": keys.duplicates,
            "inverted": keys.inverted,
            "spread": keys.spread,
        }
        return ProducersReport.of(facts, tables)


# ---- the report


def _left_out(groups: GroupTable, what: str) -> tuple[str, ...]:
    if not groups.left_out:
        return ()
    return (
        f"there are too many {what} for all of them: {groups.left_out['messages']:,} messages are in no percentile",
    )


def _spreads(groups: GroupTable, name: str, ranks: tuple[int, ...], most: int) -> list[dict[str, Any]]:
    """Return least, percentiles and most of the names with the most messages."""
    table = groups.table()
    total = table.group_by([name]).aggregate([("messages", "sum"), ("least", "min"), ("most", "max")])
    total = total.rename_columns([name, "messages", "least", "most"])
    rows: list[dict[str, Any]] = (
        total.sort_by([("messages", "descending"), (name, "ascending")]).slice(0, most).to_pylist()
    )
    for row in rows:
        mine = table.filter(pc.equal(table[name], row[name]))
        buckets, counts = (mine[each].to_numpy() for each in ("bucket", "messages"))
        found = percentiles(buckets.astype(np.int32), counts, ranks)
        row["ahead"] = int(counts[buckets < 0].sum())
        bounded = (min(max(value, row["least"]), row["most"]) for value in found)
        row |= {f"p{rank}": value for rank, value in zip(ranks, bounded, strict=True)}
    return rows


_PLACE: Final = shared("queue_id", "queue_offset", "physical_offset")
_SHARDING_KEY: Final = text("sharding_key", "property `__SHARDINGKEY`")
_SENDS_DOC: Final = "what producers sent, without the copies that brokers made of it: retries, deliveries, commits"


def _percentile(rank: int, what: str) -> ReportColumn:
    return number(f"p{rank}", f"{what}: percentile {rank}, {PRECISION}")


@dataclass(frozen=True, slots=True)
class ProducersFacts:
    """The facts of the report, as `PRODUCERS_SCHEMA` explains them."""

    store: str = fact("the store root")
    messages: int = fact("messages in the log")
    sends: int = fact(_SENDS_DOC)
    unique_keys: int = fact("sends with a unique key")
    duplicate_keys: int = fact("unique keys that were sent more than once", tells="findings")
    duplicate_sends: int = fact("their sends after the first one")
    sharding_keys: int = fact("sends with a sharding key")
    inversions: int = fact(
        "messages born before the one that precedes them in their queue, of the same sharding key", tells="findings"
    )
    spread_keys: int = fact("pairs of topic and sharding key whose messages are in several queues", tells="findings")
    ahead: int = fact("sends that were born, by their producer's clock, after the broker stored them")
    damaged_ranges: int = fact("ranges within the log that are no message, in pieces of 16 MiB at most, or missing")
    damaged_bytes: int = fact("bytes in them")
    notes: tuple[str, ...] = fact("what else an operator should know", default=())


_REPORT_TABLES: Final = (
    table(
        "hosts",
        "Milliseconds from born to stored, by producer (below 0 its clock is ahead)",
        text("host", "address of the producer"),
        number("sends", _SENDS_DOC),
        number("ahead", "how many of them have less than 0"),
        number("least", "ms: the least, exactly"),
        _percentile(1, "ms"),
        _percentile(50, "ms"),
        _percentile(99, "ms"),
        number("most", "ms: the most, exactly"),
    ),
    table(
        "sizes",
        "Bytes of records, by topic",
        *shared("topic"),
        number("messages", "messages of it, copies as well"),
        number("least", "bytes: the least, exactly"),
        _percentile(50, "bytes"),
        _percentile(90, "bytes"),
        _percentile(99, "bytes"),
        number("most", "bytes: the most, exactly"),
    ),
    table(
        "duplicates",
        "Unique keys that were sent more than once",
        text("unique_key", "the id that the producer got: the first property `UNIQ_KEY`"),
        number("sends", "how often"),
        text("topic", "topic of the first"),
        number("physical_offset", "place of the first in the log"),
        number("last_physical_offset", "place of the last"),
    ),
    table(
        "inverted",
        "Messages out of order",
        *shared("topic"),
        *_PLACE,
        _SHARDING_KEY,
        number("milliseconds", "how much earlier it was born than the one before it"),
    ),
    table(
        "spread",
        "Sharding keys in several queues",
        *shared("topic"),
        _SHARDING_KEY,
        number("queues", "how many queues have them"),
        *_PLACE,
    ),
)


class ProducersReport(Report[ProducersFacts]):
    """The report about producers, as `PRODUCERS_SCHEMA` explains it."""

    SCHEMA: ClassVar = ReportSchema.of("producers", 1, ProducersFacts, *_REPORT_TABLES)
    IS_JUDGEMENT: ClassVar = False

    @property
    def verdict(self) -> Verdict:
        """Damaged if the log is, so that something may be missed; else findings if a key was sent twice or disordered.

        A clock that is ahead is no finding: a few milliseconds are usual.
        """
        return Verdict.DAMAGED if self.found.damaged_ranges else super().verdict

    @property
    def plots(self) -> tuple[Plot, ...]:
        """The median skew of each host, and the median size of each topic."""
        rows = {name: self.tables[name].to_pylist() for name in ("hosts", "sizes")}
        hosts = (_bar(row, row["host"], "ms", Tone.BAD if row["ahead"] else Tone.PLAIN) for row in rows["hosts"])
        sizes = (_bar(row, row["topic"], "bytes", Tone.PLAIN) for row in rows["sizes"])
        return (
            Bars("Milliseconds from born to stored: median, before percentile 99", tuple(hosts)),
            Bars("Bytes of records: median, before percentile 99", tuple(sizes)),
        )

    def _lines(self) -> Iterator[str]:
        found = self.found
        messages = counted(found.messages, "message")
        have = agreeing(found.unique_keys, "has", "have")
        yield f"{messages}, {found.sends:,} of them sends; {found.unique_keys:,} {have} a unique key"
        keys = counted(found.duplicate_keys, "unique key")
        yield f"sent more than once: {keys}, {counted(found.duplicate_sends, 'more send')} than there should be"
        inversions, spread = counted(found.inversions, "message"), counted(found.spread_keys, "key")
        have = agreeing(found.sharding_keys, "has", "have")
        yield f"{found.sharding_keys:,} {have} a sharding key: {inversions} out of order, {spread} in several queues"
        born = agreeing(
            found.ahead, "was born after it was stored, by its", "were born after they were stored, by their"
        )
        yield f"{found.ahead:,} {born} producer's clock"
        if found.damaged_ranges:
            places = counted(found.damaged_ranges, "damaged range")
            are = agreeing(found.damaged_ranges, "bytes is", "bytes in all are")
            yield f"{places} of {found.damaged_bytes:,} {are} not looked at"
        yield from found.notes


def _bar(row: dict[str, Any], name: object, unit: str, tone: Tone) -> Bar:
    median, high = row["p50"], row["p99"]
    return Bar(str(name), max(median, 0), tone, f"{median:,} {unit}, p99 {high:,}", max(high, 0))

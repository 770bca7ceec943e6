# SPDX-License-Identifier: Apache-2.0
"""The answer `producers`: what a broker can't tell of producers, and the keys of what they sent, in pieces by hash."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from store_core.answers.answer import Answer, function_of, opt
from store_core.answers.group_table import COUNT, MAX, MIN, TOP, GroupTable
from store_core.answers.message_reads import MessageScan, Scanned
from store_core.answers.plots import Bar, Bars, Plot, Tone
from store_core.answers.report import Report, ReportColumn, ReportSchema, Verdict, fact, number, shared, table, text
from store_core.broker.topic_kind import TopicKind, kind_of_topic
from store_core.format.columnar.java_hashes import hash_codes
from store_core.format.columnar.property_columns import PropertyColumns
from store_core.format.layout import MessageSysFlag
from store_core.format.properties import REAL_TOPIC, UNIQ_KEY, PropertyParser
from store_core.format.release import DEFAULT_RELEASE
from store_core.format.words import agreeing, counted
from store_core.store.parts import Engine, RunReader, RunSpill, SpilledRun, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.files.segment_source import Segment
    from store_core.snapshot.store import Store
    from store_core.store.read.ranges import ReadRange


SEND_COLUMNS: Final = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "store_size",
    "store_timestamp",
    "born_timestamp",
    "born_host",
    "reconsume_times",
    "sys_flag",
    "properties_string",
)
"""Columns that batches need."""

_END: Final = pa.scalar(int(MessageSysFlag.TRANSACTION_COMMIT_TYPE), pa.int32())
"""The bit that commits and rollbacks have: records that end a transaction, and are copies of its half message."""

_CHECKED: Final = "TRANSACTION_CHECK_TIMES"
_SHARDING_KEY: Final = "__SHARDINGKEY"
_WAITING: Final = frozenset((TopicKind.SCHEDULE, TopicKind.TIMER, TopicKind.HALF))
"""Topics where a message that a producer sent waits first, with its own topic in REAL_TOPIC."""

_SENT: Final = frozenset((TopicKind.APPLICATION, TopicKind.TRACE, *_WAITING))


@dataclass(frozen=True, slots=True)
class Sends:
    """The sends of a batch.

    A copy has its original's times and keys, so it would look like a late or a second send: a retry or dead letter, a
    delayed message that was delivered, a transactional one that was committed or asked about.

    * `unique_keys`, `sharding_keys`: Of each row; null without. The unique keys are those that producers got, as of
      column ``uniq_msg_id``: the messages of a batch have the batch's in common.
    """

    rows: pa.Table  # columns of `SEND_COLUMNS`
    unique_keys: pa.StringArray
    sharding_keys: pa.StringArray

    @classmethod
    def of(cls, batch: pa.RecordBatch, parser: PropertyParser) -> Self:
        """Select the sends of a batch."""
        properties = PropertyColumns(batch.column("properties_string"), parser)
        topics = batch.column("topic").dictionary_encode()
        kinds = [kind_of_topic(topic) for topic in topics.dictionary.to_pylist()]
        is_copied = pc.or_(properties.value(REAL_TOPIC).is_valid(), properties.value(_CHECKED).is_valid())
        is_waiting = pc.and_(_of_kinds(topics, kinds, _WAITING), properties.value(_CHECKED).is_null())
        is_first = pc.and_(pc.or_(is_waiting, pc.invert(is_copied)), pc.equal(batch.column("reconsume_times"), 0))
        ends = pc.equal(pc.bit_wise_and(batch.column("sys_flag"), _END), _END)  # 5.5: without REAL_TOPIC
        mask = pc.and_(pc.and_(is_first, pc.invert(ends)), _of_kinds(topics, kinds, _SENT))
        keys = (properties.first(UNIQ_KEY), properties.value(_SHARDING_KEY))
        rows = pa.table([batch.column(name) for name in SEND_COLUMNS], list(SEND_COLUMNS))
        if not pc.all(mask).as_py():
            return cls(rows.filter(mask), *(each.filter(mask) for each in keys))
        return cls(rows, *keys)


def _of_kinds(topics: pa.DictionaryArray, kinds: list[TopicKind], chosen: frozenset[TopicKind]) -> pa.BooleanArray:
    is_chosen = np.array([kind in chosen for kind in kinds], np.bool_)
    return pa.array(is_chosen[topics.indices.to_numpy()])


_TOPIC: Final = pa.dictionary(pa.int32(), pa.string())
_SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("hash", pa.int32()),
        ("topic", _TOPIC),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("born", pa.int64()),
    ]
)
_OF_UNIQUE: Final = ("key", "hash", "topic", "physical_offset")
"""What is kept of a unique key: there is one in nearly each message."""


class KeyPieces:
    """Collects the keys of a part of the log.

    * `unique`, `sharding`: Unique keys, and sharding keys with their places in queues.
    """

    def __init__(self) -> None:
        self.unique: list[pa.Table] = []
        self.sharding: list[pa.Table] = []

    def add(self, sends: Sends) -> None:
        """Add the keys of sends; a send without one has no row."""
        self.unique.append(_table(sends.rows, sends.unique_keys, _OF_UNIQUE))
        if sends.sharding_keys.null_count < len(sends.sharding_keys):
            self.sharding.append(_table(sends.rows, sends.sharding_keys, _SCHEMA.names))

    def divided(self, groups: int) -> Iterator[tuple[int, str, pa.Table]]:
        """Yield the number of a group, whether its keys are ``unique`` or ``sharding``, and its rows."""
        for kind, tables in (("sharding", self.sharding), ("unique", self.unique)):
            if not tables:
                continue
            table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
            group = table["hash"].to_numpy().view(np.uint32) % np.uint32(groups)
            for piece in range(groups):
                rows = table if groups == 1 else table.filter(pa.array(group == piece))
                if rows.num_rows:
                    yield piece, kind, rows


def _table(rows: pa.Table, keys: pa.StringArray, names: tuple[str, ...] | list[str]) -> pa.Table:
    if keys.null_count:
        mask = keys.is_valid()
        rows, keys = rows.filter(mask), keys.filter(mask)
    columns = {
        "key": keys,
        "hash": pa.array(hash_codes(keys)),
        "topic": rows["topic"].combine_chunks().dictionary_encode(),
        "born": rows["born_timestamp"].cast(pa.int64()),
    }
    return pa.table([columns.get(name, rows[name] if name in rows.column_names else None) for name in names], names)


def from_bytes(data: bytes) -> pa.Table:
    """Return the table that `store_core.store.parts.packed` made bytes of."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class KeyFindings:
    """What was found in some groups of keys.

    * `duplicate_keys`, `duplicate_sends`: Unique keys that were sent more than once, and the sends after the first one.
    * `duplicates`, `inverted`, `spread`: The first of them, as rows of the report.
    """

    duplicate_keys: int = 0
    duplicate_sends: int = 0
    inversions: int = 0
    """Messages that were born before the one that precedes them in their queue, of the same sharding key."""
    spread_keys: int = 0  # sharding keys whose messages are in several queues of a topic
    duplicates: Rows = field(default_factory=list)
    inverted: Rows = field(default_factory=list)
    spread: Rows = field(default_factory=list)

    def joined(self, other: KeyFindings, most: int) -> KeyFindings:
        """Return the findings of other groups as well, with at most so many rows of each kind."""
        return KeyFindings(
            self.duplicate_keys + other.duplicate_keys,
            self.duplicate_sends + other.duplicate_sends,
            self.inversions + other.inversions,
            self.spread_keys + other.spread_keys,
            _first([*self.duplicates, *other.duplicates], ("sends",), most),
            _first([*self.inverted, *other.inverted], ("milliseconds",), most),
            _first([*self.spread, *other.spread], ("queues",), most),
        )


def _first(rows: Rows, weights: tuple[str, ...], most: int) -> Rows:
    """Return the rows with the largest weight; those of one weight as they are in the log."""
    in_log = sorted(rows, key=itemgetter("physical_offset"))
    return sorted(in_log, key=itemgetter(*weights), reverse=True)[:most]


def _joined(tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def unique_findings(tables: Iterable[pa.Table], most: int) -> KeyFindings:
    """Find the keys that occur more than once; exactly, since hashes only tell which can't.

    * `most`: Rows to return, of those with the most sends.
    """
    table = _joined(tables)
    hashes = table["hash"].to_numpy()
    ordered = np.sort(hashes)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    rows = table.filter(pa.array(np.isin(hashes, twice)))
    aggregates: list[Any] = [([], "count_all"), ("physical_offset", "min"), ("physical_offset", "max")]
    counted = rows.group_by(["key"], use_threads=False).aggregate(aggregates)
    counted = counted.rename_columns(["unique_key", "sends", "physical_offset", "last_physical_offset"])
    found = counted.filter(pc.greater(counted["sends"], 1))
    first = found.sort_by([("sends", "descending"), ("physical_offset", "ascending")]).slice(0, most)
    at = pc.index_in(first["physical_offset"], rows["physical_offset"])
    shown = first.append_column("topic", rows["topic"].cast(pa.string()).take(at))
    sends = pc.sum(found["sends"]).as_py() or 0
    return KeyFindings(found.num_rows, sends - found.num_rows, duplicates=shown.to_pylist())


def order_findings(tables: Iterable[pa.Table], most: int) -> KeyFindings:
    """Find messages of a sharding key that are out of order, and keys in several queues.

    * `most`: Rows to return of each kind.
    """
    table = _joined(tables)
    key = table["key"].combine_chunks().dictionary_encode().indices.to_numpy()
    topic = table["topic"].combine_chunks().indices.to_numpy()
    queue, place = table["queue_id"].to_numpy(), table["queue_offset"].to_numpy()
    order = np.lexsort((place, queue, key, topic))
    is_same_key = _equal_neighbours(key[order]) & _equal_neighbours(topic[order])
    is_same_queue = is_same_key & _equal_neighbours(queue[order])
    born = table["born"].to_numpy()[order]
    late = np.flatnonzero(is_same_queue & (born[1:] < born[:-1]))
    longest = late[np.argsort(-(born[late] - born[late + 1]), kind="stable")][:most]
    inverted = _shown(table, order[longest + 1])
    for row, at in zip(inverted, longest.tolist(), strict=True):
        row["milliseconds"] = int(born[at] - born[at + 1]) // 1000
    changed = np.flatnonzero(is_same_key & ~is_same_queue)
    heads = np.concatenate([[0], np.flatnonzero(~is_same_key) + 1]) if order.size else np.empty(0, np.int64)
    owners, counts = np.unique(np.searchsorted(heads, changed, "right") - 1, return_counts=True)
    widest = np.argsort(-counts, kind="stable")[:most]
    spread = _shown(table, order[heads[owners[widest]]])
    for row, count in zip(spread, counts[widest].tolist(), strict=True):
        row["queues"] = count + 1
    return KeyFindings(inversions=late.size, spread_keys=owners.size, inverted=inverted, spread=spread)


def _equal_neighbours(values: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    return np.asarray(values[1:] == values[:-1], np.bool_)


def _shown(table: pa.Table, rows: npt.NDArray[np.int64]) -> Rows:
    names = ["topic", "queue_id", "queue_offset", "physical_offset"]
    taken = table.select([*names, "key"]).take(pa.array(rows, pa.int64()))
    return [{"sharding_key": row.pop("key"), **row} for row in taken.to_pylist()]


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
_SHARDING_COLUMN: Final = text("sharding_key", "property `__SHARDINGKEY`")
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
        _SHARDING_COLUMN,
        number("milliseconds", "how much earlier it was born than the one before it"),
    ),
    table(
        "spread",
        "Sharding keys in several queues",
        *shared("topic"),
        _SHARDING_COLUMN,
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

# SPDX-License-Identifier: Apache-2.0
"""`commitlog append` with Spark and without: its sources, its report, its exit codes, and what is left to Spark."""

from __future__ import annotations

import gzip
import json
import tarfile
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from pyspark_commitlog.append import AppendSource, LocalRows, zone_of
from pyspark_commitlog.spark_errors import end_of
from pyspark_commitlog.write.options import WriteOptions
from pyspark_commitlog.write.writer import CommitLogWriter, plan_write, reported
from store_core import DefaultMessageStore, InvalidOptionError, Message, StoreError, read_messages
from store_core.command.exit_code import INTERRUPTED
from store_core.format.columns import iso_time
from tests.builders import LogBuilder
from tests.connector.called import append, commitlog
from tests.connector.stores import SMALL, SMALL_CONFIG, Writer, rows_of
from tests.short_lived import run_python

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.golden_stores import Golden


ON_SPARK = [f"--write-option={name}={value}" for name, value in SMALL.items()]


class Job:
    """The job with a store of its own."""

    def __init__(self, session: SparkSession, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.session = session
        self.directory = directory
        self.store = directory / "store"
        self._capsys = capsys
        self.errors = ""

    def run(self, *arguments: str) -> int:
        """Run the job, and return the exit code."""
        self._capsys.readouterr()
        code = append([str(self.store), "--spark", *ON_SPARK, f"--report={self.directory / 'report'}", *arguments])
        self.words, self.errors = self._capsys.readouterr()
        return code

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.directory / "report").read_text())
        return report

    def file(self, name: str, text: str) -> str:
        """Write a file, and return its path."""
        path = self.directory / name
        path.write_text(text)
        return str(path)


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Job:
    return Job(spark, tmp_path, capsys)


@pytest.mark.spark
def test_rows_of_json_lines_get_the_types_of_messages(job: Job) -> None:
    lines = [
        {
            "topic": "t",
            "body": "ü",
            "queue_id": 3,
            "keys": ["a", "b"],
            "properties": {"x": "1"},
            "born_timestamp": 1700,
        },
        {"topic": "t", "body": "b", "tags": "T", "born_timestamp": "2024-01-02T03:04:05Z", "flag": 9},
    ]
    path = job.file("rows.json", "".join(json.dumps(line) + "\n" for line in lines))

    assert job.run("--json", path) == 0
    first, second = rows_of(job.store, "body", "queue_id", "keys", "properties", "born_timestamp", "flag", "tags")
    assert ("ü".encode(), 3, ["a", "b"], 1.7) == (
        first["body"],
        first["queue_id"],
        first["keys"],
        first["born_timestamp"].timestamp(),
    )
    assert dict(first["properties"])["x"] == "1"
    assert (9, "T", 1704164645.0) == (second["flag"], second["tags"], second["born_timestamp"].timestamp())


@pytest.mark.spark
def test_keys_that_are_a_text_in_some_lines_and_a_list_in_others_are_keys(job: Job) -> None:
    """Spark's reader makes one text of a list then."""
    keys = ["a", ["b", "c"], None, "[d", []]
    path = job.file("rows.json", "".join(json.dumps({"topic": "t", "body": "x", "keys": key}) + "\n" for key in keys))

    assert job.run("--json", path, "--write-option=queueNums=1") == 0, job.errors
    assert [["a"], ["b", "c"], None, ["[d"], None] == [row["keys"] for row in rows_of(job.store, "keys")]


@pytest.mark.spark
def test_a_csv_file_is_read_as_its_own_options_say_but_for_lines_that_are_wrong(job: Job) -> None:
    path = job.file("rows.csv", 'topic;body\nt;"a\\"b"\n')

    assert job.run("--csv", path, "--read-option=sep=;", "--read-option=escape=\\") == 0, job.errors
    assert [b'a"b'] == [row["body"] for row in rows_of(job.store, "body")]
    assert job.run("--csv", path, "--read-option=mode=PERMISSIVE") == 2
    assert "--read-option mode: the command sets it" in job.errors


@pytest.mark.spark
def test_rows_of_csv_files_have_properties_as_json_and_bodies_as_base64(job: Job) -> None:
    path = job.file("rows.csv", 'topic,body,properties,queue_id\nt,AAE=,"{""a"":""b""}",2\nu,,,\n')

    assert job.run("--csv", path, "--base64") == 2
    assert "a message needs a body; nullBody=empty stores null as an empty one" in job.errors
    assert job.run("--csv", path, "--base64", "--write-option=nullBody=empty") == 0
    first, second = rows_of(job.store, "topic", "body", "properties", "queue_id")
    assert ("t", b"\0\1", {"a": "b"}, 2) == (
        first["topic"],
        first["body"],
        dict(first["properties"]),
        first["queue_id"],
    )
    assert ("u", b"", {}) == (second["topic"], second["body"], dict(second["properties"]))


@pytest.mark.spark
def test_times_without_a_zone_are_in_that_of_the_session_even_if_nobody_set_it(spark: SparkSession) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")

    assert {"timeZone": zone} == zone_of(spark, {"STARTINGTIMESTAMP": "2024-05-01"})
    assert {"timeZone": zone} == zone_of(spark, {"endingTimestamp": "2024-05-01", "topic": "orders"})
    assert {} == zone_of(spark, {"topic": "orders"})


@pytest.mark.spark
def test_dead_letters_are_replayed_by_an_expression_on_their_properties(job: Job) -> None:
    source = Writer(job.session, job.store)
    of_delivery = "'RETRY_TOPIC', 'invoices', 'TIMER_OUT_MS', '1', 'TIMER_DELAY_SEC', '9', 'TIMER_DELIVER_MS', '2000'"
    properties = f"map('attempt', string(id), {of_delivery}, 'UNIQ_KEY', concat('u', id)) AS properties"
    columns = ("'%DLQ%billing' AS topic", "concat('body ', id) AS body", "17 AS reconsume_times", properties)
    source(job.session.range(6).selectExpr(*columns))
    arguments = ["--from-store", str(job.store), "--topic", "%DLQ%billing", "--to-topic", "invoices"]

    assert job.run(*arguments, "--where", "attempt < 2") == 0
    found = rows_of(job.store, "topic", "body", "reconsume_times", "properties")[6:]
    assert [("invoices", b"body 0", 0), ("invoices", b"body 1", 0)] == [
        (row["topic"], row["body"], row["reconsume_times"]) for row in found
    ]
    assert [{"attempt": "0", "UNIQ_KEY": "u0"}, {"attempt": "1", "UNIQ_KEY": "u1"}] == [
        dict(row["properties"]) for row in found
    ]


@pytest.mark.spark
def test_rows_left_out_are_an_exit_code_of_their_own_and_a_dry_run_appends_nothing(job: Job) -> None:
    path = job.file("rows.json", '{"topic": "t", "body": "x"}\n{"body": "no topic", "topic": null}\n')

    assert job.run("--json", path, "--dry-run", "--write-option=badRows=skip") == 1, job.errors
    assert (1, 1, True) == tuple(job.report[name] for name in ("records", "left_out", "dry_run"))
    assert not any(job.report[name] for name in ("begin_offset", "end_offset", "store_timestamp"))
    assert not job.store.exists()
    assert job.run("--json", path, "--write-option=badRows=skip") == 1
    assert len(rows_of(job.store, "body")) == 1


@pytest.mark.spark
def test_a_named_job_is_appended_once(job: Job) -> None:
    path = job.file("rows.json", '{"topic": "t", "body": "x"}\n')

    assert job.run("--json", path, "--commit-id", "May") == 0
    assert "1 message of 93 bytes appended to" in job.words
    assert job.run("--json", path, "--commit-id", "May") == 0
    assert job.words.startswith("nothing was appended to")
    assert "a job of this commit id is there already, with 1 message of 93 bytes" in job.words
    assert job.run("--json", path, "--commit-id", "June") == 0
    assert len(rows_of(job.store, "body")) == 2


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--json", "FILE", "--topic", "t"], "use them with --from-store"),
        (["--json", "FILE", "--write-option", "queueNums"], "expected NAME=VALUE, found 'queueNums'"),
        (["--json", "FILE", "--write-option", "queueNum=3"], "did you mean 'queueNums'?"),
        (["--json", "BAD"], "row 0 of partition 0 can't be a message: a message needs a topic"),
        (["--from-store", "NOWHERE"], "no such path"),
        (["--from-store", "NOWHERE", "--where", "a >"], "filter"),
        (["--json", "NOWHERE"], "PATH_NOT_FOUND"),
        (["--json", "SEVEN"], "seven.json: column queue_id: expected a whole number of 32 bits, found seven in the"),
        (["--json", "SEVEN"], 'in the row {"body":"x","queue_id":"seven","topic":"t"} (nothing was appended)'),
        (["--json", "TORN"], 'torn.json: expected a JSON object in each line, found {"topic": (nothing was'),
        (["--json", "PROSE"], "prose.json: expected a JSON object in each line, found none"),
        (["--csv", "SOON"], "column born_timestamp: expected milliseconds since 1970, or a time such as"),
        (["--csv", "SOON", "--base64"], "column body: expected base64, found not base64! in the row"),
        (["--csv", "WIDE"], "wide.csv: expected as many values in each line as the header has, found t,x,y (nothing"),
        (["--csv", "LIST"], 'column properties: expected a JSON object such as {"name": "value"}, found ['),
    ],
)
def test_what_is_wrong_is_told_with_an_exit_code(arguments: list[str], says: str, job: Job) -> None:
    paths = {
        "FILE": job.file("rows.json", '{"topic": "t", "body": "x"}\n'),
        "BAD": job.file("bad.json", '{"topic": null, "body": "x"}\n'),
        "NOWHERE": str(job.directory / "nowhere"),
        "SEVEN": job.file("seven.json", '{"topic": "t", "body": "x", "queue_id": "seven"}\n'),
        "TORN": job.file("torn.json", '{"topic": "t", "body": "x"}\n{"topic":\n'),
        "PROSE": job.file("prose.json", "once upon a time\n"),
        "SOON": job.file("soon.csv", "topic,body,born_timestamp\nt,not base64!,soon\n"),
        "WIDE": job.file("wide.csv", "topic,body\nt,x,y\n"),
        "LIST": job.file("list.csv", 'topic,body,properties\nt,x,"["\n'),
    }

    assert 2 == job.run(*(paths.get(argument, argument) for argument in arguments)), job.errors
    assert says in job.errors
    assert "\tat " not in job.errors
    assert job.errors.count("\n") <= 2, job.errors
    assert not (job.store / "commitlog").exists()


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store whose log has a topic without queues, and that has queues of a topic without messages."""
    log = LogBuilder(segment_size=1 << 14)
    for number in range(4):
        log.append(b"x", topic="orders", queue_id=number % 2, properties={"KEYS": f"order-{number} all"})
    root = log.write(tmp_path_factory.mktemp("other") / "store")
    (root / "consumequeue" / "expired" / "0").mkdir(parents=True)
    return root


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--topic", "ordes"], "'ordes': did you mean 'orders'?"),
        (["--topic", "orders,expird"], "'expird': did you mean 'expired'?"),
        (["--topic", "orders", "--read-option", "queueId=1,7"], "of topic orders is in queue 7; the ids are 0, 1"),
        (["--read-option", "KEY=ordr-3"], "has the key 'ordr-3'; did you mean 'order-3'?"),
    ],
)
def test_what_the_other_store_does_not_have_is_told_and_nothing_is_appended(
    arguments: list[str], says: str, job: Job, other: Path
) -> None:
    assert job.run("--from-store", str(other), *arguments) == 2, job.errors
    assert says in job.errors
    assert not job.store.exists()


@pytest.mark.spark
def test_a_topic_of_which_no_message_is_left_is_no_error(job: Job, other: Path) -> None:
    assert job.run("--from-store", str(other), "--topic", "expired", "--dry-run") == 0, job.errors
    assert job.report["records"] == 0


@pytest.mark.spark
@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("nope = 1", "`nope` cannot be resolved"),
        ("id", "is not a boolean"),
        ("count(*) > 1", "invalid expressions: count(1)"),
        ("map_filter(id, (k, v) -> true) IS NULL", 'requires the "MAP" type'),
    ],
)
def test_the_plan_of_a_query_that_spark_refuses_is_left_out(spark: SparkSession, condition: str, says: str) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.range(1).where(condition).collect()

    code, text = end_of(caught.value)
    assert code == 3
    assert says in text
    assert "\n" not in text.replace("\nRewrite the query", "")
    assert "Range (" in str(caught.value)


# ---- without Spark, and with it


OPTIONS = [f"--write-option={name}={value}" for name, value in {**SMALL, "mappedFileSizeCommitLog": "1m"}.items()]
COLUMNS = ("topic", "queue_id", "queue_offset", "body", "flag", "sys_flag", "born_host", "store_host", "properties")
TIMES = ("born_timestamp", "store_timestamp")


def appended(root: Path, engine: str, *arguments: str) -> dict[str, Any]:
    """Append into a new store, and return the report."""
    report = root.with_name(f"{root.name}.json")
    chosen = ["--spark"] if engine == "spark" else []
    code = append([str(root), *OPTIONS, *chosen, "--report", str(report), *arguments])
    found: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {}
    return {**found, "code": code}


def equal_parts(report: dict[str, Any]) -> dict[str, Any]:
    """Return what does not depend on when and where messages were appended."""
    return {name: report[name] for name in ("code", "records", "bytes", "begin_offset", "left_out", "dry_run")}


def one_row(path: Path) -> str:
    """Write a file of Parquet with one message."""
    pq.write_table(pa.table({"topic": ["t"], "body": ["x"]}), path)
    return str(path)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_messages_that_were_delivered_or_wait_go_to_their_own_topics(
    engine: str, golden: Golden, tmp_path: Path
) -> None:
    """What they waited for does not act again: they are new messages, without a delay and in no transaction."""
    delay, transactions = str(golden("5.3.3/delay").root), str(golden("5.3.3/tx").root)
    store = tmp_path / "store"

    for source, topics, count in (
        (delay, "delay_topic", 20),
        (delay, "SCHEDULE_TOPIC_XXXX,rmq_sys_wheel_timer", 280),
        (transactions, "tx_topic", 62),
    ):
        assert count == appended(store, engine, "--from-store", source, "--topic", topics)["records"]
    rows = rows_of(store, "topic", "sys_flag", "prepared_transaction_offset", "properties")
    assert {"delay_topic", "timer_topic", "tx_topic"} == {row["topic"] for row in rows}
    assert {(0, 0)} == {(row["sys_flag"], row["prepared_transaction_offset"]) for row in rows}
    assert not {"DELAY", "REAL_TOPIC", "TRAN_MSG", "TIMER_OUT_MS"} & {
        name for row in rows for name, _ in row["properties"]
    }
    assert 2 == appended(store, engine, "--from-store", transactions)["code"]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["5.3.3/propcrc", "4.3.0/tx"])
@pytest.mark.parametrize("extra", [(), ("--to-topic", "again")], ids=["same-topics", "another-topic"])
def test_messages_of_another_store_are_the_same_as_by_spark(
    name: str, extra: tuple[str, ...], golden: Golden, tmp_path: Path
) -> None:
    arguments = ("--from-store", str(golden(name).root), "--preserve-store-timestamp", *extra)
    here, there = (appended(tmp_path / engine, engine, *arguments) for engine in ("local", "spark"))

    assert here["records"] > 0
    assert equal_parts(there) == equal_parts(here)
    by_spark, by_process = (rows_of(tmp_path / engine, *COLUMNS, *TIMES) for engine in ("spark", "local"))
    if extra:  # tasks begin to spread messages at different queues
        by_spark, by_process = (
            sorted(({**row, "queue_id": 0, "queue_offset": 0} for row in rows), key=repr)
            for rows in (by_spark, by_process)
        )
    assert by_spark == by_process


@pytest.mark.spark
def test_rows_of_parquet_files_are_the_same_as_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT concat('topic', id % 3) AS topic, CAST(id AS STRING) AS body, CAST(id % 4 AS INT) AS queue_id, "
        "map('a', string(id)) AS properties, timestamp_millis(1700000000000 + id) AS born_timestamp FROM range(500)"
    )
    frame.coalesce(1).write.parquet(str(tmp_path / "rows"))
    here, there = (
        appended(tmp_path / engine, engine, "--parquet", str(tmp_path / "rows")) for engine in ("local", "spark")
    )

    assert (500, 0, 0, False) == tuple(here[name] for name in ("records", "left_out", "begin_offset", "dry_run"))
    assert equal_parts(there) == equal_parts(here)
    columns = (*COLUMNS, "born_timestamp")
    assert rows_of(tmp_path / "spark", *columns) == rows_of(tmp_path / "local", *columns)
    rows = rows_of(tmp_path / "spark", "store_timestamp", "physical_offset", "store_size")
    assert {there["store_timestamp"]} == {iso_time(round(row["store_timestamp"].timestamp() * 1000)) for row in rows}
    assert there["end_offset"] == rows[-1]["physical_offset"] + rows[-1]["store_size"]


def test_a_dry_run_that_replaces_a_store_is_no_repeat_of_what_is_in_it(tmp_path: Path) -> None:
    root, report = tmp_path / "store", tmp_path / "report.json"
    assert 1 == appended(root, "local", "--parquet", one_row(tmp_path / "rows"), "--commit-id", "a")["records"]
    given = {"path": str(root), "commitId": "a", "dryRun": "true", "overwriteStore": "true", "report": str(report)}
    dry = WriteOptions.from_spark({**SMALL, "mappedFileSizeCommitLog": "1m", **given})
    schema = pa.schema({"topic": pa.string(), "body": pa.string()})

    for overwrite in (False, True):
        plan_write(dry, schema, overwrite=overwrite).commit([])
        assert overwrite is not json.loads(report.read_text())["is_repeat"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--write-option", "Report=other.json"), "--write-option Report"),
        (("--write-option", "path=other"), "--write-option path"),
        (("--write-option", "commitid=a", "--commit-id", "b"), "--write-option commitid"),
        (("--read-option", "columns=topic"), "--read-option columns"),
        (("--topic", "t", "--read-option", "topic=other"), "--read-option topic"),
        (("--where", "a = 1", "--read-option", "filterType=TAG"), "--read-option filterType"),
    ],
)
def test_an_option_that_the_command_sets_is_not_overruled_without_a_word(
    arguments: tuple[str, ...], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    source = LogBuilder(segment_size=4096)
    source.append(b"x", topic="t", queue_id=0)

    assert 2 == append([str(store), "--from-store", str(source.write(tmp_path / "from")), *OPTIONS, *arguments])
    assert f"{named}: the command sets it" in capsys.readouterr().err
    assert not store.exists()


def test_a_write_whose_report_is_on_another_machine_says_that_it_is_done() -> None:
    with pytest.raises(StoreError, match="the write succeeded, and its messages are in the store"):
        reported(lambda _: None, {})


def is_left_to_spark(source: AppendSource) -> bool:
    try:
        LocalRows.of(source)
    except InvalidOptionError as error:
        return "give --spark as well" in str(error)
    return False


@pytest.mark.parametrize("kind", [pa.float64(), pa.uint8(), pa.timestamp("ns"), pa.dictionary(pa.int32(), pa.string())])
def test_columns_of_other_types_than_messages_have_are_left_to_spark(kind: pa.DataType, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"topic": ["t"], "body": ["x"], "flag": pa.array([None], kind)}), path)

    assert is_left_to_spark(AppendSource("parquet", str(path), {}))


@pytest.mark.parametrize(
    ("kind", "is_wide", "says"),
    [
        (pa.timestamp("us", "UTC"), False, ""),
        (pa.timestamp("us", "+08:00"), False, ""),
        (pa.timestamp("us"), True, ""),  # 96 bits, as Spark writes its timestamps
        (pa.timestamp("us"), False, "'born_timestamp' of type timestamp_ntz: expected timestamp with a time zone"),
    ],
)
def test_a_time_is_taken_if_it_says_its_zone(
    kind: pa.DataType, is_wide: bool, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, store = tmp_path / "rows.parquet", tmp_path / "store"
    born = pa.array([1_700_000_000_123_456], kind)
    rows = pa.table({"topic": ["t"], "body": ["x"], "born_timestamp": born})
    pq.write_table(rows, path, use_deprecated_int96_timestamps=is_wide)

    assert (2 if says else 0) == appended(store, "local", "--parquet", str(path))["code"]
    assert says in capsys.readouterr().err
    assert says or [{"born_timestamp_ms": 1_700_000_000_123}] == rows_of(store, "born_timestamp_ms")


def test_directories_of_partitions_patterns_and_options_are_left_to_spark(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    (rows / "topic=t").mkdir(parents=True)
    pq.write_table(pa.table({"body": ["x"]}), rows / "topic=t" / "part-0.parquet")
    (tmp_path / "wrong.parquet").write_bytes(b"PAR1")

    assert is_left_to_spark(AppendSource("parquet", str(rows), {}))
    assert is_left_to_spark(AppendSource("parquet", str(rows / "*"), {}))
    assert is_left_to_spark(AppendSource("parquet", str(rows / "topic=t"), {"mergeSchema": "true"}))
    assert is_left_to_spark(AppendSource("parquet", str(tmp_path / "wrong.parquet"), {}))
    assert is_left_to_spark(AppendSource("parquet", f"hdfs:{rows / 'topic=t'}", {}))
    for here in ("", "file:", "file://"):
        assert not is_left_to_spark(AppendSource("parquet", f"{here}{rows / 'topic=t'}", {}))


@pytest.mark.parametrize(("kind", "text"), [("json", '{"topic": "t", "body": "x"}\n'), ("csv", "topic,body\nt,x\n")])
def test_texts_are_left_to_spark(kind: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows"
    path.write_text(text)

    assert 2 == appended(tmp_path / "store", "local", f"--{kind}", str(path))["code"]
    told = capsys.readouterr().err
    assert "these rows need a reader of Spark" in told
    assert "give --spark as well" in told
    assert not (tmp_path / "store").exists()


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, store = one_row(tmp_path / "rows.parquet"), tmp_path / "store"
    assert 0 == appended(store, "local", "--parquet", path)["code"]
    before = {each: each.stat().st_mtime_ns for each in store.rglob("*") if each.is_file()}

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CommitLogWriter, "commit", fail)
    assert INTERRUPTED == appended(store, "local", "--parquet", path)["code"]
    assert before.keys() == {each for each in store.rglob("*") if each.is_file()}
    assert 1 == len(rows_of(store, "body"))


RUN: Final = """
import sys
from store_core.command.program import program
def run(*words):
    try: program(list(words))
    except SystemExit as ended: return ended.code
"""


@pytest.mark.parametrize("source", ["--parquet", "--from-store"])
def test_stores_and_parquet_are_appended_where_pyspark_is_not_installed(source: str, tmp_path: Path) -> None:
    given = {"--parquet": one_row(tmp_path / "rows.parquet"), "--from-store": str(tmp_path / "other")}
    log = LogBuilder(segment_size=4096)
    log.append(b"x")
    log.write(tmp_path / "other")
    printed = run_python(
        f"{RUN}"
        "sys.modules['pyspark'] = sys.modules['py4j'] = None\n"
        f"for more in ([], ['--to-topic', 'again'], ['--to-topic', 'once-more']):\n"
        f"    if not more or {source!r} == '--from-store':\n"
        f"        assert run('append', {str(tmp_path / 'store')!r}, {source!r}, {given[source]!r}, *more) == 0\n"
        f"print(run('append', {str(tmp_path / 'store')!r}, '--json', {given['--parquet']!r}, '--spark'))\n",
        tmp_path,
    )

    assert {b"x"} == {row["body"] for row in rows_of(tmp_path / "store", "body")}
    assert "3" == printed.splitlines()[-1]


def test_a_store_that_is_open_is_refused_before_anything_is_staged(tmp_path: Path) -> None:
    path = one_row(tmp_path / "rows.parquet")
    with DefaultMessageStore.open(tmp_path / "store"):
        assert 4 == appended(tmp_path / "store", "local", "--parquet", path)["code"]


@pytest.mark.parametrize("command", ["append", "replay"])
def test_a_store_whose_replacement_was_interrupted_is_appended_to_with_the_sizes_that_it_has(
    command: str, tmp_path: Path
) -> None:
    root, made = tmp_path / "store", tmp_path / f"store.job-{'0' * 32}"
    for name, path in (("old", made.with_name(f"{made.name}.old")), ("new", made), ("x", tmp_path / "source")):
        with DefaultMessageStore.open(path, SMALL_CONFIG) as store:
            store.put_message(Message("orders", name.encode()))

    index = [option for option in OPTIONS if "=max" in option]
    sizes = tmp_path / "broker.conf"
    sizes.write_text("maxHashSlotNum=100\nmaxIndexNum=1000\n")
    arguments = {
        "append": [str(root), *index, "--parquet", one_row(tmp_path / "rows.parquet")],
        "replay": [str(tmp_path / "source"), "--id", "T-1", "--into", str(root), "--into-config", str(sizes)],
    }
    assert 0 == commitlog(command, *arguments[command])
    assert [b"new", b"x"] == [row["body"] for row in read_messages(root).read_all().to_pylist()]
    assert {16384} == {file.stat().st_size for file in (root / "commitlog").iterdir()}
    assert not list(tmp_path.glob("store.*"))


def test_an_archive_and_a_compressed_log_are_appended_as_the_store_is(tmp_path: Path) -> None:
    log = LogBuilder()
    log.append(b"a"), log.append(b"b")
    root = log.write(tmp_path / "source")
    with tarfile.open(tmp_path / "backup.tar", "w") as backup:
        backup.add(root, "store")
    (segment,) = (root / "commitlog").iterdir()
    segment.with_name(f"{segment.name}.gz").write_bytes(gzip.compress(segment.read_bytes()))
    segment.unlink()

    for source in (root, tmp_path / "backup.tar"):
        into = tmp_path / f"into-{source.name}"
        assert 2 == appended(into, "local", "--from-store", str(source))["records"]


def test_what_is_not_asked_of_spark_starts_none(tmp_path: Path) -> None:
    path = one_row(tmp_path / "rows.parquet")
    run_python(
        f"{RUN}"
        "import subprocess\n"
        "subprocess.Popen = None\n"
        f"assert run('append', {str(tmp_path / 'store')!r}, '--parquet', {path!r}) == 0\n"
        f"assert run('rebuild', 'both', {str(tmp_path / 'store')!r}, '--verify') == 0\n",
        tmp_path,
    )

    assert [{"body": b"x"}] == rows_of(tmp_path / "store", "body")

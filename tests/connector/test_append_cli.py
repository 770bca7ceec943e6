# SPDX-License-Identifier: Apache-2.0
"""`commitlog append --spark`: its sources, its report, its exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from pyspark_commitlog.append import zone_of
from pyspark_commitlog.spark_errors import end_of
from store_core.format.times import iso_time
from tests.builders import LogBuilder
from tests.connector.called import append
from tests.connector.written import SMALL, Writer, rows_of
from tests.store_core.files.store_kinds import add_dledger, every_file, ordinary_store

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OPTIONS = [f"--write-option={name}={value}" for name, value in SMALL.items()]


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
        code = append([str(self.store), "--spark", *OPTIONS, f"--report={self.directory / 'report'}", *arguments])
        self.words, self.errors = self._capsys.readouterr()
        return code

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.directory / "report").read_text())
        return report

    def store_times(self) -> list[int]:
        """Return the store times of all messages, in ms."""
        return [round(row["store_timestamp"].timestamp() * 1000) for row in rows_of(self.store, "store_timestamp")]

    def file(self, name: str, text: str) -> str:
        """Write a file, and return its path."""
        path = self.directory / name
        path.write_text(text)
        return str(path)


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Job:
    return Job(spark, tmp_path, capsys)


def test_rows_of_parquet_files_are_appended_and_reported(job: Job) -> None:
    frame = Writer(job.session, job.store).messages(40)
    frame.coalesce(1).write.parquet(str(job.directory / "rows"))

    assert job.run("--parquet", str(job.directory / "rows")) == 0
    assert [f"body {number}".encode() for number in range(40)] == [row["body"] for row in rows_of(job.store, "body")]
    assert (40, 0, 0, False) == tuple(job.report[name] for name in ("records", "left_out", "begin_offset", "dry_run"))
    assert {iso_time(time) for time in job.store_times()} == {job.report["store_timestamp"]}
    last = rows_of(job.store, "physical_offset", "store_size")[-1]
    assert last["physical_offset"] + last["store_size"] == job.report["end_offset"]


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


def test_keys_that_are_a_text_in_some_lines_and_a_list_in_others_are_keys(job: Job) -> None:
    """Spark's reader makes one text of a list then."""
    keys = ["a", ["b", "c"], None, "[d", []]
    path = job.file("rows.json", "".join(json.dumps({"topic": "t", "body": "x", "keys": key}) + "\n" for key in keys))

    assert job.run("--json", path, "--write-option=queueNums=1") == 0, job.errors
    assert [["a"], ["b", "c"], None, ["[d"], None] == [row["keys"] for row in rows_of(job.store, "keys")]


def test_a_csv_file_is_read_as_its_own_options_say_but_for_lines_that_are_wrong(job: Job) -> None:
    path = job.file("rows.csv", 'topic;body\nt;"a\\"b"\n')

    assert job.run("--csv", path, "--read-option=sep=;", "--read-option=escape=\\") == 0, job.errors
    assert [b'a"b'] == [row["body"] for row in rows_of(job.store, "body")]
    assert job.run("--csv", path, "--read-option=mode=PERMISSIVE") == 2
    assert "--read-option mode: the command sets it" in job.errors


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


def test_times_without_a_zone_are_in_that_of_the_session_even_if_nobody_set_it(spark: SparkSession) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")

    assert {"timeZone": zone} == zone_of(spark, {"STARTINGTIMESTAMP": "2024-05-01"})
    assert {"timeZone": zone} == zone_of(spark, {"endingTimestamp": "2024-05-01", "topic": "orders"})
    assert {} == zone_of(spark, {"topic": "orders"})


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


def test_a_dry_run_counts_and_appends_nothing(job: Job) -> None:
    path = job.file("rows.json", '{"topic": "t", "body": "x"}\n{"body": "no topic", "topic": null}\n')

    assert job.run("--json", path, "--dry-run", "--write-option=badRows=skip") == 1, job.errors
    assert (1, 1, True) == tuple(job.report[name] for name in ("records", "left_out", "dry_run"))
    assert not any(job.report[name] for name in ("begin_offset", "end_offset", "store_timestamp"))
    assert not job.store.exists()


def test_rows_left_out_are_an_exit_code_of_their_own(job: Job) -> None:
    path = job.file("rows.json", '{"topic": "t", "body": "x"}\n{"body": "no topic", "topic": null}\n')

    assert job.run("--json", path, "--write-option=badRows=skip") == 1
    assert len(rows_of(job.store, "body")) == 1


def test_a_named_job_is_appended_once(job: Job) -> None:
    path = job.file("rows.json", '{"topic": "t", "body": "x"}\n')

    assert job.run("--json", path, "--commit-id", "May") == 0
    assert "1 message of 93 bytes appended to" in job.words
    assert job.run("--json", path, "--commit-id", "May") == 0
    assert job.words.startswith("nothing was appended to")
    assert "a job of this commit id is there already, with 1 message of 93 bytes" in job.words
    assert len(rows_of(job.store, "body")) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--json", "FILE", "--topic", "t"], 2, "use them with --from-store"),
        (["--json", "FILE", "--write-option", "queueNums"], 2, "expected NAME=VALUE, found 'queueNums'"),
        (["--json", "FILE", "--write-option", "queueNum=3"], 2, "did you mean 'queueNums'?"),
        (["--json", "BAD"], 2, "row 0 of partition 0 can't be a message: a message needs a topic"),
        (["--from-store", "NOWHERE"], 2, "no such path"),
        (["--from-store", "NOWHERE", "--where", "a >"], 2, "filter"),
        (["--json", "NOWHERE"], 2, "PATH_NOT_FOUND"),
        (["--json", "SEVEN"], 2, "seven.json: column queue_id: expected a whole number of 32 bits, found seven in the"),
        (["--json", "SEVEN"], 2, 'in the row {"body":"x","queue_id":"seven","topic":"t"} (nothing was appended)'),
        (["--json", "TORN"], 2, 'torn.json: expected a JSON object in each line, found {"topic": (nothing was'),
        (["--json", "PROSE"], 2, "prose.json: expected a JSON object in each line, found none"),
        (["--csv", "SOON"], 2, "column born_timestamp: expected milliseconds since 1970, or a time such as"),
        (["--csv", "SOON", "--base64"], 2, "column body: expected base64, found not base64! in the row"),
        (
            ["--csv", "WIDE"],
            2,
            "wide.csv: expected as many values in each line as the header has, found t,x,y (nothing",
        ),
        (["--csv", "LIST"], 2, 'column properties: expected a JSON object such as {"name": "value"}, found ['),
    ],
)
def test_what_is_wrong_is_told_with_an_exit_code(arguments: list[str], code: int, says: str, job: Job) -> None:
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

    assert code == job.run(*(paths.get(argument, argument) for argument in arguments)), job.errors
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


def test_a_topic_of_which_no_message_is_left_is_no_error(job: Job, other: Path) -> None:
    assert job.run("--from-store", str(other), "--topic", "expired", "--dry-run") == 0, job.errors
    assert job.report["records"] == 0


def test_an_error_that_spark_hides_behind_its_own_is_told() -> None:
    hidden = PySparkException("Writing job aborted")
    hidden._cause = Exception("...: store_core.errors.StoreLockedError: somebody has it")  # type: ignore[attr-defined]

    assert end_of(hidden) == (4, "somebody has it")


def test_a_store_of_another_kind_is_refused_and_stays_as_it_is(job: Job) -> None:
    data = add_dledger(ordinary_store(job.store))
    before = every_file(job.store)

    assert job.run("--json", job.file("rows.json", '{"topic": "t", "body": "b"}')) == 4
    assert str(data) in job.errors
    assert job.run("--from-store", str(job.store / "commitlog")) != 0, job.errors
    assert str(data) in job.errors
    assert before == every_file(job.store)

# SPDX-License-Identifier: Apache-2.0
"""Where rows go: whole files or none, no binary data to terminals, colours where wanted, and lines of progress."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import os
import pty
import subprocess
import sys
import tempfile
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pyarrow as pa
import pytest

from store_core.answers.shown_text import BytesStyle
from store_core.answers.text_table import FieldsText, TableText, rows_of
from store_core.command import output
from store_core.command.console import Console, PartsProgress, say
from store_core.command.exit_code import ExitCode
from store_core.command.output import CsvText, JsonLinesText
from store_core.command.program import program
from store_core.format.columns import MAP_TYPE, STRINGS_TYPE
from store_core.store.parts import PartsDone, Step
from tests.store_core.command.calls import call
from tests.store_core.command.test_matrix import REPORTS, WITHOUT_PARTS, typed
from tests.store_core.fakes import FakeClock

if TYPE_CHECKING:
    from tests.builders import LogBuilder

TERMINAL = Console(width=80)
BOLD = "\x1b[1m"


@pytest.mark.parametrize(
    ("name", "begins"),
    [("x.csv", b"topic,queue_id,"), ("x.jsonl", b'{"topic": '), ("x.ndjson", b'{"topic": '),
     ("x.parquet", b"PAR1"), ("x.arrow", b"\xff\xff\xff\xff"), ("x.txt", b"store_timestamp  "),
     ("x", b"store_timestamp  "), ("x.log --format=csv", b"topic,queue_id,")],
)  # fmt: skip
def test_a_file_has_the_format_of_its_suffix_or_the_one_that_is_given(
    store: Path, tmp_path: Path, name: str, begins: bytes
) -> None:
    name, *form = name.split()
    target = tmp_path / name
    called = call("cat", store, "-o", target, *form)

    assert (ExitCode.DONE, b"") == (called.code, called.data)
    assert target.read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("x.jsno", "found '.jsno'; did you mean '.json'? "), ("x.parqet", "found '.parqet'; did you mean '.parquet'? "),
     ("x.csv.gz", "found '.gz'. "), ("x.2024-05-01", "found '.2024-05-01'. ")],
)  # fmt: skip
def test_a_suffix_of_no_format_is_refused_before_anything_is_read(tmp_path: Path, name: str, hint: str) -> None:
    called = call("cat", tmp_path / "no store", "-o", tmp_path / name)

    assert (ExitCode.USAGE, []) == (called.code, list(tmp_path.iterdir()))
    assert f"{name}: expected no suffix, or one of .jsonl, .csv, .parquet, .arrow, .txt, " in called.errors
    assert f"{hint}Other names need --format\n" in called.errors


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("x.csv", "exists already"),
        ("x.csv.part", "x.csv.part exists: a run is writing it, or was killed. If none is running, delete it"),
    ],
)
@pytest.mark.parametrize(
    "words", [("cat", "-o"), ("check", "--certificate"), ("repair", "--plan"), ("info", "--html")], ids=" ".join
)
def test_neither_a_file_nor_what_a_killed_run_left_of_it_is_overwritten(
    words: tuple[str, str], name: str, told: str, store: Path, tmp_path: Path
) -> None:
    there = tmp_path / name
    there.write_text("mine")

    called = call(words[0], store, words[1], tmp_path / "x.csv")

    assert (ExitCode.USAGE, "mine") == (called.code, there.read_text())
    assert told in called.errors
    assert str(tmp_path) in called.errors


def test_a_file_of_a_run_that_began_with_this_one_is_left_to_it(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "check_new", lambda *_: None)  # neither saw the other's
    (tmp_path / "x.csv.part").write_text("half")

    called = call("cat", store, "-o", tmp_path / "x.csv")

    assert (ExitCode.USAGE, "half") == (called.code, (tmp_path / "x.csv.part").read_text())
    assert "x.csv.part exists: a run is writing it, or was killed. If none is running, delete it" in called.errors


def test_a_directory_that_is_not_there_is_told_before_anything_is_read(store: Path, tmp_path: Path) -> None:
    for name, *given in (["x.csv", "cat", store, "-o"], ["x.html", "bill", store, "--html"]):
        called = call(*given, tmp_path / "none" / str(name))
        assert (ExitCode.USAGE, b"") == (called.code, called.data)
        assert f"there is no directory {tmp_path / 'none'}" in called.errors


@pytest.mark.parametrize("place", ["commitlog", "consumequeue/x", ""])
def test_nothing_is_written_into_a_store(store: Path, tmp_path: Path, place: str) -> None:
    target = store / place / "x.csv"
    target.parent.mkdir(parents=True, exist_ok=True)
    link = tmp_path / "link"
    link.symlink_to(target.parent)

    for given in (["-o", target], ["--output", link / "x.csv"]):
        called = call("cat", store, *given)
        assert ExitCode.USAGE == called.code
        assert f"is in the store {store}, where nothing is written" in called.errors
    assert ExitCode.USAGE == call("bill", store, "--html", target).code
    assert not target.exists()


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_after_an_error_there_is_no_file(log: LogBuilder, tmp_path: Path, suffix: str) -> None:
    log.flip(log.records[3].physical_offset, 8)
    store = log.write(tmp_path / "store")

    called = call("cat", store, "-o", tmp_path / f"x.{suffix}")

    assert ExitCode.FAILED == called.code
    assert [store] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["arrow", "parquet"])
def test_binary_formats_are_not_written_to_a_terminal(store: Path, name: str) -> None:
    called = call("cat", store, f"--format={name}", around=TERMINAL)

    assert (ExitCode.USAGE, b"") == (called.code, called.data)


@pytest.mark.parametrize(
    ("around", "words", "environment", "is_bold"),
    [
        (TERMINAL, [], {}, True),
        (TERMINAL, [], {"NO_COLOR": "1"}, False),
        (TERMINAL, [], {"NO_COLOR": ""}, True),
        (TERMINAL, ["--color=never"], {}, False),
        (TERMINAL, ["--color=always"], {"NO_COLOR": "1"}, True),
        (Console(), [], {}, False),
        (Console(), ["--color=always"], {}, True),
    ],
)
def test_colours_are_for_terminals_unless_somebody_says_otherwise(
    store: Path, around: Console, words: list[str], environment: dict[str, str], is_bold: bool
) -> None:
    assert is_bold == (BOLD in call("head", store, *words, around=around, environment=environment).text)


def test_columns_counts_in_a_pipe_as_on_a_terminal(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    piped = Console.of(click.Context(program))

    assert (60, None) == (piped.table_width, piped.width)
    assert call("head", store, around=piped).text == call("head", store, "--color=never", around=Console(60)).text
    assert call("head", store, around=piped).text != call("head", store).text
    assert call("head", store, "--format=jsonl", around=piped).text == call("head", store, "--format=jsonl").text


def test_in_one_encoding_bytes_are_always_strings() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"ab", b"\xff\x00"])], ["body"])
    lines = JsonLinesText(batch.schema, BytesStyle.HEX).text([*rows_of(batch)]).splitlines()

    assert [{"body": "6162"}, {"body": "ff00"}] == [json.loads(line) for line in lines]


FAR, EPOCH = "11103-08-29T17:22:31.711Z", "1970-01-01T00:00:00.000Z"
ODD: dict[str, tuple[pa.Array, object, str]] = {
    "text": (pa.array(["a,b"]), "a,b", "a,b"),
    "body": (pa.array([b'{"a": "x"}']), '{"a": "x"}', '{"a": "x"}'),
    "no_text": (pa.array([b"\xff\x00"]), {"base64": "/wA=", "length": 2}, "0xff00"),
    "lines": (pa.array([b"a\nb\t"]), "a\nb\t", "a\nb\\t"),
    "terminal": (pa.array(["\x1b[2J"]), "\x1b[2J", "\\x1b[2J"),
    "keys": (pa.array([["a", "b"]], STRINGS_TYPE), ["a", "b"], "a b"),
    "no_keys": (pa.array([None], STRINGS_TYPE), None, ""),
    "properties": (pa.array([[("p", 'q"')]], MAP_TYPE), {"p": 'q"'}, '{"p": "q\\""}'),
    "no_properties": (pa.array([[]], MAP_TYPE), {}, "{}"),
    "day": (pa.array([18262], pa.date32()), "2020-01-01", "2020-01-01"),
    "forever": (
        pa.array([2**31 - 1], pa.date32()),
        "<value out of range: 2147483647>",
        "<value out of range: 2147483647>",
    ),
    "clock": (pa.array([1], pa.time64("ns")), "00:00:00.000000001", "00:00:00.000000001"),
    "nanoseconds": (pa.array([1_999_999], pa.timestamp("ns")), "1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.001Z"),
    "price": (pa.array([Decimal("1.50")]), 1.5, "1.50"),
    "numbers": (pa.array([[Decimal(2**60), Decimal(1)]]), [2**60, 1], f"{2**60} 1"),
    "none": (pa.array([float("nan")]), None, "nan"),
    "infinite": (pa.array([[float("-inf"), 1.0]]), [None, 1.0], "-inf 1.0"),
    "days": (pa.array([None, [2**22, None]], pa.list_(pa.date32()))[1:], ["13453-08-13", None], "13453-08-13 "),
    "fixed": (pa.array([[2**58, 0]], pa.list_(pa.timestamp("us"), 2)), [FAR, EPOCH], f"{FAR} {EPOCH}"),
    "named": (
        pa.array([{"at": [2**58], "by": None}], pa.struct({"at": pa.list_(pa.timestamp("us", "UTC")), "by": MAP_TYPE})),
        {"at": [FAR], "by": None},
        f'{{"at": ["{FAR}"], "by": null}}',
    ),
    "maps": (pa.array([[[("a", "b")], None]], pa.list_(MAP_TYPE)), [{"a": "b"}, None], "a=b "),
    "bytes": (pa.array([[b"\xff", b"a"]]), [{"base64": "/w==", "length": 1}, "a"], "0xff a"),
    "by_day": (
        pa.array([[(date(2020, 1, 1), b"\xff")]], pa.map_(pa.date32(), pa.binary())),
        {"2020-01-01": {"base64": "/w==", "length": 1}},
        '{"2020-01-01": {"base64": "/w==", "length": 1}}',
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_values_of_any_type_that_a_query_gives_are_text(name: str) -> None:
    column, in_json, in_csv = ODD[name]
    batch = pa.RecordBatch.from_arrays([column], ["NaN"])
    rows = [*rows_of(batch)]

    def refuse(word: str) -> None:
        raise AssertionError(word)

    assert {"NaN": in_json} == json.loads(JsonLinesText(batch.schema).text(rows), parse_constant=refuse)
    assert [["NaN"], [in_csv]] == list(csv.reader(io.StringIO(CsvText(batch.schema).text(rows))))
    for form in (TableText, FieldsText):
        assert "b'" not in form(batch.schema).text(rows)


MAIN = "import sys; from store_core.command.main import main; sys.exit(main())"
FULL = Path("/dev/full")
NO_SPACE = "commitlog: standard output can't be written: No space left on device. Free some space, and run this again\n"
CLOSED = "commitlog: standard output can't be written: it is closed. Open it for writing, as by > FILE, "

needs_full = pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is full")


def ended(to: str, *words: object, unbuffered: bool = False) -> tuple[int, str]:
    """Run the program with a redirection of a shell, and return its exit code and what it said."""
    flags = ["-u"] if unbuffered else []
    program = [sys.executable, *flags, "-c", MAIN, *map(str, words)]
    shell = ["sh", "-c", f'"$@" {to}', "sh", *program]
    done = subprocess.run(shell, check=False, capture_output=True, text=True)  # noqa: S603 -- our own program
    assert not done.stdout
    return done.returncode, done.stderr


@needs_full
@pytest.mark.parametrize(
    ("words", "unbuffered"),
    [
        ("cat STORE --format=table", False),
        ("cat STORE --format=table", True),
        ("cat STORE --format=arrow", False),
        ("cat STORE --format=parquet", False),
        ("count STORE", False),
        ("check STORE --json", False),
        ("--help", False),
    ],
)
def test_what_can_not_be_written_is_a_failure_of_standard_output(store: Path, words: str, *, unbuffered: bool) -> None:
    typed = [store if word == "STORE" else word for word in words.split()]

    assert (ExitCode.FAILED, NO_SPACE) == ended(">/dev/full", *typed, unbuffered=unbuffered)


@pytest.mark.parametrize("words", [["cat"], ["cat", "--format=arrow"], ["check"]])
def test_a_closed_one_is_a_failure(store: Path, words: list[str]) -> None:
    code, text = ended(">&-", *words, store)

    assert ExitCode.FAILED == code
    assert text.startswith(CLOSED)
    assert 1 == text.count("\n")


def test_a_closed_one_does_not_matter_to_who_writes_a_file(store: Path, tmp_path: Path) -> None:
    assert (ExitCode.DONE, "") == ended(">&-", "cat", store, "--output", tmp_path / "x.csv")
    assert 41 == len((tmp_path / "x.csv").read_text().splitlines())


def test_one_that_is_only_open_for_reading_is_a_failure(store: Path) -> None:
    code, text = ended("1</dev/null", "count", store)

    assert ExitCode.FAILED == code
    assert text.startswith("commitlog: standard output can't be written: Bad file descriptor. Open it for writing")


INTERRUPTED = 130
ERASE = "\x1b[2K"


# ---- progress


class SharedTerminal(io.StringIO):
    """A terminal that has standard output, too."""

    def write(self, text: str) -> int:
        sys.stdout.flush()
        return sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


class Interrupted(io.StringIO):
    """A terminal at which somebody types ^C when the first part is done."""

    def write(self, text: str) -> int:
        if "parts" in text:
            raise KeyboardInterrupt
        return super().write(text)


def test_a_line_says_what_is_done_and_what_is_left_and_disappears() -> None:
    clock, terminal = FakeClock(), io.StringIO()
    shown = []
    with PartsProgress("check", terminal, clock) as progress:
        for step, done in ((Step.RUN, 1), (Step.RUN, 2), (Step.GATHER, 1), (Step.GATHER, 2)):
            clock.advance(3)
            progress(PartsDone(step, done, 2))
            shown.append(terminal.getvalue().rpartition("\r")[2])

    assert [
        "check: reading, 1 of 2 parts, 3 s left",
        "check: reading, 2 of 2 parts",
        "check: comparing, 1 of 2 parts, 3 s left",
        "check: comparing, 2 of 2 parts",
    ] == shown
    assert not terminal.getvalue().rpartition("\r")[2]
    assert terminal.getvalue().split("\r")[-2].endswith(ERASE)


def lines_seen(written: str) -> list[str]:
    """Return what a terminal shows after characters: the line is erased, and a carriage return goes to its begin."""
    lines = []
    for line in written.replace("\r\n", "\n").split("\n"):
        shown = ""
        for text in line.split("\r"):
            shown = "" if text.endswith(ERASE) else text + shown[len(text) :]
        lines.append(shown.rstrip())
    return lines


@pytest.mark.parametrize("command", sorted(set(REPORTS) - WITHOUT_PARTS))
def test_the_line_is_gone_when_the_report_begins(command: str, life: Path, tmp_path: Path) -> None:
    alone = call(*typed(command, life, tmp_path / "one"))
    shared = call(*typed(command, life, tmp_path / "two"), around=Console(progress=SharedTerminal()))

    assert f"{command}: reading" in shared.text
    assert [*map(str.rstrip, alone.text.replace("/one", "/two").split("\n"))] == lines_seen(shared.text)


def test_a_warning_does_not_run_into_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    with PartsProgress("check", terminal, FakeClock()) as progress:
        say("something odd")
        progress(PartsDone(Step.RUN, 1, 2))

    assert ["commitlog: something odd", ""] == lines_seen(terminal.getvalue())


@pytest.mark.parametrize("command", ["producers", "bill"])
def test_a_real_terminal_shows_the_report_alone(command: str, store: Path) -> None:
    shows, is_terminal = pty.openpty()
    program = [sys.executable, "-c", MAIN, command, str(store)]
    done = subprocess.run(program, check=False, stdout=is_terminal, stderr=is_terminal)  # noqa: S603 -- our own program
    os.close(is_terminal)
    seen = lines_seen(os.read(shows, 1 << 16).decode())
    os.close(shows)

    assert 0 == done.returncode
    assert not [line for line in seen if "reading" in line]


@pytest.mark.parametrize("command", ["check", "salvage", "diff"])
@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_interrupted_leaves_nothing_behind(
    command: str, processes: int, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    more: dict[str, list[object]] = {"salvage": ["--into", tmp_path / "new"], "diff": [store], "check": []}
    terminal = Interrupted()
    page = ["--html", tmp_path / "page", "--processes", processes]
    ended = call(command, store, *more[command], *page, around=Console(progress=terminal))

    assert (INTERRUPTED, "") == (ended.code, ended.text)
    assert {"store", "scratch"} == {path.name for path in tmp_path.iterdir()}
    assert not [*scratch.iterdir()]
    assert not multiprocessing.active_children()
    assert not terminal.getvalue().rpartition("\r")[2].strip()

# SPDX-License-Identifier: Apache-2.0
"""Every command, again and again, on the store of a broker that is written: what it says is what producers recorded."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

import pytest

from store_core import read_messages
from tests.interop.live_broker import LiveBroker
from tests.store_core.answers.planting import StoreCopy

if TYPE_CHECKING:
    from collections.abc import Iterator


COMMAND: Final = str(Path(sys.executable).with_name("commitlog"))
SEGMENT_SIZE: Final = 16 << 20
PER_SECOND: Final = 1000.0
CHECK: Final = "check STORE --release 5.3 --json"
WRONG_UNITS: Final = {
    "unit_wrong_tags_code": lambda offset, size, code: (offset, size, code + 1),
    "unit_wrong_size": lambda offset, size, code: (offset, size + 1, code),
    "unit_wrong_place": lambda offset, size, code: (offset + 1, size, code),
}
"""The kind of a finding -> makes of a unit one that is wrong in this way."""

COMMANDS: Final[dict[str, tuple[int, ...]]] = {
    CHECK: (0,),
    "check STORE --json": (0,),
    "get STORE n{number}": (0,),
    "trace STORE n{number}": (0,),
    "head STORE": (0,),
    "tail STORE": (0,),
    "cat STORE --topic Topic1 --columns keys,body": (0,),
    "count STORE --by topic": (0,),
    "explain STORE --key n{number}": (0,),
    "topics STORE": (0,),
    "ls STORE": (0,),
    "view STORE consumequeue --topic Topic1": (0,),
    "view STORE index": (0,),
    "view STORE topics": (0,),
    "lag STORE --json": (0,),
    "delays STORE": (0,),
    "transactions STORE": (0,),
    "deadletters STORE": (0,),
    "producers STORE": (0, 1),
    "bill STORE": (0,),
    "retention STORE": (0, 1),
    "recover STORE --dry-run --release 5.3 --json": (1,),
    "salvage STORE": (0,),
    "diff STORE STORE": (0,),
    "export STORE --into OUTSIDE/lake": (0,),
    "export STORE --into OUTSIDE/lake --prove": (0,),
    "repair STORE --plan OUTSIDE/plan.json": (4,),
    "redact STORE --into OUTSIDE/copy --text secret": (4,),
}
"""The commands, with the exit codes that a sound store of a running broker may give."""


class Acknowledged:
    """How many numbered messages are acknowledged, as their producer prints it."""

    def __init__(self, producer: subprocess.Popen[bytes]) -> None:
        self._producer = producer
        self.number = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in cast("IO[bytes]", self._producer.stdout):
            self.number = int(line)

    def wait_for(self, number: int) -> None:
        """Wait until so many are acknowledged, or all."""
        while self.number < number and self._reader.is_alive():
            self._reader.join(0.1)
        assert self.number >= number, "the producer ended early"

    @property
    def is_complete(self) -> bool:
        return not self._reader.is_alive()


def run(command: str, store: Path, outside: Path, **values: int) -> tuple[int, str, str]:
    """Run a command; return its exit code, output and errors."""
    words = command.format(**values).replace("STORE", str(store)).replace("OUTSIDE", str(outside)).split()
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False)  # noqa: S603 -- ours
    return done.returncode, done.stdout, done.stderr


def numbers_in(store: Path) -> set[int]:
    """Return the numbers of the producer's messages in a log."""
    keys = read_messages(store, columns="keys").read_all()["keys"].combine_chunks().flatten().unique().to_pylist()
    return {int(key[1:]) for key in keys if key.startswith("n")}


def facts_of(output: str) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(output))


@contextmanager
def planted(store: Path, kind: str) -> Iterator[None]:
    """Make a unit of a live store wrong for the time of the context."""
    queue = next(each for each in StoreCopy(store).queues() if each.place[0] == "Topic1")
    offset, size, code = queue.unit(queue.first + 2)
    queue.put(queue.first + 2, WRONG_UNITS[kind](offset, size, code))
    try:
        yield
    finally:
        queue.put(queue.first + 2, (offset, size, code))


def look(command: str, store: Path, outside: Path, number: int) -> None:
    """Run a command beside the broker, and compare what it says."""
    code, output, errors = run(command, store, outside, number=number)
    assert code in COMMANDS[command], (command, code, output[-3000:], errors[-3000:])
    if command.startswith("check"):
        facts = facts_of(output)
        assert facts["is_live"]
        assert facts["complete_queues"] == facts["queues"]
    elif command.startswith("recover"):
        facts = facts_of(output)
        release = facts["tables"]["releases"][0]
        assert facts["end_offset"] == release["log_end"] <= release["max_offset"]
        assert facts["truncated_messages"] == 0
    elif command.startswith("get"):
        assert f"n{number}" in output


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "messages", [pytest.param(60_000, marks=pytest.mark.interop), pytest.param(600_000, marks=pytest.mark.soak)]
)
def test_every_command_is_right_beside_a_broker_that_is_written(messages: int, tmp_path: Path) -> None:
    chosen = random.Random(5)  # noqa: S311 -- which messages are asked for
    with LiveBroker(tmp_path / "broker", SEGMENT_SIZE) as broker:
        acknowledged = Acknowledged(broker.produce(messages, PER_SECOND))
        acknowledged.wait_for(messages // 20)
        broker.consume([f"slow:Topic1,Topic2:{messages // 200}"])
        kinds = cycle(WRONG_UNITS)
        while not acknowledged.is_complete:
            before = acknowledged.number
            for command in COMMANDS:
                look(command, broker.store, tmp_path, chosen.randrange(before))
            assert numbers_in(broker.store) >= set(range(before))
            kind = next(kinds)
            with planted(broker.store, kind):
                code, output, errors = run(CHECK, broker.store, tmp_path)
            found = {row["kind"]: row["count"] for row in facts_of(output)["tables"]["counts"]}
            assert (1, {kind: 1}) == (code, found), errors
        stored = numbers_in(broker.store)
        broker.kill()
        killed = run(CHECK, broker.store, tmp_path)

    assert set(range(messages)) == stored
    assert 0 == killed[0], killed

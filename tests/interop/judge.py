# SPDX-License-Identifier: Apache-2.0
"""A real RocketMQ of one release, with small files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from store_core.store.message_store_config import MessageStoreConfig, Release
from tests.interop.puts import Put, put_job
from tests.interop.scenarios import SEGMENT_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from tests.interop.rocketmq import Answer, RocketMq


_DELAY_LEVELS: Final = "31s 35s 40s 50s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's levels, without the short ones: stores of 4.x deliver due messages while a test has them open."""

_SETTINGS: Final = {
    "cleanFileForciblyEnable": False,
    "diskMaxUsedSpaceRatio": 95,
    "fileReservedTime": 24 * 365,
    "haListenPort": 0,
    "mappedFileSizeConsumeQueue": 20 * 40,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "messageDelayLevel": _DELAY_LEVELS,
    "osPageCacheBusyTimeOutMills": 600_000,  # a loaded machine must not refuse messages
}
_SETTINGS_OF: Final[dict[str, dict[str, object]]] = {
    "4.3": {},
    "4.9": {},
    "5.3": {"timerWheelEnable": False},
    "5.3.4": {"timerWheelEnable": False},
    "5.4": {"timerWheelEnable": False},
    "5.5": {"timerWheelEnable": False},
    "5.5.1": {"timerWheelEnable": False},
}


def store_settings(release: str) -> dict[str, object]:
    """Return the settings of a test's store, under RocketMQ's names."""
    return _SETTINGS | _SETTINGS_OF[release]


def our_small_config(release: str, segment_size: int = SEGMENT_SIZE, **settings: Any) -> MessageStoreConfig:  # noqa: ANN401 -- any setting
    """Configure our store with the judge's file sizes."""
    return MessageStoreConfig(
        release=cast("Release", release),
        mapped_file_size_commit_log=segment_size,
        mapped_file_size_consume_queue=cast("int", _SETTINGS["mappedFileSizeConsumeQueue"]),
        max_hash_slot_num=cast("int", _SETTINGS["maxHashSlotNum"]),
        max_index_num=cast("int", _SETTINGS["maxIndexNum"]),
        **settings,
    )


@dataclass(frozen=True, slots=True)
class Judge:
    """A real RocketMQ of one value of option `release`; settings are those of its MessageStoreConfig."""

    release: str
    process: RocketMq

    def put(self, store: Path, puts: Iterable[Put], **settings: object) -> Future[Answer]:
        """Put messages into a store, new or not, as a broker does; it is then closed."""
        return self.process.submit("put", **self._fields(store, settings), broker=True, messages=put_job(puts))

    def open(self, store: Path, **settings: object) -> Future[Answer]:
        """Open a store, which RocketMQ may change, report its contents and close it."""
        return self.process.submit("open", **self._fields(store, settings))

    def live(
        self, store: Path, put: Put, *, count: int, burst: int, pause_ms: int, **settings: object
    ) -> Future[Answer]:
        """Put a message many times, with a pause after every burst."""
        rhythm = {"count": count, "burst": burst, "pauseMs": pause_ms}
        return self.process.submit("live", **self._fields(store, settings), message=put.to_json(), **rhythm)

    def ask(self, store: Path, questions: Sequence[Answer], **settings: object) -> Future[Answer]:
        """Open a store, which RocketMQ may change, and ask it questions."""
        return self.process.submit("ask", **self._fields(store, settings), questions=questions)

    def evaluate(self, expressions: Sequence[str], maps: Sequence[dict[str, str]]) -> Future[Answer]:
        """Compile filter expressions, and evaluate each on maps of properties."""
        return self.process.submit("evaluate", expressions=expressions, maps=maps)

    def pull(self, store: Path, broker: Answer, job: Answer, **settings: object) -> Future[Answer]:
        """Open a store, which may change, in a broker with settings of its BrokerConfig, and serve pulls."""
        return self.process.submit("pull", **self._fields(store, settings), **{"broker": broker, **job})

    def register(
        self, store: Path, broker: Answer, steps: Sequence[Answer], properties: dict[str, str]
    ) -> Future[Answer]:
        """Register filter expressions, and ask after each step for the file and for the bit map of a message.

        The broker has the topics of all steps: one of 5.5.1 registers nothing for others.
        """
        topics = sorted({step["topic"] for step in steps})
        fields = {**self._fields(store, {}), "broker": broker, "topics": topics}
        return self.process.submit("filters", **fields, steps=steps, properties=properties)

    def clean(self, store: Path, rounds: int, properties: dict[str, str], **settings: object) -> list[set[str]]:
        """Open a store, let it delete files in some rounds, and return the files before, and after each."""
        fields = self._fields(store, settings)
        found = self.process.run("clean", **fields, rounds=rounds, properties=properties)["answers"]
        return [set(files) for files in found]

    def bench_load(self, store: Path, **settings: object) -> Answer:
        """Measure how long a store takes to load, with recovery and dispatch; files have RocketMQ's default sizes."""
        config = {"haListenPort": 0, **_SETTINGS_OF[self.release], **settings}
        return self.process.run("bench-load", store=str(store), config=config)

    def bench_put(
        self, store: Path, puts: Iterable[Put], *, warm_up: int, count: int, chunk: int, **settings: object
    ) -> Answer:
        """Measure how fast one thread puts messages, repeatedly; files have RocketMQ's default sizes."""
        config = {"haListenPort": 0, **_SETTINGS_OF[self.release], **settings}
        rhythm = {"warmUp": warm_up, "count": count, "chunk": chunk}
        return self.process.run("bench-put", store=str(store), config=config, messages=put_job(puts), **rhythm)

    def bench_ask(self, store: Path, questions: Sequence[Answer], *, rounds: int) -> list[float]:
        """Measure how long questions take one by one, in nanoseconds of CPU time each, round by round."""
        config = {"haListenPort": 0, "fileReservedTime": 24 * 365, **_SETTINGS_OF[self.release]}
        fields = {"store": str(store), "config": config, "questions": questions, "rounds": rounds}
        nanos: list[float] = self.process.run("bench-ask", **fields)["nanos"]
        return nanos

    def _fields(self, store: Path, settings: dict[str, object]) -> dict[str, object]:
        batch_topics = settings.pop("batch_topics", [])
        config = {"mappedFileSizeCommitLog": SEGMENT_SIZE, **store_settings(self.release), **settings}
        return {"store": str(store), "config": config, "batchTopics": batch_topics}

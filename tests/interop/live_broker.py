# SPDX-License-Identifier: Apache-2.0
"""A name server and a broker that listen on the loopback address, and producers that send to them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self, cast

from tests.interop.toolchain import RELEASES, harness_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


_SERVICES: Final = Path(__file__).parent / "java" / RELEASES["5.3"] / "services"
"""Names the class of the broker's service for replicas."""

_SETTINGS: Final = {
    "autoCreateTopicEnable": "true",
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "brokerName": "live",
    "diskMaxUsedSpaceRatio": "95",
    "flushConsumerOffsetInterval": "500",
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "metricsExporterType": "DISABLE",
    "osPageCacheBusyTimeOutMills": "600000",  # a loaded machine must not refuse messages
    "timerWheelEnable": "false",
    "transactionCheckInterval": "5000",
    "transactionTimeOut": "2000",
    "warmMapedFileEnable": "false",
}


class LiveBroker:
    """A broker of RocketMQ 5.3 that writes a store, in a directory with its configurations and logs.

    The name server of one `beside` it, which runs, is used as well: they are one cluster.
    """

    def __init__(
        self, directory: Path, segment_size: int, beside: LiveBroker | None = None, /, **settings: str
    ) -> None:
        self.directory = directory
        self.store = directory / "store"
        self._segment_size = segment_size
        self._settings = settings
        self._processes = ExitStack()
        self._broker: subprocess.Popen[bytes] | None = None
        self._beside = beside
        self._name_server_port, self._port = _free_ports(2)
        directory.mkdir(parents=True)

    @property
    def address(self) -> str:
        """Address of the broker."""
        return f"127.0.0.1:{self._port}"

    @property
    def name_server(self) -> str:
        """Address of the name server."""
        return self._beside.name_server if self._beside else f"127.0.0.1:{self._name_server_port}"

    def __enter__(self) -> Self:
        """Start both, or the broker alone."""
        if self._beside is None:
            server = {"bindAddress": "127.0.0.1", "listenPort": str(self._name_server_port)}
            self._start("namesrv", server | {"kvConfigPath": str(self.directory / "kvConfig.json")})
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.close()

    def start(self) -> None:
        """Start the broker, which recovers its store, and wait until it listens."""
        ports = {"listenPort": str(self._port), "haListenPort": str(_free_ports(1)[0])}
        self._broker = self._start(
            "broker",
            _SETTINGS
            | ports
            | {
                "mappedFileSizeCommitLog": str(self._segment_size),
                "namesrvAddr": self.name_server,
                "storePathCommitLog": str(self.store / "commitlog"),
                "storePathRootDir": str(self.store),
            }
            | self._settings,
        )

    def kill(self) -> None:
        """Kill the broker, as a crash of its machine would, but for what the page cache holds."""
        broker = cast("subprocess.Popen[bytes]", self._broker)
        broker.send_signal(signal.SIGKILL)
        broker.wait()

    def produce(self, count: int, per_second: float) -> subprocess.Popen[bytes]:
        """Start a producer of `count` messages, which prints how many were acknowledged."""
        return self._java("interop.Producer", self.name_server, str(count), str(per_second))

    def run(self, program: str, *arguments: str) -> Events:
        """Start a program of the harness that prints events."""
        return Events(self._java(f"interop.{program}", self.name_server, *arguments), self.directory / "java.log")

    def consume(self, groups: list[str]) -> subprocess.Popen[bytes]:
        """Let groups consume, each ``GROUP:TOPIC,...:COUNT``; return what then answers how far each of them is."""
        process = self._java("interop.Consumer", self.name_server, self.address, *groups)
        if cast("IO[bytes]", process.stdout).readline() != b"consumed\n":
            log = (self.directory / "java.log").read_text(errors="replace")
            raise RuntimeError(f"the consumers ended; the log ends with\n{log[-3000:]}")
        return process

    def _start(self, kind: str, settings: dict[str, str]) -> subprocess.Popen[bytes]:
        path = self.directory / f"{kind}.conf"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        process = self._java("interop.Node", kind, "-c", str(path))
        lines = cast("IO[bytes]", process.stdout)
        while (line := lines.readline()) != b"started\n":
            if not line:
                log = (self.directory / "java.log").read_text(errors="replace")
                raise RuntimeError(f"the {kind} ended; the log ends with\n{log[-3000:]}")
        return process

    def _java(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = f"-Drocketmq.home.dir={self.directory}"
        *command, path, _ = harness_command(RELEASES["5.3"], "-Xmx256m", "-XX:MaxDirectMemorySize=512m", home)
        log = self._processes.enter_context((self.directory / "java.log").open("ab"))
        process = subprocess.Popen(  # noqa: S603 -- the command is ours
            [*command, f"{_SERVICES}:{path}", program, *arguments],
            cwd=self.directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | {"LC_ALL": "C.UTF-8"},
        )
        self._processes.callback(_end, process)
        return process


class Events:
    """The events that a program prints, as they come; see ``Events.java``. Its errors are in the log."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self._found: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in cast("IO[bytes]", self._process.stdout):
            self._found.append(json.loads(line))

    def ask(self) -> None:
        """Send a line, which a program answers by events."""
        lines = cast("IO[bytes]", self._process.stdin)
        lines.write(b"\n")
        lines.flush()

    def so_far(self, *kinds: str) -> list[dict[str, Any]]:
        """Return the events of some kinds that have come."""
        return [each for each in tuple(self._found) if each["event"] in kinds]

    def wait_until(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Wait for something, looking often; a `TimeoutError` if it does not come."""
        latest = time.monotonic() + seconds
        while not is_done():
            if time.monotonic() > latest or self._process.poll() is not None:
                log = self._log.read_text(errors="replace")[-3000:]
                raise TimeoutError(f"{len(self._found)} events, and not what was waited for; the log ends with\n{log}")
            time.sleep(0.05)

    def wait_for(self, kind: str, seconds: float) -> None:
        """Wait for an event of a kind."""
        self.wait_until(lambda: bool(self.so_far(kind)), seconds)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for each in (process.stdin, process.stdout):
        cast("IO[bytes]", each).close()


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody uses, and below each two more, which brokers take for themselves."""
    with ExitStack() as sockets:
        taken = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in taken]

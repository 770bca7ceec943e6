# SPDX-License-Identifier: Apache-2.0
"""A running harness around one RocketMQ version, as a Python object."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from concurrent.futures import Future
from itertools import count
from typing import IO, TYPE_CHECKING, Any, Final, Self, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType


Answer = dict[str, Any]
"""The result of a job, see README.md."""

_ENVIRONMENT: Final = {"LC_ALL": "C.UTF-8"}  # topics name directories, and Java names files in the locale's encoding
_JOB_LIMIT: Final = 240.0
_CLOSE_LIMIT: Final = 30.0
_LOG_TAIL: Final = 4000


class JobFailedError(RuntimeError):
    """A job ended with an exception, whose Java stack trace is the message, or the harness itself ended."""


class RocketMq:
    """A process that runs jobs on stores with a real RocketMQ.

    Jobs run concurrently: `submit` many and then wait for their results, because each spends seconds in RocketMQ's
    shutdown. The command that starts it is `tests.interop.toolchain.harness_command`.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 -- closed in close()
        self._process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 -- the command is ours
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=_ENVIRONMENT
        )
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._waiting: dict[int, Future[Answer]] = {}
        self._reader = threading.Thread(target=self._read_answers, name="answers", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, job: str, **fields: object) -> Future[Answer]:
        """Start a job; its fields are those of README.md."""
        number, future = next(self._numbers), Future[Answer]()
        line = json.dumps({"id": number, "job": job, **fields}).encode() + b"\n"
        with self._lock:
            self._waiting[number] = future
            stream = cast("IO[bytes]", self._process.stdin)
            stream.write(line)
            stream.flush()
        return future

    def run(self, job: str, **fields: object) -> Answer:
        """Run a job and wait for its answer; a `TimeoutError` if it takes minutes."""
        return self.submit(job, **fields).result(_JOB_LIMIT)

    def close(self) -> None:
        """End the process; an open store is left as after a crash."""
        cast("IO[bytes]", self._process.stdin).close()
        try:
            self._process.wait(_CLOSE_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        cast("IO[bytes]", self._process.stdout).close()
        self._log.close()

    def _read_answers(self) -> None:
        for line in cast("IO[bytes]", self._process.stdout):
            answer = json.loads(line)
            with self._lock:
                future = self._waiting.pop(answer["id"])
            if "error" in answer:
                future.set_exception(JobFailedError(answer["error"]))
            else:
                future.set_result(answer["result"])
        for future in self._waiting.values():
            future.set_exception(JobFailedError(f"the harness ended; its log ends with\n{self._log_tail()}"))

    def _log_tail(self) -> str:
        self._log.seek(0)
        return self._log.read()[-_LOG_TAIL:].decode(errors="replace")

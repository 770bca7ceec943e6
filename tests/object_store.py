# SPDX-License-Identifier: Apache-2.0
"""An S3 server on this machine (moto), which can be told to fail as real ones do under load."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow.fs as pa_fs
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import S3Backend, s3_backends
from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


BUCKET: Final = "bucket"
SECRET: Final = "what-nobody-may-see"  # noqa: S105 -- of a server that lives as long as a test
_REGION: Final = "us-east-1"
_DELAY: Final = 0.05
"""Seconds."""

_LOOKS_WHETHER_TO_END: Final = 0.02
"""Seconds between two looks of a server; with the usual 0.5 s, each module that uses one waits for that in the end."""

_USER: Final = "AKIDOFATESTER"


@dataclass(slots=True)
class Faults:
    """What goes wrong with requests that read, and what was asked.

    * `every`: One request in this many fails; 0 for none.
    * `kinds`: In turns, of which `turns` were taken: ``throttle`` (503, SlowDown), ``limit`` (429), ``cut`` (the body
      ends early), ``refuse`` (500), ``short`` (a shorter body that says so), ``delay`` (a pause). Of ``HEAD``, which
      has no body, only the status can be wrong; the next GET then has the turn.
    * `before`: Is called with the path of each GET before it is answered.
    """

    every: int = 0
    kinds: tuple[str, ...] = ("throttle", "limit", "cut", "refuse", "short", "delay")
    before: Callable[[str], None] | None = None
    gets: int = 0
    heads: int = 0
    lists: int = 0
    turns: int = 0
    bytes_sent: int = 0
    injected: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, environ: dict[str, Any]) -> str:
        """Count a request, and return the fault that it gets; empty for none."""
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return ""
        is_head = environ["REQUEST_METHOD"] == "HEAD"
        is_object = environ["PATH_INFO"].count("/") > 1 and "list-type" not in environ.get("QUERY_STRING", "")
        with self.lock:
            self.heads += is_head
            self.lists += not is_head and not is_object
            self.gets += not is_head and is_object
            if not self.every or self.asked % self.every:
                return ""
            kind = self.kinds[self.turns % len(self.kinds)]
            if is_head and kind in ("cut", "short"):
                kind = "throttle"
            else:
                self.turns += 1
            self.injected[kind] += 1
            return kind

    @property
    def asked(self) -> int:
        """How many requests read something."""
        return self.gets + self.heads + self.lists

    @property
    def failed(self) -> int:
        """How many of them failed, and had to be made again."""
        return self.injected.total() - self.injected["delay"]


_STATUS: Final = {
    "throttle": ("503 Slow Down", "SlowDown"),
    "limit": ("429 Too Many Requests", "TooManyRequests"),
    "refuse": ("500 Internal Server Error", "InternalError"),
}


class ObjectStore:
    """A running server with one bucket; a context manager."""

    def __init__(self, bucket: str = BUCKET) -> None:
        self.bucket = bucket
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.faults = Faults()
        self._application = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_QuietHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_LOOKS_WHETHER_TO_END,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if self.bucket not in _kept().buckets:  # the same ones for all servers of this process
            _kept().create_bucket(self.bucket, _REGION)
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def settings(self) -> dict[str, str]:
        """The settings with which a reader gets at it; on a busy machine the usual 3 s would be one more fault."""
        return {**self._arguments(), "request_timeout": "60", "connect_timeout": "60"}

    @property
    def file_system(self) -> pa_fs.S3FileSystem:
        """A client of its own."""
        return pa_fs.S3FileSystem(**self._arguments())

    def upload(self, directory: Path, name: str) -> str:
        """Copy a directory into the bucket, and return its URL."""
        pa_fs.copy_files(
            str(directory),
            f"{self.bucket}/{name}",
            source_filesystem=pa_fs.LocalFileSystem(),
            destination_filesystem=self.file_system,
        )
        return f"s3://{self.bucket}/{name}"

    def forget(self) -> None:
        """Let nothing fail any more, and count from zero."""
        self.faults = Faults()

    def put(self, key: str, data: bytes) -> None:
        """Write one object."""
        with self.file_system.open_output_stream(f"{self.bucket}/{key}", compression=None) as stream:
            stream.write(data)

    def place(self, key: str, data: bytes) -> None:
        """Put an object into the server without a request, for tests that need many or odd ones."""
        _kept().put_object(self.bucket, key, data)

    def place_all(self, directory: Path, name: str) -> str:
        """Put the files of a directory into the server in this way, and return its URL."""
        for path in directory.rglob("*"):
            if path.is_file():
                self.place(f"{name}/{path.relative_to(directory)}", path.read_bytes())
        return f"s3://{self.bucket}/{name}"

    def _arguments(self) -> dict[str, str]:
        return {
            "access_key": _USER,
            "secret_key": SECRET,
            "endpoint_override": f"127.0.0.1:{self._server.server_port}",
            "scheme": "http",
            "region": _REGION,
        }

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        fault = self.faults.count(environ)
        if fault in _STATUS:
            status, code = _STATUS[fault]
            body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
            start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]
        if self.faults.before is not None and environ["REQUEST_METHOD"] == "GET":
            self.faults.before(environ["PATH_INFO"])
        if fault == "delay":
            time.sleep(_DELAY)
        if fault == "short":
            return self._shortened(environ, start)
        return self._counted(self._application(environ, start), is_cut=fault == "cut")

    def _shortened(self, environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        """Answer with half of the body, by headers that say so."""
        given: list[Any] = []
        body = b"".join(self._application(environ, lambda *answer: given.extend(answer)))
        part = body[: len(body) // 2]
        headers = [(name, value) for name, value in given[1] if name.lower() != "content-length"]
        start(given[0], [*headers, ("Content-Length", str(len(part)))])
        return [part]

    def _counted(self, chunks: Iterable[bytes], *, is_cut: bool) -> Iterator[bytes]:
        for chunk in chunks:
            part = chunk[: len(chunk) // 2] if is_cut else chunk
            with self.faults.lock:
                self.faults.bytes_sent += len(part)
            yield part
            if is_cut:
                return


def _kept() -> S3Backend:
    """Return what the server keeps its objects in, for what needs no request."""
    return s3_backends["123456789012"]["aws"]


class _QuietHandler(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002, ANN401 -- werkzeug's signature
        """Log nothing."""

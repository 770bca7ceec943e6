# SPDX-License-Identifier: Apache-2.0
"""An S3 server on this machine (moto), which can be told to fail as real ones do under load."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow.fs as pa_fs
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

__all__ = ["BUCKET", "SECRET", "Faults", "ObjectStore"]

BUCKET: Final = "bucket"
SECRET: Final = "what-nobody-may-see"  # noqa: S105 -- of a server that lives as long as a test
_USER: Final = "AKIDOFATESTER"


@dataclass(slots=True)
class Faults:
    """What goes wrong with requests for objects, and what was asked.

    Attributes
    ----------
    every : int
        One request in this many fails; 0 for none.
    kinds : tuple of str
        In turns: ``throttle`` (503, SlowDown), ``limit`` (429), ``cut`` (the body ends early), ``refuse`` (500).
    before : callable or None
        Is called with the path of each GET before it is answered.
    """

    every: int = 0
    kinds: tuple[str, ...] = ("throttle", "limit", "cut", "refuse")
    before: Callable[[str], None] | None = None
    gets: int = 0
    heads: int = 0
    lists: int = 0
    bytes_sent: int = 0
    failed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, environ: dict[str, Any]) -> str:
        """Count a request, and return the fault that it gets; empty for none."""
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return ""
        with self.lock:
            is_object = environ["PATH_INFO"].count("/") > 1 and "list-type" not in environ.get("QUERY_STRING", "")
            if environ["REQUEST_METHOD"] == "HEAD":
                self.heads += 1
                return ""
            if not is_object:
                self.lists += 1
                return ""
            self.gets += 1
            if not self.every or self.gets % self.every:
                return ""
            self.failed += 1
            return self.kinds[(self.failed - 1) % len(self.kinds)]


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
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        pa_fs.S3FileSystem(**self._arguments(), allow_bucket_creation=True).create_dir(self.bucket)
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def settings(self) -> dict[str, str]:
        """The settings with which a reader gets at it."""
        return self._arguments()

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

    def put(self, key: str, data: bytes) -> None:
        """Write one object."""
        with self.file_system.open_output_stream(f"{self.bucket}/{key}", compression=None) as stream:
            stream.write(data)

    def place(self, key: str, data: bytes) -> None:
        """Put an object into the server without a request, for tests that need many or odd ones."""
        s3_backends["123456789012"]["aws"].put_object(self.bucket, key, data)

    def _arguments(self) -> dict[str, str]:
        return {
            "access_key": _USER,
            "secret_key": SECRET,
            "endpoint_override": f"127.0.0.1:{self._server.server_port}",
            "scheme": "http",
            "region": "us-east-1",
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
        return self._counted(self._application(environ, start), is_cut=fault == "cut")

    def _counted(self, chunks: Iterable[bytes], *, is_cut: bool) -> Iterator[bytes]:
        for chunk in chunks:
            part = chunk[: len(chunk) // 2] if is_cut else chunk
            with self.faults.lock:
                self.faults.bytes_sent += len(part)
            yield part
            if is_cut:
                return


class _QuietHandler(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002, ANN401 -- werkzeug's signature
        """Log nothing."""

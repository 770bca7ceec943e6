# SPDX-License-Identifier: Apache-2.0
"""Compares reading a log from an object store with downloading the same bytes in parallel, in the same run.

The server speaks as much of S3's protocol as reading needs, and sends files by ``sendfile``, in a process of its own: a
simulated service such as moto's copies every object for every range, so that only it would be measured.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow.fs as pa_fs

from tests.benchmarks.measure import compare, drained, seconds_of
from tests.benchmarks.memory import bench_remote_memory
from tests.benchmarks.segments import make_log, make_store

if TYPE_CHECKING:
    from collections.abc import Iterator


_SIZE: Final = 512 << 20
_SEGMENT: Final = 128 << 20
_BODY: Final = 1024
_BLOCK: Final = 4 << 20
_REQUESTS: Final = 8
_LATENCY: Final = 0.02
_RATE: Final = 50e6
"""Bytes a second of a connection to an object store."""

_TARGET: Final = 1.43
"""A scan is to reach 0.7 of the download's rate."""
_PACE: Final = 64 << 10
"""Bytes that the server sends at once."""
_BUCKET: Final = "bench"
_URL: Final = f"s3://{_BUCKET}/store"
_NARROW: Final = ["topic", "queue_offset"]
_BODIES: Final = (200, 1024)


def bench_remote(folder: Path, runs: int, megabytes: int) -> list[dict[str, object]]:
    """Time scans and downloads of a log, and measure the memory of reading a segment of a size in MiB."""
    store = make_log(folder, _SIZE, _SEGMENT, _BODY)
    print(f"==> a log of {_SIZE >> 20} MiB on a server on loopback", flush=True)
    with _serving(store) as (server, settings):
        rows = _rows(settings, store, runs, server)
    large = make_store(folder, megabytes << 20, _BODY)
    print(
        f"==> a segment of {megabytes} MiB, {_LATENCY:g} s until an answer, {_RATE:g} bytes/s a connection", flush=True
    )
    with _serving(large, _LATENCY, _RATE) as (server, settings):
        found = _rows(settings, large, runs, server)
        rows += [{**row, "group": f"{row['group']}, a segment of {megabytes} MiB by a network"} for row in found]
    for body_size in _BODIES:
        with _serving(make_store(folder, megabytes << 20, body_size)) as (_, settings):
            rows += bench_remote_memory(_URL, settings, f"{megabytes} MiB, bodies of {body_size} bytes")
    return rows


@contextmanager
def _serving(store: Path, latency: float = 0, rate: float = 0) -> Iterator[tuple[int, dict[str, str]]]:
    """Run a server of a store, and provide its process and the settings of its clients."""
    command = [sys.executable, __file__, str(store), str(latency), str(rate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 -- this file
        try:
            port = int(server.stdout.readline()) if server.stdout else 0
            yield server.pid, _settings(f"127.0.0.1:{port}")
        finally:
            server.terminate()


def _rows(settings: dict[str, str], store: Path, runs: int, server: int) -> list[dict[str, object]]:
    """Time each thing as it elapses, and by what it takes of the processor, here and on the server.

    The download makes the requests of a scan, by the same client, and drops what it gets.
    """
    paths = sorted((store / "commitlog").iterdir())
    names = [f"{_BUCKET}/store/commitlog/{path.name}" for path in paths]
    size = paths[0].stat().st_size
    file_system = pa_fs.S3FileSystem(**settings)

    def download(name: str) -> None:
        with file_system.open_input_file(name) as file, ThreadPoolExecutor(_REQUESTS) as pool:
            list(pool.map(lambda begin: len(file.read_at(_BLOCK, begin)), range(0, size, _BLOCK)))

    def download_all() -> None:
        for name in names:
            download(name)

    work = {
        f"download, {_REQUESTS} requests at a time": download_all,
        "remote scan, topic and queue_offset": drained(_URL, columns=_NARROW, storage=settings),
        "remote scan, all default columns": drained(_URL, storage=settings),
        "local scan, all default columns": drained(store),
    }
    clocks = {
        "elapsed": time.perf_counter,
        "processor time": time.process_time,
        "processor time of the server": lambda: seconds_of(server),
    }
    rows = []
    for group, clock in clocks.items():
        print(f"  -- {group}", flush=True)
        targets = {name: _TARGET for name in work if "remote" in name and group == "elapsed"}
        rows += [row | {"group": group} for row in compare(work, runs, targets, clock)]
    return rows


def _settings(endpoint: str) -> dict[str, str]:
    return {
        "access_key": "bench",
        "secret_key": "bench",
        "endpoint_override": endpoint,
        "scheme": "http",
        "region": "us-east-1",
    }


# -------------------------------------------------------------------------------------------------------- the server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise a short answer waits for the acknowledgement of its head: 40 ms
    root = Path()
    latency = 0.0
    """Seconds before a request is answered."""
    rate = 0.0
    """Bytes a second of one connection; 0 for as many as there are."""

    def do_HEAD(self) -> None:
        """Answer with an object's size."""
        time.sleep(self.latency)
        path = self._path()
        if not path.is_file():
            self._answer(404, b"")
            return
        self._head(200, path, path.stat().st_size)

    def do_GET(self) -> None:
        """Answer with a listing, or with a range of an object."""
        time.sleep(self.latency)
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._answer(200, self._listing(query.get("prefix", [""])[0]))
            return
        path = self._path()
        size = path.stat().st_size
        first, last = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups()  # type: ignore[union-attr]
        begin, end = int(first), min(int(last) + 1, size)
        self._head(206, path, end - begin, f"bytes {begin}-{end - 1}/{size}")
        self.wfile.flush()
        with path.open("rb") as file:
            while begin < end:
                sent = os.sendfile(self.connection.fileno(), file.fileno(), begin, min(end - begin, _PACE))
                begin += sent
                time.sleep(sent / self.rate if self.rate else 0)

    def _path(self) -> Path:
        return self.root / urlsplit(self.path).path.removeprefix(f"/{_BUCKET}/store").lstrip("/")

    def _head(self, status: int, path: Path, length: int, content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _listing(self, prefix: str) -> bytes:
        directory = self.root / prefix.removeprefix("store").strip("/")
        rows = "".join(self._entries(directory, prefix.rstrip("/")))
        return (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{_BUCKET}</Name><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        ).encode()

    def _entries(self, directory: Path, prefix: str) -> Iterator[str]:
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            key = escape(f"{prefix}/{path.name}")
            if path.is_dir():
                yield f"<CommonPrefixes><Prefix>{key}/</Prefix></CommonPrefixes>"
            else:
                seconds = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(path.stat().st_mtime))
                size = path.stat().st_size
                yield f"<Contents><Key>{key}</Key><LastModified>{seconds}</LastModified><Size>{size}</Size></Contents>"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's name
        """Log nothing."""


def _serve(store: str, latency: float, rate: float) -> None:
    _Handler.root, _Handler.latency, _Handler.rate = Path(store), latency, rate
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve(sys.argv[1], *(float(value) for value in sys.argv[2:]))

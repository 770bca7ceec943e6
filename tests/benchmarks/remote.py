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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow.fs as pa_fs

from store_core import read_messages
from tests.benchmarks.measure import measure, report
from tests.benchmarks.segments import make_log

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["bench_remote"]

_SIZE: Final = 512 << 20
_SEGMENT: Final = 128 << 20
_BODY: Final = 1024
_BLOCK: Final = 4 << 20
_REQUESTS: Final = 8
_TARGET: Final = 1.43
"""A scan is to reach 0.7 of the download's rate."""
_PACE: Final = 64 << 10
"""Bytes that the server sends at once."""
_BUCKET: Final = "bench"
_NARROW: Final = ["topic", "queue_id", "queue_offset", "store_timestamp"]


def bench_remote(folder: Path, runs: int) -> dict[str, object]:
    """Time scans and downloads of a log by the wall clock, and measure the memory of a scan."""
    store = make_log(folder, _SIZE, _SEGMENT, _BODY)
    print(f"==> a log of {_SIZE >> 20} MiB on a server on loopback, wall-clock time", flush=True)
    command = [sys.executable, __file__, "serve", str(store), "0", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 -- this file
        try:
            port = int(server.stdout.readline()) if server.stdout else 0
            rows = _rows(port, store, runs)
            grown = int(_output([sys.executable, __file__, "memory", str(port)]))
        finally:
            server.terminate()
    print(f"  peak memory of a remote scan, beyond what was there before: {grown >> 10} MiB  (<= 400)")
    return {"rows": rows, "grown_mib": grown >> 10}


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 -- this file


def _rows(port: int, store: Path, runs: int) -> list[dict[str, object]]:
    segments = sorted((store / "commitlog").iterdir())
    target = np.ones(_SEGMENT, np.uint8)
    settings = _settings(port)
    file_system = pa_fs.S3FileSystem(**settings)

    def download(name: str) -> None:
        with file_system.open_input_file(f"{_BUCKET}/store/commitlog/{name}") as file:

            def fetch(begin: int) -> None:
                data = file.read_at(_BLOCK, begin)
                target[begin : begin + len(data)] = np.frombuffer(data, np.uint8)

            with ThreadPoolExecutor(_REQUESTS) as pool:
                list(pool.map(fetch, range(0, _SEGMENT, _BLOCK)))

    def download_all() -> None:
        for segment in segments:
            download(segment.name)

    def scan(columns: list[str] | None) -> None:
        for _ in read_messages(f"s3://{_BUCKET}/store", columns=columns, storage=settings):
            pass

    work = {
        f"download, {_REQUESTS} requests at a time": download_all,
        "remote scan, four columns": lambda: scan(_NARROW),
        "remote scan, all default columns": lambda: scan(None),
        "local scan, all default columns": lambda: _local(store),
    }
    rows = []
    for clock, unit in ((time.perf_counter, "elapsed"), (time.process_time, "processor")):
        print(f"  -- {unit} time", flush=True)
        timings = measure(work, runs, clock)
        base = next(iter(timings.values()))
        targets = {name: _TARGET if "remote" in name and unit == "elapsed" else None for name in timings}
        rows += [{**report(timing, base, targets[name]), "unit": unit} for name, timing in timings.items()]
    return rows


def _local(store: Path) -> None:
    for _ in read_messages(store):
        pass


def _settings(port: int) -> dict[str, str]:
    return {
        "access_key": "bench",
        "secret_key": "bench",
        "endpoint_override": f"127.0.0.1:{port}",
        "scheme": "http",
        "region": "us-east-1",
    }


# -------------------------------------------------------------------------------------------------------- the server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
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


def _print_memory(port: int) -> None:
    """Print by how many KiB the peak of resident memory grows during a scan."""

    def peak() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

    before = peak()
    for _ in read_messages(f"s3://{_BUCKET}/store", storage=_settings(port)):
        pass
    print(peak() - before)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(sys.argv[2], *(float(value) for value in sys.argv[3:]))
    else:
        _print_memory(int(sys.argv[2]))

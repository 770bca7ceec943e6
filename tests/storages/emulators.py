# SPDX-License-Identifier: Apache-2.0
"""Storages of this machine, fetched by the tools of their languages into `.cache/storages`, and run for a test."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow.fs as pa_fs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


FAKE_GCS: Final = "v1.56.1"
AZURITE: Final = "3.35.0"
HADOOP: Final = "3.4.2"
HDFS_NATIVE: Final = "0.14.7"

_JAVA: Final = Path(__file__).with_name("java")
_CACHE: Final = Path(__file__).parents[2] / ".cache" / "storages"
_SECONDS: Final = 180

# The account of every Azurite, as its documentation gives it.
_ACCOUNT: Final = "devstoreaccount1"
_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class MissingEmulatorError(RuntimeError):
    """A tool, or what it is to fetch, can't be had; the message says which."""


class Emulated(NamedTuple):
    """A store in a storage that runs.

    * `environment`: Variables that a reader needs.
    """

    url: str
    settings: dict[str, str]
    environment: dict[str, str]


@contextmanager
def gcs(store: Path, scratch: Path) -> Iterator[Emulated]:
    """Run fake-gcs-server with a store in it."""
    program = _CACHE / f"go-{FAKE_GCS}" / "fake-gcs-server"
    if not program.exists():
        package = f"github.com/fsouza/fake-gcs-server@{FAKE_GCS}"
        _fetch(["go", "install", package], scratch, {"GOBIN": str(program.parent)})
    port = _free_port()
    address = f"127.0.0.1:{port}"
    command = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", port, "-public-host", address]
    with _running([*command, "-backend", "memory"], scratch, "server started"):
        settings = {"anonymous": "true", "scheme": "http", "endpoint_override": address}
        client = pa_fs.GcsFileSystem(anonymous=True, scheme="http", endpoint_override=address, project_id="tests")
        _upload(store, client, "bucket")
        yield Emulated("gs://bucket/store", settings, {})


@contextmanager
def azure(store: Path, scratch: Path) -> Iterator[Emulated]:
    """Run Azurite with a store in it."""
    folder = _CACHE / f"azurite-{AZURITE}"
    program = folder / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        _fetch(["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, f"azurite@{AZURITE}"], scratch)
    port = _free_port()
    quiet = ("--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence")
    with _running([program, "--blobPort", port, *quiet], scratch, "successfully listens"):
        place = f"127.0.0.1:{port}"
        settings = {"account_name": _ACCOUNT, "account_key": _KEY}
        for part in ("blob", "dfs"):
            settings |= {f"{part}_storage_authority": place, f"{part}_storage_scheme": "http"}
        _upload(store, pa_fs.AzureFileSystem(**settings), "container")
        yield Emulated("abfs://container/store", settings, {})


@contextmanager
def hdfs(store: Path, scratch: Path) -> Iterator[Emulated]:
    """Run Hadoop's name node and a data node with a store in them; readers have the package hdfs-native."""
    jars, classes, python = (_CACHE / f"{name}-{HADOOP}" for name in ("jars", "classes", "python"))
    if not jars.exists():
        copying = ["mvn", "-q", "-B", "-f", _JAVA / "pom.xml", "dependency:copy-dependencies"]
        _fetch([*copying, f"-DoutputDirectory={jars}"], scratch)
    source = _JAVA / "MiniHdfs.java"
    _fetch(["javac", "--release", "17", "-cp", f"{jars}/*", "-d", classes, source], scratch)
    if not (python / "hdfs_native").exists():
        wanted = ["--no-deps", "--target", python, f"hdfs-native=={HDFS_NATIVE}"]
        _fetch([sys.executable, "-m", "pip", "install", "--quiet", *wanted], scratch)
    command = ["java", "-Xmx512m", "-cp", f"{classes}:{jars}/*", "MiniHdfs", scratch / "hdfs", store]
    with _running(command, scratch, r"serves (\d+)") as found:
        yield Emulated(f"hdfs://127.0.0.1:{found[1]}/store", {}, {"PYTHONPATH": str(python)})


def _upload(store: Path, client: pa_fs.FileSystem, container: str) -> None:
    client.create_dir(container)
    local = pa_fs.LocalFileSystem()
    pa_fs.copy_files(str(store), f"{container}/store", source_filesystem=local, destination_filesystem=client)


def _fetch(command: Sequence[object], scratch: Path, variables: dict[str, str] | None = None) -> None:
    """Run a tool that fetches or makes something, and say what is missing if it can't."""
    words = [str(word) for word in command]
    if shutil.which(words[0]) is None:
        raise MissingEmulatorError(f"{words[0]} is not on the PATH, and was to run: {' '.join(words)}")
    done = subprocess.run(  # noqa: S603 -- the commands above
        words, env=os.environ | (variables or {}), cwd=scratch, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MissingEmulatorError(
            f"{' '.join(words)} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
        )


@contextmanager
def _running(command: Sequence[object], scratch: Path, ready: str) -> Iterator[re.Match[str]]:
    """Run a server until the block ends, which begins when its output has a pattern."""
    log = scratch / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(  # noqa: S603 -- the commands above
            [str(word) for word in command], cwd=scratch, stdin=subprocess.PIPE, stdout=output, stderr=output
        )
    try:
        yield _awaited(process, log, ready)
    finally:
        process.terminate()
        process.communicate()


def _awaited(process: subprocess.Popen[bytes], log: Path, ready: str) -> re.Match[str]:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end and process.poll() is None:
        found = re.search(ready, log.read_text())
        if found is not None:
            return found
        time.sleep(0.1)
    raise MissingEmulatorError(f"{process.args!r} did not start: {log.read_text()[-2000:]}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port

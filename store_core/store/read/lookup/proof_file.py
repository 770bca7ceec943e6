# SPDX-License-Identifier: Apache-2.0
"""A file that holds text which only this user may have written, whole, and of a version that this code reads.

The first line is a JSON object with format, version, and the SHA-256 of all that follows.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from store_core.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["UnusableProofsError", "read_proof_file", "write_proof_file"]

_FORMAT: Final = 4
"""To be raised with every change of what a proof means, or of how it is written."""

_LARGEST: Final = 16 << 20
"""Bytes of a file that is read; with 72 queues and an index it has some 50 KB."""

_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_PRIVATE: Final = 0o700


class UnusableProofsError(Exception):
    """Why a file of proofs is not used."""


def read_proof_file(path: Path) -> bytes | None:
    """Return what was written to a file; None if it is not there.

    Raises
    ------
    UnusableProofsError
        If it is damaged, of another version, too large, or might have been written by another user.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check_owner(os.fstat(descriptor))
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(_LARGEST + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnusableProofsError(f"it can't be read: {error.strerror}") from error
    if len(data) > _LARGEST:
        raise UnusableProofsError(f"it has more than {_LARGEST >> 20} MiB")
    head, _, body = data.partition(b"\n")
    if head != _head(body):
        raise UnusableProofsError(_difference(head))
    return body


def write_proof_file(path: Path, body: bytes) -> None:
    """Write a file beside its place, on disk, and then rename it; make its directory if there is none.

    Raises
    ------
    UnusableProofsError
        If it would be too large to be read again.
    OSError
        As raised by the system.
    """
    data = b"%b\n%b" % (_head(body), body)
    if len(data) > _LARGEST:
        raise UnusableProofsError(f"they would take more than {_LARGEST >> 20} MiB")
    with suppress(FileExistsError):
        path.parent.mkdir(_PRIVATE)
    descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, path)  # noqa: PTH105 -- text
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)  # noqa: PTH108 -- text
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _head(body: bytes) -> bytes:
    named = {"format": _FORMAT, "version": __version__, "sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(named).encode()


def _check_owner(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UnusableProofsError("it is not a file")
    if status.st_uid != os.geteuid():
        raise UnusableProofsError(f"it belongs to user {status.st_uid}, and this is user {os.geteuid()}")
    if status.st_mode & _OTHERS:
        raise UnusableProofsError("others may write to it: expected mode 600")


def _difference(head: bytes) -> str:
    """Return why a first line is not that of the rest of its file."""
    try:
        found = json.loads(head)
        is_other = (found["format"], found["version"]) != (_FORMAT, __version__)
    except (ValueError, KeyError, TypeError, RecursionError):
        return "it is damaged"
    return "another version wrote it" if is_other else "it is damaged"

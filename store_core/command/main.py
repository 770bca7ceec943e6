# SPDX-License-Identifier: Apache-2.0
"""The entry point of the program `commitlog`, which says what to install where its library is missing."""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from contextlib import suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader, find_spec
from typing import TYPE_CHECKING, Final, cast

from store_core.command.exit_code import FREE_SPACE, INTERRUPTED, NO_READER, ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from typing_extensions import Buffer


_LIBRARY: Final = "click"
_MINIMUM: Final = "8.2"
_SILENT: Final = logging.NullHandler()
"""Keeps Python from printing what is logged: commands show it (`console`), or have it in their reports."""


class LeanImports(MetaPathFinder):
    """Finds no pandas, and loads PyArrow's functions when the first is called: few commands need either.

    PyArrow imports pandas with the first array, if it can, and that takes longer than all the rest.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse pandas, put off `pyarrow.compute`, and leave all else to others."""
        if fullname == "pandas":
            raise ModuleNotFoundError("commitlog does not use pandas", name=fullname)
        spec = PathFinder.find_spec(fullname, path, target) if fullname == "pyarrow.compute" else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def main() -> int:
    """Run the program, and return its exit code."""
    sys.meta_path.insert(0, LeanImports())
    if find_spec(_LIBRARY) is None:
        where = f"the package {_LIBRARY} is not installed for {sys.executable}"
        sys.stderr.write(f"commitlog: {where}: pip install '{_LIBRARY}>={_MINIMUM}'\n")
        return ExitCode.FAILED
    watch_standard_output()
    import_module("store_core.command.program").program(prog_name="commitlog")
    return ExitCode.DONE  # not reached: click exits by itself


def ended(run: Callable[[], int], tell: Callable[[Exception], int]) -> int:
    """Run a command, and return its exit code, or the one of its error.

    * `tell`: Says what is wrong, and returns the exit code.
    """
    logging.getLogger("store_core").addHandler(_SILENT)
    try:
        code = run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return NO_READER
    except Exception as error:  # noqa: BLE001 -- a bug is not a finding
        code = tell(error)
    return int(code)


_CLOSED: Final = "it is closed"
_WAYS_ON: Final = {
    errno.ENOSPC: FREE_SPACE,
    errno.EDQUOT: FREE_SPACE,
    errno.EBADF: "Open it for writing, as by > FILE, or > /dev/null if nothing of it is needed",
}
_OTHER_WAY_ON: Final = "Send it elsewhere, as by > FILE"


class StandardOutputError(OSError):
    """Standard output can't be written."""

    def __str__(self) -> str:
        way_on = _WAYS_ON.get(self.errno or 0, _OTHER_WAY_ON)
        return f"standard output can't be written: {self.strerror}. {way_on}"


class _WatchedOutput(io.RawIOBase):
    """The bytes of standard output.

    After an error nothing more is written: what buffers still have can't be flushed either when the process ends, and
    Python would complain.
    """

    def __init__(self, raw: io.RawIOBase, *, is_closed: bool = False) -> None:
        self._raw = raw
        self._is_closed = is_closed
        self._has_failed = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()

    def write(self, data: Buffer, /) -> int | None:
        """Write bytes, and return how many."""
        if self._has_failed:
            return memoryview(data).nbytes
        try:
            return self._written(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._has_failed = True
            raise StandardOutputError(error.errno, error.strerror) from None

    def _written(self, data: Buffer) -> int | None:
        if self._is_closed:
            raise OSError(errno.EBADF, _CLOSED)
        return self._raw.write(data)


def watch_standard_output() -> None:
    """Replace `sys.stdout` by a stream whose errors say that they are of standard output.

    If the caller closed it, whatever is written is such an error; commands that write nothing to it do not notice.
    """
    if sys.stdout is None:
        # takes the number of standard output, so that no file of a store gets it
        nowhere = open(os.devnull, "wb", buffering=0)  # noqa: PTH123, SIM115 -- for as long as the process lives
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_WatchedOutput(nowhere, is_closed=True)), "utf-8")
    elif isinstance(sys.stdout, io.TextIOWrapper):
        given = sys.stdout
        raw = cast("io.RawIOBase", getattr(given.buffer, "raw", given.buffer))  # the same with python -u
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_WatchedOutput(raw)),
            given.encoding,
            given.errors,
            line_buffering=given.line_buffering,
            write_through=given.write_through,
        )


def discard_output() -> None:
    """Let what is still buffered go nowhere, so that Python does not complain when it ends."""
    with suppress(OSError, ValueError):  # a stream without a file, as in a test
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

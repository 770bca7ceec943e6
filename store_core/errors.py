# SPDX-License-Identifier: Apache-2.0
"""Every exception the package raises on purpose.

::

    StoreError                          anything this package refuses or finds wrong
    ├── StoreNotFoundError              no store, directory or segment there   (FileNotFoundError)
    ├── DataLossError                   what a follower of the log has not read is gone, or what it read changed
    │   ├── ExpiredSegmentsError        segments were deleted before they were read
    │   ├── TruncatedLogError           a recovery truncated the log behind the position that was read
    │   └── ReplacedStoreError          another log is there
    ├── TolerableError                  what an option turns into a warning
    │   ├── SegmentVanishedError        a segment was deleted while it was read (FileNotFoundError)
    │   └── SegmentLayoutError          the set of files is wrong: gap, size, name (ValueError)
    │       └── CorruptDatabaseError    files of a RocksDB are damaged or missing
    ├── CorruptRecordError              bytes that are not what the format says  (ValueError)
    │   └── UnsafeSizeError             a length or count too large to be trusted
    ├── StoreAccessError                a path in a store may not be used, or is the wrong kind of file (OSError)
    ├── StoreLockedError                a broker, or another writer, has the store open (OSError)
    ├── LostWorkerError                 a worker process ended early (RuntimeError)
    ├── InvalidOptionError              an option, column or argument that can't be used (ValueError)
    ├── FilterError                     a filter that does not compile, or can't be evaluated (ValueError)
    ├── RepairRefusedError              a repair that could lose something, or whose plan is for another state
    │                                   of the store (RuntimeError)
    └── UnsupportedStoreError           a legitimate request that is not supported (NotImplementedError)

Expected outcomes (a full file, a message refused, the end of the log) are values, not exceptions; see
`store_core.format.record.scan.StopReason`. Every class takes positional arguments only and passes all of them to
``super().__init__``, so that instances survive pickling between Spark's processes.
"""

from __future__ import annotations

from signal import Signals
from typing import Final, Self

WITHOUT_SEGMENT: Final = "To continue without it: failOnDataLoss=false."
"""What to do about a segment that is gone."""

LEFT_OUT: Final = {"has_left_out": True}
"""What a warning's log record has as ``extra`` if messages may be missing: something is damaged, or gone."""

_SHOWN_CHARACTERS: Final = 60
"""How many characters of a filter are shown before and after the place where it is wrong."""


class StoreError(Exception):
    """Root of everything that this package raises on purpose."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """There is nothing to read at the path."""


class TolerableError(StoreError):
    """An error that an option turns into a warning."""

    advice: str = ""

    def advised(self, advice: str) -> Self:
        """Return this error with what the user can do about it."""
        self.advice = advice
        return self

    @property
    def problem(self) -> str:
        """What is wrong, for a warning: without the advice to do what has been done."""
        return super().__str__()

    def __str__(self) -> str:
        return f"{self.problem}. {self.advice}" if self.advice else self.problem


class SegmentVanishedError(TolerableError, FileNotFoundError):
    """A segment file that was listed is gone, as happens when a broker's retention deletes it."""


class DataLossError(StoreError, RuntimeError):
    """A follower of a log can't go on where it was, because the log is no longer the one that it read.

    Parameters
    ----------
    problem : str
        What is expected at the position that was read, and what is there.
    begin, end : int
        Physical offsets of the bytes that are lost; the end is exclusive.
    resume_offset : int
        Physical offset at which a follower that tolerates the loss goes on.
    advice : str
        What the user can do about it.
    """

    def __init__(self, problem: str, begin: int, end: int, resume_offset: int, advice: str = "") -> None:
        super().__init__(problem, begin, end, resume_offset, advice)
        self.problem = problem
        self.begin = begin
        self.end = end
        self.resume_offset = resume_offset
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.problem}. {self.advice}".rstrip()


class ExpiredSegmentsError(DataLossError):
    """Segments were deleted before a follower of the log had read them."""


class MissingSegmentsError(ExpiredSegmentsError):
    """Segments are missing between others that are there: a follower of the log can't read them."""


class TruncatedLogError(DataLossError):
    """Records that a follower has read are no longer in the log: a broker's recovery removed them."""


class ReplacedStoreError(DataLossError):
    """The log at this path is not the one that a follower has read."""


class AppendConflictError(StoreError, RuntimeError):
    """A store has other batches of a stream than the stream's checkpoint says: appending would lose messages."""


class SegmentLayoutError(TolerableError, ValueError):
    """The files of a store do not form one log: a gap, unequal sizes, a wrong name."""


class CorruptDatabaseError(SegmentLayoutError):
    """Files of a RocksDB are damaged, or missing as in a copy that is not whole."""


class StoreAccessError(StoreError, OSError):
    """A path in a store may not be used, or is not the kind of file that belongs there."""


class StoreLockedError(StoreError, OSError):
    """A broker, or another writer, has the store open."""


class LostWorkerError(StoreError, RuntimeError):
    """A worker process ended before its part of the work was done.

    Parameters
    ----------
    part : str
        What it worked on, e.g. ``"one of parts 3 to 10 of 12"``.
    exit_code : int, optional
        As `multiprocessing.Process.exitcode`: the negated number of the signal that killed it, else its exit status.
    """

    def __init__(self, part: str, exit_code: int | None) -> None:
        super().__init__(part, exit_code)
        self.part = part
        self.exit_code = exit_code

    def __str__(self) -> str:
        if self.exit_code is not None and self.exit_code < 0:
            ended = f"was killed by {_signal_name(-self.exit_code)}"
            advice = "Linux kills processes when memory runs out (dmesg shows it): use fewer processes"
        else:
            ended = f"ended with exit code {self.exit_code}"
            advice = (
                "Standard error may say why. A script that uses several processes has to do its work below "
                '`if __name__ == "__main__":`, because each of them imports it'
            )
        return f"a worker process {ended} while it worked on {self.part}, and the work was given up. {advice}"


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


class InvalidOptionError(StoreError, ValueError):
    """An option, a column or an argument is unknown or has a value that can't be used."""


class FilterError(StoreError, ValueError):
    """A filter does not compile, or can't be evaluated on a message's properties.

    Parameters
    ----------
    problem : str
        What is wrong: what is expected, and what is found.
    expression : str
        The filter's text; empty if one of its operations fails on a message's values.
    position : int
        Index in `expression`, in characters; -1 if the problem has no particular place.
    """

    def __init__(self, problem: str, expression: str = "", position: int = -1) -> None:
        super().__init__(problem, expression, position)
        self.problem = problem
        self.expression = expression
        self.position = position

    def __str__(self) -> str:
        if not self.expression:
            return self.problem
        begin = max(self.position - _SHOWN_CHARACTERS, 0)
        shown = self.expression[begin : begin + 2 * _SHOWN_CHARACTERS]
        cut = begin or len(shown) < len(self.expression)
        where = f"at character {self.position} of " if self.position >= 0 else ""
        return f"{self.problem}, {where}filter {shown!r}{' (cut)' if cut else ''}"


class RepairRefusedError(StoreError, RuntimeError):
    """A repair could lose something, or its plan was made for another state of the store; nothing was changed."""


class UnsupportedStoreError(StoreError, NotImplementedError):
    """The request is legitimate, and this version does not support it."""


class CorruptRecordError(StoreError, ValueError):
    """Bytes are not what the format says.

    Parameters
    ----------
    problem : str
        What is wrong, in a few words, e.g. ``"bad magic code"``.
    file : str
        The segment file, if it is known.
    offset : int
        Physical offset of the record in the log, in bytes.
    expected, found : str
        What the format requires and what is there.
    next_bytes : bytes
        The first bytes at `offset`, at most 16 are shown.
    advice : str
        What the user can do about it.
    """

    def __init__(  # noqa: PLR0913 -- one argument per fact; all of them travel through pickle
        self,
        problem: str,
        file: str,
        offset: int,
        expected: str,
        found: str,
        next_bytes: bytes = b"",
        advice: str = "",
    ) -> None:
        super().__init__(problem, file, offset, expected, found, next_bytes, advice)
        self.problem = problem
        self.file = file
        self.offset = offset
        self.expected = expected
        self.found = found
        self.next_bytes = next_bytes
        self.advice = advice

    def __str__(self) -> str:
        text = f"{self.problem} at offset {self.offset} of {self.file}: expected {self.expected}, found {self.found}"
        if self.next_bytes:
            text += f"; next bytes {self.next_bytes[:16].hex(' ')}"
        return f"{text}. {self.advice}" if self.advice else text


class UnsafeSizeError(CorruptRecordError):
    """A length, count or expanded size exceeds its bound, so reading it is not attempted."""

# SPDX-License-Identifier: Apache-2.0
"""Percentiles of integers from counts in buckets, each less than 0.8 % wide, so that few counts are enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["PRECISION", "bucket_begin", "buckets_of", "percentiles"]

PRECISION: Final = "exact up to 255, above that at most 0.8 % too near to 0"
"""What is to be said of such a percentile."""

_BITS: Final = 7
_STEPS: Final = 1 << _BITS
_LARGEST: Final = 1 << 52
"""Numbers beyond it are counted as it: a float has all integers up to there."""


def buckets_of(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the bucket of each number; buckets have the order of their numbers, and negative numbers negative ones."""
    clipped = np.clip(values, -_LARGEST, _LARGEST)
    sizes = np.abs(clipped)
    shifts = np.maximum(np.frexp(sizes.astype(np.float64))[1].astype(np.int64) - _BITS - 1, 0)
    return (np.sign(clipped) * (shifts * _STEPS + (sizes >> shifts))).astype(np.int32)


def bucket_begin(bucket: int) -> int:
    """Return the number of a bucket that is nearest to 0.

    Examples
    --------
    >>> [bucket_begin(int(buckets_of(np.array([value]))[0])) for value in (0, -7, 255, 1001, -1001)]
    [0, -7, 255, 1000, -1000]
    """
    size = abs(bucket)
    shift = max(size // _STEPS - 1, 0)
    begin = (size - shift * _STEPS) << shift
    return -begin if bucket < 0 else begin


def percentiles(
    buckets: npt.NDArray[np.int32], counts: npt.NDArray[np.int64], wanted: Sequence[float]
) -> tuple[int, ...]:
    """Return percentiles by nearest rank; `PRECISION` says how good they are.

    Parameters
    ----------
    buckets : numpy.ndarray
        int32, shape (n,), n > 0.
    counts : numpy.ndarray
        int64, shape (n,): numbers in each bucket, 1 or more.
    wanted : sequence of float
        Between 0 and 100.
    """
    order = np.argsort(buckets)
    sums = counts[order].cumsum()
    ranks = np.ceil(np.array(wanted) / 100 * sums[-1]).clip(1)
    return tuple(bucket_begin(int(each)) for each in buckets[order][np.searchsorted(sums, ranks)])

# SPDX-License-Identifier: Apache-2.0
"""Moving memory to another address without copying it, by Linux's ``mremap``."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["move_pages"]

_MAY_MOVE: Final = 1
_FIXED: Final = 2
_DO_NOT_UNMAP: Final = 4
"""Linux 5.7: the old range stays mapped, and is zeros; otherwise whoever still reads it would be killed."""


def move_pages(source: int, target: int, size: int) -> bool:
    """Move the pages of a range of addresses to another range, where they replace what was there.

    Afterwards the old range is zeros, and takes no memory.

    Parameters
    ----------
    source, target : int
        Addresses of pages of private, anonymous mappings; ranges that do not overlap.
    size : int
        In bytes, of whole pages.

    Returns
    -------
    bool
        False if the system can't, so that nothing was changed.
    """
    remap = _remap()
    if remap is None:
        return False
    return bool(remap(source, size, size, _MAY_MOVE | _FIXED | _DO_NOT_UNMAP, target) == target)


@cache
def _remap() -> Callable[[int, int, int, int, int], int | None] | None:
    remap = getattr(ctypes.CDLL(None), "mremap", None)
    if remap is None:
        return None
    remap.restype = ctypes.c_void_p
    remap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    return remap  # type: ignore[no-any-return]  # a function of the C library

# SPDX-License-Identifier: Apache-2.0
"""Java's ``String.hashCode``, which RocketMQ stores for tags and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["hash_code", "hash_codes", "tags_code"]

_WORD: Final = 1 << 32
_SIGN: Final = 1 << 31
_ASCII_LIMIT: Final = 0x80


def hash_code(text: str) -> int:
    """Hash a string as Java does: over its UTF-16 code units, in 32 bits, signed.

    Examples
    --------
    >>> hash_code("TagA"), hash_code("中文"), hash_code("😀")
    (2598919, 646394, 1772899)
    """
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) % _WORD
    return value - _WORD if value >= _SIGN else value


def tags_code(tags: str | None) -> int:
    """Give the tags code of a message: the hash of its TAGS, 0 without any.

    RocketMQ: ``MessageExtBrokerInner.tagsString2tagsCode``; the whole string is hashed, multi-tag topics included.
    """
    return hash_code(tags) if tags else 0


def hash_codes(texts: pa.StringArray) -> npt.NDArray[np.int32]:
    """Hash many strings at once; a null counts as empty and gives 0.

    Parameters
    ----------
    texts : pyarrow.StringArray
        Shape (n,).

    Returns
    -------
    numpy.ndarray
        int32, shape (n,), equal to `hash_code` of each string.
    """
    distinct = texts.fill_null("").dictionary_encode()
    offsets, content = _slices(distinct.dictionary)
    if content.size and content.max() >= _ASCII_LIMIT:
        hashes = np.fromiter((hash_code(text) for text in distinct.dictionary.to_pylist()), np.int32)
    else:
        hashes = _ascii_hashes(offsets, content)
    return hashes[distinct.indices.to_numpy(zero_copy_only=False)] if len(texts) else np.empty(0, np.int32)


def _slices(texts: pa.StringArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Give the offsets, starting at 0, and the bytes of a string array without nulls."""
    _, offset_buffer, data = texts.buffers()
    if offset_buffer is None or not len(texts):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return offsets - offsets[0], content[offsets[0] : offsets[-1]]


def _ascii_hashes(offsets: npt.NDArray[np.int64], content: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """Hash ASCII strings column by column, longest first, so that a step touches the strings that still go on."""
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    starts, lengths = offsets[:-1][order], lengths[order]
    alive = np.searchsorted(-lengths, -np.arange(lengths[0] if lengths.size else 0), side="left")
    hashes = np.zeros(lengths.size, np.uint32)
    for position, count in enumerate(alive):
        hashes[:count] = hashes[:count] * np.uint32(31) + content[starts[:count] + position]
    result = np.empty_like(hashes)
    result[order] = hashes
    return result.view(np.int32)

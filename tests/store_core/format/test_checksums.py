# SPDX-License-Identifier: Apache-2.0
"""Checksums are those of two other implementations and of RocketMQ, of one body and of many."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

import crcmod.predefined
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.format.columnar import spans
from store_core.format.columnar.spans import body_crcs
from store_core.format.crc32 import crc32
from store_core.format.record.scan import body_crc

if TYPE_CHECKING:
    from random import Random


judge = crcmod.predefined.mkCrcFun("crc-32")

_ASK = """
import json, sys
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))
import numpy as np
from store_core.format.columnar.spans import body_crcs
from store_core.format.crc32 import crc32
found = [crc32.__module__]
for borders in map(np.array, json.loads(sys.argv[2])):
    found.append(body_crcs(np.arange(borders[-1]).astype(np.uint8), borders[:-1], borders[1:]).tolist())
print(json.dumps(found))
"""
"""Modules that can't be imported; boundaries of pieces, several times."""

# Long ones, too: from some hundred bytes on the library takes wider steps, and treats the rest separately.
data = st.builds(bytes.__mul__, st.binary(max_size=300), st.integers(1, 20))


@given(data, st.just(0) | st.integers(0, 2**32 - 1), st.integers(0, 70))
def test_checksum_is_that_of_two_other_implementations(body: bytes, before: int, start: int) -> None:
    found = crc32(body, before)

    assert zlib.crc32(body, before) == found
    assert judge(body, before) == found
    assert judge(body[start:], before) == crc32(memoryview(body)[start:], before)
    assert crc32(body) == crc32(memoryview(body)[start:], crc32(body[:start]))


def test_bytes_with_holes_between_them_are_refused() -> None:
    with pytest.raises(BufferError, match="contiguous"):
        crc32(memoryview(b"abcd")[::2])


def test_the_faster_implementation_is_taken_if_it_is_there() -> None:
    assert ("zlib" if find_spec("isal") is None else "isal.isal_zlib") == crc32.__module__


@pytest.mark.parametrize("missing", [["isal"], ["isal.isal_zlib"]])
def test_without_the_library_zlib_gives_the_same(missing: list[str]) -> None:
    several = [np.cumsum([0, *lengths]) for lengths in ([200] * 30, range(1, 60), [3000, 0, 5000])]
    arguments = [json.dumps(missing), json.dumps([borders.tolist() for borders in several])]
    command = [sys.executable, "-c", _ASK, *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 -- ours

    raws = [np.arange(borders[-1]).astype(np.uint8) for borders in several]
    expected = [body_crcs(raw, borders[:-1], borders[1:]).tolist() for raw, borders in zip(raws, several, strict=True)]
    assert ["zlib", *expected] == json.loads(answer.stdout)


@given(st.binary())
def test_body_crc_is_crc32_without_its_top_bit(body: bytes) -> None:
    assert body_crc(body) == judge(body) & 0x7FFFFFFF
    assert body_crc(memoryview(body)) == body_crc(body)


# A body, and the bytes between it and the next one.
bodies = st.binary(max_size=20) | st.sampled_from([b"", b"a", bytes(1023), bytes(1024), bytes(1025), b"x" * 5000])
gaps = st.integers(0, 40) | st.sampled_from([900, 1500])
alike = st.tuples(st.sampled_from([0, 1, 3, 1023, 1024]), st.integers(1, 30), st.binary(min_size=8, max_size=8))
rows = st.lists(st.tuples(bodies, gaps), max_size=30) | alike.map(
    lambda drawn: [((drawn[2] * 128)[number % 8 :][: drawn[0]], number) for number in range(drawn[1])]
)


@given(rows, st.randoms(use_true_random=False), st.booleans(), st.sampled_from([1, 100, 1 << 19]))
def test_checksums_of_many_equal_those_of_each(
    rows: list[tuple[bytes, int]], random: Random, is_shuffled: bool, together: int
) -> None:
    raw = np.frombuffer(b"".join(body + bytes(gap) for body, gap in rows), np.uint8)
    sizes = np.array([(len(body), gap) for body, gap in rows], np.int64).reshape(-1, 2)
    starts = sizes.sum(axis=1).cumsum() - sizes.sum(axis=1)
    order = list(range(len(rows)))
    if is_shuffled:
        random.shuffle(order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spans, "_TOGETHER_BYTES", together)
        found = body_crcs(raw, starts[order], (starts + sizes[:, 0])[order])

    assert [body_crc(rows[row][0]) for row in order] == found.tolist()


@pytest.mark.parametrize(
    ("sizes", "gap", "copied"),
    [
        ([200] * 50, 170, 50),
        ([200] * 50, 5000, 50),
        ([150, 200, 0] * 50, 170, 150),
        ([150, 200] * 50, 5000, 0),
        ([1024] * 50, 170, 0),
    ],
    ids=["alike", "alike, far apart", "close", "far apart", "long"],
)
def test_short_pieces_are_copied_and_others_sliced(
    sizes: list[int], gap: int, copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops = np.array(sizes, np.int64).cumsum() + gap * np.arange(len(sizes))
    starts = stops - sizes
    raw = np.arange(stops[-1]).astype(np.uint8)
    seen: list[bytes | memoryview] = []

    def watched(piece: bytes | memoryview) -> int:
        seen.append(piece)
        return crc32(piece)

    monkeypatch.setattr(spans, "crc32", watched)
    found = body_crcs(raw, starts, stops)

    assert [raw[start:stop].tobytes() for start, stop in zip(starts, stops, strict=True)] == seen
    assert copied == sum(isinstance(piece, bytes) for piece in seen)
    assert [body_crc(piece) for piece in seen] == found.tolist()

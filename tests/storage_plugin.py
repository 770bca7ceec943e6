# SPDX-License-Identifier: Apache-2.0
"""Fixtures of stores that are elsewhere: an S3 server on this machine, with faults or without, and no pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store_core.files import remote_bytes, storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.object_store import ObjectStore


@pytest.fixture(scope="module")
def running_server() -> Iterator[ObjectStore]:
    """Provide a server for what a module makes once; tests take `server`."""
    from tests.object_store import ObjectStore  # noqa: PLC0415 -- most runs do not need what it imports

    with ObjectStore() as running:
        yield running


@pytest.fixture
def server(running_server: ObjectStore) -> Iterator[ObjectStore]:
    """Provide the module's server, without faults and with counts from zero."""
    running_server.forget()
    yield running_server
    running_server.forget()


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(storage, "_FIRST_PAUSE", 0)


@pytest.fixture
def no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read as many times in each run: one range in 256 ends as its array did before, and its end is read again."""
    monkeypatch.setattr(remote_bytes, "token_bytes", lambda size: b"\xa5" * size)

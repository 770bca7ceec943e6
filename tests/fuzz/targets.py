# SPDX-License-Identifier: Apache-2.0
"""The registry of all targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz.archive_targets import ARCHIVE_TARGETS
from tests.fuzz.command_targets import COMMAND_TARGETS
from tests.fuzz.decoders import DECODERS
from tests.fuzz.faulty_targets import FAULTY_TARGETS
from tests.fuzz.log_targets import LOG_TARGETS
from tests.fuzz.store_targets import STORE_TARGETS

if TYPE_CHECKING:
    from tests.fuzz.target import Target


TARGETS: Final = (
    *(decoder.target() for decoder in DECODERS),
    *LOG_TARGETS,
    *ARCHIVE_TARGETS,
    *STORE_TARGETS,
    *COMMAND_TARGETS,
)


def target_named(name: str) -> Target:
    """Return a target by its name."""
    found = {target.name: target for target in (*TARGETS, *FAULTY_TARGETS)}
    if name not in found:
        raise SystemExit(f"no target {name!r}: there are {', '.join(map(str, TARGETS))}")
    return found[name]

# SPDX-License-Identifier: Apache-2.0
"""Names of the files in which a broker keeps its configuration (RocketMQ: ``BrokerPathConfigHelper``)."""

from __future__ import annotations

from typing import Final

__all__ = ["CONFIG_DIRECTORY", "TIMER_CHECK_FILE"]

CONFIG_DIRECTORY: Final = "config"
"""Below the store's root."""

TIMER_CHECK_FILE: Final = "timercheck"

# SPDX-License-Identifier: Apache-2.0
"""The part of a broker's own configuration that affects its store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from store_core.store.config.config_values import check_fields, load_fields

if TYPE_CHECKING:
    import os

__all__ = ["BrokerConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Configuration of the broker of a store (RocketMQ: ``BrokerConfig``), immutable.

    Names and defaults are those of RocketMQ 5.3.3; intervals in ms, unless said otherwise.

    Attributes
    ----------
    broker_ip1, listen_port : str and int
        The broker's address: the store host of messages without one.
    broker_permission : int
        Permissions for all topics, as a sum: 4 to read, 2 to write (``PermName``).
    auto_create_subscription_group : bool
        Whether the first pull of an unknown group creates it.
    filter_data_clean_time_span : int
        ms.
    flush_consumer_offset_interval : int
        ms between writes of the committed offsets, see `store_core.broker.FlushConsumerOffsetService`.
    """

    broker_name: str = "DEFAULT_BROKER"
    broker_id: int = 0
    broker_ip1: str = "127.0.0.1"
    listen_port: int = 10911
    broker_permission: int = 6
    auto_create_subscription_group: bool = True
    enable_controller_mode: bool = False
    enable_slave_acting_master: bool = False
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1000
    slave_read_enable: bool = False
    enable_property_filter: bool = False
    enable_calc_filter_bit_map: bool = False
    filter_support_retry: bool = False
    expect_consumer_num_use_filter: int = 32
    max_error_rate_of_bloom_filter: int = 20
    filter_data_clean_time_span: int = 24 * 3600 * 1000
    flush_consumer_offset_interval: int = 5000
    use_server_side_reset_offset: bool = True

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str]) -> Self:
        """Read a broker's configuration file; `MessageStoreConfig.from_properties` reads the store's part of it."""
        values: dict[str, Any] = load_fields(cls, path, {})[0]
        return cls(**values)

    @property
    def store_host(self) -> tuple[str, int]:
        """Address and port used as the store host of records."""
        return self.broker_ip1, self.listen_port

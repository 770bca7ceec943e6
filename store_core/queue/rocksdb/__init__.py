# SPDX-License-Identifier: Apache-2.0
"""Consume queues in a RocksDB (`storeType=defaultRocksDB`): its keys and values, and reading them."""

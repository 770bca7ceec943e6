# SPDX-License-Identifier: Apache-2.0
"""Rebuilding queues and index from the log, for a store that no broker holds."""

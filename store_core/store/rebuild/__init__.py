# SPDX-License-Identifier: Apache-2.0
"""Queues and index made from the log again, beside a store that no broker holds."""

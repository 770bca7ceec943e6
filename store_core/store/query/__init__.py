# SPDX-License-Identifier: Apache-2.0
"""Querying an open store: messages of a queue, by key, by id and by time."""

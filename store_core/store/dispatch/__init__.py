# SPDX-License-Identifier: Apache-2.0
"""Keeping queues and index up with the log."""

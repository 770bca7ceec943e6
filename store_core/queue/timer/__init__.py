# SPDX-License-Identifier: Apache-2.0
"""Timers of RocketMQ 5 in files: the log of timers, and the wheel of slots that leads to them."""

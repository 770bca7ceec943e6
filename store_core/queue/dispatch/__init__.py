# SPDX-License-Identifier: Apache-2.0
"""Dispatch: turning records of the log into what queues and index need of them."""
